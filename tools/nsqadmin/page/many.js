// The dialog for an action on all topics, or all channels, that match the filter of the list.

import { html, useEffect, useState } from "./html.js";
import { useAbilities } from "./abilities.js";
import { ask } from "./api.js";
import { Dialog, Figures, Typed, given, useClosed } from "./confirm.js";
import { plus } from "./exact.js";
import { count, many, moment } from "./format.js";
import { serverNow } from "./store.js";
import { FULL_DISK, PauseTerms, UndoTerms } from "./terms.js";

const VERBS = { pause: "Pause", unpause: "Unpause", empty: "Empty", unempty: "Undo the empty of", delete: "Delete" };
const KINDS = { topics: "the topics", channels: "their channels" };

// The rows of the listing that are drawn.
const SHOWN_MAX = 200;

// The longest wait for an order, in milliseconds. It is many requests to each node.
const TIMEOUT = 120_000;

const EFFECTS = {
  "pause topics": "Messages stay in the topics, and their channels get none of them. Nothing is lost.",
  "pause channels": "Consumers get no more messages. Nothing is lost.",
  "unpause topics": "The topics pass their messages on to their channels again.",
  "unpause channels": "Consumers get messages again.",
  "empty topics": "The messages that wait in the topics themselves are dropped. Those that channels have already are kept.",
  "empty channels": "All messages of these channels are dropped: waiting, in flight and deferred.",
  "unempty topics": "Topics that are paused or have no channels keep the messages again that the topics themselves were emptied of. Otherwise all channels that the topics have now get them.",
  "unempty channels": "The messages that were emptied wait in these channels again, in addition to those that have come since. Consumers get them.",
  "delete topics": "The topics, their channels and all their messages are deleted on every node. Consumers lose their connections. A producer that still publishes creates its topic again.",
  "delete channels": "The channels and all their messages are deleted on every node. Consumers lose their connections. A consumer that comes back creates its channel again.",
};

// `filter` has the parts of the body of api/acts that narrow it, and `filterText` says them to people. The dialog begins with `verb`.
export function actOnMany(filter, filterText, verb = "pause") {
  return { dialog: Many, filter, filterText, verb };
}

// The channels of these rows of topics that were emptied and can be undone: `topics`, their names, the `count` of channels, the number
// of `messages`, and `until`, the time in milliseconds at which the first undo ends. Null if there is none.
export function undoable(rows, now = serverNow()) {
  const found = { topics: [], count: 0, messages: 0, until: undefined };
  for (const { name, channels } of rows) {
    const emptied = channels.filter((channel) => Number(channel.undo_until_ms) > now);
    if (emptied.length === 0) continue;
    found.topics.push(name);
    found.count += emptied.length;
    for (const channel of emptied) {
      found.messages = plus(found.messages, channel.undo_message_count);
      found.until = Math.min(found.until ?? Infinity, Number(channel.undo_until_ms));
    }
  }
  return found.count > 0 ? found : null;
}

// The bar that offers one undo for all emptied channels of these topics, for as long as there is one.
export function ManyUndoBar({ rows, actions }) {
  const found = undoable(rows);
  if (!found) return null;
  const start = () => actions.start(actOnMany({ topics: found.topics }, `topics with emptied channels: ${found.topics.slice(0, 3).join(", ")}${found.topics.length > 3 ? " …" : ""}`, "unempty"));
  return html`<div class="bar undo" role="status">
    <div><b>${many(found.count, "channel was", "channels were")} emptied. ${many(found.messages, "message")} can be brought back until ${moment(found.until)}${found.count > 1
      ? " or later" : ""}.</b> Until then they use disk space. ${FULL_DISK}</div>
    ${actions.canAct && html`<button type="button" onClick=${start}>Undo</button>`}
  </div>`;
}

function Many({ action, onDone, onFailed, onClose }) {
  const [chosen, setChosen] = useState({ action: action.verb, of: "channels", channel: "" });
  const [terms, setTerms] = useState({});
  const [typed, setTyped] = useState("");
  const [state, setState] = useState({ isRunning: false, error: null });
  const isClosed = useClosed();
  const isPause = chosen.action === "pause";
  const hasUndo = chosen.action === "empty";
  const undoTerm = chosen.of === "channels" ? "undo" : "topicUndo";
  const abilities = useAbilities("", isPause || hasUndo);
  useEffect(() => {
    setTerms(hasUndo && abilities?.[undoTerm].all ? { undo: "10m" } : {});
  }, [abilities, isPause, hasUndo, undoTerm]);
  const order = { ...action.filter, ...chosen, channel: chosen.of === "channels" ? chosen.channel.trim() : "", ...(isPause || hasUndo ? given(terms) : {}) };
  // The note changes nothing about what is touched.
  const { note, ...asked } = order;
  const [listing, listAgain] = useListing(asked);
  const subjects = listing?.subjects;
  const isDangerous = chosen.action === "empty" || chosen.action === "delete";
  const noun = chosen.of === "topics" ? "topic" : "channel";
  const what = subjects && `${VERBS[chosen.action]} ${many(subjects.length, noun)}`;
  const word = isDangerous && what ? what.toLowerCase() : "";
  // Without the answer about abilities, an empty could not be undone although the nodes can.
  const isIdle = chosen.action === "empty" && subjects?.every((one) => !(one.depth > 0 || one.in_flight_count > 0 || one.deferred_count > 0));
  const isReady = subjects?.length > 0 && !isIdle && typed === word && (!(isPause || hasUndo) || abilities !== null);
  async function submit(event) {
    event.preventDefault();
    if (!isReady || state.isRunning) return;
    setState({ isRunning: true, error: null });
    try {
      const answer = await ask("api/acts", { method: "POST", body: { ...confirmed(order, subjects), confirm: listing.confirm }, timeout: TIMEOUT });
      onDone(answer, outcomeOf(what, noun, answer));
    } catch (error) {
      if (isClosed()) {
        onFailed(error, what);
        return;
      }
      setState({ isRunning: false, error });
      setTyped("");
      if (error.raw === "LIST_CHANGED") listAgain();
    }
  }
  const choose = (name) => (event) => {
    setTyped("");
    setState({ isRunning: false, error: null });
    setChosen({ ...chosen, [name]: event.target.value });
  };
  return html`<${Dialog} title="Act on all that match" onClose=${onClose} onSubmit=${submit} error=${state.error ?? listing?.error} isRunning=${state.isRunning}
      isReady=${isReady} button=${what ?? "Counting …"} isDangerous=${isDangerous}>
    <p>The filter of the list: <b>${action.filterText}</b></p>
    <div class="choices">
      <${Select} label="Action" choices=${VERBS} value=${chosen.action} onChange=${choose("action")} />
      <${Select} label="On" choices=${KINDS} value=${chosen.of} onChange=${choose("of")} />
      ${chosen.of === "channels" && html`<label>Only channels named
        <input type="text" value=${chosen.channel} placeholder="all channels" autocomplete="off" autocapitalize="off" spellcheck=${false} onInput=${choose("channel")} /></label>`}
    </div>
    <p>${EFFECTS[`${chosen.action} ${chosen.of}`]}</p>
    ${isPause && html`<${PauseTerms} ability=${abilities?.pauseTerms} terms=${terms} onChange=${setTerms} />`}
    ${hasUndo && html`<${UndoTerms} ability=${abilities?.[undoTerm]} terms=${terms} onChange=${setTerms} />`}
    ${hasUndo && terms.undo && html`<p class="note">${noun === "channel" ? "The list of topics then has one undo for all of them, and the page of each channel has its own."
      : "The page of each topic then has an undo."} What is ephemeral has none.</p>`}
    ${listing?.message && html`<p class="failure" role="alert"><b>Not all servers answered.</b> What they have is not listed, and is not touched. <code>${listing.message}</code></p>`}
    ${subjects && (subjects.length === 0 || isIdle
      ? html`<p class="empty" role="status">${nothing(chosen.action, noun)}</p>`
      : html`<${Figures} rows=${totals(subjects, noun)} /><${Subjects} subjects=${subjects} />`)}
    ${word && subjects.length > 0 && !isIdle && html`<${Typed} word=${word} value=${typed} onInput=${setTyped} />`}<//>`;
}

// The order that the admin has confirmed. An empty names its topics, because those with a backlog may be others at the next moment.
function confirmed(order, subjects) {
  if (order.action !== "empty") return order;
  const { search, show, ...rest } = order;
  return { ...rest, topics: [...new Set(subjects.map((one) => one.topic))] };
}

// Asks for the listing of an order, and again when the order differs. Returns the answer, or {error}, or null until there is one.
function useListing(order) {
  const [listing, setListing] = useState(null);
  const [turn, setTurn] = useState(0);
  const body = JSON.stringify(order);
  useEffect(() => {
    setListing(null);
    const cancel = new AbortController();
    // A name that is being typed is asked for when it is complete.
    const timer = setTimeout(() => {
      ask("api/acts", { method: "POST", body: JSON.parse(body), signal: cancel.signal })
        .then(setListing, (error) => cancel.signal.aborted || setListing({ error }));
    }, 250);
    return () => {
      clearTimeout(timer);
      cancel.abort();
    };
  }, [body, turn]);
  return [listing, () => setTurn(turn + 1)];
}

function nothing(action, noun) {
  if (action === "unpause") return `No ${noun} that matches is paused.`;
  if (action === "unempty") return `No ${noun} that matches has an undo.`;
  if (action === "empty") return `No ${noun} that matches has messages.`;
  return `No ${noun} matches.`;
}

function totals(subjects, noun) {
  const sum = (name) => subjects.reduce((total, one) => plus(total, one[name]), 0);
  const nodes = new Set(subjects.flatMap((one) => one.nodes));
  const channels = subjects.reduce((total, one) => total + one.channels.length, 0);
  const rows = [[noun === "topic" ? "Topics" : "Channels", count(subjects.length)], noun === "topic" && channels > 0 && ["Channels of these topics", count(channels)],
    subjects.some((one) => one.undo_until_ms) && ["Messages that can come back", count(sum("undo_message_count"))],
    ["Messages waiting (depth)", count(sum("depth"))], ["In flight", count(sum("in_flight_count"))], ["Deferred", count(sum("deferred_count"))],
    ["Consumers connected", count(sum("client_count"))], ["Nodes", count(nodes.size)]];
  return rows.filter(Boolean).map(([label, value]) => ({ label, value }));
}

function Subjects({ subjects }) {
  const rest = subjects.length - SHOWN_MAX;
  return html`<details class="subjects"><summary>Show each of them</summary>
    <div class="scroll" tabindex="0" role="region" aria-label="What is touched"><table><thead><tr><th scope="col" class="text">Name</th><th scope="col">Depth</th>
      <th scope="col">In flight</th><th scope="col">Deferred</th><th scope="col">Consumers</th></tr></thead>
    <tbody>${subjects.slice(0, SHOWN_MAX).map((one) => html`<tr key=${nameOf(one)}><th scope="row" class="text">${nameOf(one)}</th><td>${count(one.depth)}</td>
      <td>${count(one.in_flight_count)}</td><td>${count(one.deferred_count)}</td><td>${count(one.client_count)}</td></tr>`)}</tbody></table></div>
    ${rest > 0 && html`<p class="note">and ${rest} more</p>`}</details>`;
}

function nameOf(subject) {
  return subject.channel ? `${subject.topic} / ${subject.channel}` : subject.topic;
}

// The text of the page afterwards.
function outcomeOf(what, noun, { results, message }) {
  const failed = results.filter((one) => one.result === "failed");
  if (failed.length === 0) return { what, message };
  const names = failed.slice(0, 3).map(nameOf).join(", ");
  return { what: `${what}: it failed for ${many(failed.length, noun)} (${names}${failed.length > 3 ? " …" : ""})`, message };
}

function Select({ label, choices, value, onChange }) {
  return html`<label>${label}
    <select value=${value} onChange=${onChange}>${Object.entries(choices).map(([key, title]) => html`<option key=${key} value=${key}>${title}</option>`)}</select></label>`;
}
