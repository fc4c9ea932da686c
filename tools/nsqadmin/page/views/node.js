// One nsqd: its topics, channels and consumers.

import { html, useRef, useState } from "../html.js";
import { tombstone, useActions } from "../actions.js";
import { api, ask } from "../api.js";
import { ConcernBars, PollBars } from "../bars.js";
import { Chart } from "../chart.js";
import { clientColumns, clientKey, clientText } from "../clients.js";
import { plus } from "../exact.js";
import { count, rate, size } from "../format.js";
import { Graphs } from "../graphite.js";
import { Age, Loading, Paused, TOPIC_DEPTH, Tiles, Trail, backlogOf, counted, ifKnown, latencyColumns, memoryAndDisk, rated } from "../parts.js";
import { Ranges, usePast } from "../past.js";
import { usePoll } from "../poll.js";
import { Samples, perSecond } from "../rates.js";
import { link } from "../route.js";
import { facts } from "../store.js";
import { Table } from "../table.js";
import { seconds } from "./topic.js";

export function Node({ name }) {
  const samples = useRef(new Samples());
  const past = usePast(`node ${name}`, { node: name });
  const [shown, setShown] = useState(null);
  const poll = usePoll(`node ${name}`, (signal) => load(name, signal), (answer, at) => {
    const made = flatten(answer, samples.current, at);
    // The first answer has no rates. Its point would be a gap behind the past that the server tells.
    if (made.arrivals !== null) past.own.add(at, { depth: made.depth, arrivals: made.arrivals });
    setShown(made);
  });
  const actions = useActions(() => poll.reload());
  const node = shown?.node === name ? shown : null;
  return html`
    <${Trail} levels=${[["Nodes", link("nodes")], [name, link("nodes", name)]]} />
    <div class="head"><h1><span class="kind">Node</span> ${name}</h1></div>
    ${actions.shown}
    <${PollBars} poll=${poll} what="The node" />
    ${!node && !poll.error && html`<${Loading} what="the node" />`}
    ${node && html`<${ConcernBars} concerns=${node.machine?.concerns ?? []} />`}
    ${node?.isGone && html`<p class="empty">Its figures are not known any more. The page <a href=${link("nodes")}>Nodes</a> has those that are there.</p>`}
    ${node && !node.isGone && html`<${Content} node=${node} past=${past} actions=${actions} />`}`;
}

// The answer for the node, with its shards and its disk. A node that has vanished has only what needs attention.
async function load(name, signal) {
  const { live: isLive } = await facts.known();
  // A node that is new, and a node that is no ringq, have none.
  const live = isLive ? ask(api("live", "nodes", name), { signal }).catch(() => null) : null;
  const [node, machine] = await Promise.all([ask(api("nodes", name), { signal }).catch((error) => ({ error })), live]);
  if (!node.error) return { ...node, machine };
  if (node.error.status === 404 && machine?.concerns.length > 0) return { node: name, machine, isGone: true };
  throw node.error;
}

// Lists of topics, channels and clients of the answer's tree.
function flatten(answer, samples, at) {
  const topics = (answer.topics ?? []).map((topic) => {
    const before = samples.take(topic.topic_name, at, { message_count: topic.message_count });
    return { ...topic, channels: topic.channels ?? [], backlog: backlogOf(topic), arrivals: perSecond(before, "message_count", topic.message_count) };
  });
  const channels = topics.flatMap((topic) => topic.channels.map((channel) => ({ ...channel, topic_name: topic.topic_name })));
  const clients = channels.flatMap((channel) => (channel.clients ?? []).map((client) =>
    ({ ...client, topic_name: channel.topic_name, channel_name: channel.channel_name })));
  const depth = topics.reduce((sum, topic) => plus(sum, topic.backlog), 0);
  const refused = topics.reduce((sum, topic) => plus(sum, topic.refused_count ?? 0), 0);
  const rates = topics.map((topic) => topic.arrivals).filter((rate) => rate !== null);
  const arrivals = rates.length > 0 ? rates.reduce((sum, rate) => sum + rate, 0) : null;
  return { node: answer.node, topics, channels, clients, depth, refused, arrivals, messages: answer.total_messages, machine: answer.machine, isGone: answer.isGone };
}

const topicKey = (row) => row.topic_name;
const topicText = (row) => row.topic_name.toLowerCase();
const channelKey = (row) => `${row.topic_name}/${row.channel_name}`;
const channelText = (row) => channelKey(row).toLowerCase();
const ownClientKey = (row) => `${channelKey(row)} ${clientKey(row)}`;

function Content({ node, past, actions }) {
  const disk = node.machine?.disk;
  const shards = node.machine?.shards ?? [];
  return html`
    <${Tiles} tiles=${[
      { label: "Topics", value: count(node.topics.length) },
      { label: "Messages", value: count(node.messages), note: "since it was started" },
      { label: "Messages/s", value: rate(node.arrivals) },
      { label: "Depth", value: count(node.depth), note: "waiting in topics and channels" },
      { label: "Clients", value: count(node.clients.length) },
      disk && { label: "Disk free", value: size(disk.free_bytes), note: `of ${size(disk.size_bytes)}`, kind: disk.free_bytes < Number(disk.size_bytes) / 10 ? "bad" : "" },
      disk?.is_full && { label: "Disk", value: "full", note: "messages are refused", kind: "bad" },
      Number(node.refused) > 0 && { label: "Refused", value: count(node.refused), note: "messages, since it was started", kind: disk?.is_full ? "bad" : "" },
      disk?.full_in_s !== undefined && { label: "Disk full in", value: seconds(disk.full_in_s), note: "as in the last 10 minutes", kind: disk.full_in_s < 14_400 ? "bad" : "" },
    ]} />
    <${Ranges} past=${past} />
    <div class="charts">
      <${Chart} title="Messages per second" series=${past.shown} show=${rate}
        lines=${[{ figure: "arrivals", name: "published", colour: "c3" }]} />
      <${Chart} title="Waiting" series=${past.shown} show=${count} lines=${[{ figure: "depth", name: "waiting", colour: "c1" }]} />
    </div>
    ${shards.length > 0 && html`<h2>Shards</h2>
      <${Table} name="shard-" caption="Shards of this node" rows=${shards} rowKey=${shardKey} text=${shardText} first="-load" columns=${SHARDS} />`}
    <h2>Topics</h2>
    <${Table} caption="Topics on this node" rows=${node.topics} rowKey=${topicKey} text=${topicText} search="Search topics" first="-depth"
      columns=${topicColumns(node, actions)} empty="No topics exist on this node." />
    <h2>Channels</h2>
    <${Table} name="channel-" caption="Channels on this node" rows=${node.channels} rowKey=${channelKey} text=${channelText} search="Search channels"
      first="-depth" columns=${channelColumns(node)} empty="No channels exist on this node." />
    <h2>Consumers</h2>
    <${Table} name="client-" caption="Consumers on this node" rows=${node.clients} rowKey=${ownClientKey} text=${clientText} search="Search consumers"
      first="-flight" columns=${clientColumns({ before: CLIENT_PLACE, hasNode: false })} empty="No clients are connected to this node." />
    <${Graphs} kind="node" node=${node.node} />`;
}

const shardKey = (row) => String(row.shard);
const shardText = (row) => `${row.shard} ${row.busiest_topic ?? ""}`.toLowerCase();

const SHARDS = [
  { key: "shard", title: "Shard", isText: true, value: (row) => row.shard, cell: (row) => row.shard },
  { key: "load", title: "Load", help: "The part of a core that the shard uses", value: (row) => row.load, cell: (row) => html`<${Load} part=${row.load} />` },
  counted("topics", "Topics", "topic_count"),
  counted("connections", "Connections", "connections"),
  rated("rate", "Messages/s", "rate", "Messages that are published to the topics of this shard per second"),
  { key: "busiest", title: "Busiest topic", isText: true, value: (row) => row.busiest_topic,
    cell: (row) => row.busiest_topic ? html`<a href=${link("topics", row.busiest_topic)}>${row.busiest_topic}</a> ${rate(row.busiest_rate)}/s` : "–" },
];

function Load({ part }) {
  if (part === undefined) return "–";
  const load = Number(part);
  const width = { width: `${Math.min(100, Math.round(load * 100))}%` };
  return html`<span class="share" aria-hidden="true"><span class=${load >= 0.9 ? "full" : "zone"} style=${width}></span></span> ${(load * 100).toFixed(load < 0.1 ? 1 : 0)} %`;
}

const CLIENT_PLACE = [{
  key: "channel", title: "Channel", isText: true, value: channelKey,
  cell: (row) => html`<a href=${link("topics", row.topic_name, row.channel_name)}>${row.topic_name} / ${row.channel_name}</a>`,
}];

const AGE = { key: "oldest", title: "Oldest", help: "Age of the oldest message that is not finished", value: (row) => row.oldest_unfinished_ms,
  cell: (row) => html`<${Age} ms=${row.oldest_unfinished_ms} />` };
const DISK = { key: "disk", title: "Memory + disk", value: (row) => row.backend_depth, cell: memoryAndDisk };

function topicColumns(node, actions) {
  return [
    { key: "topic", title: "Topic", isText: true, value: topicKey,
      cell: (row) => html`<a href=${link("topics", row.topic_name)}>${row.topic_name}</a><${Paused} of=${row} />` },
    ...ifKnown(node.topics, AGE),
    ...TOPIC_DEPTH,
    rated("rate", "Messages/s", "arrivals"),
    counted("messages", "Messages", "message_count"),
    { key: "channels", title: "Channels", value: (row) => row.channels.length, cell: (row) => count(row.channels.length) },
    ...latencyColumns(node.topics),
    ...(actions.canAct ? [{ key: "act", title: "Action", value: topicKey, cell: (row) => html`<button type="button" class="danger small"
      onClick=${() => actions.start(tombstone(node.node, row))}>Tombstone</button>` }] : []),
  ];
}

function channelColumns(node) {
  return [
    { key: "channel", title: "Channel", isText: true, value: channelKey,
      cell: (row) => html`<a href=${link("topics", row.topic_name, row.channel_name)}>${row.topic_name} / ${row.channel_name}</a><${Paused} of=${row} />` },
    ...ifKnown(node.channels, AGE),
    counted("depth", "Depth", "depth"),
    DISK,
    counted("flight", "In flight", "in_flight_count"),
    counted("deferred", "Deferred", "deferred_count"),
    counted("requeued", "Requeued", "requeue_count"),
    counted("timeouts", "Timed out", "timeout_count"),
    counted("messages", "Messages", "message_count"),
    { key: "consumers", title: "Consumers", value: (row) => row.client_count ?? row.clients?.length, cell: (row) => count(row.client_count ?? row.clients?.length) },
    ...latencyColumns(node.channels),
  ];
}
