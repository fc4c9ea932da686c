// The requests of the page: what they name, how often they come, and what becomes of acts whose answer is late.

import { equal, until } from "./browser.mjs";
import { make } from "./daemons.mjs";

const button = (place, name) => place.getByRole("button", { name, exact: true });

// Opens the page of a topic, and empties it. Returns `goOn`, after which the server gives its `answer`. The dialog is closed before.
async function openTopic(browser, cluster, name, answer) {
  await make(cluster.nsqds, name, ["archive"], 1);
  const page = await browser.open(`${cluster.admin}topics/${name}`, { allowed: /502/ });
  let goOn;
  const late = new Promise((resolve) => { goOn = resolve; });
  await page.route(`**/api/topics/${name}`, async (route) => {
    if (route.request().method() !== "POST") return route.continue();
    await late;
    return route.fulfill(answer);
  });
  const dialog = page.getByRole("dialog");
  await button(page, "Empty topic").click();
  await dialog.getByLabel(/^Type /).fill(name);
  await button(dialog, "Empty").click();
  await button(dialog, "Working …").waitFor();
  await page.keyboard.press("Escape");
  await until(async () => await dialog.count() === 0, "the dialog is closed");
  return { page, dialog, goOn };
}

export const checks = {
  // The topic "." with the channel "orders" had the address of the topic "orders", which was deleted. Later, the page could not show or
  // change such topics.
  async "requests: an address never names another topic"(browser, cluster) {
    const page = await browser.open(`${cluster.admin}lookup`);
    const found = await page.evaluate(async () => {
      const { api, ask } = await import(new URL("static/api.js", document.baseURI));
      const { link } = await import(new URL("static/route.js", document.baseURI));
      const [asked, server] = [[], window.fetch];
      window.fetch = (url, request) => {
        const path = new URL(url).pathname;
        if (!path.includes("/api/topics/")) return server(url, request);
        asked.push(path);
        return Promise.resolve(new Response('{"message":""}'));
      };
      for (const names of [[".", "orders"], ["orders", ".."], [".."], ["...", ".a"]]) await ask(api("topics", ...names), { method: "DELETE" });
      return { asked, links: [link("topics", ".", "a~b"), link("topics", "..")].map((href) => new URL(href, document.baseURI).pathname) };
    });
    const base = new URL(cluster.admin).pathname;
    equal(found, {
      asked: ["~./orders", "orders/~..", "~..", ".../.a"].map((names) => `${base}api/topics/${names}`),
      links: [`${base}topics/~./a~b`, `${base}topics/~..`],
    }, "the addresses of dots");
    browser.healthy();
  },

  // The server may have done what the page called failed.
  async "requests: an act without an answer is no failed act"(browser, cluster) {
    const page = await browser.open(`${cluster.admin}lookup`);
    const found = await page.evaluate(async () => {
      const { ask } = await import(new URL("static/api.js", document.baseURI));
      window.fetch = (url, { signal }) => new Promise((_, reject) => { signal.addEventListener("abort", () => reject(new Error("aborted"))); });
      const end = (method) => ask("api/acts", { method, timeout: 20 }).catch(({ isOpen, message }) => [isOpen, message.includes("It may still carry the act out")]);
      return [await end("POST"), await end("GET")];
    });
    equal(found, [[true, true], [false, false]], "acts and questions without an answer");
    browser.healthy();
  },

  // Esc closed the dialog, and the failure was lost.
  async "requests: the failure of an act whose dialog was closed is told"(browser, cluster) {
    const { page, goOn } = await openTopic(browser, cluster, "late.failure", { status: 502, json: { message: "UPSTREAM_ERROR: no nsqd" } });
    goOn();
    await page.getByText("Empty the topic late.failure failed.").waitFor();
    browser.healthy();
  },

  // The success of one act closed the dialog of the next one.
  async "requests: the success of an act closes no other dialog"(browser, cluster) {
    const { page, dialog, goOn } = await openTopic(browser, cluster, "late.success", { json: { message: "" } });
    await button(page, "Delete topic").click();
    await dialog.waitFor();
    goOn();
    await page.getByText("Empty the topic late.success: done.").waitFor();
    equal(await dialog.count(), 1, "the dialog of the next act");
    browser.healthy();
  },

  // The next question came after eight times the time of the answer, and figures of 45 s ago were not called old.
  async "requests: a server that hangs makes no figures old in silence"(browser, cluster) {
    const page = await browser.open(`${cluster.admin}lookup`);
    await page.clock.install();
    let asked = 0;
    const waiting = [];
    await page.route("**/api/counter", async (route) => {
      asked += 1;
      await new Promise((resolve) => { waiting.push(resolve); });
      await route.fulfill({ json: { stats: {}, message: "" } });
    });
    await page.goto(`${cluster.admin}counter`);
    // The clock of the page goes on by itself, too, so some seconds are left below each limit.
    const answer = async () => {
      await until(() => waiting.length > 0, "a question");
      const done = page.waitForResponse("**/api/counter");
      waiting.shift()();
      await done;
      await page.evaluate(() => fetch("ping"));
    };
    await until(() => waiting.length > 0, "the first question");
    await page.clock.runFor(5000);
    await answer();
    await page.getByText("0 messages processed").waitFor({ state: "attached" });
    await page.clock.runFor(8_500);
    await until(() => asked === 2, "the second question after 8 s");
    const old = page.getByText(/^The figures are those of /);
    equal(await old.count(), 0, "figures of 9 s ago");
    await page.clock.runFor(7000);
    await old.waitFor();
    await answer();
    await until(async () => await old.count() === 0, "new figures");
    browser.healthy();
  },

  // The page's own points were before the end of the server's past, so the charts and the figures beside them stayed as they were.
  async "requests: a browser whose clock is behind shows the figures of now"(browser, cluster) {
    const behind = 300_000;
    await make(cluster.nsqds, "late.clock", ["archive"], 1);
    const page = await browser.open(`${cluster.admin}lookup`);
    await page.clock.install({ time: Date.now() - behind });
    await page.goto(`${cluster.admin}topics/late.clock/archive`);
    const last = () => page.evaluate(async () => {
      const { series } = await import(new URL("static/series.js", document.baseURI));
      return [Date.now(), 1000 * (series("channel late.clock/archive").times.at(-1) ?? 0)];
    });
    await until(async () => (await last())[1] > 0, "a point");
    const [browserTime, point] = await last();
    const real = Date.now();
    equal([real - browserTime > behind / 2, Math.abs(real - point) < behind / 2], [true, true], `the browser's clock, and the point ${point} at ${real}`);
    // Each message was published "0 ago". The page knows the server's time to a second.
    await new Promise((resolve) => setTimeout(resolve, 2500));
    await page.goto(`${cluster.admin}peek/late.clock/archive`);
    await page.getByText(/^published [1-9]/).first().waitFor();
    browser.healthy();
  },

  // The member of an object that every object has is no choice of the list.
  async "requests: an address with an unknown choice shows all topics"(browser, cluster) {
    const page = await browser.open(`${cluster.admin}?show=constructor`);
    await page.getByRole("heading", { name: "Topics", exact: true }).waitFor();
    equal(await page.getByLabel("Show", { exact: true }).inputValue(), "all", "the choice");
    equal(await page.getByText("cannot be shown").count(), 0, "failures");
    browser.healthy();
  },

  // Without live figures, the page asks each node at its address.
  async "requests: an IPv6 address has its brackets"(browser, cluster) {
    const page = await browser.open(`${cluster.admin}lookup`);
    const found = await page.evaluate(async () => {
      const { loadTopics } = await import(new URL("static/overview.js", document.baseURI));
      const { facts } = await import(new URL("static/store.js", document.baseURI));
      facts.set({ ...await facts.known(), live: false });
      const asked = [];
      const nodes = { topics: [], nodes: [{ broadcast_address: "fd00::1", http_port: 4151 }], concerns: [], message: "" };
      window.fetch = (url) => {
        asked.push(new URL(url).pathname.split("/api/nodes/")[1]);
        return Promise.resolve(new Response(JSON.stringify(nodes)));
      };
      await loadTopics();
      return asked.filter(Boolean);
    });
    equal(found, ["%5Bfd00%3A%3A1%5D%3A4151"], "the address of the node");
    browser.healthy();
  },
};
