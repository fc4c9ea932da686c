// What a topic's nodes tell about the duplicates that a rule of --dedup did not store again.

import { html, useRef } from "./html.js";
import { age, count, rate, size } from "./format.js";
import { Addresses, NodeLink, counted, ifKnown, rated } from "./parts.js";
import { Table } from "./table.js";

const hasRule = (row) => row.dedup_duplicate_count !== undefined;

const keyOf = (row) => row.node;
const textOf = (row) => `${row.node} ${row.hostname}`.toLowerCase();

// The tile of a topic, or false without a rule.
export function duplicatesTile(topic) {
  return hasRule(topic) && { label: "Duplicates/s", value: rate(topic.duplicates), note: `${count(topic.dedup_duplicate_count)} in all, not stored again` };
}

// Properties: `topic`, whose nodes have nsqd's fields. Without them, nothing is shown.
export function Duplicates({ topic }) {
  const firsts = useRef(new Map());
  if (!hasRule(topic)) return null;
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
