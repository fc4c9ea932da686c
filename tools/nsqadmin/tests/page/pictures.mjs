// The pictures of docs/operate/nsqadmin.md: a cluster in which some consumers are slow, absent or in backoff. They are taken on demand only
// (PAGE_CHECK=pictures), because the topics would be in the way of other checks, and because an age of a minute takes a minute.

import { mkdirSync } from "node:fs";

import { until } from "./browser.mjs";
import { consume, finish, make, produce, publishBody, publish } from "./daemons.mjs";

// The age of the scene in the pictures, in milliseconds.
const AGE = 80_000;

// Starts all producers and consumers. Returns the functions that end them.
async function stage(nsqds) {
  for (const [topic, channels, messages] of [["invoices", ["archive"], 70], ["mails", ["send"], 40], ["orders", ["audit", "billing", "shipping"], 0],
    ["clicks", ["archive"], 0], ["sessions", ["archive"], 0]]) await make(nsqds, topic, channels, messages);
  const parts = nsqds.map((nsqd) => [
    consume(nsqd, "mails", "send", 0), produce(nsqd, "orders", 8, "shop"), finish(nsqd, "orders", "billing", 50), finish(nsqd, "orders", "shipping", 4),
    produce(nsqd, "clicks", 40, "web"), finish(nsqd, "clicks", "archive", 400), produce(nsqd, "sessions", 3, "web"), finish(nsqd, "sessions", "archive", 50),
  ]);
  return Promise.all(parts.flat());
}

async function opened(browser, cluster, path, options) {
  const page = await browser.open(cluster.admin + path, options);
  // The second answer gives the rates, and the charts their first line.
  await page.locator(".plot canvas").first().waitFor();
  await new Promise((resolve) => setTimeout(resolve, 5000));
  return page;
}

async function ofDialogs(browser, cluster, to) {
  const page = await opened(browser, cluster, "topics/invoices/archive");
  await page.getByRole("button", { name: "Empty channel" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("The messages can be brought back for").waitFor();
  await dialog.getByLabel(/^Type /).fill("archive");
  await page.screenshot({ path: to("dialog") });
  for (const topic of ["spring.one", "spring.two"]) await make(cluster.nsqds, topic, ["archive", "kept"], 5);
  const list = await opened(browser, cluster, "?q=spring");
  await list.getByRole("button", { name: "Act on all that match" }).click();
  const order = list.getByRole("dialog");
  await order.getByLabel("Action").selectOption("empty");
  await order.getByLabel("Only channels named").fill("archive");
  await order.getByRole("button", { name: "Empty 2 channels" }).waitFor();
  await order.getByText("Show each of them").click();
  await list.screenshot({ path: to("order") });
}

async function ofMessages(browser, { admin, nsqds }, to) {
  await make(nsqds, "parcels", ["archive"], 0);
  await publishBody(nsqds[0].http, "parcels", '{"order":{"id":9007199254740993,"items":["pen","ink"]},"note":[]}');
  await publishBody(nsqds[1].http, "parcels", "plain text");
  await publishBody(nsqds[1].http, "parcels", new Uint8Array([255, 0, 65]));
  const page = await browser.open(`${admin}peek/parcels/archive?from=oldest`);
  await until(async () => await page.locator(".messages li").count() === 3, "three messages");
  await page.screenshot({ path: to("messages") });
}

export const checks = {
  async "pictures: of the documentation"(browser, cluster) {
    const directory = `${cluster.pictures}/docs`;
    mkdirSync(directory, { recursive: true });
    const to = (name) => `${directory}/${name}.png`;
    const stops = await stage(cluster.nsqds);
    await publish(cluster.nsqds[0].http, "orders", 10);
    await new Promise((resolve) => setTimeout(resolve, AGE));
    const list = await opened(browser, cluster, "");
    await list.screenshot({ path: to("topics") });
    const topic = await opened(browser, cluster, "topics/orders");
    await topic.screenshot({ path: to("topic"), fullPage: true });
    const phone = await opened(browser, cluster, "", { width: 390, height: 844, colors: "dark" });
    await phone.screenshot({ path: to("phone") });
    await ofDialogs(browser, cluster, to);
    await ofMessages(browser, cluster, to);
    stops.forEach((stop) => stop());
    browser.healthy();
  },
};
