// Requests to the server, and its messages in plain words.

import { parse as parseJson } from "./exact.js";
import { ownNameHeader } from "./own-name.js";
import { escaped } from "./route.js";
import { facts, lastAct, lastAnswer, noteServerTime, serverNow } from "./store.js";

// The longest wait for an answer, in milliseconds.
const TIMEOUT = 20_000;

// A request that failed. `status` is that of the answer, or 0 without an answer. `raw` is the server's own message. `isOpen` is true if the
// server may have acted, or may still act.
export class Failure extends Error {
  constructor(text, status, raw = "", isOpen = false) {
    super(text);
    this.status = status;
    this.raw = raw;
    this.isOpen = isOpen;
  }
}

const LOOK = "It may still carry the act out. Before you try again, look at the figures and at nsqadmin's log, which has a line AUDIT for each act.";

// The address of an endpoint of the API, such as api("topics", "orders").
export function api(...segments) {
  return `api/${segments.map(escaped).join("/")}`;
}

// Asks the server, and returns the JSON of its answer. `path` is below the base path. `parse` reads the text of the answer. Throws a Failure.
export async function ask(path, { method = "GET", body, signal, timeout = TIMEOUT, parse = parseJson } = {}) {
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(), timeout);
  const stop = () => limit.abort();
  signal?.addEventListener("abort", stop);
  try {
    const headers = { "X-UserAgent": `nsqadmin/v${facts.get()?.version ?? ""}` };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (method !== "GET") Object.assign(headers, ownNameHeader());
    const request = { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal: limit.signal };
    const answer = await fetch(new URL(path, document.baseURI), request);
    noteServerTime(answer.headers.get("Date"));
    return await read(answer.status, await answer.text(), parse);
  } catch (error) {
    if (error instanceof Failure || signal?.aborted) throw error;
    const isOpen = method !== "GET";
    const advice = isOpen ? ` ${LOOK}` : "";
    if (limit.signal.aborted) throw new Failure(`nsqadmin has not answered within ${timeout / 1000} s.${advice}`, 0, "", isOpen);
    throw new Failure(`nsqadmin cannot be reached. Has it stopped, or is the network down?${advice}`, 0, String(error.message), isOpen);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", stop);
    // Without an answer, the server may have acted nevertheless.
    if (method !== "GET") lastAct.set(performance.now());
  }
}

async function read(status, text, parse) {
  let data;
  try {
    data = await parse(text);
  } catch (error) {
    throw new Failure(`The answer of nsqadmin is not JSON (status ${status}).`, status, String(error.message));
  }
  lastAnswer.set(new Date(serverNow()));
  if (status >= 400) throw new Failure(plain(data?.message ?? "", status), status, data?.message ?? "");
  return data;
}

// Messages of the server, and what they mean.
const MEANINGS = {
  FORBIDDEN_BODIES: "You may not read bodies of messages, and therefore not search in them (--peek-bodies of nsqadmin).",
  FORBIDDEN: "You may not do this: only admins may act, and the server does not count you as one.",
  TOPIC_NOT_FOUND: "There is no topic with this name.",
  CHANNEL_NOT_FOUND: "There is no channel with this name.",
  NODE_NOT_FOUND: "No nsqd with this address is known. It may have stopped.",
  NOT_FOUND: "There is nothing at this address.",
  LIST_CHANGED: "What matches has changed in the meantime, so nothing was done. Read the new list, and decide again.",
};

// Messages about names that are not valid, and what has such a name. The server tells the rule.
const NAMES = { INVALID_TOPIC: "topic", INVALID_CHANNEL: "channel" };

// Codes inside of longer messages, and what they mean. The codes of nsqds are among them.
const CAUSES = {
  UNDO_TOO_LARGE: "There are too many deferred, requeued or in-flight messages for an undo, with those that can be brought back already. Nothing was emptied there. Choose “not at all” to empty without one.",
  UNDO_NEEDS_PAUSE: "The channels cannot take this many deferred messages at once. Pause the topic, and wait until its channels are empty and have no undo. Then bring the messages back, and unpause the topic.",
  UNDO_NEEDS_CHANNEL: "All channels of the topic are ephemeral, and would drop most of the messages. Create a channel that is not ephemeral first.",
  UNDO_IN_GRACE: "The topic is new, and keeps copies of its messages for channels of other nodes, which an undo would not have. Nothing was emptied there. Try again in some minutes, or choose “not at all”.",
  UNDO_OF_EPHEMERAL: "Ephemeral topics and channels have no undo. Nothing was emptied there. Choose “not at all” to empty without one.",
  UNDO_OF_PAUSED: "The topic is paused, and its channels have newer messages. Wait until they are empty and have no undo, or unpause the topic first.",
  UNDO_OF_CHANNEL_FIRST: "A channel of the topic was emptied later and can be undone. Undo that first, or wait until that can no longer be undone.",
  UNDO_NO_ROOM: "The topic takes no messages at the moment, so no undo is possible: its disk is full, or a sync has failed. Nothing was emptied there.",
  UNDO_CHANGED: "Another number of messages would come back now, so nothing was done. Look at the new number, and decide again.",
  UNDO_NOT_FOUND: "There is nothing to bring back any more: the time is over, or somebody has brought the messages back or emptied for good.",
  NO_NSQD: "No nsqd that answers has it, so nothing was done. If an nsqd that has it is down, act when that is back.",
  UNDO_UNSUPPORTED: "Some nodes know no undo. Nothing was emptied.",
  INVALID_UNDO: "Messages can be brought back for 1 s to 24 h. Nothing was emptied there.",
  LIMIT_UNSUPPORTED: "Some nodes know no limit of a pause, and would pause without an end. Nothing was paused.",
  INVALID_FOR: "A pause has no end, or ends after 1 s to 30 days. Nothing was paused there.",
  INVALID_NOTE: "The note is not possible: at most 200 characters, in one line.",
  INVALID_BY: "Your name cannot be shown beside the pause: a name has at most 64 characters, in one line. Nothing was paused there.",
  INVALID_CLAIMED_USER: "Your name is not possible: at most 50 characters, of which each can be seen. Nothing was done.",
  TOO_MANY: "Too many match. Narrow the filter.",
  TOPIC_NOT_FOUND: "There is no such topic. Somebody may have deleted it.",
  CHANNEL_NOT_FOUND: "There is no such channel. Somebody may have deleted it.",
  INVALID_TOPIC: "nsqd does not take this name of a topic.",
  INVALID_ARG_TOPIC: "nsqd does not take this name of a topic.",
  INVALID_ARG_CHANNEL: "nsqd does not take this name of a channel.",
  MISSING_ARG_TOPIC: "The request names no topic.",
  MISSING_ARG_CHANNEL: "The request names no channel.",
  INVALID_REQUEST: "nsqd does not understand the request.",
  NOT_FOUND: "This nsqd does not know the action. It is NSQ's own nsqd, or an older one of ringq.",
  METHOD_NOT_ALLOWED: "This nsqd does not know the action. It is NSQ's own nsqd, or an older one of ringq.",
  TLS_REQUIRED: "This nsqd answers only over HTTPS (--tls-required of nsqd), and has no port for it.",
  MISDIRECTED_HOST: "The nsqd does not answer under this name (--allowed-host of nsqd).",
  BUSY: "The nsqd has too many questions to answer. Try again.",
  EXITING: "The nsqd is stopping. Try again when it is back.",
  DISK_FULL: "The disk of the nsqd is full, so it refuses messages.",
  STORAGE_FAILED: "The nsqd cannot store messages of this topic. Its log says why.",
  DRAINING: "The nsqd is being drained, and takes no messages.",
  FORBIDDEN_ORIGIN: "The request comes from a page of another site, which may change nothing here.",
  INTERNAL_ERROR: "nsqd could not do it. Its log says why. Its disk may be full or broken.",
  PEEK_FORBIDDEN: "This nsqd does not permit looks at messages.",
  INVALID_ARG_FROM: "nsqd has no such list of messages.",
  INVALID_ARG_CURSOR: "nsqd cannot go on from this place. Look again, from the beginning.",
  INVALID_ARG_SINCE: "nsqd does not know this message. Start the live tail again.",
  INVALID_ARG_LIMIT: "nsqd shows 1 to 100 messages at a time.",
  INVALID_ARG_MAX_BODY: "nsqd shows at most 262,144 bytes of a body.",
  INVALID_ARG_JSON: "A JSON pointer begins with a slash, such as /order/id.",
  INVALID_ARG_EQUALS: "A value to compare with needs a JSON pointer, which says where the value is.",
};

// The meanings of the codes in a text, each once. What stands in a URL is the name of a topic or a channel.
export function causes(text) {
  const codes = text.replace(/https?:\/\/[^\s"]*/g, "").match(/[A-Z][A-Z_]*[A-Z]/g) ?? [];
  return [...new Set(codes.filter((code) => Object.hasOwn(CAUSES, code)).map((code) => CAUSES[code]))];
}

function plain(message, status) {
  if (NAMES[message]) return `This is no valid ${NAMES[message]} name. A name is ${facts.get()?.name_rule ?? "something else"}.`;
  if (MEANINGS[message]) return MEANINGS[message];
  if (message.startsWith("FORBIDDEN: ")) return `${MEANINGS.FORBIDDEN} ${sentence(message.slice("FORBIDDEN: ".length))}`;
  if (message.startsWith("FORBIDDEN_ORIGIN: ")) return sentence(message.slice("FORBIDDEN_ORIGIN: ".length));
  if (message.startsWith("MISDIRECTED_HOST: ")) return sentence(message.slice("MISDIRECTED_HOST: ".length));
  const missing = /^(?:TOPIC|CHANNEL)_NOT_FOUND: (.+)$/.exec(message);
  if (missing) return sentence(missing[1]);
  const found = causes(message);
  if (found.length > 0) return found.join(" ");
  if (message.startsWith("UPSTREAM_ERROR")) {
    const who = message.includes("nsqlookupd") ? "nsqlookupd" : "nsqd";
    return `No ${who} gave an answer.`;
  }
  return message ? `The server refused: ${message}` : `The server answered with status ${status}.`;
}

// The failure that a message tells although the answer has figures, which are then those of before. Null for other messages.
export function failureOf(message) {
  return message?.startsWith("UPSTREAM_ERROR") ? new Failure(plain(message, 502), 502, message) : null;
}

// A text of the server as a sentence.
export function sentence(text) {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

// The parts of a "WARNING: ..." message: the addresses that it names, the meanings of its codes, and its text. `isMissing` is true if it
// only says that some servers do not have the topic or channel, and `isOfKnown` if nobody says which nsqds there are now. Returns null
// without a warning.
export function warning(message) {
  if (!message) return null;
  const text = message.replace(/^WARNING: /, "");
  const named = [...text.matchAll(/https?:\/\/([^/"\s?]+)/g)].map((match) => match[1]);
  const isMissing = text.split(/\n|; (?=got response )/).every((line) => /^got response 404 .*(CHANNEL|TOPIC)_NOT_FOUND/.test(line));
  // A question for figures goes to an nsqd.
  const silentNodes = [...text.matchAll(/https?:\/\/([^/"\s?]+)\/stats/g)].map((match) => match[1]);
  return { nodes: [...new Set(named)].sort(), silentNodes: [...new Set(silentNodes)].sort(), causes: causes(text), text, isMissing,
    isOfKnown: text.includes("failed to query any nsqlookupd") };
}
