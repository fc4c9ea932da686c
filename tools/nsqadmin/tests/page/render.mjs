// Every page: it shows its figures, in both themes, wide and narrow, accessible, and without an error.

import { accessible, equal, looksGood, picture, until } from "./browser.mjs";
import { channelAt, consume, finish, make, publish, publishBodies, publishNumbered, topicAt } from "./daemons.mjs";

// The pages, and a text that each shows once it has its data.
function pages({ nsqds }) {
  return {
    topics: ["", "seen"],
    topic: ["topics/seen", "Latency 99th"],
    duplicates: ["topics/repeated", "body or json:"],
    channel: ["topics/seen/archive", "host-c (consumer-7)"],
    nodes: ["nodes", nsqds[1].http],
    node: [`nodes/${nsqds[0].http}`, "seen / archive"],
    lookup: ["lookup", "forgotten"],
    counter: ["counter", "Messages processed"],
    nothing: ["nodes/a/b", "There is nothing here"],
  };
}

let isMade = false;

async function prepare({ nsqds, lookupd }) {
  if (isMade) return;
  isMade = true;
  await make(nsqds, "seen", ["archive", "billing"], 40);
  for (const nsqd of nsqds) await consume(nsqd, "seen", "archive", 3);
  // Of 40 equal bodies, a rule stores one.
  await make(nsqds, "repeated", ["archive"], 40);
  await fetch(`http://${lookupd}/topic/create?topic=forgotten`, { method: "POST" });
  await fetch(`http://${lookupd}/channel/create?topic=forgotten&channel=old`, { method: "POST" });
}

// Follows a link to a view that does not exist. Only a link of the page itself leads there: the server answers such an address with 404.
async function gone(browser, url, path) {
  const page = await browser.open(`${url}lookup`);
  equal((await page.request.get(url + path)).status(), 404, "the server's answer");
  await page.evaluate((href) => {
    const link = document.body.appendChild(document.createElement("a"));
    link.href = href;
    link.click();
    link.remove();
  }, path);
  return page;
}

function check(name) {
  return async (browser, cluster) => {
    await prepare(cluster);
    const [path, text] = pages(cluster)[name];
    const page = name === "nothing" ? await gone(browser, cluster.admin, path) : await browser.open(cluster.admin + path);
    await page.getByText(text).first().waitFor();
    // The second answer gives the rates, and the charts their first line.
    if (await page.locator(".charts").count() > 0) await page.locator(".plot canvas").first().waitFor();
    await looksGood(page, cluster, name);
    browser.healthy();
  };
}

export const checks = {
  "render: topics": check("topics"),
  "render: topic": check("topic"),
  "render: duplicates": check("duplicates"),
  "render: channel": check("channel"),
  "render: nodes": check("nodes"),
  "render: node": check("node"),
  "render: lookup": check("lookup"),
  "render: counter": check("counter"),
  "render: nothing": check("nothing"),

  async "render: the figures are those of the daemons"(browser, cluster) {
    await prepare(cluster);
    const page = await browser.open(`${cluster.admin}topics/seen/archive`);
    const total = page.locator("tfoot tr");
    await total.waitFor();
    const headings = await page.locator("table:has(tfoot) thead th").allTextContents();
    const cells = await total.locator("th, td").allTextContents();
    const row = Object.fromEntries(headings.map((heading, index) => [heading.replace(/[▲▼]/, ""), cells[index]]));
    // Each of the three nodes has 40 messages, and its consumer holds three of them.
    equal([row.Depth, row["In flight"], row.Messages, row.Consumers], ["111", "9", "120", "3"], "the total of the channel");
    equal(await page.locator("table:has(tfoot) tbody tr").count(), 3, "rows of nodes");
    browser.healthy();
  },

  // The node's topics were counted without those that have no channel, and its consumers had no ids.
  async "render: a node has all its topics and consumers"(browser, cluster) {
    await prepare(cluster);
    const [{ http }] = cluster.nsqds;
    await make([{ http }], "bare", [], 0);
    const page = await browser.open(`${cluster.admin}nodes/${http}`);
    const shown = (label) => page.locator(".tile", { has: page.locator("dt").getByText(label, { exact: true }) }).locator("dd").innerText();
    // Other checks create topics and connect consumers in the meantime.
    await until(async () => {
      const { topics } = await (await fetch(`http://${http}/stats?format=json`)).json();
      const clients = topics.flatMap((topic) => topic.channels).flatMap((channel) => channel.clients);
      return topics.length >= 2 && clients.length >= 1 && `${[await shown("Topics"), await shown("Clients")]}` === `${[topics.length, clients.length]}`;
    }, "the tiles have the daemon's counts");
    const row = page.getByRole("region", { name: "Consumers on this node" }).getByRole("row").filter({ hasText: "seen / archive" });
    await row.getByText("host-c (consumer-7)").waitFor();
    browser.healthy();
  },

  // Other checks publish in the meantime, so the page gets answers that this check makes from the first one.
  async "render: the counter is the sum of all channels, is exact, and never goes down"(browser, cluster) {
    await prepare(cluster);
    const page = await browser.open(`${cluster.admin}lookup`);
    let [stats, polls] = [null, 0];
    await page.route("**/api/counter", async (route) => {
      const response = await route.fetch();
      stats ??= (await response.json()).stats;
      polls += 1;
      const body = JSON.stringify({ stats, message: "" }, (key, value) => typeof value === "bigint" ? `${value}n` : value).replace(/"(\d+)n"/g, "$1");
      await route.fulfill({ response, body });
    });
    await page.goto(`${cluster.admin}counter`);
    await page.getByText("messages processed").first().waitFor();
    await until(() => stats, "an answer with figures");
    const key = Object.keys(stats).find((key) => stats[key].topic_name === "seen" && stats[key].channel_name === "archive");
    let total = Object.values(stats).reduce((sum, part) => sum + BigInt(part.message_count), 0n);
    const isShown = async (what) => {
      const digits = total.toLocaleString("en-US");
      await until(async () => await page.locator(".counter [role=status]").innerText() === `${digits} messages processed`, `${what}: ${digits}`);
      equal(await page.locator(".counter .digits").innerText(), digits, `the large number, ${what}`);
    };
    equal([total >= 240n, stats[key].message_count], [true, 40], "the messages of this check");
    await isShown("the sum");
    const change = (count) => { stats = { ...stats, [key]: { ...stats[key], message_count: count } }; };
    change(9_007_199_254_740_993n);
    total += 9_007_199_254_740_993n - 40n;
    await isShown("beyond 2^53");
    change(5);
    total += 5n;
    await isShown("after a node has restarted");
    delete stats[key];
    const before = polls;
    await until(() => polls > before + 1, "two more answers");
    await isShown("after a node has gone");
    browser.healthy();
  },

  // nsqd measures latencies over ten minutes. Without new messages, its answer stays.
  async "render: the percentiles of a channel are those of the daemon"(browser, cluster) {
    const [nsqd] = cluster.nsqds;
    await make([nsqd], "measured", ["archive"], 200);
    const stop = await finish(nsqd, "measured", "archive", 400);
    const measured = async () => (await channelAt(nsqd, "measured", "archive")).e2e_processing_latency;
    await until(async () => (await channelAt(nsqd, "measured", "archive")).in_flight_count === 0 && (await measured()).count === 200, "all are finished");
    stop();
    const page = await browser.open(`${cluster.admin}topics/measured/archive`);
    const shown = async (name) => (await page.locator(".tile", { hasText: `Latency ${name}` }).locator("dd").innerText()).split("\n")[0];
    await page.locator(".tile", { hasText: "Latency 99th" }).waitFor();
    const { percentiles } = await measured();
    const [half, most] = [0.5, 0.99].map((quantile) => percentiles.find((one) => one.quantile === quantile).value);
    equal(half > 0 && most > half, true, `the messages took different times: ${half} and ${most} ns`);
    const expected = await page.evaluate(`import(new URL("static/format.js", document.baseURI)).then(({ duration }) => [${half}, ${most}].map(duration))`);
    equal([await shown("50th"), await shown("99th")], expected, "the percentiles");
    browser.healthy();
  },

  // Only nsqd's /stats had these figures.
  async "render: a topic with a rule of --dedup has its duplicates, on each node and in all"(browser, cluster) {
    await prepare(cluster);
    const { nsqds } = cluster;
    const page = await browser.open(`${cluster.admin}topics/repeated`);
    const tile = page.locator(".tile", { hasText: "Duplicates/s" });
    // Each of the three nodes has dropped 39 of 40 messages.
    await tile.getByText("117 in all, not stored again").waitFor();
    const cells = async (name, row) => {
      const table = page.getByRole("region", { name });
      const titles = (await table.locator("thead th").allInnerTexts()).map((title) => title.replace(/[▲▼]/, "").trim());
      const texts = await row(table).locator("th, td").allInnerTexts();
      return Object.fromEntries(titles.map((title, index) => [title, texts[index]]));
    };
    const of = ({ http }) => (table) => table.getByRole("row").filter({ hasText: http });
    const total = (table) => table.locator("tfoot tr");
    const [first, all] = [await cells("Duplicates on each node", of(nsqds[0])), await cells("Duplicates on each node", total)];
    equal([first.Rule, first.Duplicates, all.Duplicates, first["Memory refused"]], ["body or json:", "39", "117", "0"], "the figures of a rule");
    equal(first.Remembered.startsWith("1 of ") && / of .*B$/.test(first.Memory) && first.Reach !== "–", true, JSON.stringify(first));
    // The rate is that of the copies alone.
    await publishBodies(nsqds[0].http, "repeated", ["new", "body", "body"]);
    await tile.getByText("119 in all, not stored again").waitFor();
    browser.healthy();
  },

  async "render: a topic whose rule has publishers"(browser, cluster) {
    const { nsqds } = cluster;
    await make(nsqds.slice(0, 1), "numbered", ["archive"], 0);
    for (const number of [1, 2, 2]) await publishNumbered(nsqds[0].http, "numbered", "7", number);
    await publish(nsqds[0].http, "numbered", 1);
    equal((await topicAt(nsqds[0], "numbered")).dedup_duplicate_count, 1, "the node's own count");
    const page = await browser.open(`${cluster.admin}topics/numbered`);
    const table = page.getByRole("region", { name: "Duplicates on each node" });
    await table.getByText("publisher", { exact: true }).waitFor();
    await table.getByRole("button", { name: "Evicted" }).waitFor();
    await table.getByText(/^1 of [\d,]+$/).waitFor();
    // What grows while the page is open has a mark.
    equal(await table.locator(".older").count(), 0, "marks");
    await page.route("**/api/topics/numbered", async (route) => {
      const answer = await route.fetch();
      await route.fulfill({ response: answer, body: (await answer.text()).replaceAll('"dedup_publisher_evicted_count":0', '"dedup_publisher_evicted_count":9007199254740993') });
    });
    await table.locator(".older", { hasText: "9,007,199,254,740,993, growing" }).first().waitFor();
    await accessible(page, "a topic whose rule forgets publishers");
    browser.healthy();
  },

  async "render: a topic without a rule, and one of NSQ's nsqd, say nothing of duplicates"(browser, cluster) {
    await prepare(cluster);
    for (const [url, path] of [[cluster.admin, "topics/seen"], [cluster.mixed, "topics/t"]]) {
      const page = await browser.open(url + path);
      await page.locator(".tile", { hasText: "Messages/s" }).waitFor();
      await page.locator("tfoot").waitFor();
      equal(await page.getByText("Duplicates").count(), 0, `duplicates at ${path}`);
    }
    browser.healthy();
  },

  async "render: an unknown topic, and a topic without nodes"(browser, cluster) {
    await prepare(cluster);
    const page = await browser.open(`${cluster.admin}topics/no-such-topic`, { allowed: /404/ });
    await page.getByText("There is no topic with this name.").waitFor();
    await page.goto(`${cluster.admin}topics/forgotten`);
    await page.getByText("No nsqd that answers has this topic").waitFor();
    await page.goto(`${cluster.admin}topics/forgotten/old`);
    await page.getByText("No nsqd that answers has this channel").waitFor();
    equal(await page.locator(".tile").count(), 0, "figures that nobody knows");
    equal(await page.getByRole("button", { name: /(Pause|Empty|Delete) channel/ }).count(), 0, "acts that nobody would carry out");
    browser.healthy();
  },

  async "render: the nodes have figures, and tell which of them are ringq"(browser, cluster) {
    await prepare(cluster);
    const { nsqds } = cluster;
    const page = await browser.open(`${cluster.admin}lookup`);
    const name = nsqds[0].http;
    await page.route("**/api/live/nodes", async (route) => {
      const answer = await route.fetch();
      const json = await answer.json();
      // The second node is one of NSQ's. The third one has not told what it is.
      for (const node of json.nodes) {
        if (node.node === nsqds[1].http) node.ringq_version = "";
        else delete node.ringq_version;
        if (node.node === name) Object.assign(node, { ringq_version: "0.9.1", sentences: ["This nsqd drains"], disk: { size_bytes: 2e12, free_bytes: 1e11, full_in_s: 7200 } });
      }
      await route.fulfill({ response: answer, json });
    });
    await page.goto(`${cluster.admin}nodes`);
    const cells = async (row) => {
      const titles = await page.locator("thead th").allInnerTexts();
      const texts = await row.locator("th, td").allInnerTexts();
      return Object.fromEntries(titles.map((title, index) => [title.replace(/[▲▼]/, "").trim(), texts[index]]));
    };
    const [first, second, third] = nsqds.map((nsqd) => page.getByRole("row").filter({ hasText: nsqd.http }));
    await first.getByText("0.9.1").waitFor();
    const found = await cells(first);
    equal([found["ringq"], found["Disk free"], found["Needs attention"]], ["0.9.1", "100 GB, 5 %", "This nsqd drains"], "the first node");
    equal((await cells(second))["ringq"], "–", "a node of NSQ");
    equal((await cells(third))["ringq"], "unknown", "a node that has not told its build");
    // The figures are the daemon's own. A check beside this one publishes for some time.
    const sum = async ({ http }) => {
      const { topics } = await (await fetch(`http://${http}/stats?format=json`)).json();
      return topics.reduce((total, topic) => topic.channels.reduce((part, channel) => part + channel.depth, total + topic.depth), 0);
    };
    const shown = async () => Number((await cells(second))["Depth"].replaceAll(",", ""));
    await until(async () => await shown() === await sum(nsqds[1]) && await shown() >= 40, "the depth of a node");
    equal(Number((await cells(second))["Consumers"]) >= 1, true, "the consumers of a node");
    await page.getByRole("button", { name: "Disk free" }).click();
    await until(async () => /sort=-disk/.test(page.url()), "the table is sorted");
    await picture(page, cluster, "nodes-figures");
    await page.setViewportSize({ width: 390, height: 800 });
    await picture(page, cluster, "nodes-phone");
    browser.healthy();
  },

  // The list had 15,000 where the page of the node had 0.
  async "render: the depth of a topic is the same on every page"(browser, cluster) {
    await prepare(cluster);
    const { nsqds } = cluster;
    await make([nsqds[0]], "deep", ["archive", "billing"], 21);
    for (const [path, row] of [["?q=deep", "deep"], [`nodes/${nsqds[0].http}?q=deep`, "deep"], ["topics/deep", nsqds[0].http]]) {
      const page = await browser.open(cluster.admin + path);
      const table = page.locator("table").filter({ has: page.getByRole("link", { name: row, exact: true }) }).first();
      await table.waitFor();
      const depth = async () => {
        const titles = (await table.locator("thead th").allInnerTexts()).map((title) => title.replace(/[▲▼]/, "").trim());
        const cells = await table.locator("tbody tr").filter({ has: page.getByRole("link", { name: row, exact: true }) }).first().locator("th, td").allInnerTexts();
        return cells[titles.indexOf("Depth")];
      };
      await until(async () => await depth() === "42", `the depth at ${path}`);
    }
    browser.healthy();
  },

  async "render: an address without a page"(browser, cluster) {
    const page = await browser.open(`${cluster.admin}nope`, { allowed: /404/ });
    await page.getByRole("heading", { name: "There is nothing here" }).waitFor();
    await page.getByText("nsqadmin has no page with the address /admin/nsq/nope.").waitFor();
    await accessible(page, "an address without a page");
    await page.getByRole("link", { name: "All topics" }).click();
    await page.getByRole("heading", { name: "Topics", exact: true }).waitFor();
    browser.healthy();
  },

  async "render: the policy has no exception, and the browser keeps to it"(browser, cluster) {
    const page = await browser.open(cluster.admin, { allowed: /Content Security Policy/ });
    const policy = (await page.request.get(cluster.admin)).headers()["content-security-policy"];
    for (const part of ["default-src 'self'", "frame-ancestors"]) {
      if (!policy.includes(part)) throw new Error(`the policy lacks ${part}: ${policy}`);
    }
    if (/unsafe|data:|\*|http/.test(policy)) throw new Error(`the policy has an exception: ${policy}`);
    const ran = await page.evaluate(() => {
      const script = document.createElement("script");
      script.textContent = "window.ran = true";
      document.body.append(script);
      return window.ran === true;
    });
    equal(ran, false, "an inline script runs");
  },

  async "render: a number above 2^53 is exact"(browser, cluster) {
    await prepare(cluster);
    const page = await browser.open(`${cluster.admin}lookup`);
    const enlarge = async (route) => {
      const answer = await route.fetch();
      await route.fulfill({ response: answer, body: (await answer.text()).replaceAll('"message_count":40', '"message_count":9007199254740993') });
    };
    await page.route("**/api/topics/seen", enlarge);
    await page.goto(`${cluster.admin}topics/seen`);
    await page.getByText("9,007,199,254,740,993").first().waitFor();
    browser.healthy();
  },

  // JSON.parse makes a number of such an age, and the page a BigInt, which Math.max does not take.
  async "render: an age above 2^53 is shown"(browser, cluster) {
    await prepare(cluster);
    for (const isLive of [true, false]) {
      const page = await browser.open(`${cluster.admin}lookup`, { allowed: /404/ });
      const replace = (pattern, by) => async (route) => {
        const answer = await route.fetch();
        await route.fulfill({ response: answer, body: (await answer.text()).replaceAll(pattern, by) });
      };
      const age = String(86_400_000n * 200_000_000_000n);
      for (const path of ["**/api/live/topics", "**/api/live/topics/seen", "**/api/nodes/*"]) {
        await page.route(path, replace(/"(oldest_ms|oldest_unfinished_ms)":\d+/g, `"$1":${age}`));
      }
      if (!isLive) await page.route("**/api/settings", replace('"live":true', '"live":false'));
      await page.goto(`${cluster.admin}?q=seen`);
      await page.locator("tr[data-row]", { hasText: "seen" }).getByText("200000000000 d").waitFor();
      // Without live figures, the page of a topic has no ages.
      if (isLive) {
        await page.goto(`${cluster.admin}topics/seen`);
        await page.locator(".tile", { hasText: "200000000000 d" }).waitFor();
        await page.goto(`${cluster.admin}topics/seen/archive`);
        await page.locator(".tile", { hasText: "200000000000 d" }).waitFor();
      }
    }
    browser.healthy();
  },
};
