// Parts that fail while the page is open.

import { equal, picture, until } from "./browser.mjs";
import { make, publish, registerAt, remove } from "./daemons.mjs";

// In the cluster for faults, after those that leave two of its nodes.
export const ofNight = {
  // The figures were those of before until 20 s after the nsqlookupds had come back.
  async "failures: without an nsqlookupd, the list goes on with the nsqds that were known"(browser, cluster) {
    const { nsqds: [node], lookupds, hasty } = cluster.night;
    await make([node], "before", ["archive"], 3);
    const page = await browser.open(hasty, { allowed: /502/ });
    const row = page.getByRole("row").filter({ has: page.getByRole("link", { name: "before", exact: true }) });
    await row.getByText("3", { exact: true }).first().waitFor();
    const alert = page.getByRole("alert").filter({ hasText: "No nsqlookupd answers." });
    for (const { pid } of lookupds) process.kill(pid, "SIGSTOP");
    try {
      await alert.getByText("The figures are those of the nsqds that were known before. What has come since is missing.").waitFor();
      await publish(node.http, "before", 2);
      await row.getByText("5", { exact: true }).first().waitFor();
      equal(await page.getByText(/What follows leaves them out|No new figures/).count(), 0, "a bar that is wrong");
      await page.locator(".problems li", { hasText: lookupds[0].http }).getByText("This nsqlookupd does not answer").waitFor();
      await picture(page, cluster, "before");
    } finally {
      for (const { pid } of lookupds) process.kill(pid, "SIGCONT");
    }
    await until(async () => await alert.count() === 0, "the bar goes");
    await remove([node], "before");
    browser.healthy();
  },

  // The list said "What follows leaves them out", and looked live.
  async "failures: without an nsqlookupd since its start, nsqadmin has no figures, and says so"(browser, cluster) {
    const page = await browser.open(`${cluster.admin}lookup`, { allowed: /502/ });
    await page.route("**/api/live/topics", async (route) => {
      const answer = await route.fetch();
      await route.fulfill({ response: answer, json: { ...await answer.json(), message: 'UPSTREAM_ERROR: failed to query any nsqlookupd: Get "http://l:4161/nodes": no answer in time' } });
    });
    await page.goto(cluster.admin);
    await page.getByRole("alert").getByText("No nsqlookupd gave an answer. The figures below are those of").waitFor();
    equal(await page.getByText("What follows leaves them out").count(), 0, "a bar that is wrong");
    browser.healthy();
  },

  async "failures: a node that only some nsqlookupds know is marked"(browser, cluster) {
    const { nsqds: [node], lookupds, admin } = cluster.night;
    const page = await browser.open(`${admin}nodes`);
    const row = page.getByRole("row").filter({ hasText: node.http });
    await row.getByText("2 of 2", { exact: true }).waitFor();
    equal(await row.locator(".badge.warn").count(), 0, "a node that all know");
    await registerAt(node, [lookupds[0].tcp]);
    const badge = row.locator(".badge.warn", { hasText: /^1 of 2$/ });
    await badge.waitFor();
    const title = await badge.getAttribute("title");
    equal([title.includes("Not every nsqlookupd knows this node"), title.split("\n").length], [true, 2], `who knows the node: ${title}`);
    await registerAt(node, lookupds.map((lookupd) => lookupd.tcp));
    await row.getByText("2 of 2", { exact: true }).waitFor();
    await until(async () => await row.locator(".badge.warn").count() === 0, "the mark goes");
    browser.healthy();
  },

  async "failures: the deletion of a topic whose node does not answer fails in the dialog"(browser, cluster) {
    const { nsqds: [node], hasty } = cluster.night;
    await make([node], "stuck", ["archive"], 2);
    const page = await browser.open(`${hasty}topics/stuck`, { allowed: /50\d|404/ });
    await page.getByRole("button", { name: "Delete topic" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel(/^Type /).fill("stuck");
    process.kill(node.pid, "SIGSTOP");
    try {
      await dialog.locator("button[type=submit]").click();
      await dialog.getByRole("alert").getByText("It failed.").waitFor();
      await dialog.getByRole("alert").getByText("No nsqd gave an answer.").waitFor();
    } finally {
      process.kill(node.pid, "SIGCONT");
    }
    await picture(page, cluster, "not-deleted");
    browser.healthy();
  },

  // The page went on to the list, and nobody saw that a node still had the topic.
  async "failures: a deletion that some nodes have not carried out says so"(browser, cluster) {
    const { nsqds: [node], admin } = cluster.night;
    await make([node], "half", ["archive"], 2);
    for (const [path, name] of [["topics/half/archive", "archive"], ["topics/half", "half"]]) {
      const page = await browser.open(admin + path);
      await page.route("**/api/topics/half**", (route) => route.request().method() === "DELETE"
        ? route.fulfill({ json: { message: 'WARNING: Post "http://n9:4151/topic/delete?topic=half": no answer in time' } }) : route.continue());
      await page.getByRole("button", { name: /^Delete / }).click();
      const dialog = page.getByRole("dialog");
      await dialog.getByLabel(/^Type /).fill(name);
      await dialog.locator("button[type=submit]").click();
      await page.getByRole("alert").getByText("It failed at n9:4151.").waitFor();
      equal(new URL(page.url()).pathname.endsWith(path), true, `the page stays: ${page.url()}`);
    }
    browser.healthy();
  },
};

export const checks = {
  // The list went on with old figures without a word, and showed the topics of a silent node as empty ones that no nsqd has.
  async "failures: figures that stay old are called old, and what a silent node has is unknown"(browser, cluster) {
    await make(cluster.nsqds, "elsewhere", ["archive"], 3);
    const page = await browser.open(`${cluster.admin}lookup`);
    let first = null;
    await page.route("**/api/live/topics", async (route) => {
      const answer = await route.fetch();
      first ??= { ...await answer.json(), topics: [], message: 'WARNING: Get "http://h:4151/stats": no answer in time' };
      await route.fulfill({ response: answer, json: first });
    });
    await page.goto(`${cluster.admin}?q=elsewhere`);
    const row = page.getByRole("row").filter({ has: page.getByRole("link", { name: "elsewhere", exact: true }) });
    await row.getByText("unknown", { exact: true }).waitFor();
    equal([await row.getByText("inactive").count(), await row.getByText("–", { exact: true }).count() > 3], [0, true], "a topic of a silent node");
    const bar = page.getByRole("alert").filter({ hasText: "The figures are those of" });
    equal(await bar.count(), 0, "a bar before the figures are old");
    await bar.getByText("nsqadmin gets new ones seldom: a server answers slowly").waitFor();
    await page.unrouteAll({ behavior: "wait" });
    await until(async () => await bar.count() === 0, "the bar goes");
    await row.getByText("unknown", { exact: true }).waitFor({ state: "detached" });
    await remove(cluster.nsqds, "elsewhere");
    browser.healthy();
  },

  async "failures: nsqadmin cannot be reached for a while"(browser, cluster) {
    await make(cluster.nsqds, "lost", ["archive"], 3);
    const page = await browser.open(`${cluster.admin}topics/lost`, { allowed: /ERR_INTERNET_DISCONNECTED/ });
    await page.locator("tfoot").waitFor();
    await page.context().setOffline(true);
    await page.getByRole("alert").getByText("No new figures since").waitFor();
    equal(await page.locator("tfoot").count(), 1, "the last figures stay");
    await page.context().setOffline(false);
    await until(async () => await page.getByRole("alert").count() === 0, "the bar goes when answers come again");
    browser.healthy();
  },
};

// This check comes last: it kills a node that all checks use.
export const atTheEnd = {
  async "failures: a node dies while the page is open"(browser, cluster) {
    const [, , last] = cluster.nsqds;
    await make(cluster.nsqds, "dies", ["archive"], 3);
    await make([last], "only-there", ["archive"], 7);
    // A page without live figures knows only what it has seen itself.
    const alone = await browser.open(`${cluster.admin}lookup`);
    await alone.route("**/api/settings", async (route) => {
      const answer = await route.fetch();
      await route.fulfill({ response: answer, json: { ...await answer.json(), live: false } });
    });
    await alone.goto(`${cluster.admin}nodes`);
    await alone.getByRole("link", { name: last.http }).waitFor();
    const [topic, nodes, direct] = [
      await browser.open(`${cluster.admin}topics/dies`),
      await browser.open(`${cluster.admin}nodes`, { allowed: /404 .*\/api\/nodes\// }),
      await browser.open(`${cluster.direct}topics/dies`),
    ];
    for (const page of [topic, direct]) await page.getByRole("link", { name: last.http }).waitFor();
    await nodes.getByRole("heading", { name: "Nodes (3)" }).waitFor();
    process.kill(last.pid, "SIGKILL");
    // nsqlookupd forgets a dead node at once. The page remembers it.
    for (const page of [topic, nodes]) {
      await page.getByText(`Gone: ${last.http}`).waitFor();
      await until(async () => await page.getByRole("row").filter({ hasText: last.http }).count() === 0, "the row of the node is gone");
    }
    await alone.getByText(`Gone: ${last.http} (since`).waitFor();
    // After half an hour, it counts as taken out of the cluster.
    await alone.evaluate(() => {
      const now = Date.now;
      Date.now = () => now() + 31 * 60_000;
    });
    await until(async () => await alone.getByText("Gone: ").count() === 0, "the page forgets the node");
    await nodes.goto(cluster.admin);
    await nodes.locator(".problems li", { hasText: last.http }).getByText("This nsqd is gone").waitFor();
    await picture(topic, cluster, "gone");
    // The page of the node, which the list leads to, says the same.
    await nodes.getByRole("link", { name: last.http }).click();
    await nodes.getByRole("status").getByText("This nsqd is gone").waitFor();
    // A page that was opened after the node has died says the same, and shows no figures that it cannot know.
    for (const path of ["topics/dies", "topics/only-there", "topics/only-there/archive", "nodes"]) {
      const fresh = await browser.open(cluster.admin + path);
      await fresh.getByText(`Gone: ${last.http}.`).waitFor();
      await fresh.getByText("This nsqd is gone: no nsqlookupd has known it for").waitFor();
      if (!path.includes("only-there")) continue;
      await fresh.getByText(/^The figures of this (topic|channel) are unknown/).waitFor();
      equal(await fresh.locator(".tile").count(), 0, `${path}: figures that nobody knows`);
      equal(await fresh.getByRole("button", { name: /^(Pause|Empty|Delete) / }).count(), 0, `${path}: acts that nobody would carry out`);
      await picture(fresh, cluster, `gone-${path.replaceAll("/", "-")}`);
    }
    // A channel that no node knows looked as if it existed.
    const unknown = await browser.open(`${cluster.admin}topics/dies/no-such`, { allowed: /404/ });
    await unknown.getByText(`No nsqd that answers knows this channel. ${last.http} had the topic and cannot be asked`).waitFor();
    await unknown.getByText(`Gone: ${last.http}.`).waitFor();
    equal(await unknown.getByText("The figures of this channel are unknown").count(), 0, "a channel that may not exist");
    await picture(unknown, cluster, "unknown-channel");
    // An nsqlookupd that was started anew does not know the names any more.
    const forgotten = await browser.open(`${cluster.admin}lookup`, { allowed: /404/ });
    await forgotten.route("**/api/topics/only-there*", (route) => route.fulfill({ status: 404, json: { message: "TOPIC_NOT_FOUND" } }));
    await forgotten.route("**/api/topics/only-there/*", (route) => route.fulfill({ status: 404, json: { message: "TOPIC_NOT_FOUND" } }));
    for (const [path, text] of [["topics/only-there", "The figures of this topic are unknown"],
      ["topics/only-there/archive", "No nsqd that answers knows this channel."]]) {
      await forgotten.goto(cluster.admin + path);
      await forgotten.getByText(`Gone: ${last.http}.`).waitFor();
      await forgotten.getByText(text).waitFor();
      equal(await forgotten.getByText(/There is no (topic|channel) with this name/).count(), 0, `${path}: a topic that exists`);
    }
    // Without nsqlookupd, nsqadmin asks the dead node, and says so.
    await direct.getByRole("alert").getByText(`Not all servers did what they were asked: ${last.http}`).waitFor();
    equal(await direct.locator("table:has(tfoot) tbody tr").count(), 2, "the two living nodes");
    browser.healthy();
  },
};
