// Peeks: the questions for messages, and what their answers say.

import { api, ask } from "./api.js";
import { plus } from "./exact.js";
import { age } from "./format.js";

// The lists of messages that nsqd can show. A topic and a channel have some of them. The first of these is shown first.
export const LISTS = {
  published: "Published last",
  newest: "Newest",
  oldest: "Oldest",
  in_flight: "In flight",
  deferred: "Deferred",
  requeued: "Requeued, most attempts first",
  attempts: "Most attempts",
};

export function listsOf(channel) {
  const others = channel ? ["published"] : ["in_flight", "requeued", "attempts"];
  return Object.keys(LISTS).filter((list) => !others.includes(list));
}

// The address of a question about a topic, or about its channel.
function address(topic, channel, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== "");
  return `${channel ? api("peek", topic, channel) : api("peek", topic)}?${new URLSearchParams(given)}`;
}

// Asks for messages. Returns {bodies, nodes, message}.
export function peek(topic, channel, parameters, signal) {
  return ask(address(topic, channel, parameters), { signal });
}

// The messages of some nodes' answers, each with its node.
export function messagesOf(nodes) {
  return nodes.flatMap((node) => (node.messages ?? []).map((message) => ({ ...message, node: node.node })));
}

// Milliseconds since 1970 of a time in nanoseconds, which may be a BigInt.
export function milliseconds(nanoseconds) {
  if (nanoseconds === undefined) return undefined;
  return typeof nanoseconds === "bigint" ? Number(nanoseconds / 1_000_000n) : nanoseconds / 1e6;
}

// The orders of the lists. Each node's messages come in nsqd's order, and messages of several nodes are brought into one.
const ORDERS = {
  published: (message) => -milliseconds(message.timestamp ?? 0),
  newest: (message) => -milliseconds(message.timestamp ?? 0),
  oldest: (message) => milliseconds(message.timestamp ?? 0),
  in_flight: (message) => milliseconds(message.times_out_at ?? 0),
  deferred: (message) => milliseconds(message.deferred_until ?? 0) || Number(message.defer_ms ?? 0),
  requeued: (message) => -Number(message.attempts),
  attempts: (message) => -Number(message.attempts),
};

export function sorted(messages, list) {
  const order = ORDERS[list];
  return messages.map((message) => [order(message), message]).sort(([a], [b]) => a - b).map(([, message]) => message);
}

// The facts about the delivery of a message, as a list of texts. `now` is in milliseconds.
export function deliveryOf(message, now) {
  const ago = (time) => `${age(Math.max(0, now - milliseconds(time)))} ago`;
  const ahead = (time) => milliseconds(time) > now ? `in ${age(milliseconds(time) - now)}` : "now";
  return [
    message.timestamp !== undefined && `published ${ago(message.timestamp)}`,
    message.client_id !== undefined && `held by ${message.client_id || message.client}`,
    message.state === "in_flight" && message.client === undefined && "its consumer has gone",
    message.delivered_at !== undefined && `delivered ${ago(message.delivered_at)}`,
    message.times_out_at !== undefined && `times out ${ahead(message.times_out_at)}`,
    message.deferred_until !== undefined && `due ${ahead(message.deferred_until)}`,
    message.defer_ms !== undefined && `deferred by ${age(message.defer_ms)}`,
  ].filter(Boolean);
}

// The command that asks a node for the same messages.
export function curl(url) {
  return `curl '${url.replaceAll("'", "%27")}'`;
}

// The messages that a tail keeps, and those of each node that it looks at every two seconds.
export const TAIL = { interval: 2000, limit: 20, shown: 200 };

// The word on a message: its state, and for one that was published last, whether it is finished, if nsqd knows.
export function stateOf(message) {
  if (message.finished !== undefined) return message.finished ? "finished" : "not finished";
  return (message.state ?? "").replace("_", " ");
}

// The state of a tail: the messages that it has seen, and the ones that it shows.
export class Tail {
  #seen = new Map();
  #newest = new Map();
  shown = [];
  // Messages that were seen and left out by the sampling, messages that were published and never seen, looks after which nobody
  // knows how many were never seen, and looks at older nsqds after which some were never seen.
  leftOut = 0;
  unseen = 0;
  uncounted = 0;
  gaps = 0;
  // The older nsqds, which show only messages that wait.
  older = [];

  // The parameter that has each node begin behind the last look.
  since() {
    return [...this.#newest].map(([node, id]) => `${node}/${id}`).join(",");
  }

  // Takes what was published last at each node. One of `every` is shown.
  take(nodes, every) {
    const fresh = [];
    this.older = nodes.filter((node) => node.newest === undefined).map((node) => node.node);
    for (const node of nodes) {
      if (node.newest !== undefined) {
        if (this.#newest.has(node.node) && node.unscanned_messages === undefined) this.uncounted += 1;
        this.#newest.set(node.node, node.newest);
        this.unseen = plus(this.unseen, node.unscanned_messages ?? 0);
        // A message that is shown for a while does not stay unfinished.
        fresh.push(...messagesOf([node]).map((message) => ({ ...message, finished: undefined })));
        continue;
      }
      this.#newest.delete(node.node);
      const known = this.#seen.get(node.node);
      const ids = (node.messages ?? []).map((message) => message.id);
      if (known && ids.length >= TAIL.limit && !ids.some((id) => known.has(id))) this.gaps += 1;
      fresh.push(...messagesOf([node]).filter((message) => !known?.has(message.id)));
      // The newest messages of the last look are enough to recognise an overlap.
      this.#seen.set(node.node, new Set([...ids, ...(known ?? [])].slice(0, 1000)));
    }
    const kept = sorted(fresh, "newest").filter((message) => isSampled(message.id, every));
    this.leftOut += fresh.length - kept.length;
    this.shown = [...kept, ...this.shown].slice(0, TAIL.shown);
    return kept.length;
  }
}

// True for one of `every` ids, whatever their order.
function isSampled(id, every) {
  let sum = 0;
  for (const character of id) sum = (sum * 31 + character.charCodeAt(0)) % 1_000_003;
  return sum % every === 0;
}
