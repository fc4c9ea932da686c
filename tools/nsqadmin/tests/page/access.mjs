// Those who may only look, and those who may act.

import { accessible, equal, until } from "./browser.mjs";
import { channelAt, empty, make, pause, remove, topicAt } from "./daemons.mjs";

const ALICE = { "X-Forwarded-User": "alice" };

// The names of all buttons that act, or that open the dialog of an act.
const ACTS = /^(Act on|Create|Delete|Empty|Pause|Tombstone|Undo|Unpause)\b/;

export const checks = {
  async "access: who is no admin sees no actions"(browser, cluster) {
    const { nsqds, lookupd, acl } = cluster;
    // Each act is possible: one node has paused the channel and the topic, what was emptied can come back, and no node has one topic.
    await make(nsqds, "guarded.all", ["archive"], 3);
    await pause(nsqds.slice(0, 1), "guarded.all", "archive");
    await empty(nsqds, "guarded.all", "archive", "1h");
    await make(nsqds, "guarded.bare", [], 3);
    await fetch(`http://${nsqds[0].http}/topic/pause?topic=guarded.bare`, { method: "POST" });
    await empty(nsqds, "guarded.bare", "", "1h");
    await fetch(`http://${lookupd}/topic/create?topic=guarded.inactive`, { method: "POST" });
    const undo = "can be brought back until";
    const pages = [
      ["?q=guarded.", undo, ["Act on", "Undo"]],
      ["topics/guarded.bare", undo, ["Delete", "Empty", "Pause", "Tombstone", "Undo", "Unpause"]],
      ["topics/guarded.all/archive", undo, ["Delete", "Empty", "Pause", "Undo", "Unpause"]],
      // A long table draws only what can be seen.
      [`nodes/${nsqds[0].http}?q=guarded.&channel-q=guarded.`, "guarded.all / archive", ["Tombstone"]],
      ["lookup", "guarded.inactive", ["Create", "Delete"]],
    ];
    const acts = async (page) => {
      const names = await page.getByRole("button", { name: ACTS }).allTextContents();
      return [...new Set(names.map((name) => name.trim().match(ACTS)[1]))].sort();
    };
    for (const [headers, who] of [[ALICE, "alice"], [{ "X-Forwarded-User": "bob" }, "bob (may only look)"]]) {
      const page = await browser.open(`${acl}topics/guarded.all`, { headers });
      for (const [path, text, expected] of pages) {
        await page.goto(acl + path);
        await page.locator("header .who").getByText(who).waitFor();
        await page.getByText(text).first().waitFor();
        if (headers === ALICE) await until(async () => `${await acts(page)}` === `${expected}`, `an admin can do ${expected} on ${path}`);
        else equal(await acts(page), [], `actions on ${path}`);
        if (headers !== ALICE) equal(await page.locator("button.danger, button[type=submit]").allTextContents(), [], `other actions on ${path}`);
      }
      if (headers !== ALICE) equal(/look\) \d/.test(await page.locator("header .who").innerText()), true, "a space before the version");
    }
    for (const topic of ["guarded.all", "guarded.bare"]) await remove(nsqds, topic);
    await fetch(`http://${lookupd}/topic/delete?topic=guarded.inactive`, { method: "POST" });
    browser.healthy();
  },

  async "access: a user whom an unknown proxy names is told why there are no actions"(browser, cluster) {
    await make(cluster.nsqds, "guarded", ["archive"], 1);
    const page = await browser.open(`${cluster.far}topics/guarded`, { headers: ALICE, allowed: /403/ });
    await page.getByRole("status").getByText("add 127.0.0.1/32 to --trusted-proxy-cidr").waitFor();
    await page.locator("tbody tr[data-row]").first().waitFor();
    equal(await page.locator("button.danger").count(), 0, "no actions");
    await accessible(page, "a user who does not count");
    const answer = await page.evaluate(`import(new URL("static/api.js", document.baseURI)).then(({ ask }) =>
      ask("api/topics/guarded", { method: "DELETE" }).then(() => "done", (failure) => failure.message))`);
    equal(/^You may not do this: .* The header x-forwarded-user from 127\.0\.0\.1 does not count, .* add 127\.0\.0\.1\/32 to --trusted-proxy-cidr, .*\.$/.test(answer), true, answer);
    browser.healthy();
  },

  async "access: an admin acts, and a refusal is shown"(browser, cluster) {
    await make(cluster.nsqds, "guarded", ["archive"], 1);
    const page = await browser.open(`${cluster.acl}topics/guarded/archive`, { headers: ALICE, allowed: /403/ });
    await page.getByRole("button", { name: "Pause channel" }).click();
    // The proxy's session ends while the page is open.
    await page.context().setExtraHTTPHeaders({});
    const dialog = page.getByRole("dialog");
    await dialog.locator("button[type=submit]").click();
    await dialog.getByRole("alert").getByText("only admins may act").waitFor();
    equal((await channelAt(cluster.nsqds[0], "guarded", "archive")).paused, false, "the refused action does nothing");
    await page.context().setExtraHTTPHeaders(ALICE);
    await dialog.locator("button[type=submit]").click();
    await until(async () => (await channelAt(cluster.nsqds[0], "guarded", "archive")).paused, "paused");
    browser.healthy();
  },

  async "access: a topic that may not be deleted stays, and the dialog says why"(browser, cluster) {
    const { nsqds } = cluster;
    await make(nsqds, "protected", ["archive"], 2);
    const page = await browser.open(`${cluster.acl}topics/protected`, { headers: ALICE, allowed: /403|404/ });
    await page.getByRole("button", { name: "Delete topic" }).click();
    await page.context().setExtraHTTPHeaders({});
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel(/^Type /).fill("protected");
    const submit = dialog.locator("button[type=submit]");
    await submit.click();
    await dialog.getByRole("alert").getByText("It failed.").waitFor();
    await dialog.getByRole("alert").getByText("only admins may act").waitFor();
    equal(await submit.isEnabled(), true, "the deletion can be tried again");
    for (const nsqd of nsqds) equal((await channelAt(nsqd, "protected", "archive")).depth, 2, `the messages at ${nsqd.http}`);
    await page.context().setExtraHTTPHeaders(ALICE);
    await submit.click();
    for (const nsqd of nsqds) await until(async () => (await topicAt(nsqd, "protected")) === undefined, "the topic is deleted");
    await page.getByRole("heading", { name: "Topics", exact: true }).waitFor();
    browser.healthy();
  },
};
