// The connections that publish to a topic.

import { html } from "./html.js";
import { age, count, many, rate } from "./format.js";
import { NodeLink, counted, rated } from "./parts.js";
import { serverNow } from "./store.js";
import { Table } from "./table.js";

const keyOf = (row) => `${row.node} ${row.remote_address} ${row.connect_ts}`;
const textOf = (row) => [row.client_id, row.hostname, row.remote_address, row.user_agent, row.node].join(" ").toLowerCase();

// Milliseconds since a time in Unix seconds, which are whole and may be a BigInt.
const since = (seconds) => Math.max(0, Math.floor(serverNow() / 1000 - Number(seconds))) * 1000;

const COLUMNS = [
  { key: "producer", title: "Producer", isText: true, value: (row) => row.client_id || row.remote_address,
    cell: (row) => html`<span title=${`remote address ${row.remote_address}`}>${row.client_id || row.remote_address}${row.hostname && row.hostname !== row.client_id
      ? ` (${row.hostname})` : ""}</span>` },
  { key: "at", title: "Node", isText: true, value: (row) => row.node, cell: (row) => html`<${NodeLink} node=${row.node} />` },
  rated("rate", "Messages/s", "rate", "Messages that this connection publishes per second, over the last five seconds"),
  { key: "usual", title: "Usual", help: "The usual messages per second of this connection, or of the one that it replaces; known after a minute",
    value: (row) => row.usual_rate, cell: (row) => rate(row.usual_rate) },
  counted("count", "Messages", "count", "Messages since the connection"),
  { key: "connected", title: "Connected", value: (row) => -row.connect_ts, cell: (row) => age(since(row.connect_ts)) },
  { key: "address", title: "Address", isText: true, value: (row) => row.remote_address, cell: (row) => row.remote_address },
  { key: "agent", title: "User agent", isText: true, value: (row) => row.user_agent, cell: (row) => row.user_agent || "–" },
];

// Properties: `publishing`, as api/live/topics/T has it. Without it, nothing is shown.
export function Producers({ publishing }) {
  if (!publishing) return null;
  const { producers, producer_count: all, rate: total, others_rate: others } = publishing;
  return html`<h2>Producers</h2>
    <p class="note">${rate(total)} messages/s in all, ${rate(others)} of them over HTTP or of connections that have ended: nsqd does not list those.
      ${all > producers.length && ` The ${count(producers.length)} producers with the highest rates, of ${many(all, "producer")}.`}</p>
    <${Table} name="producer-" caption="Producers of the topic" rows=${producers} rowKey=${keyOf} text=${textOf} columns=${COLUMNS} first="-rate"
      empty="No connection of NSQ's protocol publishes to this topic." />`;
}
