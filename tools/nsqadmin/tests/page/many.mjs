// 10,000 topics with two channels each, on three nodes. Servers that only answer give their figures (tests/large_cluster). Each check
// prints medians, the slowest one of all needles, columns and updates. `PAGE_MEASURE=1 PAGE_CHECK=many` measures more often and holds the
// goals, on a machine that does nothing else. The figures of docs/reference/nsqadmin.md are from there.

import { MEASURES, equal, until } from "./browser.mjs";

// The goals in milliseconds: from the call of the page to the first rows, and for a filter, a sort and a scroll.
const [FIRST_GOAL, QUICK_GOAL] = [1000, 50];

// The bound of an update of all topics, in milliseconds. It misses the goal of 50 ms, and must not become much slower.
const UPDATE_MAX = 80;

// Calls of the page, repetitions of each measurement, and the updates of the list that are watched.
const [CALLS, REPEATS, UPDATES] = MEASURES ? [5, 3, 3] : [1, 1, 1];

// The longest time for the updates, in milliseconds.
const UPDATES_TIME = 300_000;

// The first needle matches all rows, and the last ones match one and none.
const NEEDLES = ["topic-0", "topic-01", "topic-012", "topic-0123", "pic 09", "topic-09999", "nowhere"];

// Runs in the page before its scripts. Notes when the first rows and the figures were drawn, and each time for which the page did nothing
// but work: a timer that should come every 4 ms comes late then.
function measure() {
  window.drawn = {};
  window.late = [];
  const look = () => {
    if (!drawn.rows && document.querySelector("tbody tr[data-row]")) drawn.rows = performance.now();
    if (!drawn.figures && document.querySelector(".tiles")) drawn.figures = performance.now();
    if (!drawn.figures) requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
  let last = performance.now();
  const beat = () => {
    const now = performance.now();
    if (now - last > 8) late.push([now, now - last]);
    last = now;
    setTimeout(beat);
  };
  beat();
  // Resolves when what was drawn is on the screen.
  const painted = () => new Promise((resolve) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = resolve;
    channel.port2.postMessage(null);
  }));
  // The time from `act` until its effect on the table is on the screen.
  window.timed = async (act) => {
    const changed = new Promise((resolve) => new MutationObserver((_, observer) => {
      observer.disconnect();
      resolve();
    }).observe(document.querySelector(".table"), { subtree: true, childList: true, characterData: true, attributes: true }));
    const begun = performance.now();
    act();
    await changed;
    await painted();
    const took = performance.now() - begun;
    await new Promise((resolve) => setTimeout(resolve, 20));
    return took;
  };
}

const median = (times) => times.toSorted((a, b) => a - b)[Math.floor(times.length / 2)];
const rounded = (times) => times.map(Math.round).join(", ");

// The largest median of `times`, an object of lists. A measurement fails if it is above the goal.
function slowest(what, times, goal) {
  const [name, worst] = Object.entries(times).map(([name, list]) => [name, median(list)]).sort(([, a], [, b]) => b - a)[0];
  console.log(`        ${what}: at most ${Math.round(worst)} ms (${name}; of ${times[name].length}; up to ${goal} ms are good)`);
  if (MEASURES && worst > goal) throw new Error(`${what}: ${Object.entries(times).map(([name, list]) => `${name} ${rounded(list)}`).join("; ")} ms`);
}

const switchTo = ({ many }, state) => fetch(`${many.switch}?to=${state}`);

async function opened(browser, cluster, query = "") {
  await switchTo(cluster, "idle");
  const live = async () => (await fetch(`${cluster.many.admin}api/live`)).json();
  await until(async () => (await live()).topics.length === 10_000, "the figures of all topics");
  const page = await browser.open(cluster.many.admin + query, { init: measure, allowed: /502/ });
  await page.locator(".tiles").waitFor();
  return page;
}

// Returns for each update of the list the longest time for which the page only worked.
async function updates(page) {
  return page.evaluate(async ([count, time]) => {
    const begun = performance.now();
    performance.clearResourceTimings();
    const answers = () => performance.getEntriesByType("resource").filter((one) => /api\/live\/topics$/.test(one.name)).map((one) => one.responseEnd);
    while (answers().length <= count && performance.now() < begun + time) await new Promise((resolve) => setTimeout(resolve, 100));
    const bounds = answers();
    return bounds.slice(1).map((end, index) => Math.max(0, ...late.filter(([at]) => at > bounds[index] && at <= end).map(([, gap]) => gap)));
  }, [UPDATES, UPDATES_TIME]);
}

export const checks = {
  async "many: the first rows of 10,000 topics come soon"(browser, cluster) {
    await browser.close(await opened(browser, cluster));
    const [rows, figures] = [[], []];
    for (let call = 0; call < CALLS; call += 1) {
      const page = await browser.open(cluster.many.admin, { init: measure });
      await page.locator(".tiles").waitFor();
      const drawn = await page.evaluate(() => window.drawn);
      rows.push(drawn.rows);
      figures.push(drawn.figures);
      const count = await page.locator("tbody tr[data-row]").count();
      if (count === 0 || count > 150) throw new Error(`${count} rows are drawn`);
      await browser.close(page);
    }
    console.log(`        first rows after ${Math.round(median(rows))} ms, their figures after ${Math.round(median(figures))} ms (medians of ${CALLS}, cold cache; `
      + `up to ${FIRST_GOAL} ms are good)`);
    if (MEASURES && median(rows) > FIRST_GOAL) throw new Error(`first rows after ${rounded(rows)} ms`);
    browser.healthy();
  },

  async "many: a filter of 10,000 topics is quick, whatever it matches"(browser, cluster) {
    const page = await opened(browser, cluster);
    const times = await page.evaluate(async ([needles, repeats]) => {
      const field = document.querySelector("input[type=search]");
      const type = (text) => timed(() => {
        field.value = text;
        field.dispatchEvent(new Event("input", { bubbles: true }));
      });
      const times = Object.fromEntries(needles.map((needle) => [`“${needle}”`, []]));
      times["no filter"] = [];
      for (let repeat = 0; repeat < repeats; repeat += 1) for (const needle of needles) {
        times[`“${needle}”`].push(await type(needle));
        times["no filter"].push(await type(""));
      }
      return times;
    }, [NEEDLES, REPEATS]);
    slowest("a filter", times, QUICK_GOAL);
    await page.getByRole("searchbox").fill("topic-09999");
    await page.getByRole("status").getByText("1 of 10000").waitFor();
    browser.healthy();
  },

  async "many: 10,000 topics are sorted quickly by each column"(browser, cluster) {
    const page = await opened(browser, cluster);
    const times = await page.evaluate(async (repeats) => {
      const buttons = [...document.querySelectorAll("thead button")];
      const times = {};
      for (let repeat = 0; repeat < repeats; repeat += 1) for (const button of buttons) for (const turn of [1, 2]) {
        const took = await timed(() => button.click());
        (times[`${button.textContent.replace(/[▲▼]/, "")} ${turn}`] ??= []).push(took);
      }
      return times;
    }, REPEATS);
    equal(Object.keys(times).length, 20, "ten columns in two orders");
    slowest("a sort", times, QUICK_GOAL);
    browser.healthy();
  },

  async "many: 10,000 rows scroll without a jerk"(browser, cluster) {
    const page = await opened(browser, cluster);
    const times = await page.evaluate(async () => {
      const scroller = document.querySelector(".scroll.long");
      const times = { "a page down": [], "to the end and back": [] };
      for (let step = 0; step < 40; step += 1) times["a page down"].push(await timed(() => { scroller.scrollTop += 600; }));
      for (let step = 0; step < 20; step += 1) times["to the end and back"].push(await timed(() => { scroller.scrollTop = step % 2 ? 0 : scroller.scrollHeight; }));
      return times;
    });
    slowest("a scroll", times, QUICK_GOAL);
    browser.healthy();
  },

  async "many: the page answers while the figures of 10,000 topics come"(browser, cluster) {
    const page = await opened(browser, cluster);
    const times = { "nothing changes": await updates(page) };
    await switchTo(cluster, "busy");
    const rate = page.locator(".tile", { hasText: "Messages/s" });
    await until(async () => /\d,\d/.test(await rate.innerText()), "all topics get messages");
    times["all topics change"] = await updates(page);
    await switchTo(cluster, "idle");
    for (const [name, list] of Object.entries(times)) {
      if (list.length === 0) throw new Error(`no update in ${UPDATES_TIME} ms: ${name}`);
      console.log(`        an update, ${name}: the page only worked for ${Math.round(median(list))} ms at a time (median of ${list.length}; longest ${Math.round(Math.max(...list))} ms)`);
    }
    slowest("an update", times, UPDATE_MAX);
    browser.healthy();
  },

  async "many: each of 10,000 topics and channels has a past"(browser, cluster) {
    await browser.close(await opened(browser, cluster));
    const kept = async (query) => (await (await fetch(`${cluster.many.admin}api/live/history?${query}`)).json()).depth?.length;
    for (const query of ["all=true", "topic=topic-00000", "topic=topic-09999", "topic=topic-09999&channel=archive"]) {
      await until(async () => await kept(query) > 2, `a past of ${query}`);
    }
    const page = await browser.open(`${cluster.many.admin}topics/topic-09999/archive`);
    await page.locator(".chart canvas").first().waitFor();
    equal(await page.locator(".ranges [role=status]").count(), 0, "sentences about the past");
    browser.healthy();
  },

  async "many: every row can be reached"(browser, cluster) {
    const page = await opened(browser, cluster, "?sort=topic");
    const scroller = page.getByRole("region", { name: "Topics" });
    await scroller.evaluate((element) => { element.scrollTop = element.scrollHeight; });
    await page.getByRole("link", { name: "topic-09999" }).waitFor();
    await scroller.focus();
    await page.keyboard.press("Home");
    await until(() => page.evaluate(() => document.activeElement.textContent === "topic-00000"), "Home goes to the first row");
    await page.keyboard.press("End");
    await until(() => page.evaluate(() => document.activeElement.textContent === "topic-09999"), "End goes to the last row");
    await page.keyboard.press("PageUp");
    await until(() => page.evaluate(() => document.activeElement.textContent === "topic-09984"), "Page Up goes up 15 rows");
    equal(await page.getByRole("table").getAttribute("aria-rowcount"), "10001", "the number of rows for screen readers");
    await switchTo(cluster, "off");
    browser.healthy();
  },
};
