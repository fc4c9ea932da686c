// What an operator looks for at night: what gets older and where, who publishes more, which server is in trouble.

import { accessible, equal, looksGood, picture, until } from "./browser.mjs";
import { channelAt, consume, finish, make, produce, publish } from "./daemons.mjs";

export const checks = {
  async "incident: the first page says what needs attention, and what to do"(browser, cluster) {
    const { nsqds } = cluster;
    await make(nsqds, "invoices", ["archive"], 7);
    await make(nsqds, "mails", ["send"], 3);
    const stop = await consume(nsqds[0], "mails", "send", 1);
    const page = await browser.open(cluster.admin);
    const list = page.locator(".problems");
    // Topics of other checks may have older messages, and the disk of the machine may be nearly full.
    const more = list.getByRole("button", { name: /^and \d+ more$/ });
    const [invoices, mails] = ["invoices / archive", "mails / send"].map((name) => list.getByRole("link", { name }));
    await until(async () => {
      if (await more.count() > 0) await more.click();
      return await invoices.count() === 1 && await mails.count() === 1;
    }, "invoices and mails are among what needs attention");
    const concern = list.locator("li").filter({ has: page.getByRole("link", { name: "invoices / archive" }) });
    await concern.getByText("No consumers: 21 messages wait and 0/s arrive; start a consumer.").waitFor();
    // Nodes count for this when they are 90 s old.
    await list.getByText("where 6 messages wait: connect the consumers to every node.").waitFor();
    const { concerns } = await (await fetch(`${cluster.admin}api/live/attention`)).json();
    const ages = concerns.filter((one) => one.topic).map((one) => one.oldest_ms);
    equal(ages, [...ages].sort((a, b) => b - a), "the oldest message comes first");
    await looksGood(page, cluster, "attention");
    await invoices.click();
    await page.getByRole("status").getByText("No consumers: 21 messages wait").waitFor();
    stop();
    browser.healthy();
  },

  async "incident: a channel has the doctor's sentence, and the time until it is drained"(browser, cluster) {
    const { nsqds } = cluster;
    await make(nsqds.slice(0, 1), "backlog", ["slow", "stuck"], 950);
    const stops = [await finish(nsqds[0], "backlog", "slow", 10), await consume(nsqds[0], "backlog", "stuck", 2)];
    const page = await browser.open(`${cluster.admin}topics/backlog`);
    await page.getByText("Stuck: none of the 2 messages in flight was finished").waitFor();
    await page.getByText(/Catches up: the \d+ waiting messages take/).waitFor();
    await page.getByRole("button", { name: "Drained in" }).waitFor();
    await page.goto(`${cluster.admin}topics/backlog/slow`);
    await page.locator(".tile", { hasText: "Drained in" }).waitFor();
    await page.locator(".tile", { hasText: "Latency 99th" }).waitFor();
    await until(async () => /\d s|min/.test(await page.locator(".tile", { hasText: "Drained in" }).innerText()), "a time");
    await looksGood(page, cluster, "drained");
    stops.forEach((stop) => stop());
    browser.healthy();
  },

  async "incident: messages at a node that lacks the channels of the topic are named, and who has paused the topic there"(browser, cluster) {
    const [first, second] = cluster.nsqds;
    // A new topic gets the channels that nsqlookupd knows, so the node without one comes first.
    await make([second], "partial", [], 6);
    await make([first], "partial", ["archive"], 0);
    const page = await browser.open(`${cluster.admin}topics/partial`);
    const bar = page.getByRole("status").filter({ hasText: `No channel at ${second.http}, where 6 messages wait; other nodes have archive.` });
    await bar.waitFor();
    await fetch(`http://${second.http}/topic/pause?topic=partial&note=deploying&by=ann`, { method: "POST" });
    await page.getByRole("status").getByText("Topic paused at 1 of 2 nodes by ann (deploying); 6 messages wait there. No channel at").waitFor();
    await looksGood(page, cluster, "partial");
    await page.goto(`${cluster.admin}?show=problem&q=partial`);
    await page.locator("tr.problem", { hasText: "partial" }).waitFor();
    await make([second], "partial", ["archive"], 0);
    await fetch(`http://${second.http}/topic/unpause?topic=partial`, { method: "POST" });
    await page.goto(`${cluster.admin}topics/partial`);
    await until(async () => await page.getByText("No channel at").count() === 0 && await page.locator("tfoot").count() > 0, "the node has the channel");
    browser.healthy();
  },

  async "incident: a topic has its producers and their rates"(browser, cluster) {
    const { nsqds } = cluster;
    await make(nsqds, "sales", ["archive"], 2);
    const stops = [await produce(nsqds[0], "sales", 20), await produce(nsqds[1], "sales", 5)];
    const page = await browser.open(`${cluster.admin}topics/sales`);
    const table = page.getByRole("region", { name: "Producers of the topic" });
    await until(async () => await table.locator("tbody tr[data-row]").count() === 2, "two producers");
    await table.getByText("shop (host-p)").first().waitFor();
    const rates = () => table.locator("tbody tr[data-row] td:nth-child(3)").allTextContents();
    await until(async () => (await rates()).every((rate, index) => Math.abs(Number(rate) - [20, 5][index]) < 8), "their rates, the highest first");
    await looksGood(page, cluster, "producers");
    stops.forEach((stop) => stop());
    browser.healthy();
  },

  async "incident: a node has its shards and its disk"(browser, cluster) {
    await make(cluster.nsqds, "sales", ["archive"], 2);
    const page = await browser.open(`${cluster.admin}nodes/${cluster.nsqds[0].http}`);
    const table = page.getByRole("region", { name: "Shards of this node" });
    await until(async () => / %/.test(await table.innerText()), "the load of a shard");
    await until(async () => /[1-9]\d* (MB|GB|TB)/.test(await page.locator(".tile", { hasText: "Disk free" }).innerText()), "the disk");
    await looksGood(page, cluster, "shards");
    browser.healthy();
  },

  // The page said "Disk full in about 57ms", and nothing of 33,500 refused messages.
  async "incident: a full disk is called full, and refused messages are counted"(browser, cluster) {
    await make(cluster.nsqds, "refusals", ["archive"], 2);
    const address = cluster.nsqds[0].http;
    const page = await browser.open(`${cluster.admin}lookup`);
    await page.route("**/api/live/nodes/**", async (route) => {
      const answer = await route.fetch();
      const json = await answer.json();
      await route.fulfill({ response: answer, json: { ...json, disk: { size_bytes: 1e9, free_bytes: 4e6, is_full: true } } });
    });
    const refusing = (topic) => topic.topic_name === "refusals" ? { ...topic, refused_count: 33_500 } : topic;
    await page.route("**/api/nodes/*", async (route) => {
      const answer = await route.fetch();
      const json = await answer.json();
      await route.fulfill({ response: answer, json: { ...json, topics: json.topics.map(refusing) } });
    });
    await page.route("**/api/topics/refusals", async (route) => {
      const answer = await route.fetch();
      await route.fulfill({ response: answer, json: refusing(await answer.json()) });
    });
    await page.goto(`${cluster.admin}nodes/${address}`);
    await page.locator(".tile.bad", { hasText: "Disk" }).getByText(/^full/).waitFor();
    await page.locator(".tile", { hasText: "Refused" }).getByText(/^33,500/).waitFor();
    // The disk of the machine may fill meanwhile, and a sentence about it says so.
    equal(await page.locator(".tile", { hasText: "Disk full in" }).count(), 0, "a full disk has no time until it is full");
    await page.goto(`${cluster.admin}topics/refusals`);
    await page.locator(".tile", { hasText: "Refused" }).getByText(/^33,500/).waitFor();
    browser.healthy();
  },

  async "incident: a channel says how near its consumers are"(browser, cluster) {
    const { mixed, placed, unplaced } = cluster;
    await make([placed, unplaced], "placed", ["archive"], 0);
    const page = await browser.open(`${mixed}topics/placed/archive`);
    const delivery = page.getByRole("region", { name: "The channel on each node" });
    for (const [topology_region, topology_zone, count, badge] of [["eu", "eu-1", 30, "same zone"], ["eu", "eu-2", 10, "same region"], ["us", "us-1", 10]]) {
      const stop = await finish(placed, "placed", "archive", 1000, { place: { topology_region, topology_zone } });
      await publish(placed.http, "placed", count);
      await until(async () => {
        const channel = await channelAt(placed, "placed", "archive");
        return channel.depth === 0 && channel.in_flight_count === 0 && channel.client_count === 1;
      }, `the consumer in ${topology_zone} has finished`);
      if (badge) await page.getByText(badge, { exact: true }).waitFor();
      stop();
      await until(async () => (await channelAt(placed, "placed", "archive")).client_count === 0, "the consumer is gone");
    }
    await delivery.getByRole("button", { name: "Delivery" }).waitFor();
    await delivery.getByText("zone 60.0%, region 20.0%, elsewhere 20.0%").first().waitFor();
    // A node without deliveries left its cell out, so its further figures were below the heads of others.
    const heads = (await delivery.locator("thead th").allTextContents()).map((text) => text.replace(/[▲▼]/, ""));
    for (const [name, shown] of [[unplaced.http, ["0", "–"]], [placed.http, ["50", " zone 60.0%, region 20.0%, elsewhere 20.0%"]], ["Total", ["50", " zone 60.0%, region 20.0%, elsewhere 20.0%"]]]) {
      const row = delivery.locator("tbody tr[data-row], tfoot tr").filter({ hasText: name });
      const cells = await row.locator("th, td").allTextContents();
      equal([cells.length, ["Messages", "Delivery"].map((head) => cells[heads.indexOf(head)])], [heads.length, shown], `the row ${name}`);
    }
    await looksGood(page, cluster, "delivery");
    browser.healthy();
  },

  async "incident: graphite's charts are on every page that has some, and all pages work with graphite"(browser, cluster) {
    const { graphite, nsqds } = cluster;
    await make(nsqds, "graphed", ["archive"], 1);
    const page = await browser.open(`${graphite}topics?q=graphed`);
    await page.getByRole("heading", { name: "Topics", exact: true }).waitFor();
    await page.getByRole("link", { name: "graphed", exact: true }).waitFor();
    const node = nsqds[0].http;
    const targets = [];
    page.on("request", (request) => request.url().includes("render?") && targets.push(...new URL(request.url()).searchParams.getAll("target")));
    for (const [path, title, series] of [
      ["topics/graphed", "Depth", "nsq.*.topic.graphed.depth"],
      [`nodes/${node}`, "Memory in bytes", `nsq.${node.replace(/[.:]/g, "_")}.mem.heap_in_use_bytes`],
      ["counter", "Messages per second, all channels", "nsq.*.topic.*.channel.*.message_count"],
    ]) {
      await page.goto(graphite + path);
      await page.getByRole("heading", { name: "History" }).waitFor();
      const chart = page.locator(".graphs + .charts .chart", { hasText: title }).first();
      await chart.getByText(/^7,654$|^128$/).first().waitFor();
      await until(() => targets.some((target) => target.includes(series)), `${series} is asked for on ${path}, and not only ${targets}`);
      await accessible(page, `${path} with graphite`);
    }
    for (const [path, text] of [["nodes", node], ["lookup", "nsqlookupd hosts"], ["peek/graphed/archive", "Messages of graphed / archive"]]) {
      await page.goto(graphite + path);
      await page.getByText(text).first().waitFor();
      equal(await page.getByRole("heading", { name: "History" }).count(), 0, `charts on ${path}`);
    }
    browser.healthy();
  },

  async "incident: graphite's charts are asked through nsqadmin"(browser, cluster) {
    await make(cluster.nsqds, "graphed", ["archive"], 1);
    const asked = [];
    const page = await browser.open(cluster.graphite);
    page.on("request", (request) => request.url().includes("render?") && asked.push(new URL(request.url())));
    await page.goto(`${cluster.graphite}topics/graphed/archive`);
    await page.getByRole("heading", { name: "History" }).waitFor();
    // The fake graphite has 7,654 at each time for each line.
    await page.locator(".graphs + .charts .chart").first().getByText("7,654").first().waitFor();
    const targets = () => asked.flatMap((url) => url.searchParams.getAll("target"));
    await until(() => targets().some((one) => one === 'summarize(sumSeries(stats.gauges.nsq.*.topic.graphed.channel.archive.depth),"60sec","avg")'), "the depth");
    await until(() => targets().some((one) => one.startsWith("scale(summarize(sumSeries(stats.counters.nsq.*.topic.graphed.channel.archive.message_count.count)")), "the rate");
    equal([...new Set(asked.map((url) => url.origin + url.pathname))], [`${cluster.graphite}render`], "only nsqadmin is asked");
    equal(asked[0].searchParams.get("from"), "-2h", "the first timeframe");
    await page.getByRole("combobox", { name: /From graphite/ }).selectOption("12h");
    await until(() => asked.some((url) => url.searchParams.get("from") === "-12h"), "the chosen timeframe");
    await accessible(page, "charts of graphite");
    await picture(page, cluster, "graphite", true);
    browser.healthy();
  },
};
