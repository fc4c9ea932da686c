// All nsqds.

import { html, useState } from "../html.js";
import { ask } from "../api.js";
import { GoneNodes, PollBars } from "../bars.js";
import { address, count, many } from "../format.js";
import { Badge, Loading } from "../parts.js";
import { usePoll } from "../poll.js";
import { link } from "../route.js";
import { facts, useStore } from "../store.js";
import { Table } from "../table.js";

// The topics that a row shows. More are behind the link.
const TOPICS_SHOWN = 6;

export function Nodes() {
  const lookupds = useStore(facts)?.nsqlookupd ?? [];
  const [nodes, setNodes] = useState(null);
  const poll = usePoll("nodes", load, (data) => setNodes((data.nodes ?? []).map(row)));
  const old = nodes?.filter((node) => node.out_of_date).length;
  return html`
    <h1>Nodes${nodes && ` (${nodes.length})`}</h1>
    <${PollBars} poll=${poll} what="The list of nodes" />
    <${GoneNodes} name="nodes" nodes=${nodes?.map(nodeKey)} told=${poll.data?.gone} />
    ${old > 0 && html`<p class="bar warn" role="status"><b>${many(old, "node has", "nodes have")} an older version than the newest one.</b></p>`}
    ${!nodes && !poll.error && html`<${Loading} what="nodes" />`}
    ${nodes && html`<${Table} caption="Nodes" rows=${nodes} rowKey=${nodeKey} text=${nodeText} columns=${columns(lookupds)} first="host"
      search="Search nodes and topics" rowClass=${classOf} empty="No nsqd is known." />`}`;
}

// The nodes that are there, and those that are gone. Without live figures, the server does not know which are gone.
async function load(signal) {
  const { live: isLive } = await facts.known();
  const [nodes, attention] = await Promise.all([ask("api/nodes", { signal }), isLive && ask("api/live/attention", { signal })]);
  return { ...nodes, gone: attention ? attention.gone_nodes : [] };
}

function row(node) {
  const address_ = address(node.broadcast_address, node.http_port);
  const topics = node.topics ?? [];
  const text = [node.hostname, address_, node.version, node.topology_region, node.topology_zone, ...topics.map((one) => one.topic)];
  return { ...node, address: address_, topics, text: text.join(" ").toLowerCase() };
}

const nodeKey = (node) => node.address;
const nodeText = (node) => node.text;
const classOf = (node) => node.out_of_date ? "problem" : "";

function columns(lookupds) {
  return [
    { key: "node", title: "Node", isText: true, value: nodeKey, cell: (node) => html`<a href=${link("nodes", node.address)}>${node.address}</a>` },
    { key: "host", title: "Host name", isText: true, value: (node) => node.hostname, cell: (node) => node.hostname },
    { key: "tcp", title: "TCP port", value: (node) => node.tcp_port, cell: (node) => node.tcp_port },
    { key: "version", title: "Version", isText: true, value: (node) => node.version,
      cell: (node) => node.out_of_date ? html`${node.version} <${Badge} kind="warn">older<//>` : node.version },
    { key: "region", title: "Region", isText: true, value: (node) => node.topology_region, cell: (node) => node.topology_region || "–" },
    { key: "zone", title: "Zone", isText: true, value: (node) => node.topology_zone, cell: (node) => node.topology_zone || "–" },
    ...(lookupds.length > 0 ? [{ key: "lookupds", title: "nsqlookupds", help: "How many of the nsqlookupds know this node",
      value: (node) => node.remote_addresses?.length ?? 0, cell: (node) => html`<${Known} node=${node} all=${lookupds.length} />` }] : []),
    { key: "count", title: "Topics", value: (node) => node.topics.length, cell: (node) => count(node.topics.length) },
    { key: "topics", title: "Topics here", isText: true, value: (node) => node.topics.length, cell: (node) => html`<${NodeTopics} node=${node} />` },
  ];
}

// The number of nsqlookupds that know the node, with a warning if some do not.
function Known({ node, all }) {
  const known = node.remote_addresses ?? [];
  const title = known.join("\n");
  return known.length === all
    ? html`<span title=${title}>${known.length} of ${all}</span>`
    : html`<${Badge} kind="warn" title=${`Not every nsqlookupd knows this node. Those that do:\n${title}`}>${known.length} of ${all}<//>`;
}

function NodeTopics({ node }) {
  const rest = node.topics.length - TOPICS_SHOWN;
  return html`<span class="badges">${node.topics.slice(0, TOPICS_SHOWN).map(({ topic, tombstoned }) => html`
    <${Badge} key=${topic} kind=${tombstoned ? "warn" : "plain"} title=${tombstoned ? "Tombstoned: consumers do not find the topic on this node" : undefined}
      ><a href=${link("topics", topic)}>${topic}</a>${tombstoned && " (tombstoned)"}<//>`)}
    ${rest > 0 && html`<a href=${link("nodes", node.address)}>and ${rest} more</a>`}</span>`;
}
