// The first five minutes of an incident. One fault after the other is made in a cluster of three nsqds and two nsqlookupds. Each
// check goes the way of an operator: the first page, what needs attention there, its link. A check fails if a fact is more than two
// clicks away, or if the operator knows the answer too late. It prints the seconds until the list had the fault, those that the operator
// needs from then on, and those from the opening of the page to the fact.

import { appendFileSync, writeFileSync } from "node:fs";

import { MEASURES, accessible, equal, picture, until } from "./browser.mjs";
import { channelAt, consume, finish, make, pause, produce, publishBody, registerAt, remove } from "./daemons.mjs";

// Most clicks from the first page to a fact.
const CLICKS_MAX = 2;

// The model of the operator of docs/reference/nsqadmin.md, in seconds: to find the way on a page or in a dialog, a click, a key, and a note that is
// typed. Sentences are read at three words a second.
const OPERATOR = { find: 2, click: 2, key: 1, note: 5, wordsPerSecond: 3 };

// The goals of docs/reference/nsqadmin.md: seconds from the fault until the operator knows the answer, or has acted.
const GOALS = { older: 10, consumers: 20, poison: 30, producer: 20, server: 10, act: 30 };

// Most seconds from the opening of the page until its list has a fault that the server knows already, on a quiet machine. The figures of
// docs/reference/nsqadmin.md come from the prints.
const OPENED_MAX = 2;

// The bytes that a disk of 64 MB has less every second.
const STEP_BYTES = 512 * 1024;

const seconds = (milliseconds) => (milliseconds / 1000).toFixed(1);

// The seconds that the operator needs to read these texts.
function reading(...texts) {
  return texts.join(" ").split(/\s+/).filter((word) => /\w/.test(word)).length / OPERATOR.wordsPerSecond;
}

// The text of an item of the list, up to the end of the words that `says` finds.
async function textUntil(item, says) {
  const parts = item.locator(":scope > a, :scope > .facts, :scope > .sentence");
  let [text, found] = ["", null];
  // The item may be away for an update.
  await until(async () => {
    text = (await parts.allTextContents()).join(" ");
    found = typeof says === "string" ? text.includes(says) && says : text.match(says)?.[0];
    return Boolean(found);
  }, `the words ${says}`);
  return text.slice(0, text.indexOf(found) + found.length);
}

let steady = [];
let early = [];
let begun = 0;

// The time for which nsqadmin watches a disk before it forecasts anything, and some seconds more, in milliseconds.
const FORECAST_AFTER = 65_000;

// Starts a producer whose usual rate is known when its check comes, a consumer that keeps up, and what becomes slow while nobody looks.
export async function begin({ night }) {
  begun = Date.now();
  await make(night.nsqds.slice(0, 1), "late", ["billing"], 0);
  early = [await finish(night.nsqds[0], "late", "billing", 100), await produce(night.nsqds[0], "late", 20, "shop")];
  await make(night.nsqds, "clicks", ["archive"], 0);
  steady = [await produce(night.nsqds[0], "clicks", 5, "web"), await finish(night.nsqds[0], "clicks", "archive", 12)];
  for (const nsqd of night.nsqds.slice(1)) steady.push(await consume(nsqd, "clicks", "archive", 4));
}

// Waits for the fault in the list of the first page, and then goes to the fact as somebody who opens the page only now. `name` is
// the subject in the list, and `says` the words of its item that give the answer. `steps` click on, and `fact` is on the page at the end.
// With `isBehind`, only the fact gives the answer. `last` are the seconds of the operator after that. Returns the page.
async function look(browser, cluster, { what, since, within, name, says, steps = [], fact, isBehind = false, last = 0 }) {
  const { night } = cluster;
  const found = (page) => page.locator(".problems li", { hasText: name }).filter({ hasText: says });
  const watched = await browser.open(night.admin, { allowed: /404/ });
  await found(watched).first().waitFor();
  const known = Date.now() - since;
  const opened = Date.now();
  const page = await browser.open(night.admin, { allowed: /404/ });
  await found(page).first().waitFor();
  const listed = Date.now() - opened;
  const file = what.replaceAll(" ", "-");
  await picture(page, cluster, `minutes-${file}-list`);
  const toRead = OPERATOR.find + reading(await textUntil(found(page).first(), says));
  let clicks = 0;
  for (const step of steps) {
    await (await step(page, found(page).first())).click();
    clicks += 1;
  }
  if (clicks > CLICKS_MAX) throw new Error(`${what}: ${clicks} clicks`);
  if (fact) await fact(page).first().waitFor();
  const toFact = toRead + clicks * (OPERATOR.click + OPERATOR.find) + (fact ? reading(...await fact(page).allInnerTexts()) : 0) + last;
  console.log(`        ${what}: in the list ${seconds(known)} s after the fault; the operator has read it ${toRead.toFixed(1)} s later, and `
    + `${last ? "acted" : "read the fact"} ${toFact.toFixed(1)} s later; page opened: list after ${seconds(listed)} s, fact after `
    + `${seconds(Date.now() - opened)} s, ${clicks} clicks`);
  isInTime(what, known / 1000 + (isBehind ? toFact : toRead), within);
  isInTime(`${what}, with a page that was opened later`, listed / 1000, OPENED_MAX);
  await picture(page, cluster, `minutes-${file}`);
  return page;
}

// A measurement fails if `taken` seconds are more than the goal by more than 2 s, the time of a poll.
function isInTime(what, taken, goal) {
  if (MEASURES && taken > goal + 2) throw new Error(`${what}: ${taken.toFixed(1)} s, and ${goal} s are good`);
}

// Waits until the usual rate of the steady producer is known.
async function watched({ night }) {
  const publishing = async () => (await (await fetch(`${night.admin}api/live/topics/clicks`)).json()).publishing;
  await until(async () => (await publishing())?.producers?.some((producer) => producer.client_id === "web" && producer.usual_rate > 0), "a usual rate");
}

const itsLink = (name) => (page, item) => item.getByRole("link", { name, exact: true });

export const checks = {
  // This check comes first, because nobody has looked at the page yet: the rounds come every 10 seconds.
  async "minutes: a page that is opened after the fault"(browser, cluster) {
    const [fast, shop] = early;
    fast();
    const since = Date.now();
    const slow = await finish(cluster.night.nsqds[0], "late", "billing", 6);
    await new Promise((resolve) => setTimeout(resolve, 6000));
    const opened = Date.now();
    const page = await browser.open(cluster.night.admin, { allowed: /404/ });
    const item = page.locator(".problems li", { hasText: "late / billing" }).filter({ hasText: /oldest [\d.]+ s, getting older/ });
    await item.waitFor();
    const listed = (Date.now() - opened) / 1000;
    console.log(`        slow consumer, and nobody had looked: page opened ${seconds(opened - since)} s after the fault; list after ${listed.toFixed(1)} s`);
    isInTime("a page that is opened after the fault", listed, OPENED_MAX);
    slow();
    shop();
    await remove(cluster.night.nsqds.slice(0, 1), "late");
    browser.healthy();
  },

  async "minutes: a slow consumer version: what gets older, where, and which version"(browser, cluster) {
    const { nsqds } = cluster.night;
    const since = Date.now();
    await make(nsqds.slice(0, 1), "orders", ["billing"], 0);
    const stops = [await finish(nsqds[0], "orders", "billing", 5, { agent: "billing/1.4" }),
      await finish(nsqds[0], "orders", "billing", 1, { agent: "billing/1.5" }), await produce(nsqds[0], "orders", 20, "shop")];
    const version = (page) => page.getByRole("row").filter({ hasText: "billing/1.5" });
    const page = await look(browser, cluster, {
      what: "slow consumer", since, within: GOALS.older, name: "orders / billing", says: /oldest [\d.]+ s, getting older/, steps: [itsLink("orders / billing")], fact: version,
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
    const absent = async () => [];
    const paused = async () => {
      await pause(nsqds, "paused", "work");
      return [];
    };
    const backoff = () => Promise.all(nsqds.map((nsqd) => consume(nsqd, "backoff", "work", 0)));
    for (const [topic, begin, says] of [["absent", absent, "No consumers: 15 messages wait"], ["paused", paused, "Paused"],
      ["backoff", backoff, "Backoff: 3 of 3 connections have RDY 0"]]) {
      const since = Date.now();
      await make(nsqds, topic, ["work"], 5);
      const stops = await begin();
      await look(browser, cluster, { what: `consumers ${topic}`, within: GOALS.consumers, since, name: `${topic} / work`, says });
      stops.forEach((stop) => stop());
      await remove(nsqds, topic);
    }
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
      what: "poison message", since, within: GOALS.poison, isBehind: true, name: "mails / send", says: "Messages with the most attempts", steps: [itsLink("Messages with the most attempts")],
      fact: (page) => page.locator(".messages li").first().filter({ hasText: "poison@example.com" }),
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
      what: "lookupds disagree", since, within: GOALS.server, name: lookupds[1].http, says, steps: [itsLink(lookupds[1].http)], fact: (page) => page.locator(".hosts").getByText(says),
    });
    await registerAt(nsqds[1], lookupds.map((lookupd) => lookupd.tcp));
    const concerns = async () => (await (await fetch(`${admin}api/live/attention`)).json()).concerns;
    await until(async () => (await concerns()).every((concern) => !concern.lookupd), "both know all nodes again");
    browser.healthy();
  },

  async "minutes: a disk that is nearly full at once"(browser, cluster) {
    const { nsqds, disk } = cluster.night;
    if (disk === null) return;
    const since = Date.now();
    const name = nsqds[2].http;
    const { disk: room } = await (await fetch(`${cluster.night.admin}api/live/nodes/${name}`)).json();
    writeFileSync(`${disk}/filler`, Buffer.alloc(Math.floor(Math.max(0, room.free_bytes - room.size_bytes * 0.05)), 1));
    await look(browser, cluster, {
      what: "disk jumps", since, within: GOALS.server, name, says: /The disk has|Disk full/, steps: [itsLink(name)], fact: (page) => page.locator(".tile.bad", { hasText: "Disk free" }),
    });
    writeFileSync(`${disk}/filler`, "");
    browser.healthy();
  },

  async "minutes: a safe act: a channel is paused for half an hour, with a note"(browser, cluster) {
    const { nsqds } = cluster.night;
    const since = Date.now();
    await make(nsqds, "refunds", ["pay"], 5);
    // In the dialog, the operator presses two keys and types a note.
    const page = await look(browser, cluster, {
      what: "safe act", since, within: GOALS.act, name: "refunds / pay", says: /No consumers.*$/, isBehind: true, last: 2 * OPERATOR.key + OPERATOR.note,
      steps: [itsLink("refunds / pay"), (page) => page.getByRole("button", { name: "Pause channel" })],
      fact: (page) => page.getByRole("dialog").filter({ has: page.locator("button[type=submit]:enabled") }).locator("h2, p"),
    });
    const begun = Date.now();
    // A digit chooses the end and goes to the note, and Enter confirms.
    await page.keyboard.press("3");
    await page.keyboard.type("bad deploy");
    await page.keyboard.press("Enter");
    await page.getByText("Pause the channel refunds/pay: done.").waitFor();
    console.log(`        safe act: done ${seconds(Date.now() - begun)} s after the dialog`);
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
    await look(browser, cluster, { what: "wild producer, consumers keep up", since: Date.now(), within: GOALS.producer, name: "clicks", says: /consumers keep up\. A producer has grown: replayer \(host-p\)/,
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
      what: "producer gone wild", since, within: GOALS.producer, name: "clicks / archive", says: /A producer has grown: importer \(host-p\)/,
      steps: [itsLink("clicks / archive"), (page) => page.getByRole("navigation", { name: "Where you are" }).getByRole("link", { name: "clicks", exact: true })],
      fact: (page) => page.getByRole("region", { name: "Producers of the topic" }).getByText("importer"),
    });
    await page.getByRole("region", { name: "Producers of the topic" }).getByText("web").first().waitFor();
    stop();
    steady.forEach((stop) => stop());
    browser.healthy();
  },

  async "minutes: a disk that fills step by step"(browser, cluster) {
    const { nsqds, disk } = cluster.night;
    if (disk === null) return;
    await until(() => Date.now() > begun + FORECAST_AFTER, "a watch of a minute", FORECAST_AFTER);
    const since = Date.now();
    const name = nsqds[2].http;
    const step = () => appendFileSync(`${disk}/filler`, Buffer.alloc(STEP_BYTES, 1));
    step();
    const timer = setInterval(step, 1000);
    try {
      const page = await look(browser, cluster, {
        what: "disk fills", since, within: GOALS.server, name, says: /Disk full in about \d[\d.]*[smh] /, steps: [itsLink(name)],
        fact: (page) => page.locator(".tile", { hasText: "Disk full in" }).getByText(/\d (s|min)/),
      });
      await page.getByRole("status").getByText("Disk full in about").waitFor();
    } finally {
      clearInterval(timer);
      writeFileSync(`${disk}/filler`, "");
    }
    browser.healthy();
  },

  async "minutes: a node that is down"(browser, cluster) {
    const { nsqds } = cluster.night;
    const since = Date.now();
    process.kill(nsqds[1].pid, "SIGKILL");
    await look(browser, cluster, { what: "node down", since, within: GOALS.server, name: nsqds[1].http, says: "This nsqd is gone", steps: [itsLink(nsqds[1].http)],
      fact: (page) => page.getByRole("heading", { name: nsqds[1].http }) });
    browser.healthy();
  },
};
