// Messages of a topic or a channel, which stay where they are.

import { html, useEffect, useRef, useState } from "../html.js";
import { causes, sentence } from "../api.js";
import { WarningBar } from "../bars.js";
import { FORMS, shownBody } from "../body.js";
import { Boundary } from "../boundary.js";
import { plus } from "../exact.js";
import { count, many } from "../format.js";
import { Badge, Loading, NodeLink, Trail } from "../parts.js";
import { LISTS, TAIL, Tail, curl, deliveryOf, listsOf, messagesOf, peek, sorted, stateOf } from "../peeks.js";
import { usePoll } from "../poll.js";
import { link, setQuery, useRoute } from "../route.js";
import { facts, serverNow, useStore } from "../store.js";

const LIMITS = ["10", "25", "100"];

// A sampled tail shows one message of so many.
const SAMPLES = ["1", "10", "100"];

// The lists that also have messages that are on disk only.
const WAITING_LISTS = "Oldest and Newest show those that wait in the topic, and the same lists of its channels those that wait there.";

export function Messages({ topic, channel }) {
  const { query } = useRoute();
  const known = useStore(facts);
  const lists = listsOf(channel);
  const asked = {
    list: lists.includes(query.get("from")) ? query.get("from") : lists[0],
    node: query.get("node") ?? "",
    contains: query.get("contains") ?? "",
    json: query.get("json") ?? "",
    equals: query.get("equals") ?? "",
    limit: LIMITS.includes(query.get("limit")) ? query.get("limit") : "10",
    form: query.get("as") in FORMS ? query.get("as") : "auto",
    every: SAMPLES.includes(query.get("every")) ? query.get("every") : "1",
    isTail: query.get("tail") === "on",
  };
  const [nodes, setNodes] = useState([]);
  const learn = (answer) => {
    const names = answer.nodes.map((node) => node.node);
    setNodes((known) => names.every((name) => known.includes(name)) ? known : [...new Set([...known, ...names])].sort());
  };
  const place = { topic, channel, asked, learn };
  const key = JSON.stringify([topic, channel, { ...asked, form: "" }]);
  return html`
    <${Trail} levels=${[["Topics", link()], [topic, link("topics", topic)], ...(channel ? [[channel, link("topics", topic, channel)]] : []),
      ["Messages", channel ? link("peek", topic, channel) : link("peek", topic)]]} />
    <h1><span class="kind">Messages of</span> ${channel ? `${topic} / ${channel}` : topic}</h1>
    <p class="note">Looking changes nothing: no message is consumed, and none is delivered later or again.
      ${!asked.isTail && !channel && (asked.list === "published"
        ? ` These are the messages that were published last, whoever has them, as far as nsqd has them in memory. Messages that all channels have
          finished stay there only for a while. After a restart of nsqd, all older messages are on disk only, and not among these. ${WAITING_LISTS}`
        : " These are the messages that wait in the topic itself, for a channel or for the end of a pause.")}</p>
    ${known && !known.may_read_bodies && html`<p class="bar warn" role="status"><b>Bodies are masked.</b> You may not read them
      (--peek-bodies of nsqadmin).</p>`}
    <${Controls} ...${{ asked, lists, nodes, mayRead: known?.may_read_bodies === true }} />
    ${known && (asked.isTail ? html`<${Follow} key=${key} ...${place} />` : html`<${Look} key=${key} ...${place} />`)}`;
}

function Controls({ asked, lists, nodes, mayRead }) {
  const choose = (name, initial) => (event) => setQuery({ [name]: event.target.value === initial ? "" : event.target.value });
  const choice = (label, name, value, initial, options) => html`<label>${label}
    <select value=${value} onChange=${choose(name, initial)}>${options.map(([key, title]) =>
      html`<option key=${key} value=${key}>${title}</option>`)}</select></label>`;
  const names = asked.node && !nodes.includes(asked.node) ? [asked.node, ...nodes] : nodes;
  return html`<div class="questions">
    ${!asked.isTail && choice("List", "from", asked.list, lists[0], lists.map((list) => [list, LISTS[list]]))}
    ${choice("Node", "node", asked.node, "", [["", "All nodes"], ...names.map((name) => [name, name])])}
    ${!asked.isTail && choice("At most", "limit", asked.limit, "10", LIMITS.map((limit) => [limit, `${limit} of each node`]))}
    ${asked.isTail && choice("Sampling", "every", asked.every, "1", SAMPLES.map((every) => [every, every === "1" ? "Every message" : `1 of ${every}`]))}
    ${mayRead && choice("Bodies", "as", asked.form, "auto", Object.entries(FORMS))}
    ${mayRead && html`<${Filter} key=${`${asked.contains} ${asked.json} ${asked.equals}`} asked=${asked} />`}
    <button type="button" aria-pressed=${asked.isTail} onClick=${() => setQuery({ tail: asked.isTail ? "" : "on", from: "" })}>
      ${asked.isTail ? "Stop the live tail" : "Live tail"}</button>
  </div>`;
}

function Filter({ asked }) {
  const [texts, setTexts] = useState({ contains: asked.contains, json: asked.json, equals: asked.equals });
  const field = (name, label, hint) => html`<label>${label}<input type="text" value=${texts[name]} placeholder=${hint} spellcheck=${false}
    autocomplete="off" autocapitalize="off" onInput=${(event) => setTexts({ ...texts, [name]: event.target.value })} /></label>`;
  const submit = (event) => {
    event.preventDefault();
    setQuery(texts);
  };
  const isFiltered = asked.contains || asked.json || asked.equals;
  return html`<form class="filter" onSubmit=${submit}>
    ${field("contains", "Body contains", "any text")}
    ${field("json", "JSON pointer", "/order/id")}
    ${field("equals", "equals", "any value")}
    <button type="submit">Search</button>
    ${isFiltered && html`<button type="button" onClick=${() => setQuery({ contains: "", json: "", equals: "" })}>No filter</button>`}
  </form>`;
}

function parametersOf({ list, node, contains, json, equals, limit }) {
  return { from: list, node, contains, json, equals, limit };
}

// One look, and what follows when the user asks for more.
function Look({ topic, channel, asked, learn }) {
  const [state, setState] = useState({ answers: null, at: null, error: null, isLoading: true });
  const stop = useRef(new AbortController());
  useEffect(() => {
    look(parametersOf(asked), null);
    return () => stop.current.abort();
  }, []);

  async function look(parameters, former) {
    setState((state) => ({ ...state, isLoading: true, error: null }));
    try {
      const answer = await peek(topic, channel, parameters, stop.current.signal);
      learn(answer);
      setState((state) => ({ answers: former ? joined(former, answer) : answer, at: serverNow(), error: null, isLoading: false }));
    } catch (error) {
      if (!stop.current.signal.aborted) setState((state) => ({ ...state, error, isLoading: false }));
    }
  }

  async function more() {
    let answers = state.answers;
    setState({ ...state, isLoading: true });
    for (const node of state.answers.nodes.filter((node) => node.next)) {
      try {
        answers = joined(answers, await peek(topic, channel, { ...parametersOf(asked), node: node.node, cursor: node.next }, stop.current.signal));
      } catch (error) {
        if (!stop.current.signal.aborted) setState({ answers, at: serverNow(), error, isLoading: false });
        return;
      }
    }
    setState({ answers, at: serverNow(), error: null, isLoading: false });
  }

  const { answers, at, error, isLoading } = state;
  return html`
    ${error && html`<div class="bar bad" role="alert"><div><b>The messages cannot be shown.</b> ${error.message}</div></div>`}
    ${answers && html`<${WarningBar} message=${answers.message} /><${Obstacles} nodes=${answers.nodes} />`}
    ${!answers && isLoading && html`<${Loading} what="messages" />`}
    ${answers && html`<${Summary} nodes=${answers.nodes} list=${asked.list} isFiltered=${Boolean(asked.contains || asked.json || asked.equals)} />
      <div class="buttons"><button type="button" disabled=${isLoading} onClick=${() => look(parametersOf(asked), null)}>Look again</button>
        ${answers.nodes.some((node) => node.next) && html`<button type="button" disabled=${isLoading} onClick=${more}>More</button>`}
        <${Curl} nodes=${answers.nodes} /></div>
      <${List} messages=${sorted(messagesOf(answers.nodes), asked.list)} form=${asked.form} hasBodies=${answers.bodies} now=${at}
        empty=${asked.list === "published" && "Nothing that was published is in nsqd's memory."} />`}`;
}

// The answers of the same nodes, one after the other.
function joined(former, answer) {
  const found = new Map(answer.nodes.map((node) => [node.node, node]));
  const nodes = former.nodes.map((node) => {
    const rest = found.get(node.node);
    if (!rest?.messages) return rest ? { ...node, next: undefined, outcome: rest.outcome, reason: rest.reason } : node;
    return { ...rest, url: node.url, messages: [...(node.messages ?? []), ...rest.messages],
      scanned_messages: plus(node.scanned_messages, rest.scanned_messages), scanned_bytes: plus(node.scanned_bytes, rest.scanned_bytes) };
  });
  return { ...answer, nodes };
}

function Obstacles({ nodes }) {
  return nodes.filter((node) => node.outcome !== "messages" && node.outcome !== "absent").map((node) => html`
    <div class="bar warn" role="status" key=${node.node}><div><b>No messages of ${node.node}.</b> ${obstacle(node)}</div></div>`);
}

// The sentences about why a node shows no messages. A node that forbids it says by which flag.
function obstacle({ outcome, reason }) {
  if (outcome === "forbidden") return `${causes("PEEK_FORBIDDEN")[0]} ${sentence(reason)}`;
  return causes(reason).join(" ") || reason;
}

// The progress of the search.
function Summary({ nodes, list, isFiltered }) {
  const answered = nodes.filter((node) => node.messages);
  if (answered.length === 0) return null;
  const sum = (name) => answered.reduce((total, node) => plus(total, node[name]), 0);
  const ended = answered.filter((node) => node.ended_by === "budget").map((node) => node.node);
  const gone = many(sum("scanned_messages"), "message");
  const found = messagesOf(answered).length;
  const older = answered.filter((node) => node.from !== undefined).map((node) => node.node);
  return html`<p class="note" role="status">${list === "attempts"
    ? `The ${found} with the most attempts of ${gone} in flight, deferred or requeued${isFiltered ? ", among those that match" : ""}.`
    : `${many(found, "message")}${isFiltered ? " found" : ""}. Gone through ${gone} (${count(sum("scanned_bytes"))} bytes).`}
    ${ended.length > 0 && html` <b>The budget of one look ended at ${ended.join(", ")}.</b> “More” goes on there.`}
    ${older.length > 0 && ` ${olderNodes(older)}`}</p>`;
}

function olderNodes(nodes) {
  return `${nodes.join(", ")}: an older nsqd shows only messages that wait, and none that consumers take at once.`;
}

// The command that asks the nodes themselves. A page without HTTPS may not use the clipboard, so the text is shown, too.
function Curl({ nodes }) {
  const [shown, setShown] = useState(null);
  const text = nodes.map((node) => curl(node.url)).join("\n");
  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
      setShown("Copied:");
    } catch {
      setShown("Copy this:");
    }
  }
  return html`<button type="button" onClick=${copy}>Copy as curl</button>
    ${shown && html`<div class="command"><span class="note" role="status">${shown}</span><pre tabindex="0" aria-label="The command">${text}</pre></div>`}`;
}

// The newest messages, again and again.
function Follow({ topic, channel, asked, learn }) {
  const tail = useRef(new Tail());
  const parameters = { ...parametersOf(asked), from: "published", limit: TAIL.limit };
  const poll = usePoll("tail", (signal) => peek(topic, channel, { ...parameters, since: tail.current.since() }, signal), (answer) => {
    learn(answer);
    tail.current.take(answer.nodes.filter((node) => node.messages), Number(asked.every));
  }, TAIL.interval);
  const { shown, gaps, leftOut, unseen, uncounted, older } = tail.current;
  const perSecond = TAIL.limit / (TAIL.interval / 1000);
  return html`
    ${poll.error && html`<div class="bar bad" role="alert"><div><b>The messages cannot be shown.</b> ${poll.error.message}</div></div>`}
    ${poll.data && html`<${WarningBar} message=${poll.data.message} /><${Obstacles} nodes=${poll.data.nodes} />`}
    ${!poll.data && !poll.error && html`<${Loading} what="messages" />`}
    ${poll.data && html`<p class="note" role="status">At most ${perSecond} messages/s of each node: the newest ${TAIL.limit}, every ${TAIL.interval / 1000} s.
      ${channel && " The tail shows what was published to the topic, whether or not this channel has finished it."}
      ${leftOut > 0 && ` ${many(leftOut, "message")} left out by the sampling.`}
      ${unseen > 0 && html` <b>${many(unseen, "message")} not shown: more came than a look shows.</b>`}
      ${uncounted > 0 && html` <b>It is not known how many messages were missed: a node has restarted, or the topic was made again.</b>`}
      ${gaps > 0 && html` <b>${many(gaps, "time")}, more came than a look shows.</b>`}
      ${older.length > 0 && ` ${olderNodes(older)}`}</p>
      <${List} messages=${shown} form=${asked.form} hasBodies=${poll.data.bodies} now=${poll.at} />`}`;
}

function List({ messages, form, hasBodies, now, empty }) {
  if (messages.length === 0) return html`<p class="empty">${empty || "No message is here."}</p>`;
  return html`<ol class="messages">${messages.map((message) => html`<li key=${`${message.node} ${message.id}`}>
    <${Boundary} what="This message"><${Message} ...${{ message, form, hasBodies, now }} /><//></li>`)}</ol>`;
}

function Message({ message, form, hasBodies, now }) {
  const head = html`<div class="facts"><code>${message.id}</code>
    <${Badge} kind=${message.state === "requeued" ? "warn" : "plain"}>${stateOf(message)}<//>
    ${message.attempts !== undefined && html`<span>${many(message.attempts, "attempt")}</span>`}
    ${message.body_bytes !== undefined && html`<span>${many(message.body_bytes, "byte")}</span>`}
    <span>${deliveryOf(message, now).join(", ")}</span><${NodeLink} node=${message.node} /></div>`;
  if (message.damaged) return html`${head}<p class="failure">The file of this message is damaged. nsqd's log names the file.</p>`;
  if (!hasBodies) return html`${head}<p class="note">The body is masked.</p>`;
  const { text, isHex, note } = shownBody(message, form);
  return html`${head}${note && html`<p class="note">${note}</p>`}
    <pre tabindex="0" class=${isHex ? "hex" : ""} aria-label=${`Body of ${message.id}`}>${text}</pre>
    ${message.is_cut && html`<p class="note">The body is longer than what is shown.</p>`}`;
}
