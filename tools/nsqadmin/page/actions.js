// The actions of admins: what they ask, what they destroy, and their requests.

import { html, useState } from "./html.js";
import { api, ask, warning } from "./api.js";
import { ActionBar } from "./bars.js";
import { Confirm } from "./confirm.js";
import { plus } from "./exact.js";
import { count, many, moment } from "./format.js";
import { Addresses } from "./parts.js";
import { facts, serverNow, useStore } from "./store.js";
import { FULL_DISK } from "./terms.js";

// Asks for actions and shows their outcome. Returns `canAct`, `start(action)`, and `shown`, which belongs above the content.
// `after(action, isPartial)` runs when an action has succeeded, perhaps at some servers only.
export function useActions(after) {
  const isAdmin = useStore(facts)?.is_admin === true;
  const [action, setAction] = useState(null);
  const [outcome, setOutcome] = useState(null);
  // The dialog may have been closed while the action went on, and another one may be open.
  const close = () => setAction((open) => open === action ? null : open);
  const failed = (error, what = action.what) => setOutcome({ what, error });
  const done = (answer, outcome = { what: action.what, message: answer.message }) => {
    close();
    setOutcome(outcome);
    const found = warning(outcome.message);
    after(action, Boolean(found && !found.isMissing));
  };
  const shown = html`
    <${ActionBar} outcome=${outcome} onClose=${() => setOutcome(null)} />
    ${action && html`<${action.dialog ?? Confirm} action=${action} onDone=${done} onFailed=${failed} onClose=${close} />`}`;
  return { canAct: isAdmin, start: setAction, shown };
}

const post = (path, body) => ask(path, { method: "POST", body });
const remove = (path, body) => ask(path, { method: "DELETE", body });

// The verbs of pauses that would change a topic or channel. One that only some nodes have paused can be paused at all of them.
export function pauseVerbs({ paused, nodes }) {
  if (!paused) return ["pause"];
  return nodes?.some((node) => !node.paused) ? ["pause", "unpause"] : ["unpause"];
}

// The figures of a topic or channel that an action would destroy. The nodes in `gone` keep what they have.
function contents(depth, { inFlight, deferred, consumers, channels, nodes, gone }) {
  const rows = [["Messages waiting (depth)", count(depth)], ["In flight", count(inFlight)], ["Deferred", count(deferred)],
    ["Channels", channels?.length ? `${channels.length}: ${channels.slice(0, 5).join(", ")}${channels.length > 5 ? " …" : ""}` : channels && "0"],
    ["Consumers connected", count(consumers)], ["Nodes", nodes && (nodes.length > 0 ? html`<${Addresses} nodes=${nodes} />` : "none")],
    ["Gone, and keep what they have", gone]];
  return rows.filter(([, value]) => value !== undefined && value !== "–").map(([label, value]) => ({ label, value }));
}

function sum(parts, name) {
  return parts.reduce((total, part) => plus(total, part[name]), 0);
}

// The addresses of the nodes that are gone, or undefined.
function goneNodes({ gone }) {
  return gone?.length > 0 ? html`<${Addresses} nodes=${gone.map((one) => one.node)} />` : undefined;
}

function ofTopic(topic) {
  const channels = topic.channels ?? [];
  return {
    inFlight: sum(channels, "in_flight_count"),
    deferred: sum(channels, "deferred_count"),
    consumers: sum(channels, "client_count"),
    channels: channels.map((channel) => channel.channel_name),
    nodes: topic.nodes?.map((node) => node.node),
    gone: goneNodes(topic),
  };
}

function ofChannel(channel) {
  return {
    inFlight: channel.in_flight_count,
    deferred: channel.deferred_count,
    consumers: channel.client_count,
    nodes: channel.nodes?.map((node) => node.node),
    gone: goneNodes(channel),
  };
}

export function emptyTopic(topic) {
  const name = topic.topic_name;
  return {
    what: `Empty the topic ${name}`, title: `Empty the topic ${name}?`, button: "Empty", isDangerous: true, name,
    effect: "The messages that wait in the topic itself are dropped. Those that its channels have already are kept: empty the channels one by one.",
    // nsqd refuses an undo for ephemeral topics and channels.
    ...(!name.endsWith("#ephemeral") && { terms: "topicUndo", topic: name }),
    destroys: [{ label: "Messages waiting in the topic", value: count(topic.depth) }, ...contents(undefined, { gone: goneNodes(topic) })],
    run: (terms) => post(api("topics", name), { action: "empty", ...terms }),
  };
}

export function deleteTopic(topic) {
  const name = topic.topic_name;
  const parts = ofTopic(topic);
  return {
    kind: "delete", what: `Delete the topic ${name}`, title: `Delete the topic ${name}?`, button: "Delete", isDangerous: true, name,
    effect: "The topic, its channels and all their messages are deleted on every node. Consumers lose their connections. A producer that still publishes creates the topic again.",
    destroys: contents(plus(topic.depth, sum(topic.channels ?? [], "depth")), parts),
    run: () => remove(api("topics", name)),
  };
}

export function pauseTopic(topic, verb) {
  const [name, isPause] = [topic.topic_name, verb === "pause"];
  return {
    what: `${capital(verb)} the topic ${name}`, title: `${capital(verb)} the topic ${name}?`, button: capital(verb),
    effect: isPause
      ? "Messages stay in the topic, and its channels get none of them. Nothing is lost."
      : `The topic passes its messages on to its channels again. ${many(topic.depth, "message waits", "messages wait")} in the topic.`,
    ...(isPause && { terms: "pause", topic: name }),
    run: (terms) => post(api("topics", name), { action: verb, ...terms }),
  };
}

export function emptyChannel(channel) {
  const { topic_name: topic, channel_name: name } = channel;
  return {
    what: `Empty the channel ${topic}/${name}`, title: `Empty the channel ${name} of the topic ${topic}?`, button: "Empty", isDangerous: true, name,
    effect: "All messages of this channel are dropped: waiting, in flight and deferred. The other channels of the topic keep theirs.",
    // nsqd refuses an undo for ephemeral topics and channels.
    ...(![topic, name].some((one) => one.endsWith("#ephemeral")) && { terms: "undo", topic }),
    destroys: contents(channel.depth, { ...ofChannel(channel), consumers: undefined }), frees: { topic, channel: name },
    run: (terms) => post(api("topics", topic, name), { action: "empty", ...terms }),
  };
}

export function deleteChannel(channel) {
  const { topic_name: topic, channel_name: name } = channel;
  return {
    kind: "delete", what: `Delete the channel ${topic}/${name}`, title: `Delete the channel ${name} of the topic ${topic}?`, button: "Delete",
    isDangerous: true, name,
    effect: "The channel and all its messages are deleted on every node. Its consumers lose their connections. A consumer that comes back creates the channel again, without these messages.",
    destroys: contents(channel.depth, ofChannel(channel)), frees: { topic, channel: name },
    run: () => remove(api("topics", topic, name)),
  };
}

export function pauseChannel(channel, verb) {
  const { topic_name: topic, channel_name: name } = channel;
  const isPause = verb === "pause";
  return {
    what: `${capital(verb)} the channel ${topic}/${name}`, title: `${capital(verb)} the channel ${topic}/${name}?`, button: capital(verb),
    effect: isPause
      ? `${channel.client_count > 0 ? many(channel.client_count, "consumer gets", "consumers get") : "No consumer now. New ones get"} no ${channel.client_count > 0 ? "more " : ""}messages. Nothing is lost.`
      : `Consumers get messages again. ${many(channel.depth, "message waits", "messages wait")}.`,
    ...(isPause && { terms: "pause", topic }),
    run: (terms) => post(api("topics", topic, name), { action: verb, ...terms }),
  };
}

// Brings the messages of an emptied channel back.
export function unemptyChannel(channel) {
  const { topic_name: topic, channel_name: name } = channel;
  const messages = many(channel.undo_message_count, "message");
  return {
    what: `Bring back ${messages} of ${topic}/${name}`, title: `Bring back ${messages} of the channel ${name}?`, button: "Bring back",
    effect: "The messages that were emptied wait in the channel again, in addition to those that have come since. Consumers get them.",
    run: () => post(api("topics", topic, name), { action: "unempty", messages: String(channel.undo_message_count) }),
  };
}

// Brings the messages of an emptied topic back.
export function unemptyTopic(topic) {
  const { topic_name: name } = topic;
  const messages = many(topic.undo_message_count, "message");
  return {
    what: `Bring back ${messages} of ${name}`, title: `Bring back ${messages} of the topic ${name}?`, button: "Bring back",
    effect: "While the topic is paused or has no channels, the messages wait in the topic again. Otherwise all channels that it has now get them.",
    run: () => post(api("topics", name), { action: "unempty", messages: String(topic.undo_message_count) }),
  };
}

// The bar that offers the undo of an empty, for as long as there is one. `unempty` is the action, and `of` the topic or channel.
export function UndoBar({ of: { undo_until_ms: until, undo_message_count: messages }, unempty, actions }) {
  if (!(Number(until) > serverNow())) return null;
  return html`<div class="bar undo" role="status">
    <div><b>${many(messages, "emptied message")} can be brought back until ${moment(until)}.</b>${" "}
      Until then they use disk space. ${FULL_DISK}</div>
    ${actions.canAct && html`<button type="button" onClick=${() => actions.start(unempty)}>Undo the empty</button>`}
  </div>`;
}

// `topic` is the topic's object of this node.
export function tombstone(node, topic) {
  const name = topic.topic_name;
  return {
    what: `Tombstone ${name} on ${node}`, title: `Remove the topic ${name} from the node ${node}?`, button: "Tombstone", isDangerous: true, name,
    effect: "nsqlookupd hides this node from consumers of the topic for a while (a tombstone), and the node deletes the topic with all its messages. Stop the producers that publish the topic to this node first, or the topic comes back.",
    destroys: contents(plus(topic.depth, sum(topic.channels ?? [], "depth")), { ...ofTopic(topic), nodes: [node] }),
    run: () => remove(api("nodes", node), { topic: name }),
  };
}

// A topic or channel that no nsqd has.
export function forget(topic, channel) {
  const name = channel ?? topic;
  const what = channel ? `the channel ${channel} of the topic ${topic}` : `the topic ${topic}`;
  return {
    what: `Delete ${what}`, title: `Delete ${what}?`, button: "Delete", isDangerous: true, name,
    effect: "nsqlookupd forgets the name. No nsqd that answers has this topic, so no messages are lost. If an nsqd that has it is down, the topic comes back with that nsqd.",
    run: () => remove(channel ? api("topics", topic, channel) : api("topics", topic)),
  };
}

export function capital(text) {
  return text[0].toUpperCase() + text.slice(1);
}
