// One channel: its part on each node, and its consumers.

import { html, useRef, useState } from "../html.js";
import { UndoBar, capital, deleteChannel, emptyChannel, pauseChannel, pauseVerbs, unemptyChannel, useActions } from "../actions.js";
import { api, ask } from "../api.js";
import { GoneNodes, NoNodes, PollBars } from "../bars.js";
import { Chart } from "../chart.js";
import { clientColumns, clientKey, clientText } from "../clients.js";
import { plus } from "../exact.js";
import { count, rate } from "../format.js";
import { Graphs } from "../graphite.js";
import { loadLive, problemOf } from "../overview.js";
import { Age, Loading, NodeLink, Paused, Tiles, Trail, counted, ifKnown, inMemoryAndOnDisk, latencyColumns, latencyTiles, memoryAndDisk, quantiles, rated } from "../parts.js";
import { Ranges, usePast } from "../past.js";
import { usePoll } from "../poll.js";
import { Samples, change, perSecond } from "../rates.js";
import { go, link } from "../route.js";
import { Table } from "../table.js";
import { namesOf, nodeKey, nodeText, orNothing, seconds } from "./topic.js";

export function Channel({ topic, name }) {
  const samples = useRef(new Samples());
  const past = usePast(`channel ${topic}/${name}`, { topic, channel: name });
  const [shown, setShown] = useState(null);
  const poll = usePoll(`channel ${topic}/${name}`, (signal) => load(topic, name, signal), (channel, at) => {
    const made = withRates(channel, samples.current, at);
    // The first answer has no rates. Its point would be a gap behind the past that the server tells.
    if (made.arrivals !== null) past.own.add(at, {
      depth: made.depth, inFlight: made.in_flight_count, deferred: made.deferred_count, arrivals: made.arrivals, done: made.done,
      requeues: made.requeues, timeouts: made.timeouts, ...(made.oldest !== undefined && { oldest: made.oldest / 1000 }),
    });
    setShown(made);
  });
  const actions = useActions((action, isPartial) => action.kind === "delete" && !isPartial ? go(link("topics", topic)) : poll.reload());
  const channel = shown?.topic_name === topic && shown?.channel_name === name ? shown : null;
  const hasNodes = channel?.nodes.length > 0;
  return html`
    <${Trail} levels=${[["Topics", link()], [topic, link("topics", topic)], [name, link("topics", topic, name)]]} />
    <div class="head"><h1><span class="kind">Channel</span> ${name}<${Paused} of=${channel} /></h1>
      ${hasNodes && html`<a class="button" href=${`${link("peek", topic, name)}${listWithMessages(channel)}`}>Look at messages</a>`}
      ${actions.canAct && hasNodes && html`<div class="buttons">
        ${pauseVerbs(channel).map((verb) => html`<button type="button" key=${verb} onClick=${() => actions.start(pauseChannel(channel, verb))}>${capital(verb)} channel</button>`)}
        <button type="button" class="danger" onClick=${() => actions.start(emptyChannel(channel))}>Empty channel</button>
        <button type="button" class="danger" onClick=${() => actions.start(deleteChannel(channel))}>Delete channel</button></div>`}</div>
    ${actions.shown}
    ${channel && html`<${UndoBar} of=${channel} unempty=${unemptyChannel(channel)} actions=${actions} />`}
    <${PollBars} poll=${poll} what="The channel" />
    <${GoneNodes} name=${`${topic}/${name}`} nodes=${channel?.nodes?.map((node) => node.node)} told=${channel?.gone} />
    ${!channel && !poll.error && html`<${Loading} what="the channel" />`}
    ${channel && !hasNodes && html`<${NoNodes} what="channel" told=${channel.gone} isUnknown=${channel.error !== undefined} />`}
    ${hasNodes && html`<${Content} channel=${channel} past=${past} />`}`;
}

// The list of messages to open: one that is not empty. Without a query, that is the list of those that wait.
function listWithMessages(channel) {
  if (channel.doctor?.is_retried) return "?from=attempts";
  if (channel.depth > 0) return "";
  if (channel.deferred_count > 0) return "?from=deferred";
  return channel.in_flight_count > 0 ? "?from=in_flight" : "";
}

// The answer for the channel, with the live figures.
async function load(topic, name, signal) {
  const [channel, live] = await Promise.all([ask(api("topics", topic, name), { signal }).catch(orNothing), loadLive(topic, signal)]);
  if (channel.error && live.gone.length === 0) throw channel.error;
  const own = live.channels.get(name);
  const nodes = (channel.nodes ?? []).map((node) => ({ ...node, oldest_unfinished_ms: own?.nodes.get(node.node) }));
  return { ...channel, topic_name: topic, channel_name: name, nodes, oldest_unfinished_ms: own?.all, doctor: own?.doctor, gone: live.gone };
}

// The messages that are in the channel.
function unfinished(part) {
  return plus(plus(part.depth, part.in_flight_count), part.deferred_count);
}

function withRates(channel, samples, at) {
  const oldest = channel.oldest_unfinished_ms;
  const figures = (part) => ({ message_count: part.message_count, requeue_count: part.requeue_count, timeout_count: part.timeout_count,
    unfinished: unfinished(part) });
  const rates = (before, part) => {
    const arrivals = perSecond(before, "message_count", part.message_count);
    const grown = change(before, "unfinished", unfinished(part));
    return {
      arrivals,
      // What has come and is no longer there was finished.
      done: arrivals === null ? null : Math.max(0, arrivals - grown),
      requeues: perSecond(before, "requeue_count", part.requeue_count),
      timeouts: perSecond(before, "timeout_count", part.timeout_count),
    };
  };
  const before = samples.take("total", at, figures(channel), namesOf(channel));
  const nodes = (channel.nodes ?? []).map((node) => ({ ...node, ...rates(samples.take(node.node, at, figures(node)), node) }));
  const clients = (channel.clients ?? []).map((client) => {
    const before = samples.take(clientKey(client), at, { finish_count: client.finish_count });
    return { ...client, done: perSecond(before, "finish_count", client.finish_count) };
  });
  return { ...channel, ...rates(before, channel), nodes, clients, oldest, getsOlder: channel.doctor?.is_older, problem: problemOf(channel, false) };
}

function Content({ channel, past }) {
  const sentence = channel.problem ?? channel.doctor?.sentence;
  const chart = { series: past.shown };
  return html`
    ${sentence && html`<p class=${`bar ${channel.problem ? "warn" : "good"}`} role="status"><b>${sentence}</b></p>`}
    <${Tiles} tiles=${[
      channel.oldest !== undefined && { label: "Oldest unfinished", value: html`<${Age} ms=${channel.oldest} isOlder=${channel.getsOlder} />`, kind: channel.getsOlder ? "bad" : "" },
      { label: "Depth", value: count(channel.depth), note: inMemoryAndOnDisk(channel) },
      channel.doctor?.drained_in_s !== undefined && { label: "Drained in", value: seconds(channel.doctor.drained_in_s), note: "at the present rates" },
      { label: "In flight", value: count(channel.in_flight_count) },
      { label: "Deferred", value: count(channel.deferred_count) },
      { label: "In/s", value: rate(channel.arrivals), note: `${count(channel.message_count)} in all` },
      { label: "Done/s", value: rate(channel.done) },
      { label: "Consumers", value: count(channel.client_count) },
      ...latencyTiles(channel),
    ]} />
    <${Ranges} past=${past} />
    <div class="charts">
      <${Chart} title="Depth" ...${chart} show=${count} lines=${[{ figure: "depth", name: "waiting", colour: "c1" },
        { figure: "inFlight", name: "in flight", colour: "c2" }, { figure: "deferred", name: "deferred", colour: "c4" }]} />
      <${Chart} title="Messages per second" ...${chart} show=${rate} lines=${[{ figure: "arrivals", name: "in", colour: "c3" },
        { figure: "done", name: "done", colour: "c1" }, { figure: "requeues", name: "requeued", colour: "c2" },
        { figure: "timeouts", name: "timed out", colour: "c5" }]} />
      <${Chart} title="Age of the oldest message" ...${chart} show=${seconds} lines=${[{ figure: "oldest", name: "oldest", colour: "c2" }]} />
    </div>
    <h2>Consumers</h2>
    <${Table} caption="Consumers of the channel" rows=${channel.clients} rowKey=${clientKey} text=${clientText} search="Search consumers"
      columns=${clientColumns()} first="-flight" rowClass=${zoneClass} empty="No clients are connected to this channel." />
    <h2>Nodes</h2>
    <${Table} name="node-" caption="The channel on each node" rows=${channel.nodes} rowKey=${nodeKey} text=${nodeText} first="-depth"
      columns=${nodeColumns(channel)} total=${channel.nodes.length > 1 && { ...channel, isTotal: true }} />
    <${Graphs} kind="channel" topic=${channel.topic_name} channel=${channel.channel_name} quantiles=${quantiles(channel)} />`;
}

function zoneClass(client) {
  if (client.topology_zone && client.topology_zone === client.node_topology_zone) return "zone";
  return client.topology_region && client.topology_region === client.node_topology_region ? "region" : "";
}

function nodeColumns(channel) {
  return [
    { key: "node", title: "Node", isText: true, value: nodeKey,
      cell: (row) => row.isTotal ? "Total" : html`<${NodeLink} node=${row.node} host=${row.hostname} /><${Paused} of=${row} isBrief />` },
    ...ifKnown(channel.nodes, { key: "oldest", title: "Oldest", value: (row) => row.oldest_unfinished_ms,
      cell: (row) => html`<${Age} ms=${row.oldest_unfinished_ms} />` }),
    counted("depth", "Depth", "depth"),
    { key: "disk", title: "Memory + disk", value: (row) => row.backend_depth, cell: memoryAndDisk },
    counted("flight", "In flight", "in_flight_count"),
    counted("deferred", "Deferred", "deferred_count"),
    counted("requeued", "Requeued", "requeue_count"),
    counted("timeouts", "Timed out", "timeout_count"),
    rated("in", "In/s", "arrivals"),
    rated("done", "Done/s", "done", "Messages per second that left the channel: finished, or emptied"),
    counted("messages", "Messages", "message_count"),
    counted("consumers", "Consumers", "client_count"),
    ...(hasTopology(channel) ? [{ key: "delivery", title: "Delivery", help: "Messages by the place of the consumer: in the node's zone, in its region, elsewhere",
      value: (row) => row.delivery_msg_count, cell: (row) => html`<${Delivery} part=${row} />` }] : []),
    ...latencyColumns(channel.nodes),
  ];
}

// Returns true if nsqds and consumers tell where they are. Without a topology, all deliveries would be "elsewhere".
function hasTopology(channel) {
  const isPlaced = (client) => Boolean(client.topology_zone || client.topology_region);
  return channel.zone_local_msg_count > 0 || channel.region_local_msg_count > 0
    || (channel.delivery_msg_count > 0 && (channel.clients ?? []).some(isPlaced));
}

// The share of deliveries within the zone, within the region, and elsewhere.
function Delivery({ part }) {
  const all = Number(part.delivery_msg_count ?? 0);
  if (all === 0) return "–";
  const local = Number(part.zone_local_msg_count ?? 0) / all;
  const near = Number(part.region_local_msg_count ?? 0) / all;
  const text = [["zone", local], ["region", near], ["elsewhere", Math.max(0, 1 - local - near)]]
    .filter(([, share]) => share > 0).map(([name, share]) => `${name} ${(share * 100).toFixed(share === 1 ? 0 : 1)}%`).join(", ");
  const width = (share) => ({ width: `${Math.floor(share * 100)}%` });
  return html`<span class="share" aria-hidden="true"><span class="zone" style=${width(local)}></span><span class="region" style=${width(near)}></span></span> ${text}`;
}
