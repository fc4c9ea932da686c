// Bars above the content: failures, partial failures, nodes that are gone.

import { html, useRef } from "./html.js";
import { warning } from "./api.js";
import { clock } from "./format.js";
import { link } from "./route.js";
import { facts } from "./store.js";

// What keeps the page from showing the present state. `poll` is the result of usePoll. Its data may say that they are those of
// before (`failure`), because the server itself gets no new ones.
export function PollBars({ poll, what }) {
  const { data, error, failedSince, at } = poll;
  const failure = error ?? data?.failure;
  const since = error ? failedSince : new Date(at);
  // The server may have had no figures yet.
  const hasFigures = data && at > 0;
  return html`
    ${failure && html`<${Bar} kind="bad" title=${hasFigures
      ? `No new figures since ${clock(since)}.`
      : `${what} cannot be shown.`} raw=${failure.raw}>
      ${failure.message} ${hasFigures && `The figures below are those of ${clock(new Date(at))}.`}<//>`}
    ${!failure && html`<${OldBar} poll=${poll} what="figures are those" />`}
    ${!data?.failure && html`<${WarningBar} message=${data?.message} />`}`;
}

// A server that is slow, but answers in time, makes the figures of all servers come seldom.
export function OldBar({ poll: { isOld, at }, what }) {
  return isOld && at > 0 && html`<${Bar} kind="warn" title=${`The ${what} of ${clock(new Date(at))}.`}>
    nsqadmin gets new ones seldom: a server answers slowly, or <code>--live-interval</code> is long.<//>`;
}

// The message of a partial failure. It names the servers that did not answer.
export function WarningBar({ message }) {
  const found = warning(message);
  if (!found) return null;
  if (found.isOfKnown) return html`<${Bar} kind="warn" title="No nsqlookupd answers." raw=${found.text}>
    The figures are those of the nsqds that were known before. What has come since is missing.${
    found.silentNodes.length > 0 && ` These nsqds do not answer either, and are left out: ${found.silentNodes.join(", ")}.`}<//>`;
  const title = found.nodes.length > 0
    ? `Not all servers did what they were asked: ${found.nodes.join(", ")}`
    : "Not all servers did what they were asked.";
  return html`<${Bar} kind="warn" title=${title} raw=${found.text}>What follows leaves them out.<//>`;
}

// A failure that the user has caused by an action.
export function ActionBar({ outcome, onClose }) {
  if (!outcome) return null;
  const close = html`<button type="button" class="close" aria-label="Close this message" onClick=${onClose}>✕</button>`;
  if (outcome.error) {
    return html`<${Bar} kind="bad" title=${outcome.error.isOpen ? `${outcome.what}: there is no answer.` : `${outcome.what} failed.`} raw=${outcome.error.raw} more=${close}>${outcome.error.message}<//>`;
  }
  const found = warning(outcome.message);
  if (found?.isMissing) {
    return html`<${Bar} kind="good" title=${`${outcome.what}: done.`} raw=${found.text} more=${close}>Some servers do not have it, and had nothing to do.<//>`;
  }
  if (found) {
    const where = found.nodes.length > 0 ? ` at ${found.nodes.join(", ")}` : "";
    return html`<${Bar} kind="warn" title=${`${outcome.what}: done only in part.`} raw=${found.text} more=${close}>
      It failed${where}. ${found.causes.join(" ") || "Look at the figures below, and try again."}<//>`;
  }
  return html`<${Bar} kind="good" title=${`${outcome.what}: done.`} more=${close} />`;
}

function Bar({ kind, title, raw, more, children }) {
  return html`<div class=${`bar ${kind}`} role=${kind === "good" ? "status" : "alert"}>
    <div><b>${title}</b> ${children}
      ${raw && html`<details><summary>What the server said</summary><pre>${raw}</pre></details>`}</div>
    ${more}
  </div>`;
}

// What needs attention about the subject of a page. `concerns` are the server's.
export function ConcernBars({ concerns }) {
  return concerns.map(({ sentence }) => html`<p class="bar warn" role="status" key=${sentence.slice(0, 20)}><b>${sentence.replace(/\.$/, "")}.</b></p>`);
}

// The time after which a node that is gone counts as taken out of the cluster, in milliseconds, as for the server
// (`GONE_MILLIS` in checkup.rs).
const GONE_MAX = 30 * 60_000;

// Nodes that were here and are no longer. nsqlookupd forgets a node that dies at once, so figures would become smaller without
// a word. `nodes` are the present ones. `told` are those that the server has seen, with its sentence about each. Without live figures, the
// server tells none, and the page itself knows those that it has seen since it was opened. It cannot tell a node that is down from one that
// has lost the topic.
export function GoneNodes({ name, nodes, told = [] }) {
  const known = useRef({ name: null, seen: new Map(), gone: new Map() });
  if (known.current.name !== name) known.current = { name, seen: new Set(), gone: new Map() };
  const { seen, gone } = known.current;
  if (nodes) {
    const present = new Set(nodes);
    for (const node of seen) if (!present.has(node) && !gone.has(node)) gone.set(node, Date.now());
    for (const [node, since] of gone) if (Date.now() - since > GONE_MAX) {
      gone.delete(node);
      seen.delete(node);
    }
    for (const node of present) {
      gone.delete(node);
      seen.add(node);
    }
  }
  const ofServer = told.filter(({ node }) => !nodes?.includes(node));
  const ofPage = facts.get()?.live ? [] : [...gone];
  const list = ofPage.map(([node, since]) => `${node} (since ${clock(new Date(since))})`).join(", ");
  return html`
    ${ofServer.map(({ node, sentence }) => html`<${Bar} key=${node} kind="warn" title=${`Gone: ${node}.`}>${sentence}.<//>`)}
    ${ofPage.length > 0 && html`<${Bar} kind="warn" title=${`Gone: ${list}`}>
      The figures below no longer include ${ofPage.length === 1 ? "this node" : "these nodes"}. If a node is down, messages on its disk wait there
      until it is back.<//>`}`;
}

// The text in place of figures if no nsqd has the topic or channel. `told` are the nodes with the topic that are gone. `isUnknown` is true
// for a name that no server knows: only the topics of a node that is gone are remembered, and not its channels.
export function NoNodes({ what, told, isUnknown = false }) {
  const names = told.map(({ node }) => node).join(", ");
  if (told.length > 0 && isUnknown) return html`<p class="empty">No nsqd that answers knows this ${what}. ${names} had the topic and cannot be
    asked, so the ${what} may exist there.</p>`;
  if (told.length > 0) return html`<p class="empty">The figures of this ${what} are unknown until the nsqd is back.</p>`;
  return html`<p class="empty">No nsqd that answers has this ${what}, so its figures are unknown. If an nsqd that has it is down, its messages
    wait on the disk there. The page <a href=${link("lookup")}>Lookup</a> lists the topics that no nsqd has.</p>`;
}
