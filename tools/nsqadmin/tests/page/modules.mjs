// The page's modules, which need no server: numbers, durations, rates, messages.

import { equal } from "./browser.mjs";

// Runs a function in the page with one of its modules.
async function within(browser, cluster, module, run) {
  const page = await browser.open(`${cluster.admin}lookup`);
  const found = await page.evaluate(`import(new URL("static/${module}", document.baseURI)).then(${run})`);
  browser.healthy();
  return found;
}

export const checks = {
  async "modules: integers of any size are exact"(browser, cluster) {
    const found = await within(browser, cluster, "exact.js", (module) => {
      const text = String.raw`{"a":9007199254740993,"b":9007199254740991,"c":-9223372036854775808,"d":1.5,"e":12345678901234567.5,
        "f":"9007199254740993 \" 9007199254740993","g":"exact:9007199254740993","h":[1e3,9223372036854775807]}`;
      const read = module.parse(text);
      return {
        texts: [read.a, read.b, read.c, read.d, read.e, ...read.h].map(String),
        kinds: [read.a, read.b, read.c].map((value) => typeof value),
        strings: [read.f, read.g],
        sum: String(module.plus(read.a, read.b)), missing: module.plus(undefined, 3), difference: module.difference(read.a, read.b),
        small: module.parse('{"x":[1,2,"9"]}').x,
      };
    });
    equal(found, {
      texts: ["9007199254740993", "9007199254740991", "-9223372036854775808", "1.5", "12345678901234568", "1000", "9223372036854775807"],
      kinds: ["bigint", "number", "bigint"],
      strings: ['9007199254740993 " 9007199254740993', "exact:9007199254740993"],
      sum: "18014398509481984", missing: 3, difference: 2, small: [1, 2, "9"],
    }, "exact.js");
  },

  async "modules: figures as people read them"(browser, cluster) {
    const found = await within(browser, cluster, "format.js", (format) => ({
      counts: [0, 999, 1000, 1234567, 9223372036854775807n, undefined, null, -1234].map(format.count),
      rates: [0, 0.001, 0.25, 3.49, 12.4, 1234.5, -3, null].map(format.rate),
      growths: [0, 12, -3.5, 0.001, null].map(format.growth),
      ages: [0, 850, 5100, 59_990, 200_000, 7_500_000, 273_600_000, undefined].map(format.age),
      durations: [0, 999, 1500, 672_060_610, 209e9, 3723e9, 300e9, 3600e9, 59.999e9, undefined].map(format.duration),
      percentiles: [0.5, 0.95, 0.99, 0.999, 1, 0.11, 0.01, 0.92, 0.93].map(format.percentile),
      addresses: [format.address("10.0.0.1", 4151), format.address("::1", 4151), format.address("[::1]", 4151)],
      many: [format.many(1, "node"), format.many(2000, "node"), format.many(1n, "message waits", "messages wait")],
    }));
    equal(found, {
      counts: ["0", "999", "1,000", "1,234,567", "9,223,372,036,854,775,807", "–", "–", "-1,234"],
      rates: ["0", "0", "0.25", "3.5", "12", "1,235", "−3", "–"],
      growths: ["0", "+12", "−3.5", "0", "–"],
      ages: ["0", "850 ms", "5.1 s", "59.9 s", "3 min 20 s", "2 h 5 min", "3 d 4 h", "–"],
      durations: ["0ns", "999ns", "1.5us", "672.06ms", "3m29s", "1h2m3s", "5m0s", "1h0m0s", "60s", "–"],
      percentiles: ["50th", "95th", "99th", "99.9th", "100th", "11th", "1st", "92nd", "93rd"],
      addresses: ["10.0.0.1:4151", "[::1]:4151", "[::1]:4151"],
      many: ["1 node", "2,000 nodes", "1 message waits"],
    }, "format.js");
  },

  async "modules: rates of two samples"(browser, cluster) {
    const found = await within(browser, cluster, "rates.js", ({ Samples, perSecond, change }) => {
      const samples = new Samples();
      const first = samples.take("a", 1000, { count: 10 });
      const second = samples.take("a", 3000, { count: 30 });
      // An answer that comes too soon is compared with the sample before the last one.
      const soon = samples.take("a", 3100, { count: 31 });
      // Without a node, a sum is another one: the return of a node is no burst.
      const parts = [["n1 n2", 4000], ["n1", 1000], ["n1", 1010], ["n1 n2", 4040], ["n1 n2", 4050]];
      const ofNodes = parts.map(([nodes, count], index) => perSecond(samples.take("sum", 1000 * index, { count }, nodes), "count", count));
      // A clock that goes back by an hour begins anew.
      const jumps = [[9_000_000, 100], [5_400_000, 102], [5_402_000, 122]];
      const ofJumps = jumps.map(([at, count]) => perSecond(samples.take("clock", at, { count }), "count", count));
      samples.keep(new Set(["b"]));
      return {
        first, ofNodes, ofJumps, rate: perSecond(second, "count", 30), soon: soon.seconds, restarted: perSecond(second, "count", 3),
        falls: change(second, "count", 0), unknown: perSecond(second, "other", 1), forgotten: samples.take("a", 5000, {}),
      };
    });
    equal(found, { first: null, ofNodes: [null, null, 10, null, 10], ofJumps: [null, null, 10], rate: 10, soon: 2.1, restarted: null, falls: -5, unknown: null, forgotten: null }, "rates.js");
  },

  // A node that had missed an answer came back as a burst of all messages since its start.
  async "modules: a list has no rate of a topic whose nodes have changed"(browser, cluster) {
    const found = await within(browser, cluster, "overview.js", async ({ TopicRows }) => {
      const maker = new TopicRows();
      // Two other nodes are another sum than two nodes, too.
      const rows = [];
      for (const [index, [node_set, count]] of [[2, 5000], [1, 1000], [1, 1020], [2, 5040], [2, 5060], [3, 9000], [3, 9020]].entries()) {
        rows.push(...await maker.rows({ topics: [{ topic_name: "t", depth: count, message_count: count, node_count: 2, node_set, channels: [] }] }, 2000 * index));
      }
      return rows.map(({ arrivals, growth }) => [arrivals, growth]);
    });
    equal(found, [[null, null], [null, null], [10, 10], [null, null], [10, 10], [null, null], [10, 10]], "overview.js");
  },

  // With 10,000 topics, an update of the list took longer than the 50 ms after which a page feels slow.
  async "modules: a list reads and draws only what has changed"(browser, cluster) {
    const found = await within(browser, cluster, "overview.js", async ({ TopicRows }) => {
      const { Lines } = await import(new URL("static/lines.js", document.baseURI));
      const text = (...topics) => `{"time":1,"topics":[${topics.map((topic) => `\n${JSON.stringify(topic)}`)}\n],"message":"m"}`;
      const topic = (name, depth) => ({ topic_name: name, depth, message_count: depth, node_count: 1, channels: [] });
      const [lines, maker] = [new Lines("topics", (one) => one), new TopicRows()];
      const [a, b, changed, c] = [topic("a", 1), topic("b", 2), topic("b", 6), topic("c", 3)];
      const data = [];
      for (const answer of [text(a, b), text(a, b), text(c, a, changed), text()]) data.push(await lines.read(answer));
      const rows = [];
      for (const index of [0, 1, 1, 1, 2]) rows.push(await maker.rows(data[index], 2000 * rows.length));
      const concern = { topic: "a", is_older: true };
      rows.push(await maker.rows({ ...data[1], concerns: [concern] }, 12_000));
      const other = await lines.read(JSON.stringify({ time: 5, topics: [a] }));
      return {
        read: data.map(({ topics, message }) => [topics.map((one) => one.topic_name).join(), message]),
        isSame: [data[1].topics[0] === data[0].topics[0], data[2].topics[1] === data[0].topics[0], data[2].topics[2] === data[0].topics[1]],
        // The first rows have no rates, the second ones the first rates, and then nothing changes.
        drawn: rows.slice(1).map((row, index) => row.map((one) => rows[index].includes(one) ? "=" : one.name).join("")),
        depths: rows[4].map((row) => [row.name, row.backlog, row.growth]), marked: rows[5].map((row) => row.needsAttention),
        other: other.topics.length, exact: String((await lines.read('{"topics":[\n{"n":9007199254740993}\n],"message":""}')).topics[0].n),
        damaged: await lines.read('{"topics":[\n{"n":\n]}').catch((error) => error.name),
      };
    });
    equal(found, {
      read: [["a,b", "m"], ["a,b", "m"], ["c,a,b", "m"], ["", "m"]], isSame: [true, true, false],
      drawn: ["ab", "==", "==", "c=b", "ab"], depths: [["c", 3, null], ["a", 1, 0], ["b", 6, 2]], marked: [true, false],
      other: 1, exact: "9007199254740993", damaged: "SyntaxError",
    }, "lines.js and overview.js");
  },

  // A call with more arguments than the stack has room for throws a RangeError: Math.min(...values).
  async "modules: the figures of very many channels"(browser, cluster) {
    const undo = await within(browser, cluster, "many.js", ({ undoable }) => {
      const channels = Array.from({ length: 300_000 }, (_, index) => ({ undo_until_ms: 2000 + index, undo_message_count: 1 }));
      const { count, messages, until } = undoable([{ name: "t", channels: channels.reverse() }], 1000);
      return { count, messages, until };
    });
    equal(undo, { count: 300_000, messages: 300_000, until: 2000 }, "many.js");
    const row = await within(browser, cluster, "overview.js", async ({ TopicRows }) => {
      const channels = Array.from({ length: 300_000 }, (_, index) => ({ channel_name: `c${index}`, depth: 1, oldest_unfinished_ms: index, paused: false }));
      const [{ oldest, backlog }] = await new TopicRows().rows({ topics: [{ topic_name: "t", depth: 0, message_count: 0, channels }] }, 1000);
      return { oldest, backlog };
    });
    equal(row, { oldest: 299_999, backlog: 300_000 }, "overview.js");
  },

  async "modules: the servers in a warning"(browser, cluster) {
    const found = await within(browser, cluster, "api.js", ({ warning }) => [
      warning(""),
      warning('WARNING: Get "http://127.0.0.1:44999/topics": connection refused\nGet "https://[::1]:4151/stats?format=json": timeout').nodes,
      warning('WARNING: got response 404 Not Found "CHANNEL_NOT_FOUND"'),
      // Names of topics and channels are no codes.
      warning('WARNING: Post "http://n:4151/channel/pause?topic=BUSY&channel=x_NOT_FOUND": no answer in time').causes,
      warning('WARNING: the figures are those of the nsqds that were known before, because nsqadmin failed to query any nsqlookupd: Get "http://l:4161/nodes": no answer in time').isOfKnown,
      warning('WARNING: failed to query any nsqlookupd: Get "http://l:4161/nodes": no answer in time; Get "http://n:4151/stats?format=json": no answer in time').silentNodes,
      warning('WARNING: got response 404 Not Found "CHANNEL_NOT_FOUND"\nPost "http://n:4151/": no answer in time').isMissing,
      // An order has a text for each subject.
      warning('WARNING: got response 404 Not Found "CHANNEL_NOT_FOUND"; got response 503 Service Unavailable "UNDO_NO_ROOM"').isMissing,
    ]);
    equal(found, [null, ["127.0.0.1:44999", "[::1]:4151"], { nodes: [], silentNodes: [], causes: ["There is no such channel. Somebody may have deleted it."],
      text: 'got response 404 Not Found "CHANNEL_NOT_FOUND"', isMissing: true, isOfKnown: false }, [], true, ["n:4151"], false, false], "api.js");
  },

  async "modules: the node that lacks a channel"(browser, cluster) {
    const found = await within(browser, cluster, "api.js", async ({ ask }) => {
      const texts = [];
      for (const message of ["CHANNEL_NOT_FOUND", "CHANNEL_NOT_FOUND: the nsqd n:1 does not have it"]) {
        window.fetch = async () => new Response(JSON.stringify({ message }), { status: 404 });
        texts.push(await ask("x").catch((error) => error.message));
      }
      return texts;
    });
    equal(found, ["There is no channel with this name.", "The nsqd n:1 does not have it."], "api.js");
  },

  async "modules: a chart keeps an hour of its own, and shows the server's points where it has none"(browser, cluster) {
    const found = await within(browser, cluster, "series.js", ({ series, together }) => {
      const one = series("test");
      for (let second = 1; second <= 2500; second += 1) one.add(second * 1000, { depth: second, late: second > 2499 ? 1 : undefined });
      const lateness = one.hasGap();
      const { times, figures } = one;
      const past = { times: [100, 200, 300, 400, 500], figures: { depth: [1, 2, 3, null, 5], only: [1, 2, 3, 4, 5] } };
      const own = { times: [201, 203, 430, 432], figures: { depth: [20, 21, 30, 31], own: [6, 7, 8, 9] } };
      const [all, some, before] = [together(past, own, 1000), together(past, own, 250), together(past, { times: [], figures: {} }, 150)];
      own.times.push(490);
      own.figures.depth.push(40);
      return { all, some, before, near: together(past, own, 1000).times.at(-1), isLate: lateness, same: series("test") === one, lengths: [times.length, ...Object.values(figures).map((array) => array.length)].map((length) => length === times.length),
        isBounded: times.length > 1800 && times.length < 2000, end: [figures.depth.at(-1), figures.late.at(-1), figures.late.at(-2)] };
    });
    equal(found, {
      all: { times: [100, 200, 201, 203, 300, 400, 430, 432, 500],
        figures: { depth: [1, 2, 20, 21, 3, null, 30, 31, 5], own: [null, null, 6, 7, null, null, 8, 9, null], only: [1, 2, null, null, 3, 4, null, null, 5] } },
      some: { times: [300, 400, 430, 432, 500], figures: { depth: [3, null, 30, 31, 5], own: [null, null, 8, 9, null], only: [3, 4, null, null, 5] } },
      before: { times: [400, 500], figures: { depth: [null, 5], only: [4, 5] } },
      near: 490, isLate: false, same: true, lengths: [true, true, true], isBounded: true, end: [2500, 1, null],
    }, "series.js");
  },

  // The charts stood still until the clock was where it had been.
  async "modules: after a step back of the clock, a chart goes on at once"(browser, cluster) {
    const found = await within(browser, cluster, "series.js", ({ series }) => {
      const one = series("test");
      for (const second of [100, 110, 120, 130]) one.add(second * 1000, { depth: second });
      one.pasts.set(1, { points: { times: [125], figures: { depth: [1] } } });
      one.add(130_000, { depth: 0 });
      const [same, version] = [one.pasts.size, one.version];
      for (const second of [115, 116]) one.add(second * 1000, { depth: second + 0.5, other: 7 });
      return { same, version, pasts: one.pasts.size, times: one.times, figures: one.figures };
    });
    equal(found, { same: 1, version: 4, pasts: 0, times: [100, 110, 115, 116], figures: { depth: [100, 110, 115.5, 116.5], other: [null, null, 7, 7] } }, "series.js");
  },

  // A body of 4 KB became 8 MB of spaces.
  async "modules: thousands of brackets are no megabytes"(browser, cluster) {
    const found = await within(browser, cluster, "body.js", ({ indented }) =>
      [indented(`${"[".repeat(2048)}${"]".repeat(2048)}`).length < 300_000, indented('{"a":[1]}')]);
    equal(found, [true, '{\n  "a": [\n    1\n  ]\n}'], "body.js");
  },

  // A node that had not answered the first poll came as a burst of all its messages.
  async "modules: the counter's rate leaves out nodes that were not there before"(browser, cluster) {
    const found = await within(browser, cluster, "views/counter.js", ({ next }) => {
      const parts = (counts) => Object.fromEntries(Object.entries(counts).map(([key, message_count]) => [key, { message_count }]));
      let state = { total: null, parts: null };
      return [{ a: 100 }, { a: 120, b: 5000 }, { a: 140, b: 5020 }, { a: 10, b: 5020 }].map((counts, index) => {
        state = next(state, parts(counts), 2000 * index);
        return [state.total, state.perSecond, state.joined];
      });
    });
    equal(found, [[100, null, 0], [5120, 10, 5000], [5160, 20, 0], [5170, 5, 0]], "counter.js");
  },

  async "modules: graphite's targets and points"(browser, cluster) {
    const found = await within(browser, cluster, "graphite.js", ({ target, points }) => {
      const known = { statsd_prefix: "nsq.%s", statsd_interval: 60, statsd_counter_format: "stats.counters.%s.count", statsd_gauge_format: "stats.gauges.%s" };
      const [gauge, counter] = [{ metric: "depth", form: "gauge" }, { metric: "requeue_count", form: "counter" }];
      const latency = { metric: "e2e_processing_latency_99", form: "gauge", isLatency: true };
      return {
        targets: [
          target(gauge, { topic: "clicks" }, known),
          target(counter, { topic: "a b/c", channel: "tmp#ephemeral" }, known),
          target({ metric: "gc_runs", form: "counter" }, { node: "127.0.0.1:4151" }, { ...known, statsd_counter_format: "" }),
          target(latency, { topic: "clicks" }, known),
          target({ metric: "message_count", form: "counter" }, {}, known),
        ],
        points: points([{ datapoints: [[1, 60], [null, 120]] }, { datapoints: [[5, 120], [6, 180]] }], ["a", "b"], [gauge, counter]),
      };
    });
    equal(found, {
      targets: [
        'summarize(sumSeries(stats.gauges.nsq.*.topic.clicks.depth),"60sec","avg")',
        `scale(summarize(sumSeries(stats.counters.nsq.*.topic.a_b-c.channel.tmpephemeral.requeue_count.count),"60sec","avg"),${1 / 60})`,
        `scale(summarize(nsq.127_0_0_1_4151.mem.gc_runs,"60sec","avg"),${1 / 60})`,
        'summarize(scale(averageSeries(stats.gauges.nsq.*.topic.clicks.e2e_processing_latency_99),0.000001),"60sec","avg")',
        `scale(summarize(sumSeries(stats.counters.nsq.*.topic.*.channel.*.message_count.count),"60sec","avg"),${1 / 60})`,
      ],
      points: { times: [60, 120, 180], figures: { depth: [1, null, null], requeue_count: [null, 5, 6] } },
    }, "graphite.js");
  },
};
