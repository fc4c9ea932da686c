// The page in use: keyboard, filters in the address, the hold switch, the theme.

import { accessible, equal, twoPolls, until } from "./browser.mjs";
import { make, publish } from "./daemons.mjs";

export const checks = {
  async "use: the keyboard alone is enough"(browser, cluster) {
    await make(cluster.nsqds, "keys-a", ["one"], 0);
    await make(cluster.nsqds, "keys-b", ["one"], 0);
    const page = await browser.open(`${cluster.admin}?sort=topic`);
    await page.getByRole("link", { name: "keys-b" }).waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("keys-");
    await until(async () => await page.locator("tbody tr[data-row]").count() === 2, "two rows match");
    const focused = () => page.evaluate(() => document.activeElement.textContent);
    await page.keyboard.press("ArrowDown");
    await until(async () => await focused() === "keys-a", "the first row has the focus");
    await page.keyboard.press("ArrowDown");
    await until(async () => await focused() === "keys-b", "the second row has the focus");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Topic keys-b" }).waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("heading", { name: "Topics", exact: true }).waitFor();
    await page.keyboard.press("?");
    await page.getByRole("dialog").getByText("hold all live updates").waitFor();
    await accessible(page, "the help");
    await page.keyboard.press("Escape");
    await until(async () => await page.getByRole("dialog").count() === 0, "the help is closed");
    browser.healthy();
  },

  async "use: filters and orders are in the address"(browser, cluster) {
    for (const topic of ["keys-a", "keys-b"]) await make(cluster.nsqds, topic, ["one"], 0);
    const page = await browser.open(`${cluster.admin}?q=KEYS&sort=-topic`);
    const names = () => page.locator("tbody tr[data-row] th a").allTextContents();
    await until(async () => (await names()).length === 2, "the address filters");
    equal(await names(), ["keys-b", "keys-a"], "the order of the address");
    await page.getByRole("button", { name: "Topic" }).click();
    await until(async () => (await names())[0] === "keys-a", "the heading changes the order");
    equal(new URL(page.url()).search, "?q=KEYS&sort=topic", "the address has the order");
    await page.getByRole("searchbox").fill("keys-b");
    await until(() => new URL(page.url()).searchParams.get("q") === "keys-b", "the address has the filter");
    await page.getByRole("link", { name: "keys-b" }).click();
    await page.getByRole("heading", { name: "Topic keys-b" }).waitFor();
    await page.goBack();
    await until(async () => (await names()).join() === "keys-b", "the filter is there again");
    await page.getByRole("combobox", { name: "Show" }).selectOption("paused");
    await page.getByText("Nothing matches").waitFor();
    equal(new URL(page.url()).searchParams.get("show"), "paused", "the address has the choice");
    browser.healthy();
  },

  async "use: one switch holds all updates"(browser, cluster) {
    await make(cluster.nsqds, "held", ["one"], 0);
    const page = await browser.open(`${cluster.admin}lookup`);
    await page.clock.install();
    await page.goto(`${cluster.admin}topics/held`);
    await page.getByRole("heading", { name: "Topic held" }).waitFor();
    await page.locator("tfoot").waitFor();
    const total = () => page.locator("tfoot td").nth(4).textContent();
    equal(await total(), "0", "messages before");
    await page.keyboard.press("h");
    await page.getByRole("button", { name: "On hold" }).waitFor();
    await publish(cluster.nsqds[0].http, "held", 7);
    let requests = 0;
    page.on("request", () => { requests += 1; });
    await twoPolls(page);
    equal([requests, await total()], [0, "0"], "requests and figure on hold");
    await page.getByRole("button", { name: "On hold" }).click();
    await until(async () => await total() === "7", "the figure after going on");
    // The list of topics has a second poll, of what needs attention, and a node has two requests in each.
    for (const path of ["", `nodes/${cluster.nsqds[0].http}`]) {
      await page.goto(cluster.admin + path);
      await page.getByText("held", { exact: true }).first().waitFor();
      await page.keyboard.press("h");
      await page.getByRole("button", { name: "On hold" }).waitFor();
      // A load of several requests may still be under way.
      await page.waitForTimeout(1000);
      requests = 0;
      await twoPolls(page);
      equal(requests, 0, `requests on hold at "${path}"`);
      await page.getByRole("button", { name: "On hold" }).click();
      await until(() => requests > 0, `requests after going on at "${path}"`);
    }
    // The consumerless channel with messages is named on the first page.
    await page.goto(cluster.admin);
    const list = page.locator(".problems");
    // Topics of other checks may have older messages.
    const more = list.getByRole("button", { name: /^and \d+ more$/ });
    await until(async () => {
      if (await more.count() > 0) await more.click();
      return await list.getByText("held / one").count() === 1;
    }, "the channel is among what needs attention");
    browser.healthy();
  },

  async "use: the theme follows the system or the user"(browser, cluster) {
    const page = await browser.open(cluster.admin, { colors: "dark" });
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const dark = await ground();
    const choose = (theme) => page.getByRole("combobox", { name: "Colours" }).selectOption(theme);
    await choose("light");
    await until(async () => await ground() !== dark, "light is not dark");
    const light = await ground();
    await page.reload();
    equal(await ground(), light, "the choice holds after a new load");
    await choose("system");
    await until(async () => await ground() === dark, "the system's choice");
    await page.emulateMedia({ colorScheme: "light" });
    await until(async () => await ground() === light, "the system's new choice");
    browser.healthy();
  },

  async "use: all addresses stay below the base path"(browser, cluster) {
    const base = new URL(cluster.admin).pathname;
    if (base === "/") throw new Error("this check needs a base path");
    const page = await browser.open(cluster.admin);
    await page.locator("tbody tr[data-row]").first().waitFor();
    const links = await page.evaluate(() => [...document.querySelectorAll("a[href]")].map((one) => one.pathname));
    equal(links.filter((path) => !path.startsWith(base)), [], "links outside the base path");
    const asked = [];
    page.on("request", (request) => asked.push(new URL(request.url()).pathname));
    await page.getByRole("link", { name: "Nodes" }).click();
    await page.getByRole("heading", { name: "Nodes (3)" }).waitFor();
    equal(asked.filter((path) => !path.startsWith(base)), [], "requests outside the base path");
    browser.healthy();
  },
};
