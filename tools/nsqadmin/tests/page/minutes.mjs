// The first five minutes of an incident. One fault after the other is made in a cluster of three nsqds and two nsqlookupds. Each
// check goes the way of an operator: the first page, what needs attention there, its link. A check fails if a fact is more than two
// clicks away. It prints the seconds until the list had the fault, and from the opening of the page to the fact.

import { writeFileSync } from "node:fs";

import { accessible, equal, until } from "./browser.mjs";
import { channelAt, consume, finish, make, pause, produce, publishBody, registerAt, remove } from "./daemons.mjs";

// Most clicks from the first page to a fact.
const CLICKS_MAX = 2;

// The model of the operator of docs/nsqadmin.md, in seconds: to find the way on a page or in a dialog, a click, a key, and a note that is
// typed. Sentences are read at three words a second.
const OPERATOR = { find: 2, click: 2, key: 1, note: 5, wordsPerSecond: 3 };

// Most seconds of the operator for a safe act. The goal is 30 seconds from the fault, and the rest is left for the page.
const SAFE_ACT_MAX = 26;

// The seconds that the operator needs to read these elements.
async function reading(...elements) {
  const texts = await Promise.all(elements.map((element) => element.allInnerTexts()));
  return texts.flat().join(" ").split(/\s+/).filter((word) => /\w/.test(word)).length / OPERATOR.wordsPerSecond;
}

let steady = [];

// Starts a producer whose usual rate is known when its check comes, and a consumer that keeps up.
export async function begin({ night }) {
  await make(night.nsqds, "clicks", ["archive"], 0);
  steady = [await produce(night.nsqds[0], "clicks", 5, "web"), await finish(night.nsqds[0], "clicks", "archive", 12)];
  for (const nsqd of night.nsqds.slice(1)) steady.push(await consume(nsqd, "clicks", "archive", 4));
}

// Waits for the fault in the list of the first page, and then goes to the fact as somebody who opens the page only now. `name` is
// the subject in the list, `says` a part of its sentence. `steps` click on, and `fact` is on the page at the end.
async function look(browser, { night, pictures }, { what, since, name, says, steps = [], fact }) {
  const found = (page) => page.locator(".problems li", { hasText: name }).filter({ hasText: says });
  const watched = await browser.open(night.admin, { allowed: /404/ });
  await found(watched).first().waitFor();
  const known = Date.now() - since;
  const opened = Date.now();
  const page = await browser.open(night.admin, { allowed: /404/ });
  await found(page).first().waitFor();
  const listed = Date.now() - opened;
  const file = what.replaceAll(" ", "-");
  await page.screenshot({ path: `${pictures}/minutes-${file}-list.png` });
  let clicks = 0;
  for (const step of steps) {
    await (await step(page, found(page).first())).click();
    clicks += 1;
  }
  if (clicks > CLICKS_MAX) throw new Error(`${what}: ${clicks} clicks`);
  if (fact) await fact(page).waitFor();
  const seconds = (milliseconds) => (milliseconds / 1000).toFixed(1);
  console.log(`        ${what}: in the list ${seconds(known)} s after the fault; page opened: list after ${seconds(listed)} s, `
    + `fact after ${seconds(Date.now() - opened)} s, ${clicks} clicks`);
  await page.screenshot({ path: `${pictures}/minutes-${file}.png` });
  return page;
}

// Waits until the usual rate of the steady producer is known.
async function watched({ night }) {
  const publishing = async () => (await (await fetch(`${night.admin}api/live/topics/clicks`)).json()).publishing;
  await until(async () => (await publishing())?.producers?.some((producer) => producer.client_id === "web" && producer.usual_rate > 0), "a usual rate", 90_000);
}

const itsLink = (name) => (page, item) => item.getByRole("link", { name, exact: true });

export const checks = {
  async "minutes: a slow consumer version: what gets older, where, and which version"(browser, cluster) {
    const { nsqds } = cluster.night;
    const since = Date.now();
    await make(nsqds.slice(0, 1), "orders", ["billing"], 0);
    const stops = [await finish(nsqds[0], "orders", "billing", 5, { agent: "billing/1.4" }),
      await finish(nsqds[0], "orders", "billing", 1, { agent: "billing/1.5" }), await produce(nsqds[0], "orders", 20, "shop")];
    const version = (page) => page.getByRole("row").filter({ hasText: "billing/1.5" });
    const page = await look(browser, cluster, {
      what: "slow consumer", since, name: "orders / billing", says: /oldest [\d.]+ s, getting older/, steps: [itsLink("orders / billing")], fact: version,
    });
    equal(await page.getByRole("row").filter({ hasText: "billing/1.4" }).count(), 1, "the version before");
    await page.getByRole("status").getByText(/Handlers too slow: 2 consumers finish/).waitFor();
    console.log(`        slow consumer: the doctor's reason ${((Date.now() - since) / 1000).toFixed(1)} s after the fault`);
    stops.forEach((stop) => stop());
    await remove(nsqds.slice(0, 1), "orders");
    browser.healthy();
  },

  async "minutes: consumers absent, paused, and with RDY 0"(browser, cluster) {
    const { nsqds } = cluster.night;
    const since = Date.now();
    for (const topic of ["absent", "paused", "backoff"]) await make(nsqds, topic, ["work"], 5);
    await pause(nsqds, "paused", "work");
    const stops = await Promise.all(nsqds.map((nsqd) => consume(nsqd, "backoff", "work", 0)));
    for (const [topic, says] of [["absent", "No consumers: 15 messages wait"], ["paused", "Paused"], ["backoff", "Back-off: 3 of 3 connections have RDY 0"]]) {
      await look(browser, cluster, { what: `consumers ${topic}`, since, name: `${topic} / work`, says });
    }
    stops.forEach((stop) => stop());
    for (const topic of ["absent", "paused", "backoff"]) await remove(nsqds, topic);
    browser.healthy();
  },

  async "minutes: a poison message and its body"(browser, cluster) {
    const { nsqds } = cluster.night;
    const since = Date.now();
    await make(nsqds, "mails", ["send"], 0);
    const stops = await Promise.all(nsqds.map((nsqd) => finish(nsqd, "mails", "send", 40, { poison: "poison" })));
    stops.push(await produce(nsqds[0], "mails", 10, "shop"));
    await publishBody(nsqds[1].http, "mails", '{"to":"poison@example.com"}');
    const page = await look(browser, cluster, {
      what: "poison message", since, name: "mails / send", says: "Messages with the most attempts", steps: [itsLink("Messages with the most attempts")],
      fact: (page) => page.locator(".messages li").first().getByText("poison@example.com"),
    });
    const attempts = await page.locator(".messages li").first().getByText(/\d+ attempts/).innerText();
    equal(parseInt(attempts, 10) > 3, true, `many attempts: ${attempts}`);
    await accessible(page, "messages with the most attempts");
    stops.forEach((stop) => stop());
    await remove(nsqds, "mails");
    browser.healthy();
  },

  async "minutes: nsqlookupds that disagree"(browser, cluster) {
    const { nsqds, lookupds, admin } = cluster.night;
    const since = Date.now();
    await registerAt(nsqds[1], [lookupds[0].tcp]);
    const says = `does not know ${nsqds[1].http}`;
    await look(browser, cluster, {
      what: "lookupds disagree", since, name: lookupds[1].http, says, steps: [itsLink(lookupds[1].http)], fact: (page) => page.locator(".hosts").getByText(says),
    });
    await registerAt(nsqds[1], lookupds.map((lookupd) => lookupd.tcp));
    const concerns = async () => (await (await fetch(`${admin}api/live/attention`)).json()).concerns;
    await until(async () => (await concerns()).every((concern) => !concern.lookupd), "both know all nodes again");
    browser.healthy();
  },

  async "minutes: a disk that fills"(browser, cluster) {
    const { nsqds, disk } = cluster.night;
    if (disk === null) return;
    const since = Date.now();
    const name = nsqds[2].http;
    const { disk: room } = await (await fetch(`${cluster.night.admin}api/live/nodes/${name}`)).json();
    writeFileSync(`${disk}/filler`, Buffer.alloc(Math.floor(Math.max(0, room.free_bytes - room.size_bytes * 0.05)), 1));
    await look(browser, cluster, {
      what: "disk fills", since, name, says: /The disk (has|is full)/, steps: [itsLink(name)], fact: (page) => page.locator(".tile.bad", { hasText: "Disk free" }),
    });
    writeFileSync(`${disk}/filler`, "");
    browser.healthy();
  },

  async "minutes: a safe act: a channel is paused for half an hour, with a note"(browser, cluster) {
    const { nsqds } = cluster.night;
    const since = Date.now();
    await make(nsqds, "refunds", ["pay"], 5);
    let sentence = 0;
    const page = await look(browser, cluster, {
      what: "safe act", since, name: "refunds / pay", says: "No consumers",
      steps: [async (page, item) => {
        sentence = await reading(item.locator(".sentence"));
        return itsLink("refunds / pay")(page, item);
      }, (page) => page.getByRole("button", { name: "Pause channel" })],
      fact: (page) => page.getByRole("dialog"),
    });
    const begun = Date.now();
    const dialog = page.getByRole("dialog");
    await dialog.locator("button[type=submit]:enabled").waitFor();
    const read = sentence + await reading(dialog.locator("h2"), dialog.locator("p"));
    // A digit chooses the end and goes to the note, and Enter confirms.
    await page.keyboard.press("3");
    await page.keyboard.type("bad deploy");
    await page.keyboard.press("Enter");
    await page.getByText("Pause the channel refunds/pay: done.").waitFor();
    const operator = 3 * OPERATOR.find + 2 * OPERATOR.click + read + 2 * OPERATOR.key + OPERATOR.note;
    console.log(`        safe act: done ${((Date.now() - begun) / 1000).toFixed(1)} s after the dialog; the operator needs ${operator.toFixed(1)} s, `
      + `of them ${read.toFixed(1)} s to read`);
    equal(operator <= SAFE_ACT_MAX, true, `the operator needs ${operator} s`);
    for (const nsqd of nsqds) {
      const { paused, pause_note: note, pause_until_ms: end } = await channelAt(nsqd, "refunds", "pay");
      const left = (end - Date.now()) / 60_000;
      equal([paused, note, left > 29 && left <= 30.1], [true, "bad deploy", true], `paused at ${nsqd.http}, for ${left} more minutes`);
    }
    await page.getByText("bad deploy").first().waitFor();
    await remove(nsqds, "refunds");
    browser.healthy();
  },

  async "minutes: a producer that has gone wild while consumers keep up"(browser, cluster) {
    const [first] = cluster.night.nsqds;
    await watched(cluster);
    const stops = [await finish(first, "clicks", "archive", 500), await produce(first, "clicks", 300, "replayer")];
    await look(browser, cluster, { what: "wild producer, consumers keep up", since: Date.now(), name: "clicks", says: /consumers keep up\. A producer has grown: replayer \(host-p\)/,
      steps: [itsLink("clicks")], fact: (page) => page.getByRole("region", { name: "Producers of the topic" }).getByText("replayer") });
    stops.forEach((stop) => stop());
    browser.healthy();
  },

  async "minutes: a producer that has gone wild"(browser, cluster) {
    const [first] = cluster.night.nsqds;
    await watched(cluster);
    const since = Date.now();
    const stop = await produce(first, "clicks", 200, "importer");
    const page = await look(browser, cluster, {
      what: "producer gone wild", since, name: "clicks / archive", says: /A producer has grown: importer \(host-p\)/,
      steps: [itsLink("clicks / archive"), (page) => page.getByRole("navigation", { name: "Where you are" }).getByRole("link", { name: "clicks", exact: true })],
      fact: (page) => page.getByRole("region", { name: "Producers of the topic" }).getByText("importer"),
    });
    await page.getByRole("region", { name: "Producers of the topic" }).getByText("web").first().waitFor();
    stop();
    steady.forEach((stop) => stop());
    browser.healthy();
  },

  async "minutes: a node that is down"(browser, cluster) {
    const { nsqds } = cluster.night;
    const since = Date.now();
    process.kill(nsqds[1].pid, "SIGKILL");
    await look(browser, cluster, { what: "node down", since, name: nsqds[1].http, says: "This nsqd is gone", steps: [itsLink(nsqds[1].http)],
      fact: (page) => page.getByRole("heading", { name: nsqds[1].http }) });
    browser.healthy();
  },
};
