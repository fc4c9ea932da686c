// The figures of all topics: the server's own sum, or the sum over all nodes if the server has none.

import { api, ask, failureOf } from "./api.js";
import { plus } from "./exact.js";
import { address } from "./format.js";
import { Lines, Slices } from "./lines.js";
import { Samples, change, perSecond } from "./rates.js";
import { facts, lastAct } from "./store.js";

// A topic that no nsqd has.
const EMPTY = { depth: 0, backend_depth: 0, message_count: 0, paused: false, node_count: 0, node_set: "" };

// The time for which the list of names is used again, in milliseconds. Only it has the topics that no nsqd has. After an act of this page
// it is asked for at once, because somebody who has created or deleted a topic looks for it. The clock of performance.now() never jumps.
const NAMES_AGE_MAX = 15_000;

let names = { topics: [], at: 0 };

// Reads the live topics, which are many.
const lines = new Lines("topics", liveTopic);

// Returns {topics, sampled_at, steady_ms, message, failure}: each topic with the keys of the API, and with its channels. `steady_ms` is the
// server's time for differences, which never jumps. A topic whose figures are as before is the same object as before. With a `failure`, the
// figures are those of before. `isAnyGone` is true if nodes are gone: a topic that no other node has may be there, so its figures are
// unknown.
export async function loadTopics(signal, isAnyGone) {
  const { live: isLive } = await facts.known();
  if (!isLive) return sumOfNodes(signal);
  const [answer] = await Promise.all([ask("api/live/topics", { signal, parse: (text) => lines.read(text) }), refreshNames(signal)]);
  // The server has asked no nsqd yet.
  if (answer.time === 0) return sumOfNodes(signal);
  const { topics } = answer;
  const known = new Set(topics.map((topic) => topic.topic_name));
  const isUnknown = isAnyGone || Boolean(answer.message);
  const inactive = names.topics.filter((name) => !known.has(name)).map((name) => ({ topic_name: name, ...EMPTY, channels: [], isUnknown }));
  const { time: sampled_at, steady_ms, message } = answer;
  return { topics: [...topics, ...inactive], sampled_at, steady_ms, message, failure: failureOf(message) };
}

// Returns {concerns, gone, next_ms}: what needs attention, the nodes that are gone, and when the server will know more. Without live
// figures, no server tells it.
export async function loadConcerns(signal) {
  const { live: isLive } = await facts.known();
  if (!isLive) return {};
  const { time, concerns, gone_nodes: gone, next_ms } = await ask("api/live/attention", { signal });
  // The server has the first concerns after two looks at the cluster.
  return time === 0 ? { next_ms } : { concerns, gone, next_ms, sampled_at: time };
}

// Asks for the names from time to time. Only the first answer, and the first after an act, are waited for: an nsqlookupd that hangs must
// not make the figures old.
function refreshNames(signal) {
  const isAwaited = names.at <= lastAct.get();
  if (!isAwaited && performance.now() - names.at < NAMES_AGE_MAX) return undefined;
  const at = performance.now();
  names = { ...names, at };
  const asked = ask("api/topics", { signal }).then(
    ({ topics }) => { names = { topics: topics ?? [], at }; },
    // The live figures have their own message, and the names of before are still good.
    () => { if (signal.aborted) names = { ...names, at: 0 }; },
  );
  return isAwaited ? asked : undefined;
}

// A live topic with the API's keys.
function liveTopic(live) {
  return {
    topic_name: live.topic, depth: live.depth, message_count: live.message_count, ...pauseOf(live), node_count: live.node_count, node_set: live.node_set,
    paused_node_count: live.paused_node_count,
    oldest_unfinished_ms: liveAge(live), channels: live.channels.map((channel) => liveChannel(channel, live)),
  };
}

// A live channel with the API's keys.
function liveChannel(live, topic) {
  return withProblem(topic.topic, topic.paused, {
    channel_name: live.channel, depth: live.depth, in_flight_count: live.in_flight, deferred_count: live.deferred, requeue_count: live.requeue_count,
    timeout_count: live.timeout_count, message_count: live.message_count, client_count: live.clients, ...pauseOf(live),
    oldest_unfinished_ms: liveAge(live), doctor: live.doctor, undo_until_ms: live.undo_until_ms, undo_message_count: live.undo_message_count,
  });
}

// The terms of a pause, as far as they are known.
function pauseOf({ paused, pause_until_ms, pause_note, paused_by }) {
  return { paused, pause_until_ms, pause_note, paused_by };
}

// The age of the oldest message in live figures, which have 0 if nsqd does not tell it.
export function liveAge(live) {
  const isEmpty = !(live.depth > 0 || live.channel_depth > 0 || live.in_flight > 0 || live.deferred > 0);
  // An age beyond 2^53 is a BigInt, which Math.max does not take.
  return live.oldest_ms > 0 || isEmpty ? Number(live.oldest_ms) : undefined;
}

// The live figures of a topic that has none.
const NOT_LIVE = { channels: new Map(), concerns: [], gone: [] };

// The parts that only the live figures of a topic have: the age of the oldest message (`all`), `channels` by name with `all`, `nodes` and
// `doctor`, the producers (`publishing`), what needs attention about the topic itself (`concerns`), and the nodes with the topic that
// are gone (`gone`).
export async function loadLive(topicName, signal) {
  const { live: isLive } = await facts.known();
  if (!isLive) return NOT_LIVE;
  try {
    const { topic, channels, publishing, concerns, gone_nodes: gone } = await ask(api("live", "topics", topicName), { signal });
    const figures = ({ nodes, doctor, ...total }) => ({ all: liveAge(total), doctor, nodes: new Map(nodes.map((node) => [node.node, liveAge(node)])) });
    return { all: topic && liveAge(topic), publishing, concerns, gone, channels: new Map(channels.map((channel) => [channel.channel, figures(channel)])) };
  } catch {
    // A topic that is a second old has no live figures yet. Without them, no age is shown.
    return NOT_LIVE;
  }
}

async function sumOfNodes(signal) {
  const [names, { nodes, message }] = await Promise.all([ask("api/topics", { signal }), ask("api/nodes", { signal })]);
  const addresses = (nodes ?? []).map((node) => address(node.broadcast_address, node.http_port));
  const asked = await Promise.allSettled(addresses.map((address) => ask(api("nodes", address), { signal })));
  const answers = asked.filter((one) => one.status === "fulfilled").map((one) => one.value);
  const failed = addresses.filter((_, index) => asked[index].status === "rejected");
  const messages = [names.message, message, ...answers.map((one) => one.message), ...failed.map((one) => `http://${one}/stats`)];
  return {
    topics: sumOfTopics(names.topics ?? [], answers),
    message: [...new Set(messages.filter(Boolean))].join("\n"),
  };
}

function sumOfTopics(names, answers) {
  const topics = new Map(names.map((name) => [name, { topic_name: name, ...EMPTY, channels: new Map() }]));
  for (const topic of answers.flatMap((answer) => answer.topics ?? [])) {
    const total = topics.get(topic.topic_name) ?? { topic_name: topic.topic_name, ...EMPTY, channels: new Map() };
    topics.set(topic.topic_name, total);
    total.node_count += 1;
    total.node_set += `${topic.node} `;
    add(total, topic, ["depth", "backend_depth", "message_count"]);
    for (const channel of topic.channels ?? []) {
      const part = total.channels.get(channel.channel_name) ?? { channel_name: channel.channel_name, paused: false };
      total.channels.set(channel.channel_name, part);
      add(part, channel, ["depth", "backend_depth", "in_flight_count", "deferred_count", "requeue_count", "timeout_count",
        "message_count", "client_count"]);
    }
  }
  const sorted = [...topics.values()].sort((a, b) => a.topic_name < b.topic_name ? -1 : 1);
  return sorted.map((topic) => {
    const channels = [...topic.channels.values()];
    return { ...topic, channels: channels.map((channel) => withProblem(topic.topic_name, topic.paused, channel)) };
  });
}

function add(total, part, counts) {
  for (const name of counts) total[name] = plus(total[name], part[name]);
  // The first node that has paused it tells the terms.
  if (part.paused && !total.paused) Object.assign(total, pauseOf(part));
  if (part.oldest_unfinished_ms !== undefined) {
    // An age beyond 2^53 is a BigInt, which Math.max does not take.
    total.oldest_unfinished_ms = Math.max(total.oldest_unfinished_ms ?? 0, Number(part.oldest_unfinished_ms));
  }
}

// Makes rows of the answers, one per topic, with rates since the answer before. `concerns` are the server's. Those about a topic
// itself mark its row. Those about channels come with the channels (`doctor`). A row that would be as before is the same object as before.
export class TopicRows {
  #samples = new Samples();
  #made = new Map();

  async rows({ topics, concerns = [] }, at) {
    const ofTopics = Map.groupBy(concerns.filter((concern) => concern.topic && !concern.channel), (concern) => concern.topic);
    const [made, slices] = [new Map(), new Slices()];
    for (const topic of topics) {
      made.set(topic.topic_name, this.#row(topic, ofTopics.get(topic.topic_name) ?? NONE, at));
      if (slices.areOver()) await slices.next();
    }
    this.#made = made;
    this.#samples.keep(made);
    // The list is drawn in a slice of its own.
    await slices.next();
    return [...made.values()].map((one) => one.row);
  }

  #row(topic, concerns, at) {
    if (topic.isUnknown) return { row: { ...nameRow(topic.topic_name), isUnknown: true } };
    const known = this.#made.get(topic.topic_name);
    const figures = known?.topic === topic ? known.figures : figuresOf(topic);
    const before = this.#samples.take(topic.topic_name, at, figures, topic.node_set);
    const arrivals = perSecond(before, "message_count", figures.message_count);
    const growth = change(before, "backlog", figures.backlog);
    const isSame = figures === known?.figures && concerns === known.concerns && arrivals === known.row.arrivals && growth === known.row.growth;
    return isSame ? known : { topic, figures, concerns, row: rowOf(topic, { ...figures, arrivals, growth }, concerns) };
  }
}

const NONE = [];

// The row of a topic of which only the name is known.
export function nameRow(name) {
  return { name, lowercase: name.toLowerCase(), channels: [], problems: [], pausedChannels: 0 };
}

// The figures that rates are made of.
function figuresOf(topic) {
  return { message_count: topic.message_count, backlog: topic.channels.reduce((sum, channel) => plus(sum, channel.depth), topic.depth) };
}

function rowOf(topic, figures, concerns) {
  const { channels } = topic;
  let [inFlight, deferred, consumers, pausedChannels, oldest] = [0, 0, 0, 0, topic.oldest_unfinished_ms];
  for (const channel of channels) {
    inFlight = plus(inFlight, channel.in_flight_count);
    deferred = plus(deferred, channel.deferred_count);
    consumers = plus(consumers, channel.client_count);
    pausedChannels += channel.paused ? 1 : 0;
    const age = channel.oldest_unfinished_ms;
    if (age !== undefined && (oldest === undefined || age > oldest)) oldest = age;
  }
  const problems = channels.filter((channel) => channel.problem);
  return {
    name: topic.topic_name,
    lowercase: topic.topic_name.toLowerCase(),
    ...figures,
    oldest,
    getsOlder: concerns.some((one) => one.is_older) || channels.some((channel) => channel.doctor?.is_older),
    inFlight,
    deferred,
    consumers,
    nodeCount: topic.node_count,
    isPaused: topic.paused,
    pause: { ...pauseOf(topic), node_count: topic.node_count, paused_node_count: topic.paused_node_count },
    pausedChannels,
    channels,
    problems,
    needsAttention: concerns.length > 0 || problems.length > 0,
  };
}

function withProblem(topicName, isTopicPaused, channel) {
  channel.topicName = topicName;
  channel.problem = problemOf(channel, isTopicPaused);
  return channel;
}

// The sentence about a channel that needs attention, or null. The server's doctor knows most. Without it, the page says what
// the figures alone tell.
export function problemOf(channel, isTopicPaused) {
  if (channel.doctor) return channel.doctor.is_problem ? channel.doctor.sentence : null;
  if (channel.paused && channel.depth > 0) return "Paused, and messages wait.";
  if (isTopicPaused && channel.depth > 0) return "The topic is paused, and messages wait.";
  return !(channel.client_count > 0) && channel.depth > 0 ? "No consumers, and messages wait." : null;
}
