// Those who may only look, and those who may act.

import { accessible, equal, until } from "./browser.mjs";
import { channelAt, make, topicAt } from "./daemons.mjs";

const ALICE = { "X-Forwarded-User": "alice" };

export const checks = {
  async "access: who is no admin sees no actions"(browser, cluster) {
    await make(cluster.nsqds, "guarded", ["archive"], 1);
    const page = await browser.open(`${cluster.acl}topics/guarded`, { headers: { "X-Forwarded-User": "bob" } });
    await until(async () => /look\) \d/.test(await page.locator("header .who").innerText()), "a space before the version");
    for (const path of ["topics/guarded", "topics/guarded/archive", `nodes/${cluster.nsqds[0].http}`, "lookup"]) {
      await page.goto(cluster.acl + path);
      await page.getByText("bob (may only look)").waitFor();
      if (path !== "lookup") await page.locator("tbody tr[data-row]").first().waitFor();
      equal(await page.locator("button.danger, button[type=submit]").allTextContents(), [], `actions on ${path}`);
    }
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
    const page = await browser.open(`${cluster.acl}topics/protected`, { headers: ALICE, allowed: /403/ });
    await page.getByRole("button", { name: "Delete topic" }).click();
    await page.context().setExtraHTTPHeaders({});
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("textbox").fill("protected");
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
