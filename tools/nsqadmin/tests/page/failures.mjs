// Parts that fail while the page is open. These checks come last: they kill a node.

import { equal, until } from "./browser.mjs";
import { make } from "./daemons.mjs";

export const checks = {
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

  async "failures: a node dies while the page is open"(browser, cluster) {
    const [, , last] = cluster.nsqds;
    await make(cluster.nsqds, "dies", ["archive"], 3);
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
    await nodes.goto(cluster.admin);
    await nodes.locator(".problems li", { hasText: last.http }).getByText("This nsqd is gone").waitFor();
    await topic.screenshot({ path: `${cluster.pictures}/gone.png` });
    // The page of the node, which the list leads to, says the same.
    await nodes.getByRole("link", { name: last.http }).click();
    await nodes.getByRole("status").getByText("This nsqd is gone").waitFor();
    // Without nsqlookupd, nsqadmin asks the dead node, and says so.
    await direct.getByRole("alert").getByText(`Not all servers did what they were asked: ${last.http}`).waitFor();
    equal(await direct.locator("table:has(tfoot) tbody tr").count(), 2, "the two living nodes");
    browser.healthy();
  },
};
