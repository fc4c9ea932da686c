// The figures of all topics: the server's own sum, or the sum over all nodes if the server has none.

import { api, ask, failureOf } from "./api.js";
import { largest, plus } from "./exact.js";
import { Samples, change, perSecond } from "./rates.js";
import { facts, lastAct } from "./store.js";

// A topic that no nsqd has.
const EMPTY = { depth: 0, backend_depth: 0, message_count: 0, paused: false, node_count: 0 };

// The time for which the list of names is used again, in milliseconds. Only it has the topics that no nsqd has. After an act of this page
// it is asked for at once, because somebody who has created or deleted a topic looks for it.
const NAMES_AGE_MAX = 15_000;

let names = { topics: [], at: 0 };

// Returns {topics, concerns, message, failure}: each topic with the keys of the API, and with its channels. `concerns` says what
// needs attention, if the server tells it. With a `failure`, the figures are those of before.
export async function loadTopics(signal) {
  const { live: isLive } = await facts.known();
  if (!isLive) return sumOfNodes(signal);
  const [answer, attention] = await Promise.all([ask("api/live/topics", { signal }), ask("api/live/attention", { signal }), refreshNames(signal)]);
  // The server has asked no nsqd yet.
  if (answer.time === 0) return sumOfNodes(signal);
  const topics = answer.topics.map(liveTopic);
  const known = new Set(topics.map((topic) => topic.topic_name));
  const inactive = names.topics.filter((name) => !known.has(name)).map((name) => ({ topic_name: name, ...EMPTY, channels: [] }));
  // The server has the first concerns after two looks at the cluster.
  const concerns = attention.time === 0 ? undefined : attention.concerns;
  return { topics: [...topics, ...inactive], concerns, sampled_at: answer.time, message: answer.message, failure: failureOf(answer.message) };
}

// Asks for the names from time to time. Only the first answer, and the first after an act, are waited for: an nsqlookupd that hangs must
// not make the figures old.
function refreshNames(signal) {
  const isAwaited = names.at <= lastAct.get();
  if (!isAwaited && Date.now() - names.at < NAMES_AGE_MAX) return undefined;
  const at = Date.now();
  names = { ...names, at };
  const asked = ask("api/topics", { signal }).then(
    ({ topics }) => { names = { topics: topics ?? [], at }; },
    // The live figures have their own message, and the names of before are still good.
    () => { if (signal.aborted) names = { ...names, at: 0 }; },
  );
  return isAwaited ? asked : undefined;
}

function liveTopic(live) {
  return {
    topic_name: live.topic, depth: live.depth, message_count: live.message_count, ...pauseOf(live), node_count: live.node_count,
    paused_node_count: live.paused_node_count,
    oldest_unfinished_ms: liveAge(live), channels: live.channels.map(liveChannel),
  };
}

// A live channel with the API's keys.
function liveChannel(live) {
  return {
    channel_name: live.channel, depth: live.depth, in_flight_count: live.in_flight, deferred_count: live.deferred, requeue_count: live.requeue_count,
    timeout_count: live.timeout_count, message_count: live.message_count, client_count: live.clients, ...pauseOf(live),
    oldest_unfinished_ms: liveAge(live), doctor: live.doctor, undo_until_ms: live.undo_until_ms, undo_message_count: live.undo_message_count,
  };
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
  const addresses = (nodes ?? []).map((node) => `${node.broadcast_address}:${node.http_port}`);
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
    add(total, topic, ["depth", "backend_depth", "message_count"]);
    for (const channel of topic.channels ?? []) {
      const part = total.channels.get(channel.channel_name) ?? { channel_name: channel.channel_name, paused: false };
      total.channels.set(channel.channel_name, part);
      add(part, channel, ["depth", "backend_depth", "in_flight_count", "deferred_count", "requeue_count", "timeout_count",
        "message_count", "client_count"]);
    }
  }
  const sorted = [...topics.values()].sort((a, b) => a.topic_name < b.topic_name ? -1 : 1);
  return sorted.map((topic) => ({ ...topic, channels: [...topic.channels.values()] }));
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
// itself mark its row. Those about channels come with the channels (`doctor`).
export class TopicRows {
  #samples = new Samples();

  rows({ topics, concerns = [] }, at) {
    const ofTopics = Map.groupBy(concerns.filter((concern) => concern.topic && !concern.channel), (concern) => concern.topic);
    const rows = topics.map((topic) => this.#row(topic, ofTopics.get(topic.topic_name) ?? [], at));
    this.#samples.keep(new Set(rows.map((row) => row.name)));
    return rows;
  }

  #row(topic, concerns, at) {
    const channels = (topic.channels ?? []).map((channel) => withProblem(topic, channel));
    const ages = [topic, ...channels].map((part) => part.oldest_unfinished_ms).filter((age) => age !== undefined);
    const oldest = largest(ages);
    const sum = (name) => channels.reduce((total, channel) => plus(total, channel[name]), 0);
    const backlog = plus(topic.depth, sum("depth"));
    const figures = { message_count: topic.message_count, backlog };
    const before = this.#samples.take(topic.topic_name, at, figures, topic.node_count);
    return {
      name: topic.topic_name,
      lowercase: topic.topic_name.toLowerCase(),
      ...figures,
      oldest,
      arrivals: perSecond(before, "message_count", topic.message_count),
      growth: change(before, "backlog", backlog),
      getsOlder: [...concerns, ...channels.map((channel) => channel.doctor)].some((one) => one?.is_older),
      inFlight: sum("in_flight_count"),
      deferred: sum("deferred_count"),
      consumers: sum("client_count"),
      nodeCount: topic.node_count,
      isPaused: topic.paused,
      pause: { ...pauseOf(topic), node_count: topic.node_count, paused_node_count: topic.paused_node_count },
      pausedChannels: channels.filter((channel) => channel.paused).length,
      channels,
      problems: channels.filter((channel) => channel.problem),
      needsAttention: concerns.length > 0 || channels.some((channel) => channel.problem),
    };
  }
}

function withProblem(topic, channel) {
  return { ...channel, topicName: topic.topic_name, problem: problemOf(channel, topic.paused) };
}

// The sentence about a channel that needs attention, or null. The server's doctor knows most. Without it, the page says what
// the figures alone tell.
export function problemOf(channel, isTopicPaused) {
  if (channel.doctor) return channel.doctor.is_problem ? channel.doctor.sentence : null;
  if (channel.paused && channel.depth > 0) return "Paused, and messages wait.";
  if (isTopicPaused && channel.depth > 0) return "The topic is paused, and messages wait.";
  return !(channel.client_count > 0) && channel.depth > 0 ? "No consumers, and messages wait." : null;
}
