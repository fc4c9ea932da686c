// The end and the reason of a pause, and the undo of an empty, with their effects on the daemons.

import { accessibleInBoth, equal, picture, until } from "./browser.mjs";
import { channelAt, make, pause, publish, topicAt } from "./daemons.mjs";

const ALICE = { "X-Forwarded-User": "alice" };

const button = (page, name) => page.getByRole("button", { name, exact: true });

const end = (dialog, name) => dialog.getByRole("radio", { name, exact: true });

async function everywhere(nsqds, test, what) {
  for (const nsqd of nsqds) await until(() => test(nsqd), `${what} at ${nsqd.http}`);
}

// Opens the page of a topic, or of a channel, as alice.
function open(browser, cluster, ...segments) {
  return browser.open(`${cluster.acl}topics/${segments.join("/")}`, { headers: ALICE });
}

// Fails if a pause is not that of alice with this note, and with an end in about `seconds`.
function samePause(part, note, seconds, where) {
  const left = (part.pause_until_ms - Date.now()) / 1000;
  equal([part.paused, part.pause_note, part.paused_by, left > seconds - 60 && left <= seconds + 5], [true, note, "alice", true],
    `the pause ${where}, with ${left} s left`);
}

// Sends other terms with each action of a page than its dialogs offer.
async function insist(page, terms) {
  await page.route("**/api/topics/**", (route) => {
    const body = route.request().postDataJSON();
    return route.request().method() === "POST" ? route.continue({ postData: JSON.stringify({ ...body, ...terms }) }) : route.continue();
  });
}

// Pauses the channel of an open page for `limit`, one that the dialog does not offer, because nobody waits for it.
async function pauseFor(page, limit) {
  await insist(page, { for: limit });
  await button(page, "Pause channel").click();
  const dialog = page.getByRole("dialog");
  await end(dialog, "5 min").check();
  await button(dialog, "Pause").click();
  await until(async () => await dialog.count() === 0, "the dialog is closed");
  await page.unroute("**/api/topics/**");
}

export const checks = {
  async "terms: a channel is paused with an end, a note and a name"(browser, cluster) {
    const { nsqds } = cluster;
    await make(nsqds, "terms.pause", ["archive", "kept"], 5);
    const page = await open(browser, cluster, "terms.pause", "archive");
    await button(page, "Pause channel").click();
    const dialog = page.getByRole("dialog");
    await end(dialog, "10 min").check();
    await dialog.getByLabel("Note for others").fill("deploying <b>");
    await accessibleInBoth(page, cluster, "pause-dialog");
    await button(dialog, "Pause").click();
    await page.getByText("Pause the channel terms.pause/archive: done.").waitFor();
    for (const nsqd of nsqds) samePause(await channelAt(nsqd, "terms.pause", "archive"), "deploying <b>", 600, `at ${nsqd.http}`);
    equal((await channelAt(nsqds[0], "terms.pause", "kept")).paused, false, "the other channel");
    await page.getByRole("heading", { name: /^Channel archive paused until (\d{4}-\d\d-\d\d )?\d\d:\d\d by alice: deploying <b>$/ }).waitFor();
    await accessibleInBoth(page, cluster, "paused");
    await button(page, "Unpause channel").click();
    await button(dialog, "Unpause").click();
    await everywhere(nsqds, async (nsqd) => (await channelAt(nsqd, "terms.pause", "archive")).paused === false, "unpaused");
    browser.healthy();
  },

  // Without a proxy that names the user, a pause was by nobody.
  async "terms: without a user, acts have the name that the browser keeps, and it is marked"(browser, cluster) {
    const { nsqds } = cluster;
    await make(nsqds, "terms.named", ["archive"], 5);
    const page = await browser.open(`${cluster.admin}topics/terms.named/archive`, { allowed: /400/ });
    const dialog = page.getByRole("dialog");
    const name = dialog.getByLabel("Your name, if wanted");
    const focused = () => page.evaluate(() => document.activeElement.textContent || document.activeElement.type);
    await button(page, "Pause channel").click();
    await dialog.locator("button[type=submit]:enabled").waitFor();
    await until(async () => await focused() === "radio", "the keyboard begins at the end of the pause");
    await page.keyboard.press("2");
    await page.keyboard.type("deploying 7");
    await name.fill("Zoë <b>");
    await accessibleInBoth(page, cluster, "own-name-dialog");
    await page.setViewportSize({ width: 360, height: 740 });
    equal(await dialog.evaluate((one) => one.scrollWidth <= one.clientWidth), true, "the dialog is not wider than a phone");
    await picture(page, cluster, "own-name-dialog-narrow");
    await page.setViewportSize({ width: 1280, height: 900 });
    await name.press("Enter");
    await page.getByText("Pause the channel terms.named/archive: done.").waitFor();
    for (const nsqd of nsqds) {
      const { paused_by: by, pause_note: note } = await channelAt(nsqd, "terms.named", "archive");
      equal([by, note], ["Zoë <b> (unverified)", "deploying 7"], `the pause at ${nsqd.http}`);
    }
    await page.getByRole("heading", { name: /^Channel archive paused until .* by Zoë <b> \(unverified\): deploying 7$/ }).waitFor();
    await page.reload();
    // The name is there again, and does not stand in the way of the keyboard.
    await button(page, "Unpause channel").click();
    await until(async () => await focused() === "Unpause", "Enter confirms");
    equal(await name.inputValue(), "Zoë <b>", "the name that is kept");
    await page.keyboard.press("Enter");
    await everywhere(nsqds, async (nsqd) => (await channelAt(nsqd, "terms.named", "archive")).paused === false, "unpaused");
    await button(page, "Delete channel").click();
    await until(async () => await focused() === "text", "the keyboard begins at the word that a deletion needs");
    await dialog.getByLabel(/^Type /).fill("archive");
    await name.fill("Zoë\u202e");
    await button(dialog, "Delete").click();
    await dialog.getByRole("alert").getByText("Your name is not possible: at most 50 characters, of which each can be seen. Nothing was done.").waitFor();
    equal((await channelAt(nsqds[0], "terms.named", "archive")).depth, 5, "the channel is still there");
    await button(dialog, "Cancel").click();
    // Who has a user has no other name.
    const alice = await open(browser, cluster, "terms.named", "archive");
    await button(alice, "Pause channel").click();
    await alice.getByRole("dialog").locator("button[type=submit]:enabled").waitFor();
    equal(await alice.getByLabel("Your name").count(), 0, "a field for the name of a known user");
    browser.healthy();
  },

  async "terms: a pause ends by itself"(browser, cluster) {
    const { nsqds } = cluster;
    await make(nsqds, "terms.ends", ["archive"], 5);
    const page = await open(browser, cluster, "terms.ends", "archive");
    await pauseFor(page, "15s");
    const paused = page.getByRole("heading", { name: "Channel archive paused until" });
    await paused.waitFor();
    await everywhere(nsqds, async (nsqd) => (await channelAt(nsqd, "terms.ends", "archive")).paused === false, "the pause has ended");
    await until(async () => await paused.count() === 0, "the page shows the end of the pause");
    await button(page, "Pause channel").waitFor();
    browser.healthy();
  },

  async "terms: a topic is paused with an end and a note"(browser, cluster) {
    const { nsqds } = cluster;
    await make(nsqds, "terms.topic", ["archive"], 0);
    const page = await open(browser, cluster, "terms.topic");
    await button(page, "Pause topic").click();
    const dialog = page.getByRole("dialog");
    await end(dialog, "1 h").check();
    await dialog.getByLabel("Note for others").fill("moving to eu-2");
    await button(dialog, "Pause").click();
    await page.getByText("Pause the topic terms.topic: done.").waitFor();
    for (const nsqd of nsqds) samePause(await topicAt(nsqd, "terms.topic"), "moving to eu-2", 3600, `at ${nsqd.http}`);
    await page.getByRole("heading", { name: /^Topic terms.topic paused until .* by alice: moving to eu-2$/ }).waitFor();
    await publish(nsqds[0].http, "terms.topic", 3);
    equal([(await topicAt(nsqds[0], "terms.topic")).depth, (await channelAt(nsqds[0], "terms.topic", "archive")).depth], [3, 0], "messages stay in the topic");
    await button(page, "Unpause topic").click();
    await button(dialog, "Unpause").click();
    await until(async () => (await channelAt(nsqds[0], "terms.topic", "archive")).depth === 3, "the channel has the messages");
    browser.healthy();
  },

  async "terms: an end is not offered where a node would pause for ever"(browser, cluster) {
    // One of these nodes answers as NSQ's own nsqd does.
    const page = await browser.open(`${cluster.mixed}topics/t/c`);
    await button(page, "Pause channel").click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText(/these nodes would pause without an end: original:4151/).waitFor();
    equal(await end(dialog, "10 min").isDisabled(), true, "the choice is off");
    await page.keyboard.press("Escape");
    // Here the server's answer is replaced: no node knows terms.
    await page.route("**/api/abilities*", (route) => route.fulfill({ json: { nodes: [{ node: "n2:4151", pause_terms: false, undo: false }], message: "" } }));
    await button(page, "Pause channel").click();
    await dialog.locator("button[type=submit]:enabled").waitFor();
    equal(await dialog.getByRole("radio").count(), 0, "the choice with nodes of which none can");
    equal(await dialog.getByLabel("Note for others").count(), 0, "the note with nodes of which none can");
    browser.healthy();
  },

  async "terms: without an answer about the undo, the dialog says that there is none"(browser, cluster) {
    await make(cluster.nsqds, "terms.unknown", ["archive"], 1);
    const page = await browser.open(`${cluster.acl}topics/terms.unknown/archive`, { headers: ALICE, allowed: /502/ });
    await page.route("**/api/abilities*", (route) => route.fulfill({ status: 502, json: { message: "UPSTREAM_ERROR: x" } }));
    await button(page, "Empty channel").click();
    await page.getByRole("dialog").getByText("The messages cannot come back: no node has said whether it knows an undo.").waitFor();
    browser.healthy();
  },

  // Operators emptied one channel after the other on a full disk, and nothing became free.
  async "terms: the dialog says what an empty frees on the disk, and who keeps the rest"(browser, cluster) {
    await make(cluster.nsqds, "terms.frees", ["archive", "audit"], 1);
    const page = await browser.open(`${cluster.acl}topics/terms.frees/archive`, { headers: ALICE });
    const said = async (nodes, text) => {
      await page.route("**/api/disk/terms.frees/archive", (route) => route.fulfill({ json: { nodes, message: "" } }));
      await button(page, "Empty channel").click();
      await page.getByRole("dialog").locator(".frees", { hasText: text }).waitFor();
      await page.keyboard.press("Escape");
      await page.unroute("**/api/disk/terms.frees/archive");
    };
    const node = { node: "n1:4151", bytes: 3_000_000_000, alone_bytes: 1_000_000, shared_with: ["audit"], shared_count: 1, shared_with_topic: false };
    const other = { ...node, node: "n2:4151", shared_with: ["audit", "billing"], shared_count: 9, shared_with_topic: true };
    await said([{ ...node, alone_bytes: node.bytes }], "3.0 GB.");
    await said([node], "1.0 MB of 3.0 GB. The rest stays, because the same files are needed by audit.");
    await said([node, other],
      "2.0 MB of 6.0 GB. The rest stays, because the same files are needed by audit, billing and 7 other channels, and by the topic itself");
    // These nodes have one small file for all messages, which an empty does not free.
    await button(page, "Empty channel").click();
    await page.getByRole("dialog").locator(".frees", { hasText: ": 0 B." }).waitFor();
    await page.keyboard.press("Escape");
    browser.healthy();
  },

  // A channel that one node has paused could only be unpaused everywhere.
  async "terms: what only some nodes have paused can be paused at all"(browser, cluster) {
    const { nsqds } = cluster;
    await make(nsqds, "terms.partly", ["archive"], 1);
    await pause([nsqds[0]], "terms.partly", "archive", "one node");
    const page = await open(browser, cluster, "terms.partly", "archive");
    await page.getByRole("heading", { name: `Channel archive paused at 1 of ${nsqds.length} nodes: one node` }).waitFor();
    await button(page, "Unpause channel").waitFor();
    await button(page, "Pause channel").click();
    await button(page.getByRole("dialog"), "Pause").click();
    for (const nsqd of nsqds) await until(async () => (await channelAt(nsqd, "terms.partly", "archive")).paused, `the pause at ${nsqd.http}`);
    await until(async () => await button(page, "Pause channel").count() === 0, "everything is paused");
    // The list of topics says the same of a topic.
    await fetch(`http://${nsqds[0].http}/topic/pause?topic=terms.partly&by=bob`, { method: "POST" });
    await page.goto(`${cluster.acl}?q=terms.partly`);
    await page.getByText(`paused at 1 of ${nsqds.length} nodes by bob`).waitFor();
    browser.healthy();
  },

  async "terms: an emptied channel gets its messages back"(browser, cluster) {
    const { nsqds } = cluster;
    await make(nsqds, "terms.undo", ["archive"], 5);
    const page = await open(browser, cluster, "terms.undo", "archive");
    await button(page, "Empty channel").click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel(/^Type /).fill("archive");
    await until(async () => await dialog.getByLabel("The messages can be brought back for").inputValue() === "10m", "the first choice");
    // Nobody was told that a full disk ends the undo.
    const fullDisk = "If the disk has no room for a new message, this ends at once, and they are gone.";
    await dialog.getByText(fullDisk).waitFor();
    await accessibleInBoth(page, cluster, "empty-dialog");
    await button(dialog, "Empty").click();
    await page.getByText("Empty the channel terms.undo/archive: done.").waitFor();
    for (const nsqd of nsqds) {
      const { depth, undo_message_count: messages, undo_until_ms: end } = await channelAt(nsqd, "terms.undo", "archive");
      const left = (end - Date.now()) / 1000;
      equal([depth, messages, left > 500 && left <= 605], [0, 5, true], `the emptied channel at ${nsqd.http}, with ${left} s left`);
    }
    await page.getByText("15 emptied messages can be brought back until").waitFor();
    await page.locator(".bar.undo").getByText(fullDisk).waitFor();
    await accessibleInBoth(page, cluster, "undo-bar");
    await publish(nsqds[0].http, "terms.undo", 2);
    await button(page, "Undo the empty").click();
    await accessibleInBoth(page, cluster, "undo-dialog");
    await button(dialog, "Bring back").click();
    await page.getByText("Bring back 15 messages of terms.undo/archive: done.").waitFor();
    for (const [index, nsqd] of nsqds.entries()) equal((await channelAt(nsqd, "terms.undo", "archive")).depth, index === 0 ? 7 : 5, `the messages at ${nsqd.http}`);
    await until(async () => await button(page, "Undo the empty").count() === 0, "the undo is used up");
    browser.healthy();
  },

  async "terms: an emptied topic gets its messages back"(browser, cluster) {
    const { nsqds } = cluster;
    await make(nsqds, "terms.topic-undo", [], 5);
    const page = await open(browser, cluster, "terms.topic-undo");
    await button(page, "Empty topic").click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel(/^Type /).fill("terms.topic-undo");
    await until(async () => await dialog.getByLabel("The messages can be brought back for").inputValue() === "10m", "the first choice");
    await button(dialog, "Empty").click();
    await page.getByText("Empty the topic terms.topic-undo: done.").waitFor();
    for (const nsqd of nsqds) {
      const { depth, undo_message_count: messages } = await topicAt(nsqd, "terms.topic-undo");
      equal([depth, messages], [0, 5], `the emptied topic at ${nsqd.http}`);
    }
    await page.getByText("15 emptied messages can be brought back until").waitFor();
    await button(page, "Undo the empty").click();
    await button(dialog, "Bring back").click();
    await page.getByText("Bring back 15 messages of terms.topic-undo: done.").waitFor();
    for (const nsqd of nsqds) equal((await topicAt(nsqd, "terms.topic-undo")).depth, 5, `the messages at ${nsqd.http}`);
    await until(async () => await button(page, "Undo the empty").count() === 0, "the undo is used up");
    browser.healthy();
  },

  async "terms: what nsqd refuses is told in sentences"(browser, cluster) {
    const { nsqds } = cluster;
    await make(nsqds, "terms.refused", ["archive", "brief#ephemeral"], 0);
    const refused = async (channel, terms, name, text) => {
      const page = await browser.open(`${cluster.acl}topics/terms.refused/${encodeURIComponent(channel)}`, { headers: ALICE, allowed: /400/ });
      await insist(page, terms);
      await button(page, `${name} channel`).click();
      const dialog = page.getByRole("dialog");
      if (name === "Empty") await dialog.getByLabel(/^Type /).fill(channel);
      await button(dialog, name).click();
      await dialog.getByRole("alert").getByText(text).waitFor();
    };
    await refused("brief#ephemeral", { undo: "10m" }, "Empty", "Ephemeral topics and channels have no undo. Nothing was emptied there.");
    await refused("archive", { undo: "48h" }, "Empty", "Messages can be brought back for 1 s to 24 h. Nothing was emptied there.");
    await refused("archive", { for: "0s" }, "Pause", "A pause has no end, or ends after 1 s to 30 days.");
    browser.healthy();
  },

  async "terms: a channel that somebody has deleted is named as the cause"(browser, cluster) {
    const { nsqds } = cluster;
    await make(nsqds, "terms.gone", ["archive"], 0);
    const page = await browser.open(`${cluster.acl}topics/terms.gone/archive`, { headers: ALICE, allowed: /404/ });
    await button(page, "Pause channel").click();
    for (const nsqd of nsqds) await fetch(`http://${nsqd.http}/channel/delete?topic=terms.gone&channel=archive`, { method: "POST" });
    await button(page.getByRole("dialog"), "Pause").click();
    await page.getByRole("alert").getByText("There is no channel with this name.").waitFor();
    browser.healthy();
  },
};
