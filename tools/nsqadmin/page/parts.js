// Small pieces that several views show.

import { html } from "./html.js";
import { age, count, duration, moment, percentile, rate } from "./format.js";
import { difference, plus } from "./exact.js";
import { link } from "./route.js";

// The way from the top to this view: [text, href] of each level.
export function Trail({ levels }) {
  return html`<nav class="trail" aria-label="Where you are">${levels.map(([text, href], index) => html`
    ${index > 0 && html`<span aria-hidden="true"> / </span>`}<a href=${href}>${text}</a>`)}</nav>`;
}

export function Tiles({ tiles }) {
  return html`<dl class="tiles">${tiles.filter(Boolean).map(({ label, value, note, kind }) => html`
    <div class=${`tile ${kind ?? ""}`} key=${label}><dt>${label}</dt><dd>${value}${note && html`<small>${note}</small>`}</dd></div>`)}</dl>`;
}

export function Badge({ kind, children, title }) {
  return html`<span class=${`badge ${kind}`} title=${title}>${children}</span>`;
}

// `of` is a topic or channel with `paused` and, from ringq's nsqds, the terms of the pause. With `isBrief`, only the title has the terms.
export function Paused({ of, isBrief }) {
  if (!of?.paused) return null;
  const text = pauseText(of);
  return html` <${Badge} kind="info pause" title=${text}>${isBrief ? "paused" : text}<//>`;
}

// "paused until 14:10 by ann: deploying", or "paused at 1 of 2 nodes until ...". The numbers of nodes are there, or the nodes.
export function pauseText({ pause_until_ms: until, paused_by: by, pause_note: note, nodes, paused_node_count, node_count }) {
  const [at, all] = [paused_node_count ?? nodes?.filter((node) => node.paused).length, node_count ?? nodes?.length];
  const place = at < all ? ` at ${at} of ${all} nodes` : "";
  return `paused${place}${until ? ` until ${moment(until)}` : ""}${by ? ` by ${by}` : ""}${note ? `: ${note}` : ""}`;
}

// The age of the oldest unfinished message, with an arrow if it grows.
export function Age({ ms, isOlder }) {
  if (!isOlder) return age(ms);
  return html`<span class="older" title="The oldest message gets older: nobody finishes it">${age(ms)}<span class="hidden">, getting older</span
    ><span aria-hidden="true"> ▲</span></span>`;
}

function inMemory(part) {
  return part.memory_depth ?? difference(part.depth ?? 0, part.backend_depth ?? 0);
}

export function memoryAndDisk(part) {
  return `${count(inMemory(part))} + ${count(part.backend_depth)}`;
}

export function inMemoryAndOnDisk(part) {
  return `${count(inMemory(part))} in memory, ${count(part.backend_depth)} on disk`;
}

// The messages that wait, in a topic and in its channels.
export function backlogOf(topic) {
  return (topic.channels ?? []).reduce((sum, channel) => plus(sum, channel.depth), topic.depth);
}

// The columns of what waits in topics, as rows with a `backlog`. The depth of a topic is the same on every page.
export const TOPIC_DEPTH = [
  counted("depth", "Depth", "backlog", "Messages that wait, in the topic and in all its channels"),
  counted("own", "In the topic", "depth", "Messages that wait in the topic itself, and that no channel has"),
  { key: "disk", title: "Memory + disk", help: "Of the messages in the topic itself", value: (row) => row.backend_depth, cell: memoryAndDisk },
];

// Leaves a column out if no row has a figure for it: nsqd 1.3.0 does not tell ages, for example.
export function ifKnown(rows, column) {
  return rows.some((row) => column.value(row) !== undefined) ? [column] : [];
}

export function Loading({ what }) {
  return html`<p class="empty" role="status">Loading ${what} …</p>`;
}

// The link to a node. `host` is its host name, if known.
export function NodeLink({ node, host }) {
  const isSame = !host || node.toLowerCase().startsWith(`${host.toLowerCase()}:`);
  return html`<a href=${link("nodes", node)}>${node}</a>${!isSame && html` <span class="note">${host}</span>`}`;
}

// The addresses of nodes in a sentence. A line breaks between two of them, and not inside of one.
export function Addresses({ nodes }) {
  return nodes.map((node, index) => html`${index > 0 && " "}<span class="address">${node}${index + 1 < nodes.length && ","}</span>`);
}

// The quantiles of the latency that a topic or channel has.
export function quantiles(part) {
  return (part.e2e_processing_latency?.percentiles ?? []).map((one) => Number(one.quantile));
}

// Columns for the latency percentiles that these parts have.
export function latencyColumns(parts) {
  return [...new Set(parts.flatMap(quantiles))].map((quantile) => {
    const find = (row) => (row.e2e_processing_latency?.percentiles ?? []).find((one) => Number(one.quantile) === quantile);
    const value = (row) => find(row)?.average ?? find(row)?.value;
    return {
      key: `p${percentile(quantile)}`,
      title: `Latency ${percentile(quantile)}`,
      help: `End-to-end latency, from publish to finish: ${percentile(quantile)} percentile, averaged over nodes by their messages`,
      value,
      cell: (row) => html`<span title=${spread(find(row))}>${duration(value(row))}</span>`,
    };
  });
}

// Tiles for the latency percentiles of a total.
export function latencyTiles(part) {
  return latencyColumns([part]).map((column) => ({ label: column.title, value: part.e2e_processing_latency.count > 0 ? duration(column.value(part)) : "–",
    note: "publish to finish" }));
}

function spread(found) {
  if (!found || found.min === undefined) return undefined;
  return `min ${duration(found.min)}, max ${duration(found.max)}`;
}

// A column of counts.
export function counted(key, title, name, help) {
  return { key, title, help, value: (row) => row[name], cell: (row) => count(row[name]) };
}

// A column of rates, of figures that the page computed itself.
export function rated(key, title, name, help) {
  return { key, title, help, value: (row) => row[name], cell: (row) => rate(row[name]) };
}

