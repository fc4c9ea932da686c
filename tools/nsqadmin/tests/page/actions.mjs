// Each action, and its effect on the daemons.

import { accessible, equal, picture, until } from "./browser.mjs";
import { channelAt, consume, make, producersOf, publish, topicAt, topicsAt } from "./daemons.mjs";

// Presses a button of the page, and then answers its dialog. With `name`, the dialog asks for it. `destroys` is what the dialog says will
// be gone.
async function act(page, button, name, destroys) {
  await button.click();
  const dialog = page.getByRole("dialog");
  if (destroys) {
    const text = await dialog.locator(".destroys").innerText();
    equal(destroys.test(text), true, `the dialog shows what is destroyed: ${text}`);
  }
  const submit = dialog.locator("button[type=submit]");
  if (name) {
    equal(await submit.isDisabled(), true, "a destructive action needs the name");
    await dialog.getByLabel(/^Type /).fill(`${name}x`);
    equal(await submit.isDisabled(), true, "another name is not enough");
    await dialog.getByLabel(/^Type /).fill(name);
  }
  await submit.click();
  await until(async () => await dialog.count() === 0, "the dialog is closed");
}

const button = (page, name) => page.getByRole("button", { name, exact: true });

async function everywhere(nsqds, test, what) {
  for (const nsqd of nsqds) await until(() => test(nsqd), `${what} at ${nsqd.http}`);
}

export const checks = {
  async "actions: pause and unpause a channel"(browser, cluster) {
    const { nsqds } = cluster;
    await make(nsqds, "acts", ["archive"], 5);
    const page = await browser.open(`${cluster.admin}topics/acts/archive`);
    await act(page, button(page, "Pause channel"));
    await everywhere(nsqds, async (nsqd) => (await channelAt(nsqd, "acts", "archive")).paused === true, "paused");
    await page.getByRole("heading", { name: "Channel archive paused" }).waitFor();
    await act(page, button(page, "Unpause channel"));
    await everywhere(nsqds, async (nsqd) => (await channelAt(nsqd, "acts", "archive")).paused === false, "unpaused");
    await page.getByText("Unpause the channel acts/archive: done.").waitFor();
    browser.healthy();
  },

  async "actions: empty a channel, after its figures and its name"(browser, cluster) {
    const { nsqds } = cluster;
    await make(nsqds, "spill", ["archive", "kept"], 5);
    const stop = await consume(nsqds[0], "spill", "archive", 2);
    await until(async () => (await channelAt(nsqds[0], "spill", "archive")).in_flight_count === 2, "two in flight");
    const page = await browser.open(`${cluster.admin}topics/spill/archive`);
    await button(page, "Empty channel").click();
    const dialog = page.getByRole("dialog");
    await dialog.waitFor();
    await until(async () => /depth\)\s*13.*In flight\s*2/s.test(await dialog.innerText()), "the dialog shows what is destroyed");
    await accessible(page, "the dialog");
    await picture(page, cluster, "dialog");
    await page.keyboard.press("Escape");
    await until(async () => await dialog.count() === 0, "Esc closes the dialog");
    equal((await channelAt(nsqds[1], "spill", "archive")).depth, 5, "Esc does nothing");
    await act(page, button(page, "Empty channel"), "archive");
    await everywhere(nsqds, async (nsqd) => {
      const channel = await channelAt(nsqd, "spill", "archive");
      return channel.depth === 0 && channel.in_flight_count === 0;
    }, "the channel is empty");
    equal((await channelAt(nsqds[0], "spill", "kept")).depth, 5, "the other channel keeps its messages");
    stop();
    browser.healthy();
  },

  async "actions: delete a channel"(browser, cluster) {
    const { nsqds } = cluster;
    await make(nsqds, "shrinks", ["archive", "kept"], 1);
    const page = await browser.open(`${cluster.admin}topics/shrinks/archive`, { allowed: /404/ });
    await act(page, button(page, "Delete channel"), "archive");
    await everywhere(nsqds, async (nsqd) => (await channelAt(nsqd, "shrinks", "archive")) === undefined, "the channel is deleted");
    await page.getByRole("heading", { name: "Topic shrinks" }).waitFor();
    equal((await channelAt(nsqds[0], "shrinks", "kept")).channel_name, "kept", "the other channel");
    browser.healthy();
  },

  async "actions: pause, empty and delete a topic"(browser, cluster) {
    const { nsqds, lookupd } = cluster;
    await make(nsqds, "whole", [], 6);
    const page = await browser.open(`${cluster.admin}topics/whole`, { allowed: /404/ });
    await act(page, button(page, "Pause topic"));
    await everywhere(nsqds, async (nsqd) => (await topicAt(nsqd, "whole")).paused === true, "paused");
    await act(page, button(page, "Unpause topic"));
    await everywhere(nsqds, async (nsqd) => (await topicAt(nsqd, "whole")).paused === false, "unpaused");
    await act(page, button(page, "Empty topic"), "whole");
    await everywhere(nsqds, async (nsqd) => (await topicAt(nsqd, "whole")).depth === 0, "the topic is empty");
    await publish(nsqds[0].http, "whole", 4);
    const waiting = page.locator(".tile", { hasText: "Waiting in the topic" }).locator("dd");
    await until(async () => /^4\b/.test(await waiting.innerText()), "the page has the figures that will be gone");
    await act(page, button(page, "Delete topic"), "whole", /\(depth\)\s+4\s.*Channels\s+0\s/s);
    await everywhere(nsqds, async (nsqd) => (await topicAt(nsqd, "whole")) === undefined, "the topic is deleted");
    await until(async () => !(await topicsAt(lookupd)).includes("whole"), "nsqlookupd has forgotten the topic");
    await page.getByRole("heading", { name: "Topics", exact: true }).waitFor();
    browser.healthy();
  },

  async "actions: tombstone a topic on one node, from both pages"(browser, cluster) {
    const { nsqds, lookupd } = cluster;
    await make(nsqds, "moves", ["archive"], 2);
    await until(async () => (await producersOf(lookupd, "moves")).length === 3, "three producers");
    const page = await browser.open(`${cluster.admin}topics/moves`);
    const row = page.getByRole("row").filter({ hasText: nsqds[0].http });
    await act(page, row.getByRole("button", { name: "Tombstone" }), "moves", /\(depth\)\s+2\s.*Channels\s+1: archive\s/s);
    await until(async () => (await topicAt(nsqds[0], "moves")) === undefined, "the node has deleted the topic");
    equal(await producersOf(lookupd, "moves"), [nsqds[1].http, nsqds[2].http].sort(), "producers after the first tombstone");
    await page.goto(`${cluster.admin}nodes/${nsqds[1].http}?q=moves`);
    const topic = page.getByRole("row").filter({ has: page.getByRole("link", { name: "moves", exact: true }) });
    await act(page, topic.getByRole("button", { name: "Tombstone" }), "moves", /\(depth\)\s+2\s.*Channels\s+1: archive\s/s);
    await until(async () => (await topicAt(nsqds[1], "moves")) === undefined, "the second node has deleted the topic");
    equal(await producersOf(lookupd, "moves"), [nsqds[2].http], "producers after the second tombstone");
    browser.healthy();
  },

  async "actions: create a topic with a channel, and delete inactive names"(browser, cluster) {
    const { lookupd } = cluster;
    const page = await browser.open(`${cluster.admin}lookup`, { allowed: /400/ });
    const create = async (topic, channel) => {
      await page.getByLabel("Topic name").fill(topic);
      await page.getByLabel("Channel name").fill(channel);
      await button(page, "Create").click();
    };
    await create("made-here", "archive");
    await page.getByText("Create the topic made-here with the channel archive: done.").waitFor();
    await until(async () => (await topicsAt(lookupd)).includes("made-here"), "nsqlookupd knows the topic");
    await create("bad name", "");
    await page.getByText("This is no valid topic name. A name is 1 to 64 characters of a-z A-Z 0-9 . _ -, of which the last 10 may be #ephemeral.").waitFor();
    await page.reload();
    await act(page, page.getByRole("button", { name: "Delete made-here/archive" }), "archive");
    await until(async () => await page.getByRole("button", { name: "Delete made-here/archive" }).count() === 0, "the channel is gone");
    await act(page, page.getByRole("button", { name: "Delete made-here", exact: true }), "made-here");
    await until(async () => !(await topicsAt(lookupd)).includes("made-here"), "nsqlookupd has forgotten the topic");
    browser.healthy();
  },

  async "actions: without nsqlookupds, a topic is created, and removed from one node"(browser, cluster) {
    const { nsqds, direct } = cluster;
    const page = await browser.open(`${direct}lookup`);
    await page.getByText("nsqadmin is not configured with nsqlookupd hosts.").waitFor();
    await page.getByLabel("Topic name").fill("straight");
    await page.getByLabel("Channel name").fill("archive");
    await button(page, "Create").click();
    await page.getByText("Create the topic straight with the channel archive: done.").waitFor();
    await everywhere(nsqds, async (nsqd) => (await channelAt(nsqd, "straight", "archive")) !== undefined, "the channel is there");
    await publish(nsqds[1].http, "straight", 3);
    await page.goto(`${direct}nodes/${nsqds[1].http}?q=straight`);
    await page.getByText("straight / archive").waitFor();
    const topic = page.getByRole("row").filter({ has: page.getByRole("link", { name: "straight", exact: true }) });
    await act(page, topic.getByRole("button", { name: "Tombstone" }), "straight", /\(depth\)\s+3\s/);
    await until(async () => (await topicAt(nsqds[1], "straight")) === undefined, "the node has deleted the topic");
    for (const nsqd of [nsqds[0], nsqds[2]]) equal((await topicAt(nsqd, "straight")).topic_name, "straight", `the topic at ${nsqd.http}`);
    browser.healthy();
  },

  // The names of topics that no nsqd has were up to 15 s old. The page's clock stands still here, so nothing becomes old by itself.
  async "actions: the list has a topic at once that was created, and no topic that was deleted"(browser, cluster) {
    const page = await browser.open(cluster.admin);
    await page.evaluate(() => {
      const now = Date.now();
      Date.now = () => now;
    });
    const [list, lookup] = ["Topics", "Lookup"].map((name) => page.getByRole("navigation").getByRole("link", { name }));
    const row = page.getByRole("link", { name: "made-and-listed", exact: true });
    await page.getByRole("heading", { name: "All topics together" }).waitFor();
    await lookup.click();
    await page.getByRole("textbox", { name: "Topic name" }).fill("made-and-listed");
    await button(page, "Create").click();
    await page.getByText("Create the topic made-and-listed: done.").waitFor();
    await list.click();
    // A long list draws only the rows in sight.
    const search = () => page.getByRole("searchbox").fill("made-and-listed");
    await search();
    await row.waitFor();
    await lookup.click();
    await act(page, button(page, "Delete made-and-listed"), "made-and-listed");
    await list.click();
    await search();
    await page.getByRole("status").getByText(/^0 of \d+$/).waitFor();
    equal(await row.count(), 0, "the topic is gone from the list");
    browser.healthy();
  },
};
