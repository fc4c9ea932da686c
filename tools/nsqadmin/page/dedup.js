// What a topic's nodes tell about duplicates: those that a rule of --dedup did not store again, and those that --duplicate-meter has
// counted in a sample.

import { html, useRef } from "./html.js";
import { age, count, many, rate, size } from "./format.js";
import { Addresses, NodeLink, counted, ifKnown, rated } from "./parts.js";
import { plus } from "./exact.js";
import { Table } from "./table.js";

// The part of the duplicates that a window has to catch, to be called long enough.
const ENOUGH = 0.95;

const hasRule = (row) => row.dedup_duplicate_count !== undefined;

const keyOf = (row) => row.node;
const textOf = (row) => `${row.node} ${row.hostname}`.toLowerCase();

// The tile of a topic, or false without a rule.
export function duplicatesTile(topic) {
  return hasRule(topic) && { label: "Duplicates/s", value: rate(topic.duplicates), note: `${count(topic.dedup_duplicate_count)} in all, not stored again` };
}

// Properties: `topic`, whose nodes have nsqd's fields. Without them, nothing is shown.
export function Duplicates({ topic }) {
  const metered = topic.nodes.filter((node) => node.duplicate_meter);
  return html`${hasRule(topic) && html`<${OfRules} topic=${topic} />`}${metered.length > 0 && html`<${OfMeters} topic=${topic} nodes=${metered} />`}`;
}

function OfRules({ topic }) {
  const firsts = useRef(new Map());
  const without = topic.nodes.filter((node) => !hasRule(node)).map((node) => node.node);
  return html`<h2>Duplicates</h2>
    <p class="note">Messages that came again, and that a rule of <code>--dedup</code> did not store again. The counts begin with the start of each node.
      ${without.length > 0 && html` These nodes have no rule, and store copies: <${Addresses} nodes=${without} />.`}</p>
    <${Table} name="duplicate-" caption="Duplicates on each node" rows=${topic.nodes} rowKey=${keyOf} text=${textOf} first="-duplicates"
      columns=${ruleColumns(topic.nodes, firsts.current)} total=${topic.nodes.length > 1 && { ...topic, isTotal: true }} />`;
}

// The kind of a rule, which nsqd tells by the fields that it has.
function kindOf(row) {
  if (row.dedup_publisher_count_max !== undefined) return "publisher";
  if (row.dedup_key_count_max !== undefined) return "body or json:";
  return hasRule(row) ? "unknown" : "none";
}

// A part of the most that there may be.
const part = (some, most, show = count) => some === undefined ? "–" : `${show(some)} of ${show(most)}`;

// A column of counts that should not grow. `firsts` has the first count of each node since the page was opened. The total has grown if that
// of a node has: the sum also grows when a silent node is back.
function alarming(nodes, firsts, key, title, name, help) {
  const hasGrown = (row) => {
    const [id, now] = [`${row.node} ${name}`, row[name]];
    // A node that has started anew counts from 0.
    if (now !== undefined && !(firsts.get(id) <= now)) firsts.set(id, now);
    return now > firsts.get(id);
  };
  return { key, title, help, value: (row) => row[name],
    cell: (row) => (row.isTotal ? nodes.some(hasGrown) : hasGrown(row)) ? html`<${Growing} value=${row[name]} />` : count(row[name]) };
}

function Growing({ value }) {
  return html`<span class="older" title="It has grown since this page was opened">${count(value)}<span class="hidden">, growing</span><span aria-hidden="true"> ▲</span></span>`;
}

function ruleColumns(nodes, firsts) {
  const known = (column) => ifKnown(nodes, column);
  return [
    { key: "node", title: "Node", isText: true, value: keyOf, cell: (row) => row.isTotal ? "Total" : html`<${NodeLink} node=${row.node} host=${row.hostname} />` },
    { key: "rule", title: "Rule", isText: true, help: "The key by which the rule recognises a copy", value: (row) => row.isTotal ? "" : kindOf(row),
      cell: (row) => row.isTotal ? "" : kindOf(row) },
    rated("duplicates", "Duplicates/s", "duplicates", "Messages per second that were not stored again"),
    counted("all", "Duplicates", "dedup_duplicate_count", "Messages that got OK and were not stored again"),
    ...known({ key: "reach", title: "Reach", help: "How far back the topic remembers at this moment", value: (row) => row.dedup_reach_ms,
      cell: (row) => age(row.dedup_reach_ms) }),
    ...known({ key: "remembered", title: "Remembered", help: "Keys or publishers that the topic remembers, and the most that it can remember",
      value: (row) => row.dedup_key_count ?? row.dedup_publisher_count, cell: (row) => row.isTotal ? "" : row.dedup_key_count !== undefined
        ? part(row.dedup_key_count, row.dedup_key_count_max) : part(row.dedup_publisher_count, row.dedup_publisher_count_max) }),
    ...known(alarming(nodes, firsts, "evicted", "Evicted", "dedup_publisher_evicted_count", "Publishers that were forgotten for others: if it grows, memory= is too small")),
    ...known(alarming(nodes, firsts, "refused", "Memory refused", "dedup_memory_refused_count", "How often the system refused memory for keys: the topic then forgets keys early")),
    ...known(counted("unverified", "Unverified", "dedup_unverified_count", "Duplicates that were recognised by the fingerprint of their key alone")),
    ...known(counted("unchecked", "Unchecked", "dedup_unchecked_count", "Messages that were stored, because they have no number, or a number below all that is remembered")),
    ...known(counted("keyless", "Without a key", "dedup_keyless_count", "Messages that were stored, because they have no key")),
    ...known(counted("unremembered", "Not remembered", "dedup_unremembered_count", "Messages that were stored, and whose copies will be stored, too")),
    ...known({ key: "memory", title: "Memory", help: "Bytes of the tables of keys, and of all tables that there may be", value: (row) => row.dedup_memory_bytes,
      cell: (row) => part(row.dedup_memory_bytes, row.dedup_memory_bytes_max, size) }),
  ];
}

// The windows of a meter, the shortest first: [key, title, share of a meter].
function windowsOf(meters, key) {
  const keys = (name) => [...new Set(meters.flatMap((meter) => Object.keys(meter[name] ?? {})))];
  const seconds = (window) => parseFloat(window) * ({ m: 60, h: 3600, d: 86_400 }[window.at(-1)] ?? 1);
  const ofTime = keys("percent_within").sort((a, b) => seconds(a) - seconds(b));
  const ofCount = keys("percent_within_messages").sort((a, b) => Number(a) - Number(b));
  return [
    ...ofTime.map((window) => ({ window, title: `In ${window}`, help: `Share that a rule with the key ${key} and window=${window} would drop`,
      share: (meter) => meter.percent_within?.[window] })),
    ...ofCount.map((window) => ({ window, title: `In ${count(window)}`, isOfCount: true,
      help: `Share that a rule with the key ${key} and window=${window}, in messages, would drop`, share: (meter) => meter.percent_within_messages?.[window] })),
  ];
}

// A share in percent: "3.61 %", "0.012 %", "100 %".
function percent(share) {
  return share === undefined ? "–" : `${Number(Number(share).toPrecision(3))} %`;
}

// The messages of the topic that the sample of a node stands for.
function weightOf({ sampled_count: sampled, sample_rate: part }) {
  return Number(sampled) / (part > 0 ? part : 1);
}

// The meter of all nodes together. A share of the whole is a mean, weighted by the messages of the nodes.
function sumOf(meters, windows) {
  const weight = meters.reduce((sum, meter) => sum + weightOf(meter), 0);
  const mean = (share) => weight > 0 ? meters.reduce((sum, meter) => sum + weightOf(meter) * Number(share(meter) ?? 0), 0) / weight : 0;
  return {
    duplicate_percent: mean((meter) => meter.duplicate_percent),
    sampled_count: meters.reduce((sum, meter) => plus(sum, meter.sampled_count), 0),
    duplicate_count: meters.reduce((sum, meter) => plus(sum, meter.duplicate_count ?? 0), 0),
    keyless_count: meters.reduce((sum, meter) => plus(sum, meter.keyless_count ?? 0), 0),
    shares: windows.map((window) => ({ ...window, percent: mean(window.share) })),
  };
}

function OfMeters({ topic, nodes }) {
  const meters = nodes.map((node) => node.duplicate_meter);
  const keys = [...new Set(meters.map((meter) => meter.key ?? "body"))];
  const windows = windowsOf(meters, keys.length > 1 ? "of the node" : keys[0]);
  const total = sumOf(meters, windows);
  const rows = nodes.map(({ node, hostname, duplicate_meter: meter }) => ({ node, hostname, meter }));
  const shareOf = (row, { window, isOfCount, share }) => row.isTotal
    ? total.shares.find((one) => one.window === window && one.isOfCount === isOfCount).percent : share(row.meter);
  const columns = [
    { key: "node", title: "Node", isText: true, value: keyOf, cell: (row) => row.isTotal ? "Total" : html`<${NodeLink} node=${row.node} host=${row.hostname} />` },
    { key: "percent", title: "Duplicates", help: "Share of the messages whose key has come before, however long ago", value: (row) => row.meter.duplicate_percent,
      cell: (row) => percent(row.meter.duplicate_percent) },
    ...windows.map((one) => ({ key: `in-${one.window}`, title: one.title, help: one.help, value: (row) => shareOf(row, one), cell: (row) => percent(shareOf(row, one)) })),
    { key: "sampled", title: "Sampled", help: "Messages in the sample", value: (row) => row.meter.sampled_count, cell: (row) => count(row.meter.sampled_count) },
    ...ifKnown(rows, { key: "keyless", title: "Without a key", help: "Messages in the sample that have no key, so that a rule would store them", value: (row) => row.meter.keyless_count,
      cell: (row) => count(row.meter.keyless_count) }),
    ...ifKnown(rows, { key: "complete", title: "Complete for", help: "How far back the sample knows all keys", value: (row) => row.meter.reach_ms,
      cell: (row) => age(row.meter.reach_ms) }),
  ];
  return html`<h2>Duplicates in a sample</h2>
    <p class="note">${advice(topic.topic_name, keys, total)} The meter (<code>--duplicate-meter</code>) counts and drops nothing.
      It compares ${keys.length > 1 ? "keys" : named(keys[0])}, on each node for itself.</p>
    <${Table} name="meter-" caption="Duplicates in the sample of each node" rows=${rows} rowKey=${keyOf} text=${textOf} columns=${columns} first="-percent"
      total=${rows.length > 1 && keys.length === 1 && { isTotal: true, meter: total }} />`;
}

// What a meter compares.
const named = (key) => key === "body" ? "bodies" : html`the values of <code>${key}</code>`;

// True if a command may have this key between single quotes.
const isPlain = (key) => /^(body|json:[^',\s\p{C}]*)$/u.test(key);

// The sentences about what the figures mean, and which window would catch most duplicates.
function advice(topic, keys, { duplicate_percent: all, duplicate_count: duplicates, sampled_count: sampled, keyless_count: keyless, shares }) {
  if (keys.length > 1) return html`The nodes compare different keys (<code>${keys.join(", ")}</code>), so there is no total.`;
  const [key] = keys;
  const what = key === "body" ? "body" : html`value of <code>${key}</code>`;
  const sample = `in a sample of ${many(sampled, "message")} since the start of the nodes`;
  if (sampled > 0 && BigInt(keyless) === BigInt(sampled)) return html`No message has a ${what}, ${sample}: look whether the pointer is right.`;
  if (!(duplicates > 0)) return html`No message has a ${what} that has come before, ${sample}.`;
  if (!(all > 0)) return html`Fewer than 0.001 % of the messages have a ${what} that has come before, ${sample}.`;
  const enough = (isOfCount) => shares.find((one) => Boolean(one.isOfCount) === isOfCount && one.percent >= all * ENOUGH);
  const [time, messages] = [enough(false), enough(true)];
  const found = [time, messages].filter(Boolean).map(({ window, percent: share }) => html`<code>window=${window}</code> (${percent(share)})`);
  const begin = html`${percent(all)} of the messages have a ${what} that has come before, ${sample}.${" "}`;
  return found.length > 0
    ? html`${begin}A rule <code>--dedup='${topic}=${isPlain(key) ? key : "…"},window=…'</code> would catch nearly all of them with ${found.length > 1 ? html`${found[0]} or, in messages, with ${found[1]}` : found[0]}.`
    : html`${begin}No window of these would catch most of them: the copies come later.`;
}
