// The past that the server keeps, in charts of ten minutes to seven days. tests/page.rs has saved a history of seven days, with which
// the server of these checks was started.

import { accessible, equal, picture, until } from "./browser.mjs";
import { make } from "./daemons.mjs";

// The depth of the topic in each part of the saved history, and where a chart of that range shows this part: the share of its width.
const DEPTHS = { "10 min": [11, 0.03], "1 h": [22, 0.3], "6 h": [33, 0.4], "7 d": [44, 0.3] };

const range = (page, name) => page.getByRole("button", { name, exact: true });

// Waits until the pointer, at a share of the chart's width, is told `text`. Returns all that is told.
async function told(page, title, share, text) {
  const chart = page.locator(".chart", { has: page.locator("figcaption b", { hasText: title }) });
  const plot = chart.locator(".u-over");
  const tip = chart.locator(".tip");
  let found = "";
  await until(async () => {
    const box = await plot.boundingBox();
    // The chart is drawn anew when a past comes.
    if (!box) return false;
    const { width } = box;
    // A pointer that does not move tells nothing new.
    await plot.hover({ position: { x: width * share + 1, y: 30 } });
    await plot.hover({ position: { x: width * share, y: 31 } });
    found = await tip.count() > 0 ? await tip.textContent() : "";
    return found.includes(text);
  }, `“${text}” at ${share} of “${title}”`);
  return found;
}

// Notes the texts that charts draw.
async function noteTexts(page) {
  await page.addInitScript(() => {
    const draw = CanvasRenderingContext2D.prototype.fillText;
    window.drawn = [];
    CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
      window.drawn.push(text);
      return draw.call(this, text, ...rest);
    };
  });
}

const days = (page) => page.evaluate(() => [...new Set(window.drawn.filter((text) => /^(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d+$/.test(text)))]);

export const checks = {
  async "past: a topic's charts show what the server keeps of seven days"(browser, cluster) {
    await make(cluster.nsqds, "remembered", ["archive"], 1);
    const page = await browser.open(`${cluster.past}lookup`);
    await noteTexts(page);
    const steps = new Set();
    page.on("request", (request) => {
      const { pathname, searchParams } = new URL(request.url());
      if (pathname.endsWith("/api/live/history")) steps.add(searchParams.get("step"));
    });
    await page.goto(`${cluster.past}topics/remembered`);
    equal(await range(page, "1 h").getAttribute("aria-pressed"), "true", "the first range");
    for (const [name, [depth, share]] of Object.entries(DEPTHS)) {
      await page.evaluate(() => { window.drawn = []; });
      await range(page, name).click();
      const found = await told(page, "Waiting, in the topic", share, `waiting ${depth}`);
      const isOtherDay = /^(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d+ \d\d:\d\d/.test(found);
      if (name === "7 d") equal([isOtherDay, (await days(page)).length >= 3], [true, true], `days at the pointer and at the axis: ${found}`);
      if (name === "10 min") equal((await days(page)).length <= 1, true, "days at the axis of ten minutes");
    }
    equal([...steps].sort(), ["1", "10", "60"], "the steps that the server was asked for");
    await accessible(page, "a chart of seven days");
    await picture(page, cluster, "past-light", true);
    await page.setViewportSize({ width: 360, height: 740 });
    await until(() => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "the charts fit into 360 pixels");
    browser.healthy();
  },

  async "past: all topics together have a past, and the range stays from page to page"(browser, cluster) {
    await make(cluster.nsqds, "remembered", ["archive"], 1);
    const page = await browser.open(cluster.past);
    const week = range(page, "7 d");
    await week.focus();
    await page.keyboard.press("Enter");
    await until(() => new URL(page.url()).searchParams.get("range") === "7d", "the address has the range");
    await told(page, "Depth", 0.3, "waiting 4,400");
    await page.getByRole("link", { name: "remembered", exact: true }).first().click();
    await page.getByRole("heading", { name: "Topic remembered" }).waitFor();
    equal(new URL(page.url()).searchParams.get("range"), "7d", "the range on the page of the topic");
    await told(page, "Waiting, in the topic", 0.3, "waiting 44");
    await page.keyboard.press("Escape");
    await page.getByRole("heading", { name: "Topics", exact: true }).waitFor();
    equal(await week.getAttribute("aria-pressed"), "true", "the range one level up");
    await page.goto(`${cluster.past}topics/remembered/archive?range=7d`);
    await told(page, "Depth", 0.3, "waiting 16,777,217");
    await page.goto(`${cluster.past}nodes/${cluster.nsqds[0].http}?range=7d`);
    await told(page, "Waiting", 0.3, "waiting 444");
    browser.healthy();
  },

  async "past: figures above 2^53 are exact at the pointer"(browser, cluster) {
    const page = await browser.open(`${cluster.huge}topics/huge/archive?range=10m`);
    await page.locator(".chart canvas").first().waitFor();
    await told(page, "Depth", 0.97, "waiting 9,223,372,036,854,775,807");
    browser.healthy();
  },

  async "past: a short past says how far it reaches back"(browser, cluster) {
    const page = await browser.open(`${cluster.tight}topics/t?range=7d`);
    const note = page.getByRole("status").getByText(/^The past reaches back .* only: the server has no room for more/);
    await note.waitFor();
    // The chart shows as much as the sentence says.
    const { start, kept_since: since } = await (await fetch(`${cluster.tight}api/live/history?topic=t&step=60`)).json();
    equal(start - since >= 0 && start - since < 120, true, `${start} is the first point after ${since}`);
    await accessible(page, "a chart of a short past");
    await picture(page, cluster, "past-short", true);
    await range(page, "10 min").click();
    await note.waitFor({ state: "detached" });
    browser.healthy();
  },

  async "past: a topic for whose past there is no room says so"(browser, cluster) {
    const page = await browser.open(`${cluster.full}topics/t`);
    await page.getByRole("status").getByText("The server keeps no past here: there is no room (--history-max-bytes).").waitFor();
    equal((await fetch(`${cluster.full}api/live/history?all=true`)).status, 200, "all topics together have a past");
    browser.healthy();
  },

  async "past: a new subject has the past of some seconds"(browser, cluster) {
    await make(cluster.nsqds, "fresh", ["archive"], 4);
    const kept = async () => (await fetch(`${cluster.past}api/live/history?topic=fresh&step=1`)).json();
    await until(async () => (await kept()).depth?.length > 6, "seven seconds");
    const page = await browser.open(`${cluster.past}topics/fresh?range=10m`);
    // The line is there before the page has two answers of its own: it begins some seconds before the right edge.
    await told(page, "Waiting, in the topic", 0.93, "waiting 12");
    browser.healthy();
  },
};
