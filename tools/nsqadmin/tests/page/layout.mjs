// What an operator who was new to the page found cut off, hidden or misleading.

import { equal, picture, until } from "./browser.mjs";
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

  // The sentence ended with an ellipsis where its advice began.
  async "layout: what limits a channel is told in full, and the rows of a long table keep their height"(browser, cluster) {
    const sentence = "Consumers read slowly: 1.2k messages are in flight and RDY allows 2.5k; look at the consumers' network, and at the size of their messages";
    await make(cluster.nsqds, "wraps", ["archive"], 2);
    await until(async () => (await fetch(`${cluster.admin}api/live/topics/wraps`)).ok, "nsqadmin has figures of the topic");
    const page = await browser.open(`${cluster.admin}lookup`);
    let copies = 1;
    const names = () => Array.from({ length: copies }, (_, index) => `c${index}`);
    await page.route("**/api/topics/wraps", async (route) => {
      const answer = await route.fetch();
      const topic = await answer.json();
      await route.fulfill({ response: answer, json: { ...topic, channels: names().map((name) => ({ ...topic.channels[0], channel_name: name })) } });
    });
    await page.route("**/api/live/topics/wraps", async (route) => {
      const answer = await route.fetch();
      const live = await answer.json();
      const doctor = { sentence, is_problem: true };
      await route.fulfill({ response: answer, json: { ...live, channels: names().map((channel) => ({ ...live.channels[0], channel, doctor })) } });
    });
    for (copies of [2, 150]) {
      for (const width of [1280, 760, 360]) {
        await page.setViewportSize({ width, height: 800 });
        await page.goto(`${cluster.admin}topics/wraps`);
        const table = page.getByRole("region", { name: "Channels of the topic" });
        const cell = table.locator(".sentence").first();
        await cell.waitFor();
        const where = `${copies} channels at ${width} pixels`;
        const { content, box, text } = await cell.evaluate((one) => ({ content: [one.scrollWidth, one.scrollHeight], box: [one.clientWidth, one.clientHeight], text: one.textContent }));
        equal([text, content.every((size, index) => size <= box[index])], [sentence, true], `the sentence in full, of ${content} in ${box}, with ${where}`);
        const heights = await table.locator("tr[data-row]").evaluateAll((rows) => rows.map((row) => Math.round(row.getBoundingClientRect().height)));
        if (copies > 100) equal([...new Set(heights)], [36], `the heights of rows with ${where}`);
        equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, `the page is not wider with ${where}`);
        await cell.scrollIntoViewIfNeeded();
        await picture(page, cluster, `sentence-${copies}-${width}`);
      }
    }
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

  async "layout: the dialogs of a phone break no address of a node"(browser, cluster) {
    const { nsqds } = cluster;
    await make(nsqds, "narrow", ["archive"], 2);
    const page = await browser.open(`${cluster.admin}lookup`, { width: 360, height: 740 });
    // The hosts of a company have hyphens, at which a browser breaks.
    await page.route("**/api/topics/narrow*", async (route) => {
      const answer = await route.fetch();
      await route.fulfill({ response: answer, body: (await answer.text()).replaceAll('"node":"127.0.0.1:', '"node":"nsqd-eu-1:') });
    });
    await page.route("**/api/topics/narrow/archive*", async (route) => {
      const answer = await route.fetch();
      await route.fulfill({ response: answer, body: (await answer.text()).replaceAll('"node":"127.0.0.1:', '"node":"nsqd-eu-1:') });
    });
    for (const [path, button] of [["topics/narrow", "Delete topic"], ["topics/narrow/archive", "Empty channel"], ["topics/narrow/archive", "Delete channel"]]) {
      await page.goto(cluster.admin + path);
      await page.getByRole("button", { name: button }).click();
      const dialog = page.getByRole("dialog");
      await dialog.locator(".destroys").waitFor();
      const addresses = nsqds.map(({ http }) => http.replace("127.0.0.1", "nsqd-eu-1"));
      // The lines that each address takes.
      const lines = await dialog.locator(".destroys").evaluate((table, addresses) => addresses.map((address) => {
        const walker = document.createTreeWalker(table, NodeFilter.SHOW_TEXT);
        for (let node = walker.nextNode(); node; node = walker.nextNode()) {
          const at = node.data.indexOf(address);
          if (at < 0) continue;
          const range = document.createRange();
          range.setStart(node, at);
          range.setEnd(node, at + address.length);
          return new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size;
        }
        return 0;
      }), addresses);
      await picture(page, cluster, `narrow-${button.replace(" ", "-")}`);
      equal(lines, [1, 1, 1], `the lines of ${addresses} in ${button}`);
      equal(await dialog.evaluate((one) => one.scrollWidth <= one.clientWidth), true, "the dialog is not wider than the phone");
    }
    browser.healthy();
  },

  // The field for a name made the dialog of an order longer than a small window.
  async "layout: a dialog that is longer than the window keeps its buttons in sight"(browser, cluster) {
    await make(cluster.nsqds, "tall", ["archive"], 2);
    const height = 360;
    const page = await browser.open(`${cluster.admin}topics/tall/archive`, { height });
    await page.getByRole("button", { name: "Empty channel" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.locator(".destroys").waitFor();
    await dialog.getByLabel("The messages can be brought back for").waitFor();
    const [name, submit] = [dialog.getByLabel("Your name, if wanted"), dialog.locator("button[type=submit]")];
    equal(await dialog.evaluate((one) => one.scrollHeight > one.clientHeight), true, "the dialog is longer than the window");
    const box = await submit.boundingBox();
    equal(box.y + box.height <= height, true, `the button ends at ${box.y + box.height} of ${height} pixels`);
    await name.focus();
    const field = await name.boundingBox();
    equal(field.y + field.height <= box.y, true, `the field ends at ${field.y + field.height}, and the buttons begin at ${box.y}`);
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
