// One nsqd: its topics, channels and consumers.

import { html, useEffect, useRef, useState } from "../html.js";
import { tombstone, useActions } from "../actions.js";
import { api, ask } from "../api.js";
import { PollBars } from "../bars.js";
import { Chart } from "../chart.js";
import { clientColumns, clientKey, clientText } from "../clients.js";
import { plus } from "../exact.js";
import { count, rate } from "../format.js";
import { Graphs } from "../graphite.js";
import { Age, Loading, Paused, Tiles, Trail, counted, ifKnown, latencyColumns, memoryAndDisk, rated } from "../parts.js";
import { usePoll } from "../poll.js";
import { Samples, perSecond } from "../rates.js";
import { link } from "../route.js";
import { loadHistory, series } from "../series.js";
import { Table } from "../table.js";

export function Node({ name }) {
  const samples = useRef(new Samples());
  const past = series(`node ${name}`);
  const [shown, setShown] = useState(null);
  const poll = usePoll(`node ${name}`, (signal) => ask(api("nodes", name), { signal }), (answer, at) => {
    const made = flatten(answer, samples.current, at);
    // The first answer has no rates. Its point would be a gap behind the past that the server tells.
    if (made.arrivals !== null) past.add(at, { depth: made.depth, arrivals: made.arrivals });
    setShown(made);
  });
  const [, redraw] = useState(0);
  useEffect(() => {
    loadHistory(past, { node: name }).then((some) => some && redraw((count) => count + 1));
  }, [past]);
  const actions = useActions(() => poll.reload());
  const node = shown?.node === name ? shown : null;
  return html`
    <${Trail} levels=${[["Nodes", link("nodes")], [name, link("nodes", name)]]} />
    <div class="head"><h1><span class="kind">Node</span> ${name}</h1></div>
    ${actions.shown}
    <${PollBars} poll=${poll} what="The node" />
    ${!node && !poll.error && html`<${Loading} what="the node" />`}
    ${node && html`<${Content} node=${node} past=${past} actions=${actions} />`}`;
}

// Lists of topics, channels and clients of the answer's tree.
function flatten(answer, samples, at) {
  const topics = (answer.topics ?? []).map((topic) => {
    const before = samples.take(topic.topic_name, at, { message_count: topic.message_count });
    return { ...topic, channels: topic.channels ?? [], arrivals: perSecond(before, "message_count", topic.message_count) };
  });
  const channels = topics.flatMap((topic) => topic.channels.map((channel) => ({ ...channel, topic_name: topic.topic_name })));
  const clients = channels.flatMap((channel) => (channel.clients ?? []).map((client) =>
    ({ ...client, topic_name: channel.topic_name, channel_name: channel.channel_name })));
  const depth = [...topics, ...channels].reduce((sum, part) => plus(sum, part.depth), 0);
  const rates = topics.map((topic) => topic.arrivals).filter((rate) => rate !== null);
  const arrivals = rates.length > 0 ? rates.reduce((sum, rate) => sum + rate, 0) : null;
  return { node: answer.node, topics, channels, clients, depth, arrivals, messages: answer.total_messages };
}

const topicKey = (row) => row.topic_name;
const topicText = (row) => row.topic_name.toLowerCase();
const channelKey = (row) => `${row.topic_name}/${row.channel_name}`;
const channelText = (row) => channelKey(row).toLowerCase();
const ownClientKey = (row) => `${channelKey(row)} ${clientKey(row)}`;

function Content({ node, past, actions }) {
  return html`
    <${Tiles} tiles=${[
      { label: "Topics", value: count(node.topics.length) },
      { label: "Messages", value: count(node.messages), note: "since it was started" },
      { label: "Messages/s", value: rate(node.arrivals) },
      { label: "Waiting", value: count(node.depth) },
      { label: "Clients", value: count(node.clients.length) },
    ]} />
    <div class="charts">
      <${Chart} title="Messages per second" series=${past} version=${past.version} show=${rate}
        lines=${[{ figure: "arrivals", name: "published", colour: "c3" }]} />
      <${Chart} title="Waiting" series=${past} version=${past.version} show=${count} lines=${[{ figure: "depth", name: "waiting", colour: "c1" }]} />
    </div>
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
    counted("depth", "Depth", "depth"),
    DISK,
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
