// One topic: its channels, and its part on each node.

import { html, useRef, useState } from "../html.js";
import { UndoBar, capital, deleteTopic, emptyTopic, pauseTopic, pauseVerbs, tombstone, unemptyTopic, useActions } from "../actions.js";
import { api, ask } from "../api.js";
import { ConcernBars, GoneNodes, NoNodes, PollBars } from "../bars.js";
import { Chart } from "../chart.js";
import { Duplicates, duplicatesTile } from "../dedup.js";
import { largest } from "../exact.js";
import { age, count, rate } from "../format.js";
import { Graphs } from "../graphite.js";
import { loadLive, problemOf } from "../overview.js";
import { Age, Loading, NodeLink, Paused, TOPIC_DEPTH, Tiles, Trail, backlogOf, counted, ifKnown, inMemoryAndOnDisk, latencyColumns, memoryAndDisk, quantiles, rated } from "../parts.js";
import { Ranges, usePast } from "../past.js";
import { usePoll } from "../poll.js";
import { Producers } from "../producers.js";
import { Samples, perSecond } from "../rates.js";
import { go, link } from "../route.js";
import { Table } from "../table.js";

export function Topic({ name }) {
  const samples = useRef(new Samples());
  const past = usePast(`topic ${name}`, { topic: name });
  const [shown, setShown] = useState(null);
  const poll = usePoll(`topic ${name}`, (signal) => load(name, signal), (topic, at) => {
    const made = withRates(topic, samples.current, at);
    // The first answer has no rates. Its point would be a gap behind the past that the server tells.
    if (made.arrivals !== null) past.own.add(at, { depth: made.backlog, arrivals: made.arrivals, ...(made.oldest !== undefined && { oldest: made.oldest / 1000 }) });
    setShown(made);
  });
  const actions = useActions((action, isPartial) => action.kind === "delete" && !isPartial ? go(link()) : poll.reload());
  const topic = shown?.topic_name === name ? shown : null;
  const hasNodes = topic?.nodes?.length > 0;
  return html`
    <${Trail} levels=${[["Topics", link()], [name, link("topics", name)]]} />
    <div class="head"><h1><span class="kind">Topic</span> ${name}<${Paused} of=${topic} /></h1>
      ${hasNodes && html`<a class="button" href=${`${link("peek", name)}${topic.message_count > 0 || !(topic.depth > 0) ? "" : "?from=newest"}`}>Look at messages</a>`}
      ${actions.canAct && hasNodes && html`<div class="buttons">
        ${pauseVerbs(topic).map((verb) => html`<button type="button" key=${verb} onClick=${() => actions.start(pauseTopic(topic, verb))}>${capital(verb)} topic</button>`)}
        <button type="button" class="danger" onClick=${() => actions.start(emptyTopic(topic))}>Empty topic</button>
        <button type="button" class="danger" onClick=${() => actions.start(deleteTopic(topic))}>Delete topic</button></div>`}</div>
    ${actions.shown}
    ${topic && html`<${UndoBar} of=${topic} unempty=${unemptyTopic(topic)} actions=${actions} />`}
    <${PollBars} poll=${poll} what="The topic" />
    <${GoneNodes} name=${name} nodes=${topic?.nodes?.map((node) => node.node)} told=${topic?.gone} />
    ${!topic && !poll.error && html`<${Loading} what="the topic" />`}
    ${topic && !hasNodes && html`<${NoNodes} what="topic" told=${topic.gone} />`}
    ${hasNodes && html`<${Content} topic=${topic} past=${past} actions=${actions} />`}`;
}

// The answer for the topic, with the live figures.
async function load(name, signal) {
  const [topic, live] = await Promise.all([ask(api("topics", name), { signal }).catch(orNothing), loadLive(name, signal)]);
  if (topic.error && live.gone.length === 0) throw topic.error;
  const channels = (topic.channels ?? []).map((channel) => {
    const own = live.channels.get(channel.channel_name);
    return { ...channel, oldest_unfinished_ms: own?.all, doctor: own?.doctor };
  });
  return { nodes: [], ...topic, topic_name: name, channels, oldest_unfinished_ms: live.all, publishing: live.publishing, concerns: live.concerns, gone: live.gone };
}

// An nsqlookupd that was restarted does not know what only a node has that is gone. Other failures are failures.
export function orNothing(error) {
  if (error.status !== 404) throw error;
  return { error };
}

// Adds rates and problems to the answer.
function withRates(topic, samples, at) {
  const channels = (topic.channels ?? []).map((channel) => {
    const oldest = channel.oldest_unfinished_ms;
    const before = samples.take(`channel ${channel.channel_name}`, at, { message_count: channel.message_count }, namesOf(channel));
    return { ...channel, oldest, getsOlder: channel.doctor?.is_older, arrivals: perSecond(before, "message_count", channel.message_count),
      problem: problemOf(channel, topic.paused) };
  });
  const ages = [topic.oldest_unfinished_ms, ...channels.map((channel) => channel.oldest)].filter((age) => age !== undefined);
  const oldest = largest(ages);
  const ratesOf = (name, part, names) => {
    const { message_count, dedup_duplicate_count } = part;
    const before = samples.take(name, at, { message_count, dedup_duplicate_count }, names);
    return { arrivals: perSecond(before, "message_count", message_count), duplicates: perSecond(before, "dedup_duplicate_count", dedup_duplicate_count) };
  };
  const nodes = (topic.nodes ?? []).map((node) => ({ ...node, backlog: backlogOf(node), ...ratesOf(`node ${node.node}`, node) }));
  const getsOlder = [...topic.concerns, ...channels.map((channel) => channel.doctor)].some((one) => one?.is_older);
  return { ...topic, channels, nodes, backlog: backlogOf(topic), oldest, getsOlder, ...ratesOf("topic", topic, namesOf(topic)) };
}

// The nodes of which the figures of a topic or channel are a sum, for rates.
export function namesOf({ nodes }) {
  return (nodes ?? []).map((node) => node.node).sort().join(" ");
}

function Content({ topic, past, actions }) {
  return html`
    <${ConcernBars} concerns=${topic.concerns} />
    <${Tiles} tiles=${[
      topic.oldest !== undefined && { label: "Oldest unfinished", value: html`<${Age} ms=${topic.oldest} isOlder=${topic.getsOlder} />`, kind: topic.getsOlder ? "bad" : "" },
      { label: "Waiting in the topic", value: count(topic.depth), note: inMemoryAndOnDisk(topic) },
      { label: "Messages/s", value: rate(topic.arrivals), note: `${count(topic.message_count)} in all` },
      topic.refused_count > 0 && { label: "Refused", value: count(topic.refused_count), note: "messages, since the nodes were started" },
      duplicatesTile(topic),
      { label: "Channels", value: count(topic.channels.length) },
      { label: "Nodes", value: count(topic.nodes.length) },
    ]} />
    <${Ranges} past=${past} />
    <div class="charts">
      <${Chart} title="Messages per second" series=${past.shown} show=${rate}
        lines=${[{ figure: "arrivals", name: "published", colour: "c3" }]} />
      <${Chart} title="Waiting, in the topic and its channels" series=${past.shown} show=${count}
        lines=${[{ figure: "depth", name: "waiting", colour: "c1" }]} />
      <${Chart} title="Age of the oldest message" series=${past.shown} show=${seconds}
        lines=${[{ figure: "oldest", name: "oldest", colour: "c2" }]} />
    </div>
    <h2>Channels</h2>
    <${Table} caption="Channels of the topic" rows=${topic.channels} rowKey=${channelKey} text=${channelText} search="Search channels"
      columns=${channelColumns(topic)} first=${topic.oldest === undefined ? "-depth" : "-oldest"} rowClass=${problemClass}
      empty="No channels exist for this topic. Messages wait in the topic until a channel is created." />
    <h2>Nodes</h2>
    <${Table} name="node-" caption="The topic on each node" rows=${topic.nodes} rowKey=${nodeKey} text=${nodeText} first="-depth"
      columns=${nodeColumns(topic, actions)} total=${topic.nodes.length > 1 && { ...topic, isTotal: true }} />
    <${Duplicates} key=${topic.topic_name} topic=${topic} />
    <${Producers} publishing=${topic.publishing} />
    <${Graphs} kind="topic" topic=${topic.topic_name} quantiles=${quantiles(topic)} />`;
}

// An age in seconds, which may be a BigInt, for charts.
export function seconds(value) {
  return age(value === null || value === undefined ? value : Number(value) * 1000);
}
seconds.isTime = true;

const channelKey = (row) => row.channel_name;
const channelText = (row) => row.channel_name.toLowerCase();
export const problemClass = (row) => row.problem ? "problem" : "";
export const nodeKey = (row) => row.node;
export const nodeText = (row) => `${row.node} ${row.hostname}`.toLowerCase();

const sentenceOf = (row) => row.problem ?? row.doctor?.sentence;

function channelColumns(topic) {
  return [
    { key: "channel", title: "Channel", isText: true, value: channelKey,
      cell: (row) => html`<a href=${link("topics", topic.topic_name, row.channel_name)}>${row.channel_name}</a><${Paused} of=${row} />` },
    ...ifKnown(topic.channels, { key: "oldest", title: "Oldest", help: "Age of the oldest message that is not finished", value: (row) => row.oldest,
      cell: (row) => html`<${Age} ms=${row.oldest} isOlder=${row.getsOlder} />` }),
    counted("depth", "Depth", "depth", "Messages that wait"),
    ...ifKnown(topic.channels, { key: "doctor", title: "What limits it", isText: true, value: sentenceOf,
      cell: (row) => html`<span class="sentence" title=${sentenceOf(row)}>${sentenceOf(row) ?? "–"}</span>` }),
    { key: "disk", title: "Memory + disk", value: (row) => row.backend_depth, cell: memoryAndDisk },
    ...ifKnown(topic.channels, { key: "drained", title: "Drained in", help: "Time until no message waits, if the present rates stay",
      value: (row) => row.doctor?.drained_in_s, cell: (row) => seconds(row.doctor?.drained_in_s) }),
    counted("flight", "In flight", "in_flight_count"),
    counted("deferred", "Deferred", "deferred_count"),
    counted("requeued", "Requeued", "requeue_count"),
    counted("timeouts", "Timed out", "timeout_count"),
    rated("rate", "Messages/s", "arrivals"),
    counted("messages", "Messages", "message_count"),
    counted("consumers", "Consumers", "client_count", "Connections of consumers"),
    ...latencyColumns(topic.channels),
  ];
}

function nodeColumns(topic, actions) {
  return [
    { key: "node", title: "Node", isText: true, value: nodeKey,
      cell: (row) => row.isTotal ? "Total" : html`<${NodeLink} node=${row.node} host=${row.hostname} /><${Paused} of=${row} isBrief />` },
    ...TOPIC_DEPTH,
    rated("rate", "Messages/s", "arrivals"),
    counted("messages", "Messages", "message_count"),
    { key: "channels", title: "Channels", value: (row) => row.channels?.length ?? 0, cell: (row) => count(row.channels?.length ?? 0) },
    ...latencyColumns(topic.nodes),
    ...(actions.canAct ? [{ key: "act", title: "Action", value: nodeKey, cell: (row) => !row.isTotal && html`<button type="button" class="danger small"
      onClick=${() => actions.start(tombstone(row.node, row))}>Tombstone</button>` }] : []),
  ];
}
