// Chromium, and pages whose errors make a check fail.

import { createRequire } from "node:module";
import { existsSync, readFileSync } from "node:fs";
import { delimiter, join } from "node:path";

// NODE_PATH names the directory of the packages, which `import` does not look into.
const require = createRequire(import.meta.url);
const { chromium } = require("playwright-core");
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

// Playwright needs the path. The system's browser is used, because Playwright's own would have to be downloaded. The headless shell is the same
// browser without windows, and takes a third of the time for a new page.
const CHROMIUM = ["chromium-headless-shell", "chromium"]
  .flatMap((program) => process.env.PATH.split(delimiter).map((directory) => join(directory, program))).find(existsSync);

// A topic that is a second old has no live figures yet. The page goes on without them.
const NO_PAST = /404 .*\/api\/live\/(history|topics|nodes)/;

// Chromium sometimes hangs before it has loaded anything.
const STARTS = 3;

// The longest wait for anything in the page, in milliseconds. A busy machine may take long.
const TIMEOUT = 300_000;

// With PAGE_MEASURE=1, checks hold their goals for times. Other checks say what is shown, however busy the machine is.
export const MEASURES = Boolean(process.env.PAGE_MEASURE);

export class Browser {
  #chromium;
  #open = [];

  static async start() {
    const browser = new Browser();
    for (let left = STARTS; ; left -= 1) {
      try {
        browser.#chromium = await chromium.launch({
          executablePath: CHROMIUM,
          args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"],
          timeout: 30_000,
        });
        return browser;
      } catch (error) {
        if (left === 1) throw error;
      }
    }
  }

  // Another browser for checks that run at the same time: the same program, with pages of its own.
  lane() {
    const browser = new Browser();
    browser.#chromium = this.#chromium;
    return browser;
  }

  // Opens `url`, with nothing in the cache. `allowed` says which messages of the console are expected, for checks of failures. The page runs
  // `init` before its own scripts.
  async open(url, { width = 1280, height = 900, colors = "light", headers, allowed = /^$/, init } = {}) {
    const context = await this.#chromium.newContext({
      viewport: { width, height }, colorScheme: colors, extraHTTPHeaders: headers, reducedMotion: "reduce",
    });
    if (init) await context.addInitScript(init);
    const page = await context.newPage();
    page.setDefaultTimeout(TIMEOUT);
    const faults = [];
    page.on("pageerror", (error) => faults.push(`script error: ${error.stack ?? error}`));
    page.on("console", (message) => {
      const text = `${message.text()} ${message.location().url}`;
      if (message.type() === "error" && !allowed.test(text) && !NO_PAST.test(text)) faults.push(`console: ${text}`);
    });
    page.on("request", (request) => {
      if (new URL(request.url()).origin !== new URL(url).origin) faults.push(`request to another host: ${request.url()}`);
    });
    this.#open.push({ context, page, faults });
    await page.goto(url);
    return page;
  }

  // Fails if any page of this check has had a script error, or has asked another host.
  healthy() {
    const faults = this.#open.flatMap((one) => one.faults);
    if (faults.length > 0) throw new Error(faults.join("\n"));
  }

  async picture(path) {
    const last = this.#open.at(-1);
    if (last) await last.page.screenshot({ path }).catch((error) => console.log(`no picture: ${error}`));
  }

  // Closes a page before the end of its check.
  async close(page) {
    await this.#close(this.#open.splice(this.#open.findIndex((one) => one.page === page), 1));
  }

  async closePages() {
    await this.#close(this.#open.splice(0));
  }

  async #close(pages) {
    for (const { context, page } of pages) {
      // An answer that a check replaces may still be under way.
      await page.unrouteAll({ behavior: "ignoreErrors" });
      await context.close();
    }
  }

  async stop() {
    await this.#chromium.close();
  }
}

// Fails with the rules of accessibility that the page breaks.
export async function accessible(page, where) {
  await page.evaluate(AXE);
  const { violations, passes } = await page.evaluate(() => axe.run());
  const broken = violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html}\n  ${node.failureSummary}`));
  equal(broken, [], `accessibility of ${where}`);
  if (passes.length < 10) throw new Error(`axe has checked only ${passes.length} rules on ${where}`);
}

// Leaves a picture of the page for people, if PAGE_PICTURES is set.
export async function picture(page, { pictures }, name, fullPage = false) {
  if (process.env.PAGE_PICTURES) await page.screenshot({ path: `${pictures}/${name}.png`, fullPage });
}

// Checks the accessibility of the page in both themes. At the end, the page has the light one.
export async function accessibleInBoth(page, cluster, name, fullPage = false) {
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    await accessible(page, `${name}, ${colorScheme}`);
    await picture(page, cluster, `${name}-${colorScheme}`, fullPage);
  }
  await page.emulateMedia({ colorScheme: "light" });
}

// Checks the accessibility of the page in both themes, and that the page fits a phone. At the end, it has the width of one.
export async function looksGood(page, cluster, name) {
  await accessibleInBoth(page, cluster, name, true);
  await page.setViewportSize({ width: 360, height: 740 });
  await until(() => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${name} fits into 360 pixels`);
  await picture(page, cluster, `${name}-narrow`, true);
}

// Waits as long as two polls of a page take, in the time of the page's clock: `page.clock.install()` comes before the page is loaded.
export async function twoPolls(page) {
  await page.clock.runFor(4500);
  // Events come in order, so the requests of these polls are known behind this answer.
  await page.evaluate(() => undefined);
}

// Calls `done` until it returns true.
export async function until(done, what) {
  const end = Date.now() + TIMEOUT;
  for (;;) {
    if (await done()) return;
    if (Date.now() > end) throw new Error(`not so within ${TIMEOUT / 1000} s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

export function equal(found, expected, what) {
  const [a, b] = [found, expected].map((value) => JSON.stringify(value, (key, one) => typeof one === "bigint" ? `${one}n` : one));
  if (a !== b) throw new Error(`${what}:\n  found    ${a}\n  expected ${b}`);
}
