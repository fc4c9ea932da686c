// The view of messages: lists, forms, filters, more, the live tail, users who may not read bodies, nodes without peeks.

import { accessible, equal, looksGood, picture, twoPolls, until } from "./browser.mjs";
import { channelAt, consume, finish, make, publishBodies, publishBody, remove } from "./daemons.mjs";

const bodies = (page) => page.locator(".messages pre").allTextContents();
const choose = (page, label, value) => page.getByRole("combobox", { name: label }).selectOption(value);

export const checks = {
  async "messages: lists, forms and the filter of a channel"(browser, cluster) {
    const { nsqds } = cluster;
    await make(nsqds, "parcels", ["archive"], 0);
    await publishBody(nsqds[0].http, "parcels", '{"order":{"id":9007199254740993,"items":["pen","ink"]},"note":[]}');
    await publishBody(nsqds[1].http, "parcels", "plain text");
    await publishBody(nsqds[1].http, "parcels", new Uint8Array([0xff, 0x00, 0x41]));
    const page = await browser.open(`${cluster.admin}topics/parcels/archive`, { allowed: /400/ });
    await page.getByRole("link", { name: "Look at messages" }).click();
    await page.getByRole("heading", { name: "Messages of parcels / archive" }).waitFor();
    await until(async () => await page.locator(".messages li").count() === 3, "three messages");
    await choose(page, "List", "oldest");
    await until(async () => (await bodies(page))[0]?.includes('"id": 9007199254740993,'), "JSON is indented, and its digits are exact");
    equal((await bodies(page))[0], '{\n  "order": {\n    "id": 9007199254740993,\n    "items": [\n      "pen",\n      "ink"\n    ]\n  },\n  "note": []\n}', "JSON");
    equal((await bodies(page)).slice(1), ["plain text", "000000  ff 00 41                                         ..A"], "text, and what is none as hex");
    await looksGood(page, cluster, "messages");
    await page.setViewportSize({ width: 1280, height: 900 });
    await choose(page, "Bodies", "hex");
    await until(async () => (await bodies(page))[1]?.startsWith("000000  70 6c 61 69 6e"), "hex");
    await choose(page, "Bodies", "auto");
    await page.getByRole("textbox", { name: "JSON pointer" }).fill("/order/items/1");
    await page.getByRole("textbox", { name: "equals" }).fill("ink");
    await page.keyboard.press("Enter");
    await page.getByText("1 message found. Gone through 3 messages").waitFor();
    // The copied commands ask the nodes for the same message.
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    await page.getByRole("button", { name: "Copy as curl" }).click();
    await page.getByText("Copied:", { exact: true }).waitFor();
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    equal(copied, await page.locator(".command pre").textContent(), "the clipboard has the commands that are shown");
    const looks = await Promise.all(copied.split("\n").map(async (line) => (await fetch(line.match(/^curl '(.*)'$/)[1])).json()));
    equal([looks.length, looks.flatMap((look) => look.messages.map((message) => message.body))],
      [nsqds.length, ['{"order":{"id":9007199254740993,"items":["pen","ink"]},"note":[]}']], "the answers to the copied commands");
    equal(new URL(page.url()).searchParams.get("json"), "/order/items/1", "the address has the filter");
    await page.getByRole("textbox", { name: "JSON pointer" }).fill("order");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").getByText("A JSON pointer begins with a slash, such as /order/id.").waitFor();
    await page.getByRole("button", { name: "No filter" }).click();
    await page.getByRole("textbox", { name: "Body contains" }).fill("nowhere");
    await page.getByRole("button", { name: "Search" }).click();
    await page.getByText("No message is here.").waitFor();
    await page.getByRole("button", { name: "Copy as curl" }).click();
    const command = await page.locator(".command pre").textContent();
    equal(command.split("\n").every((line) => /^curl 'http:\/\/[\d.:]+\/channel\/peek\?topic=parcels&channel=archive&from=oldest&limit=10&contains=nowhere'$/.test(line)),
      true, command);
    browser.healthy();
  },

  async "messages: more of them, in flight, and those of a topic"(browser, cluster) {
    const { nsqds } = cluster;
    await make(nsqds.slice(0, 1), "crowd", ["archive"], 25);
    const stop = await consume(nsqds[0], "crowd", "archive", 2);
    const page = await browser.open(`${cluster.admin}peek/crowd/archive?from=in_flight`);
    await until(async () => await page.locator(".messages li").count() === 2, "two are in flight");
    await page.getByText("held by consumer-7").first().waitFor();
    await choose(page, "List", "oldest");
    await until(async () => await page.locator(".messages li").count() === 10, "ten at a time");
    await page.getByRole("button", { name: "More" }).click();
    await until(async () => await page.locator(".messages li").count() === 20, "ten more");
    await page.getByRole("button", { name: "More" }).click();
    await until(async () => await page.locator(".messages li").count() === 23, "all that wait");
    equal(await page.getByRole("button", { name: "More" }).count(), 0, "no more");
    stop();
    await make(nsqds.slice(0, 1), "unclaimed", [], 1);
    await page.goto(`${cluster.admin}peek/unclaimed`);
    await until(async () => await page.locator(".messages li").count() === 1, "the topic's own message");
    await page.keyboard.press("Escape");
    await page.getByRole("heading", { name: "Topic unclaimed" }).waitFor();
    browser.healthy();
  },

  async "messages: a search says where its budget has ended, and goes on there"(browser, cluster) {
    const [first] = cluster.nsqds;
    await make([first], "haystack", ["archive"], 24_000);
    await publishBody(first.http, "haystack", "needle");
    const page = await browser.open(`${cluster.admin}peek/haystack/archive?from=oldest&contains=needle`);
    await page.getByText(`The budget of one look ended at ${first.http}.`).waitFor();
    // The budget is 20,000 messages or 2 s.
    await page.getByText(/^0 messages found\. Gone through [\d,]+ messages/).waitFor();
    const more = page.locator("button:enabled", { hasText: /^More$/ });
    await until(async () => {
      if ((await bodies(page)).length === 1) return true;
      if (await more.count() > 0) await more.click();
      return false;
    }, "the message behind the budget");
    await page.getByText("1 message found. Gone through 24,001 messages").waitFor();
    equal(await bodies(page), ["needle"], "the message behind the budget");
    browser.healthy();
  },

  // The list of those that wait was empty, and all deliveries were "elsewhere" without a topology.
  async "messages: Look at messages opens a list that has some"(browser, cluster) {
    const [first] = cluster.nsqds;
    await make([first], "later", ["archive"], 0);
    await publishBody(first.http, "later", "deferred for an hour", 3_600_000);
    await until(async () => (await channelAt(first, "later", "archive")).deferred_count === 1, "it is deferred");
    const page = await browser.open(`${cluster.admin}topics/later/archive`);
    await page.getByRole("link", { name: "Look at messages" }).click();
    await until(async () => await page.locator(".messages li").count() === 1, "the deferred message");
    equal(await bodies(page), ["deferred for an hour"], "it is shown");
    await publishBody(first.http, "later", "soon");
    const stop = await consume(first, "later", "archive", 1);
    await until(async () => (await channelAt(first, "later", "archive")).in_flight_count === 1, "one is delivered");
    await page.goto(`${cluster.admin}topics/later/archive`);
    await page.getByRole("columnheader", { name: "Messages", exact: true }).first().waitFor();
    equal(await page.getByRole("columnheader", { name: "Delivery" }).count(), 0, "no column without a topology");
    stop();
    browser.healthy();
  },

  async "messages: the only retried message is found behind hundreds of others"(browser, cluster) {
    const [first] = cluster.nsqds;
    await make([first], "tried", ["archive"], 0);
    await publishBodies(first.http, "tried", Array.from({ length: 500 }, (_, number) => `m ${number}`));
    const stop = await consume(first, "tried", "archive", 500, { retry: "m 333" });
    await until(async () => (await channelAt(first, "tried", "archive")).requeue_count === 1, "one is requeued");
    await until(async () => (await channelAt(first, "tried", "archive")).in_flight_count === 500, "500 are in flight");
    await Promise.all(Array.from({ length: 300 }, () => publishBody(first.http, "tried", "later", 3_600_000)));
    const page = await browser.open(`${cluster.admin}peek/tried/archive?from=attempts`);
    await page.getByText("The 10 with the most attempts of 800 messages in flight, deferred or requeued.").waitFor();
    equal((await bodies(page))[0], "m 333", "the retried message comes first");
    equal(await page.locator(".messages li").first().getByText("2 attempts").count(), 1, "its attempts");
    equal(await page.getByRole("button", { name: "More" }).count(), 0, "all were gone through");
    await page.goto(`${cluster.admin}peek/tried/archive?from=attempts&contains=later`);
    await page.getByText("The 0 with the most attempts of 800 messages in flight, deferred or requeued, among those that match.").waitFor();
    stop();
    browser.healthy();
  },

  async "messages: the live tail says what it can show"(browser, cluster) {
    const { nsqds } = cluster;
    await make(nsqds.slice(0, 1), "stream", ["archive"], 1);
    // The tail may ask while there is no such channel.
    const page = await browser.open(`${cluster.admin}lookup`, { allowed: /404/ });
    await page.clock.install();
    await page.goto(`${cluster.admin}peek/stream/archive`);
    await page.getByRole("button", { name: "Live tail" }).click();
    await page.getByText("At most 10 messages/s of each node").waitFor();
    await until(async () => await page.locator(".messages li").count() === 1, "what is there already");
    await publishBody(nsqds[0].http, "stream", "fresh");
    await until(async () => (await bodies(page))[0] === "fresh", "the new message comes on top");
    await accessible(page, "the live tail");
    await picture(page, cluster, "tail");
    await make(nsqds.slice(0, 1), "stream", ["archive"], 60);
    await page.getByText("40 messages not shown: more came than a look shows.").waitFor();
    await page.keyboard.press("h");
    await publishBody(nsqds[0].http, "stream", "late");
    await twoPolls(page);
    equal((await bodies(page)).includes("late"), false, "the hold switch holds the tail");
    await page.getByRole("button", { name: "On hold" }).click();
    await until(async () => (await bodies(page))[0] === "late", "the tail goes on");
    equal(await page.getByText("It is not known how many messages were missed").count(), 0, "all were counted so far");
    await remove(nsqds.slice(0, 1), "stream");
    await make(nsqds.slice(0, 1), "stream", ["archive"], 0);
    await page.getByText("It is not known how many messages were missed: a node has restarted").waitFor();
    await page.getByRole("button", { name: "Stop the live tail" }).click();
    await page.getByRole("button", { name: "Look again" }).waitFor();
    // The tail of a channel that does not exist showed the messages of the topic.
    const missing = await browser.open(`${cluster.admin}peek/stream/no-such?tail=on`, { allowed: /404/ });
    await missing.getByRole("alert").getByText("There is no channel with this name.").waitFor();
    equal(await missing.locator(".messages li").count(), 0, "messages of the topic");
    browser.healthy();
  },

  async "messages: a sampled tail shows one of ten messages, and counts the others"(browser, cluster) {
    const [first] = cluster.nsqds;
    await make([first], "sampled", ["archive"], 0);
    const page = await browser.open(`${cluster.admin}peek/sampled/archive?tail=on`);
    await page.getByText("At most 10 messages/s of each node").waitFor();
    await choose(page, "Sampling", "10");
    await until(() => new URL(page.url()).searchParams.get("every") === "10", "the address has the sampling");
    await page.getByText("At most 10 messages/s of each node").waitFor();
    // A look takes 20 messages. The rest of a burst would not be seen.
    for (let burst = 0; burst < 3; burst += 1) {
      await publishBodies(first.http, "sampled", Array.from({ length: 20 }, (_, number) => `${burst} ${number}`));
      await until(async () => await seen() >= (burst + 1) * 20, `${(burst + 1) * 20} messages are shown, counted or not seen`);
    }
    async function seen() {
      const note = await page.locator(".questions ~ p.note[role=status]").innerText();
      const count = (text) => Number(note.match(text)?.[1] ?? 0);
      return (await page.locator(".messages li").count()) + count(/(\d+) messages? left out by the sampling/) + count(/(\d+) messages? not shown/);
    }
    equal(await seen(), 60, "each message is shown or counted");
    const shown = await page.locator(".messages li").count();
    // With ids in sequence, one of ten is about 6 of 60.
    equal(shown > 0 && shown < 25, true, `${shown} of 60 are shown`);
    await choose(page, "Sampling", "1");
    await publishBody(first.http, "sampled", "all");
    await until(async () => (await bodies(page))[0] === "all", "without the sampling, each message is shown");
    browser.healthy();
  },

  async "messages: the live tail sees what consumers take at once"(browser, cluster) {
    const [first] = cluster.nsqds;
    await make([first], "busy", ["archive"], 0);
    const page = await browser.open(`${cluster.admin}peek/busy/archive?tail=on`);
    await page.getByText("The tail shows what was published to the topic").waitFor();
    const stop = await finish(first, "busy", "archive", 1000);
    for (let number = 0; number < 60; number += 1) await publishBody(first.http, "busy", `m ${number}`);
    await until(async () => (await bodies(page))[0] === "m 59", "the newest message");
    await until(async () => (await channelAt(first, "busy", "archive")).depth + (await channelAt(first, "busy", "archive")).in_flight_count === 0, "all finished");
    const shown = await bodies(page);
    equal(shown.length, new Set(shown).size, "no message comes twice");
    const told = await page.getByText(/messages? not shown: more came/).allTextContents();
    const unseen = Number(told[0]?.match(/(\d+) messages? not shown/)?.[1] ?? 0);
    equal(shown.length + unseen, 60, "each message is shown or counted");
    await page.getByRole("button", { name: "Stop the live tail" }).click();
    await page.getByText("No message is here.").waitFor();
    // The page of the topic shows them, too, although all belong to the channel.
    await page.goto(`${cluster.admin}peek/busy`);
    await until(async () => (await bodies(page)).length === 10, "what was published last");
    equal((await bodies(page))[0], "m 59", "the newest first");
    await page.locator(".messages li").first().getByText("finished", { exact: true }).waitFor();
    await page.getByRole("button", { name: "More" }).click();
    await until(async () => (await bodies(page)).length === 20, "ten more");
    await accessible(page, "what was published last");
    stop();
    browser.healthy();
  },

  // The list of a topic whose node had started anew was empty, and the page said that no message is here.
  async "messages: what was published before a restart of nsqd is on disk only, and the page says so"(browser, cluster) {
    await make(cluster.nsqds.slice(0, 1), "restarted", ["archive"], 2);
    const page = await browser.open(`${cluster.admin}lookup`);
    await page.route("**/api/peek/restarted?*", async (route) => {
      const answer = await route.fetch();
      const json = await answer.json();
      for (const node of json.nodes) Object.assign(node, { messages: [], scanned_messages: 0, scanned_bytes: 0, ended_by: "end", next: undefined });
      await route.fulfill({ response: answer, json });
    });
    await page.goto(`${cluster.admin}peek/restarted`);
    await page.getByText("Nothing that was published is in nsqd's memory.").waitFor();
    await page.getByText("After a restart of nsqd, all older messages are on disk only, and not among these.").waitFor();
    await choose(page, "List", "oldest");
    await page.getByText("No message is here.").waitFor();
    equal(await page.getByText("After a restart of nsqd").count(), 0, "a sentence that is about what was published last");
    browser.healthy();
  },

  async "messages: who may not read bodies sees none"(browser, cluster) {
    await make(cluster.nsqds.slice(0, 1), "sealed", ["archive"], 2);
    const page = await browser.open(`${cluster.acl}peek/sealed/archive`, { headers: { "X-Forwarded-User": "bob" } });
    await page.getByText("Bodies are masked.").waitFor();
    await until(async () => await page.locator(".messages li").count() === 2, "the messages without bodies");
    equal([await bodies(page), await page.getByRole("textbox").count()], [[], 0], "no bodies and no filter");
    await accessible(page, "masked messages");
    browser.healthy();
  },

  async "messages: nodes without peeks say what to change"(browser, cluster) {
    const page = await browser.open(`${cluster.mixed}peek/t/c`);
    await page.getByText("Run ringq's nsqd there").waitFor();
    await page.getByText("This nsqd does not permit looks at messages. This nsqd was started with --peek=false").waitFor();
    await until(async () => (await bodies(page)).join() === "open", "the node that shows its message");
    await accessible(page, "nodes without peeks");
    await picture(page, cluster, "obstacles");
    browser.healthy();
  },
};
