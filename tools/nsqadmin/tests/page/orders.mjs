// Acts on all topics or channels that match the filter of the list.

import { accessibleInBoth, equal, until } from "./browser.mjs";
import { channelAt, make, pause, publish, topicAt } from "./daemons.mjs";

const button = (page, name) => page.getByRole("button", { name, exact: true });

async function everywhere(nsqds, test, what) {
  for (const nsqd of nsqds) await until(() => test(nsqd), `${what} at ${nsqd.http}`);
}

// Opens the dialog for the topics with `needle`.
async function open(browser, { admin }, needle, options) {
  const page = await browser.open(`${admin}?q=${needle}`, options);
  await button(page, "Act on all that match").click();
  const dialog = page.getByRole("dialog");
  await dialog.waitFor();
  return [page, dialog];
}

export const checks = {
  async "orders: no button without a filter, and none for others than admins"(browser, cluster) {
    await make(cluster.nsqds, "batch.one", ["archive"], 0);
    const page = await browser.open(cluster.admin);
    await page.getByRole("link", { name: "batch.one", exact: true }).waitFor();
    equal(await button(page, "Act on all that match").count(), 0, "the button without a filter");
    await page.getByRole("searchbox").fill("batch");
    await button(page, "Act on all that match").waitFor();
    const others = await browser.open(`${cluster.acl}?q=batch`);
    await others.getByRole("link", { name: "batch.one", exact: true }).waitFor();
    equal(await button(others, "Act on all that match").count(), 0, "the button of somebody who is no admin");
    browser.healthy();
  },

  async "orders: empty all channels that match, after their figures and the words"(browser, cluster) {
    const { nsqds } = cluster;
    for (const topic of ["spring.one", "spring.two"]) await make(nsqds, topic, ["archive", "kept"], 5);
    await make(nsqds, "summer", ["archive"], 5);
    const [page, dialog] = await open(browser, cluster, "spring");
    await dialog.getByLabel("Action").selectOption("empty");
    await dialog.getByLabel("Only channels named").fill("archive");
    const submit = button(dialog, "Empty 2 channels");
    await submit.waitFor();
    await until(async () => /Channels\s*2.*depth\)\s*30.*Nodes\s*3/s.test(await dialog.innerText()), "the dialog shows what is destroyed");
    equal(await submit.isDisabled(), true, "a destructive order needs the words");
    await dialog.getByText("Show each of them").click();
    await dialog.getByText("spring.two / archive").waitFor();
    await accessibleInBoth(page, cluster, "order-empty");
    await dialog.getByLabel("Type").fill("empty 2 channels");
    await submit.click();
    await page.getByText("Empty 2 channels: done.").waitFor();
    for (const topic of ["spring.one", "spring.two"]) {
      await everywhere(nsqds, async (nsqd) => (await channelAt(nsqd, topic, "archive")).depth === 0, "the channel is empty");
      equal((await channelAt(nsqds[0], topic, "kept")).depth, 5, "the other channel keeps its messages");
    }
    equal((await channelAt(nsqds[0], "summer", "archive")).depth, 5, "the other topic keeps its messages");
    browser.healthy();
  },

  async "orders: one undo for all channels that an order has emptied"(browser, cluster) {
    const { nsqds } = cluster;
    for (const topic of ["tide.one", "tide.two"]) await make(nsqds, topic, ["archive"], 5);
    const [page, dialog] = await open(browser, cluster, "tide");
    await dialog.getByLabel("Action").selectOption("empty");
    await dialog.getByLabel("Type").fill("empty 2 channels");
    equal(await dialog.getByLabel("The messages can be brought back for").inputValue(), "10m", "the first choice");
    await button(dialog, "Empty 2 channels").click();
    await page.getByText("Empty 2 channels: done.").waitFor();
    // The undo is there for others, too, and after the page was loaded anew.
    const later = await browser.open(`${cluster.admin}?q=tide`);
    const bar = later.getByRole("status").filter({ hasText: "2 channels were emptied. 30 messages can be brought back until" });
    await bar.waitFor();
    await accessibleInBoth(later, cluster, "order-undo");
    await button(bar, "Undo").click();
    const undo = later.getByRole("dialog");
    await undo.getByText("Messages that can come back").waitFor();
    await accessibleInBoth(later, cluster, "order-undo-dialog");
    await button(undo, "Undo the empty of 2 channels").click();
    await later.getByText("Undo the empty of 2 channels: done.").waitFor();
    for (const topic of ["tide.one", "tide.two"]) {
      await everywhere(nsqds, async (nsqd) => (await channelAt(nsqd, topic, "archive")).depth === 5, "the messages are back");
    }
    await until(async () => await bar.count() === 0, "the bar goes");
    const others = await browser.open(`${cluster.acl}?q=tide`);
    await others.getByRole("link", { name: "tide.one", exact: true }).waitFor();
    equal(await button(others, "Undo").count(), 0, "the undo of somebody who is no admin");
    browser.healthy();
  },

  // A node that answers late left the messages without an undo that they could have had.
  async "orders: an empty waits until it is known whether it can be undone"(browser, cluster) {
    await make(cluster.nsqds, "ebb.one", ["archive"], 1);
    const page = await browser.open(`${cluster.admin}?q=ebb`);
    let goOn;
    const late = new Promise((resolve) => { goOn = resolve; });
    await page.route("**/api/abilities*", async (route) => {
      await late;
      await route.continue();
    });
    await button(page, "Act on all that match").click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Action").selectOption("empty");
    const submit = button(dialog, "Empty 1 channel");
    await submit.waitFor();
    await dialog.getByLabel("Type").fill("empty 1 channel");
    equal(await submit.isDisabled(), true, "the button before the nodes have said what they can do");
    goOn();
    await dialog.getByLabel("The messages can be brought back for").waitFor();
    await until(async () => await submit.isEnabled(), "the button afterwards");
    browser.healthy();
  },

  async "orders: what has changed in between is not touched"(browser, cluster) {
    const { nsqds } = cluster;
    await make(nsqds, "autumn.one", ["archive"], 2);
    const [page, dialog] = await open(browser, cluster, "autumn", { allowed: /409/ });
    await dialog.getByLabel("Action").selectOption("delete");
    await dialog.getByRole("combobox", { name: "On", exact: true }).selectOption("topics");
    await button(dialog, "Delete 1 topic").waitFor();
    await make(nsqds, "autumn.two", ["archive"], 2);
    await dialog.getByLabel("Type").fill("delete 1 topic");
    await button(dialog, "Delete 1 topic").click();
    await dialog.getByText("What matches has changed in the meantime").waitFor();
    await button(dialog, "Delete 2 topics").waitFor();
    equal((await topicAt(nsqds[0], "autumn.one")).topic_name, "autumn.one", "nothing was deleted");
    await dialog.getByLabel("Type").fill("delete 2 topics");
    await button(dialog, "Delete 2 topics").click();
    await page.getByText("Delete 2 topics: done.").waitFor();
    for (const topic of ["autumn.one", "autumn.two"]) {
      await everywhere(nsqds, async (nsqd) => (await topicAt(nsqd, topic)) === undefined, "the topic is deleted");
    }
    browser.healthy();
  },

  async "orders: pause and unpause topics, and nothing to do"(browser, cluster) {
    const { nsqds } = cluster;
    for (const topic of ["winter.one", "winter.two"]) await make(nsqds, topic, ["archive"], 1);
    const [page, dialog] = await open(browser, cluster, "winter");
    await dialog.getByRole("combobox", { name: "On", exact: true }).selectOption("topics");
    await button(dialog, "Pause 2 topics").click();
    await page.getByText("Pause 2 topics: done.").waitFor();
    await everywhere(nsqds, async (nsqd) => (await topicAt(nsqd, "winter.two")).paused === true, "paused");
    await button(page, "Act on all that match").click();
    await dialog.getByRole("combobox", { name: "On", exact: true }).selectOption("topics");
    await dialog.getByLabel("Action").selectOption("unpause");
    await button(dialog, "Unpause 2 topics").click();
    await page.getByText("Unpause 2 topics: done.").waitFor();
    await everywhere(nsqds, async (nsqd) => (await topicAt(nsqd, "winter.one")).paused === false, "unpaused");
    await publish(nsqds[0].http, "winter.one", 1);
    for (const topic of ["winter.one", "winter.two"]) await pause(nsqds, topic, "archive");
    await button(page, "Act on all that match").click();
    await dialog.getByLabel("Action").selectOption("unpause");
    await button(dialog, "Unpause 2 channels").click();
    await page.getByText("Unpause 2 channels: done.").waitFor();
    for (const topic of ["winter.one", "winter.two"]) {
      await everywhere(nsqds, async (nsqd) => (await channelAt(nsqd, topic, "archive")).paused === false, "the channel is unpaused");
    }
    await button(page, "Act on all that match").click();
    await dialog.getByLabel("Action").selectOption("unpause");
    await dialog.getByText("No channel that matches is paused.").waitFor();
    browser.healthy();
  },

  async "orders: pause channels with an end, a note and a name"(browser, cluster) {
    const { nsqds } = cluster;
    const topics = ["storm.one", "storm.two"];
    for (const topic of topics) await make(nsqds, topic, ["archive", "kept"], 1);
    const [page, dialog] = await open(browser, cluster, "storm");
    await dialog.getByLabel("Only channels named").fill("archive");
    await dialog.getByRole("radio", { name: /^30 min/ }).check();
    await dialog.getByLabel("Note for others").fill("storm drill");
    await dialog.getByLabel("Your name, if wanted").fill("ann");
    await button(dialog, "Pause 2 channels").click();
    await page.getByText("Pause 2 channels: done.").waitFor();
    for (const topic of topics) for (const nsqd of nsqds) {
      const { paused, paused_by: by, pause_note: note, pause_until_ms: end } = await channelAt(nsqd, topic, "archive");
      const left = (end - Date.now()) / 60_000;
      equal([paused, by, note, left > 25 && left < 30.1], [true, "ann (unverified)", "storm drill", true], `${topic} at ${nsqd.http}, for ${left} more minutes`);
      equal((await channelAt(nsqd, topic, "kept")).paused, false, "the other channel");
    }
    browser.healthy();
  },

  async "orders: empty topics and bring their messages back, and delete channels"(browser, cluster) {
    const { nsqds } = cluster;
    for (const topic of ["river.one", "river.two"]) await make(nsqds, topic, [], 5);
    const [page, dialog] = await open(browser, cluster, "river");
    const begin = async (action, of) => {
      if (await dialog.count() === 0) await button(page, "Act on all that match").click();
      await dialog.getByRole("combobox", { name: "On", exact: true }).selectOption(of);
      await dialog.getByLabel("Action").selectOption(action);
    };
    const depths = (depth, what) => Promise.all(["river.one", "river.two"].map((topic) =>
      everywhere(nsqds, async (nsqd) => (await topicAt(nsqd, topic)).depth === depth, what)));
    await begin("empty", "topics");
    await dialog.getByLabel("Type").fill("empty 2 topics");
    await until(async () => await dialog.getByLabel("The messages can be brought back for").inputValue() === "10m", "the first choice");
    await button(dialog, "Empty 2 topics").click();
    await page.getByText("Empty 2 topics: done.").waitFor();
    await depths(0, "the topics are empty");
    await begin("unempty", "topics");
    await button(dialog, "Undo the empty of 2 topics").click();
    await page.getByText("Undo the empty of 2 topics: done.").waitFor();
    await depths(5, "the messages are back");
    for (const topic of ["river.one", "river.two"]) await make(nsqds, topic, ["archive", "kept"], 0);
    await begin("pause", "channels");
    await dialog.getByLabel("Only channels named").fill("archive");
    await button(dialog, "Pause 2 channels").click();
    await page.getByText("Pause 2 channels: done.").waitFor();
    await everywhere(nsqds, async (nsqd) => (await channelAt(nsqd, "river.one", "archive")).paused === true, "the channel is paused");
    await begin("delete", "channels");
    await dialog.getByLabel("Only channels named").fill("archive");
    await dialog.getByLabel("Type").fill("delete 2 channels");
    await button(dialog, "Delete 2 channels").click();
    await page.getByText("Delete 2 channels: done.").waitFor();
    await everywhere(nsqds, async (nsqd) => (await channelAt(nsqd, "river.two", "archive")) === undefined, "the channel is deleted");
    equal((await channelAt(nsqds[0], "river.one", "kept")).channel_name, "kept", "the other channel");
    browser.healthy();
  },
};
