// What an operator who was new to the page found cut off, hidden or misleading.

import { equal, until } from "./browser.mjs";
import { make, pause } from "./daemons.mjs";

// Fails if an element's content is wider than the element.
async function fits(element, what) {
  await element.waitFor();
  const [content, box] = await element.evaluate((one) => [one.scrollWidth, one.clientWidth]);
  if (content > box) throw new Error(`${what}: ${content} pixels of text in ${box}`);
}

export const checks = {
  async "layout: an age that grows fits into its tile"(browser, cluster) {
    await make(cluster.nsqds, "tiles", ["archive"], 2);
    const page = await browser.open(`${cluster.admin}lookup`);
    await page.route("**/api/live/topics/tiles", async (route) => {
      const answer = await route.fetch();
      const live = await answer.json();
      for (const channel of live.channels ?? []) Object.assign(channel, { oldest_ms: 3_599_000, doctor: { sentence: "Slow", is_problem: true, is_older: true, drained_in_s: 60 } });
      await route.fulfill({ response: answer, json: live });
    });
    for (const width of [1280, 360]) {
      await page.setViewportSize({ width, height: 800 });
      await page.goto(`${cluster.admin}topics/tiles/archive`);
      await page.getByText("59 min 59 s").first().waitFor();
      await fits(page.locator(".tile.bad dd"), `the tile at ${width} pixels`);
    }
    browser.healthy();
  },

  async "layout: a chart of some minutes has times at its axis"(browser, cluster) {
    await make(cluster.nsqds, "axis", ["archive"], 2);
    const page = await browser.open(`${cluster.admin}lookup`);
    await page.addInitScript(() => {
      const draw = CanvasRenderingContext2D.prototype.fillText;
      window.drawn = [];
      CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
        if (/^\d\d:\d\d$/.test(text)) window.drawn.push(text);
        return draw.call(this, text, ...rest);
      };
    });
    const start = Math.floor(Date.now() / 1000) - 270;
    const points = Array(26).fill(5);
    await page.route("**/api/live/history?*", (route) => route.fulfill({ json: { start, step: 10, depth: points, rate: points, oldest_seconds: points } }));
    await page.goto(`${cluster.admin}topics/axis/archive`);
    await until(() => page.evaluate(() => new Set(window.drawn).size >= 2), "two times");
    browser.healthy();
  },

  async "layout: a long note of a pause leaves the buttons and the nodes in one line"(browser, cluster) {
    await make(cluster.nsqds, "noted", ["archive"], 2);
    await pause(cluster.nsqds, "noted", "archive", "a note that is as long as the notes of people who have just been woken up");
    const page = await browser.open(`${cluster.admin}topics/noted/archive`);
    const row = page.getByRole("row").filter({ hasText: cluster.nsqds[0].http });
    await fits(row.locator("th, td").first(), "the first cell of a node");
    await row.getByText("paused", { exact: true }).waitFor();
    const top = async (name) => (await page.locator(".head").getByText(name, { exact: true }).boundingBox()).y;
    equal(Math.round(await top("Unpause channel")), Math.round(await top("Look at messages")), "the height of the buttons");
    browser.healthy();
  },

  async "layout: a topic without a channel is marked like a channel that needs attention"(browser, cluster) {
    await make(cluster.nsqds, "channelless", [], 3);
    const page = await browser.open(`${cluster.admin}?show=problem&q=channelless`);
    await page.locator("tr.problem", { hasText: "channelless" }).waitFor();
    await page.goto(`${cluster.admin}topics/channelless`);
    await page.getByRole("status").getByText("No channel: messages wait in the topic").waitFor();
    browser.healthy();
  },
};
