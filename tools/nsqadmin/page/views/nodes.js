// All nsqds.

import { html, useState } from "../html.js";
import { ask, failureOf } from "../api.js";
import { GoneNodes, PollBars } from "../bars.js";
import { plus } from "../exact.js";
import { address, age, count, many, size } from "../format.js";
import { liveAge } from "../overview.js";
import { Badge, Loading, counted, ifKnown, rated } from "../parts.js";
import { usePoll } from "../poll.js";
import { link } from "../route.js";
import { facts, useStore } from "../store.js";
import { Table } from "../table.js";
import { seconds } from "./topic.js";

// The topics that a row shows. More are behind the link.
const TOPICS_SHOWN = 6;

export function Nodes() {
  const lookupds = useStore(facts)?.nsqlookupd ?? [];
  const [nodes, setNodes] = useState(null);
  const poll = usePoll("nodes", load, (data) => setNodes(data.nodes));
  const old = nodes?.filter((node) => node.out_of_date).length;
  return html`
    <h1>Nodes${nodes && ` (${nodes.length})`}</h1>
    <${PollBars} poll=${poll} what="The list of nodes" />
    <${GoneNodes} name="nodes" nodes=${nodes?.map(nodeKey)} told=${poll.data?.gone} />
    ${old > 0 && html`<p class="bar warn" role="status"><b>${many(old, "node has", "nodes have")} an older version than the newest one.</b></p>`}
    ${!nodes && !poll.error && html`<${Loading} what="nodes" />`}
    ${nodes && html`<${Table} caption="Nodes" rows=${nodes} rowKey=${nodeKey} text=${nodeText} columns=${columns(nodes, lookupds)} first="host"
      search="Search nodes and topics" rowClass=${classOf} empty="No nsqd is known." />`}`;
}

// The nodes that are there, with their live figures, and those that are gone. Without live figures, the server knows neither.
async function load(signal) {
  const { live: isLive } = await facts.known();
  const [nodes, live] = await Promise.all([ask("api/nodes", { signal }), isLive && ask("api/live/nodes", { signal })]);
  const figures = new Map((live ? live.nodes : []).map((node) => [node.node, node]));
  const rows = (nodes.nodes ?? []).map((node) => row(node, figures));
  // The list is of now, and the figures may be older.
  return { ...nodes, nodes: rows, ...(live ? { gone: live.gone_nodes, sampled_at: live.time, failure: failureOf(live.message) } : { gone: [] }) };
}

function row(node, figures) {
  const key = address(node.broadcast_address, node.http_port);
  const topics = node.topics ?? [];
  const live = figures.get(key) ?? {};
  const hasFigures = live.depth !== undefined;
  const text = [node.hostname, key, node.version, live.ringq_version, node.topology_region, node.topology_zone, ...topics.map((one) => one.topic)];
  return {
    ...node, address: key, topics, text: text.join(" ").toLowerCase(),
    ringq: live.ringq_version, disk: live.disk, sentence: live.sentences?.[0],
    ...(hasFigures && { waiting: plus(live.depth, live.channel_depth), rate: live.rate, clients: live.clients, oldest: liveAge(live) }),
  };
}

const nodeKey = (node) => node.address;
const nodeText = (node) => node.text;
const classOf = (node) => node.out_of_date || node.sentence ? "problem" : "";

// The columns. Without live figures, and for what only ringq's nsqds tell, some are missing.
function columns(nodes, lookupds) {
  const known = (column) => ifKnown(nodes, column);
  const text = (key, title, name, help) => ({ key, title, help, isText: true, value: (node) => node[name], cell: (node) => node[name] ?? "–" });
  return [
    { key: "node", title: "Node", isText: true, value: nodeKey, cell: (node) => html`<a href=${link("nodes", node.address)}>${node.address}</a>` },
    ...known(counted("waiting", "Depth", "waiting", "Messages that wait on this node, in its topics and in all their channels")),
    ...known(rated("rate", "Messages/s", "rate", "Messages that are published to this node per second")),
    ...known(counted("clients", "Consumers", "clients", "Connections of consumers, over all channels")),
    ...known({ key: "oldest", title: "Oldest", help: "Age of the oldest message that is not finished", value: (node) => node.oldest, cell: (node) => age(node.oldest) }),
    ...known({ key: "disk", title: "Disk free", help: "Room on the disk of the messages. Only ringq's nsqd tells it", value: (node) => node.disk?.free_bytes,
      cell: (node) => html`<${Disk} disk=${node.disk} />` }),
    { key: "version", title: "Version", isText: true, value: (node) => node.version,
      cell: (node) => node.out_of_date ? html`${node.version} <${Badge} kind="warn">older<//>` : node.version },
    ...known({ key: "ringq", title: "ringq", help: "The version of ringq. NSQ's own nsqd has none", isText: true,
      value: (node) => node.ringq || undefined, cell: ringqOf }),
    ...known({ key: "state", title: "Needs attention", isText: true, value: (node) => node.sentence,
      cell: (node) => html`<span class="sentence" title=${node.sentence}>${node.sentence ?? "–"}</span>` }),
    { key: "host", title: "Host name", isText: true, value: (node) => node.hostname, cell: (node) => node.hostname },
    { key: "tcp", title: "TCP port", value: (node) => node.tcp_port, cell: (node) => node.tcp_port },
    ...known(text("region", "Region", "topology_region")),
    ...known(text("zone", "Zone", "topology_zone")),
    ...(lookupds.length > 0 ? [{ key: "lookupds", title: "nsqlookupds", help: "How many of the nsqlookupds know this node",
      value: (node) => node.remote_addresses?.length ?? 0, cell: (node) => html`<${Known} node=${node} all=${lookupds.length} />` }] : []),
    { key: "count", title: "Topics", value: (node) => node.topics.length, cell: (node) => count(node.topics.length) },
    { key: "topics", title: "Topics here", isText: true, value: (node) => node.topics.length, cell: (node) => html`<${NodeTopics} node=${node} />` },
  ];
}

// The version of ringq. A node of NSQ has an empty one, and a node that has not told it has none.
function ringqOf({ ringq }) {
  if (ringq === undefined) return html`<span class="note" title="The node has not told its build yet (/info)">unknown</span>`;
  return ringq === "" ? "–" : ringq;
}

// The room on a disk. A disk that is nearly full stands out.
function Disk({ disk }) {
  if (!disk) return "–";
  const part = Number(disk.free_bytes) / Number(disk.size_bytes);
  const isShort = part < 0.1 || disk.is_full || disk.full_in_s < 14_400;
  const title = `of ${size(disk.size_bytes)}${disk.full_in_s === undefined ? "" : `, full in ${seconds(disk.full_in_s)} at the present rate`}`;
  const free = `${size(disk.free_bytes)}, ${Math.round(part * 100)} %`;
  return html`<span class=${isShort ? "older" : ""} title=${title}>${disk.is_full ? `full (${free})` : free}</span>`;
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
