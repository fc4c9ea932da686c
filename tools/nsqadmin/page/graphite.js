// Charts of the past, from graphite. The server forwards the requests, so that the page asks no other host.

import { html } from "./html.js";
import { ask } from "./api.js";
import { PollBars } from "./bars.js";
import { Chart } from "./chart.js";
import { age, count, rate } from "./format.js";
import { usePoll } from "./poll.js";
import { setQuery, useRoute } from "./route.js";
import { facts, keep, kept, useStore } from "./store.js";

const TIMEFRAMES = ["1h", "2h", "12h", "24h", "48h", "168h", "off"];

// The least time between two requests for one chart, in milliseconds.
const INTERVAL_MIN = 10_000;

// The key of the browser's storage, which the original has, too.
const STORED = "graph_interval";

// A metric in nsqd's names. `form` is "gauge" or "counter"; a counter is shown as a rate.
const gauge = (metric, name, colour) => ({ metric, name, colour, form: "gauge" });
const counter = (metric, name, colour) => ({ metric, name, colour, form: "counter" });

const DEPTHS = [gauge("depth", "waiting", "c1"), gauge("in_flight_count", "in flight", "c2"), gauge("deferred_count", "deferred", "c4")];
const RATES = [counter("message_count", "in", "c3"), counter("requeue_count", "requeued", "c2"), counter("timeout_count", "timed out", "c5")];

// The charts of each kind of thing: [title, lines, how to show a value].
const CHARTS = {
  topic: [["Depth", DEPTHS.slice(0, 1), count], ["Messages per second", RATES.slice(0, 1), rate]],
  channel: [["Depth", DEPTHS, count], ["Messages per second", RATES, rate], ["Consumers", [gauge("clients", "connected", "c1")], count]],
  node: [
    ["Memory in bytes", [gauge("heap_in_use_bytes", "in use", "c1"), gauge("heap_idle_bytes", "idle", "c3"), gauge("next_gc_bytes", "next collection", "c4")], count],
    ["Pauses of the collector in µs", [gauge("gc_pause_usec_100", "longest", "c5"), gauge("gc_pause_usec_99", "99th", "c2"), gauge("gc_pause_usec_95", "95th", "c4")], count],
    ["Collections per second", [counter("gc_runs", "runs", "c2")], rate],
    ["Heap objects", [gauge("heap_objects", "in use", "c3")], count],
  ],
  all: [["Messages per second, all channels", [counter("message_count", "processed", "c3")], rate]],
};

function milliseconds(value) {
  return age(value);
}
milliseconds.isTime = true;

const COLOURS = ["c1", "c2", "c4", "c3", "c5"];

// Properties: `kind` (a key of CHARTS), `topic`, `channel`, `node` where the kind has them, and `quantiles` of the latency.
// Without graphite, nothing is shown.
export function Graphs({ kind, topic, channel, node, quantiles = [] }) {
  const known = useStore(facts);
  const { query } = useRoute();
  if (!known?.graph_enabled) return null;
  const timeframe = chosen(query.get("t"));
  const latency = quantiles.map((quantile, index) => ({ ...gauge(`e2e_processing_latency_${(quantile * 100).toFixed(0)}`, `${quantile * 100} %`,
    COLOURS[index % COLOURS.length]), isLatency: true }));
  const charts = [...CHARTS[kind], ...(latency.length > 0 ? [["Latency", latency, milliseconds]] : [])];
  return html`<div class="head graphs"><h2>History</h2><label>From graphite, last
      <select value=${timeframe} onChange=${(event) => choose(event.target.value)}>${TIMEFRAMES.map((one) => html`<option key=${one}>${one}</option>`)}
      </select></label></div>
    ${timeframe !== "off" && html`<div class="charts">${charts.map(([title, lines, show]) => html`<${Past} key=${`${title} ${timeframe}`}
      ...${{ title, lines, show, timeframe, known, subject: { topic, channel, node } }} />`)}</div>`}`;
}

function chosen(asked) {
  if (TIMEFRAMES.includes(asked)) return asked;
  const stored = kept(STORED);
  return TIMEFRAMES.includes(stored) ? stored : "2h";
}

function choose(timeframe) {
  keep(STORED, timeframe);
  setQuery({ t: timeframe });
}

function Past({ title, lines, show, timeframe, known, subject }) {
  const targets = lines.map((line) => target(line, subject, known));
  const query = new URLSearchParams([...targets.map((one) => ["target", one]), ["from", `-${timeframe}`], ["until", "-1min"], ["format", "json"]]);
  const load = (signal) => ask(`render?${query}`, { signal });
  const poll = usePoll(`${query}`, load, undefined, Math.max(INTERVAL_MIN, known.statsd_interval * 1000));
  if (!poll.data) return poll.error ? html`<div><${PollBars} poll=${poll} what=${`“${title}” of graphite`} /></div>` : null;
  const series = points(poll.data, targets, lines);
  if (series.times.length === 0) return html`<p class="empty">Graphite has no figures for “${title}”.</p>`;
  return html`<${Chart} title=${title} series=${series} show=${show}
    lines=${lines.map((line) => ({ ...line, figure: line.metric }))} />`;
}

// The points of graphite's answer, which has one series per target: [[value, time], ...].
export function points(answer, targets, lines) {
  const byTime = new Map();
  answer.slice(0, targets.length).forEach(({ datapoints }, index) => {
    for (const [value, time] of datapoints) {
      if (!byTime.has(time)) byTime.set(time, {});
      byTime.get(time)[lines[index].metric] = value === null ? null : Number(value);
    }
  });
  const times = [...byTime.keys()].sort((a, b) => a - b);
  const figures = lines.map(({ metric }) => [metric, times.map((time) => byTime.get(time)[metric] ?? null)]);
  return { times, figures: Object.fromEntries(figures) };
}

// The expression that graphite computes for a line. Functions stay outside the format, which only makes names.
export function target(line, { topic, channel, node }, known) {
  const host = node ? node.replace(/[.:[\]]/g, "_") : "*";
  const prefix = `${known.statsd_prefix.replace("%s", host)}.`;
  const place = topic === undefined ? (node ? "mem." : "topic.*.channel.*.")
    : `topic.${clean(topic)}.${channel === undefined ? "" : `channel.${clean(channel)}.`}`;
  const format = line.form === "gauge" ? known.statsd_gauge_format : known.statsd_counter_format;
  const key = `${prefix}${place}${line.metric}`;
  const name = format ? format.replace("%s", key) : key;
  const seconds = Math.max(1, known.statsd_interval);
  const one = line.isLatency ? `scale(averageSeries(${name}),0.000001)` : node ? name : `sumSeries(${name})`;
  const summary = `summarize(${one},"${seconds}sec","avg")`;
  return line.form === "counter" ? `scale(${summary},${1 / seconds})` : summary;
}

// A name as nsqd writes it for statsd.
function clean(name) {
  return name.replaceAll(" ", "_").replaceAll("/", "-").replace(/[^A-Za-z0-9\-_.]/g, "");
}
