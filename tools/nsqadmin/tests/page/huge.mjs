// Figures beyond 2^53, which are BigInts in the page, and parts that cannot be drawn.

import { equal, until } from "./browser.mjs";
import { make } from "./daemons.mjs";

const MOST = "9,223,372,036,854,775,807";

export const checks = {
  // Arithmetic with a BigInt and a number throws a TypeError, so that whole views were blank.
  async "huge: every view shows figures beyond 2^53"(browser, cluster) {
    const page = await browser.open(`${cluster.huge}?range=10m`);
    await page.getByText(MOST).first().waitFor();
    for (const [path, text, hasRates] of [
      ["topics/huge?range=10m", MOST, true],
      ["topics/huge/archive?range=10m", MOST, true],
      ["nodes", "hostile:4151", false],
      ["nodes/hostile:4151?range=10m", MOST, true],
      ["counter", "messages processed", false],
      ["peek/huge/archive?from=attempts", `${MOST} attempts`, false],
      ["peek/huge?from=deferred", `${MOST} attempts`, false],
    ]) {
      await page.goto(`${cluster.huge}${path}`);
      await page.getByText(text).first().waitFor();
      // The second answer gives the rates, and the charts their first line.
      if (hasRates) await page.locator(".chart canvas").first().waitFor();
      if (path.startsWith("topics/huge?")) {
        await page.getByRole("region", { name: "Duplicates on each node" }).getByText(MOST).first().waitFor();
        await page.getByRole("region", { name: "Producers of the topic" }).getByText("10.0.0.9:1").first().waitFor();
      }
      equal(await page.getByText("cannot be shown").count(), 0, `parts of ${path} that cannot be shown`);
      browser.healthy();
    }
    for (const [path, button] of [["topics/huge", "Empty topic"], ["topics/huge", "Unpause topic"], ["topics/huge/archive", "Empty channel"],
      ["topics/huge/archive", "Delete channel"]]) {
      await page.goto(`${cluster.huge}${path}`);
      await page.getByRole("button", { name: button }).click();
      await page.getByRole("dialog").getByText(MOST).first().waitFor();
    }
    browser.healthy();
  },

  async "huge: a part that cannot be drawn leaves the rest of the page"(browser, cluster) {
    await make(cluster.nsqds, "broken", ["archive"], 3);
    const page = await browser.open(`${cluster.admin}topics/broken`, { allowed: /TypeError/ });
    await page.locator("tfoot").waitFor();
    const replace = (change) => async (route) => {
      const answer = await route.fetch();
      const json = await answer.json();
      change(json);
      await route.fulfill({ response: answer, json });
    };
    const path = "**/api/topics/broken";
    const broken = (part) => page.getByRole("alert").getByText(`${part} cannot be shown.`);
    // A table whose cells fail.
    await page.route(path, replace((topic) => { topic.nodes[0].node = 7; }));
    await broken("The table “The topic on each node”").waitFor();
    await page.getByRole("region", { name: "Channels of the topic" }).getByText("archive").waitFor();
    await page.unrouteAll({ behavior: "wait" });
    await until(async () => await broken("The table “The topic on each node”").count() === 0, "the table comes back with the next figures");
    // A view that fails.
    await page.route(path, replace((topic) => { topic.e2e_processing_latency = { percentiles: 7 }; }));
    await broken("This page").waitFor();
    equal(await page.getByRole("navigation", { name: "Main" }).count(), 1, "the frame of the page");
    await page.unrouteAll({ behavior: "wait" });
    await page.getByRole("button", { name: "Try again" }).click();
    await page.locator("tfoot").waitFor();
    browser.healthy();
  },
};
