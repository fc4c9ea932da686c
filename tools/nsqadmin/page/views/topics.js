// The list of topics, with what needs attention above it.

import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { useActions } from "../actions.js";
import { ask } from "../api.js";
import { Attention, allConcerns } from "../attention.js";
import { OldBar, PollBars } from "../bars.js";
import { Chart } from "../chart.js";
import { plus } from "../exact.js";
import { count, growth, many, rate } from "../format.js";
import { ManyUndoBar, actOnMany } from "../many.js";
import { TopicRows, loadConcerns, loadTopics, nameRow } from "../overview.js";
import { Age, Badge, Loading, Paused, Tiles, counted, rated } from "../parts.js";
import { Ranges, usePast } from "../past.js";
import { usePoll } from "../poll.js";
import { link, setQuery, useRoute } from "../route.js";
import { facts } from "../store.js";
import { Table, matching } from "../table.js";

// What the list can be narrowed to.
const SHOWN = {
  all: ["All topics", () => true],
  problem: ["Need attention", (row) => row.needsAttention],
  backlog: ["With a backlog", (row) => row.backlog > 0],
  lonely: ["Without consumers", (row) => row.consumers === 0],
  paused: ["Paused", (row) => row.isPaused || row.pausedChannels > 0],
};

export function Topics() {
  const { query } = useRoute();
  const maker = useRef(new TopicRows());
  const past = usePast("all topics", { all: true });
  const attention = usePoll("attention", loadConcerns);
  const concerns = attention.data?.concerns;
  const load = async (signal) => {
    const data = await loadTopics(signal, attention.data?.gone?.length > 0);
    return { ...data, rows: await maker.current.rows({ ...data, concerns }, data.steady_ms ?? Date.now()) };
  };
  const poll = usePoll("topics", load, ({ rows }, at) => {
    const rates = rows.map((row) => row.arrivals).filter((rate) => rate != null);
    // The first answer has no rates. Its point would be a gap behind the past that the server tells.
    if (rates.length > 0 || rows.length === 0) past.own.add(at, {
      depth: rows.reduce((sum, row) => plus(sum, row.backlog ?? 0), 0),
      inFlight: rows.reduce((sum, row) => plus(sum, row.inFlight ?? 0), 0),
      arrivals: rates.reduce((sum, rate) => sum + rate, 0),
    });
  });
  const rows = poll.data?.rows;
  const actions = useActions(() => poll.reload());
  const names = useNames();
  const all = rows ?? names;
  const kept = Object.hasOwn(SHOWN, query.get("show") ?? "") ? query.get("show") : "all";
  const columns = rows && !rows.some((row) => row.oldest !== undefined) ? COLUMNS_WITHOUT_AGE : COLUMNS;
  const narrowed = useMemo(() => all?.filter(SHOWN[kept][1]), [all, kept]);
  const needle = query.get("q") ?? "";
  const matched = useMemo(() => rows && matching(narrowed, textOf, needle), [rows, narrowed, needle]);
  const listed = useMemo(() => rows && allConcerns(concerns, rows), [concerns, rows]);
  return html`
    <h1>Topics</h1>
    ${actions.shown}
    <${PollBars} poll=${poll} what="The list of topics" />
    ${rows && html`<${ManyUndoBar} rows=${matched} actions=${actions} />`}
    ${rows && !attention.error && html`<${OldBar} poll=${attention} what="things that need attention are those" />`}
    ${rows && !poll.error && attention.error && html`<${PollBars} poll=${attention} what="What needs attention" />`}
    ${rows && html`<${Attention} concerns=${listed} isWhole=${concerns !== undefined || !facts.get()?.live} />`}
    ${!all && !poll.error && html`<${Loading} what="topics" />`}
    ${narrowed && html`<${Table} caption="Topics" rows=${narrowed} rowKey=${keyOf} text=${textOf} columns=${columns} first=${firstOrder(rows)}
      search="Search topics" rowClass=${classOf} tools=${html`<${Narrow} kept=${kept} />
        ${actions.canAct && rows && html`<${ActButton} kept=${kept} search=${needle} rows=${narrowed} actions=${actions} />`}`}
      empty=${all.length ? "No topic is like this." : "There are no topics yet. A topic is made when a producer publishes to it, or on the page Lookup."} />`}
    ${rows && html`<${Totals} rows=${rows} past=${past} />`}`;
}

// The names alone, which come sooner than the figures.
function useNames() {
  const [rows, setRows] = useState(null);
  useEffect(() => {
    const cancel = new AbortController();
    // The poll shows the failure, which both requests share.
    ask("api/topics", { signal: cancel.signal }).then(({ topics }) => setRows((topics ?? []).map(nameRow)), () => {});
    return () => cancel.abort();
  }, []);
  return rows;
}

const keyOf = (row) => row.name;
const textOf = (row) => row.lowercase;
const classOf = (row) => row.needsAttention ? "problem" : "";

// What gets older comes first. nsqd 1.3.0 does not tell ages: then the longest backlog comes first.
function firstOrder(rows) {
  return !rows || rows.some((row) => row.oldest !== undefined) ? "-oldest" : "-depth";
}

const COLUMNS = [
  {
    key: "topic", title: "Topic", isText: true, value: (row) => row.name,
    cell: (row) => html`<a href=${link("topics", row.name)} title=${row.name}>${row.name}</a><${Paused} of=${row.pause} />
      ${row.pausedChannels > 0 && html` <${Badge} kind="info">${many(row.pausedChannels, "channel")} paused<//>`}
      ${row.nodeCount === 0 && html` <${Badge} kind="plain" title="nsqlookupd knows the topic, but no nsqd has it">inactive<//>`}
      ${row.isUnknown && html` <${Badge} kind="plain" title="nsqlookupd knows the topic, and an nsqd that may have it does not answer or is gone">unknown<//>`}`,
  },
  {
    // Topics of the same age are ordered by their backlog.
    key: "oldest", title: "Oldest", help: "Age of the oldest message that is not finished",
    value: (row) => row.oldest === undefined ? undefined : row.oldest + Math.min(Number(row.backlog) / 1e12, 0.9),
    cell: (row) => html`<${Age} ms=${row.oldest} isOlder=${row.getsOlder} />`,
  },
  counted("depth", "Depth", "backlog", "Messages that wait, in the topic and in all its channels"),
  { key: "growth", title: "Change/s", help: "Growth of the depth per second", value: (row) => row.growth, cell: (row) => growth(row.growth) },
  rated("rate", "Messages/s", "arrivals", "Messages that are published per second"),
  counted("flight", "In flight", "inFlight", "Messages that consumers have and have not finished"),
  counted("deferred", "Deferred", "deferred", "Messages that wait for their time"),
  { key: "channels", title: "Channels", value: (row) => row.channels.length, cell: (row) => row.nodeCount === undefined ? "–" : count(row.channels.length) },
  counted("consumers", "Consumers", "consumers", "Connections of consumers, over all channels and nodes"),
  counted("messages", "Messages", "message_count", "Messages since the nodes were started"),
];

// nsqd 1.3.0 tells no ages.
const COLUMNS_WITHOUT_AGE = COLUMNS.filter((column) => column.key !== "oldest");

function Narrow({ kept }) {
  return html`<select aria-label="Show" value=${kept} onChange=${(event) => setQuery({ show: event.target.value === "all" ? "" : event.target.value })}>
    ${Object.entries(SHOWN).map(([key, [title]]) => html`<option key=${key} value=${key}>${title}</option>`)}</select>`;
}

// The button for an action on all that match, when something narrows the list.
function ActButton({ kept, search, rows, actions }) {
  const needle = search.trim();
  if (rows.length === 0 || (kept === "all" && !needle)) return null;
  // An order knows no concerns (`Show` in order.rs), so the topics that need attention go by their names.
  const shown = kept === "problem" ? { topics: rows.map((row) => row.name) } : kept !== "all" && { show: kept };
  const text = [kept !== "all" && SHOWN[kept][0].toLowerCase(), needle && `names with “${needle}”`].filter(Boolean).join(", ");
  return html`<button type="button" onClick=${() => actions.start(actOnMany({ search: needle, ...shown }, text))}>Act on all that match</button>`;
}

function Totals({ rows, past }) {
  const sums = useMemo(() => ["backlog", "inFlight", "consumers"].map((name) => rows.reduce((sum, row) => plus(sum, row[name] ?? 0), 0)), [rows]);
  const [backlog, inFlight, consumers] = sums.map(count);
  const arrivals = past.own.figures.arrivals?.at(-1);
  return html`<h2>All topics together</h2>
    <${Tiles} tiles=${[
      { label: "Topics", value: count(rows.length) },
      { label: "Waiting", value: backlog },
      { label: "In flight", value: inFlight },
      { label: "Messages/s", value: rate(arrivals) },
      { label: "Consumers", value: consumers },
    ]} />
    <${Ranges} past=${past} />
    <div class="charts">
      <${Chart} title="Depth" series=${past.shown} show=${count} lines=${[
        { figure: "depth", name: "waiting", colour: "c1" }, { figure: "inFlight", name: "in flight", colour: "c2" }]} />
      <${Chart} title="Messages per second" series=${past.shown} show=${rate} lines=${[
        { figure: "arrivals", name: "published", colour: "c3" }]} />
    </div>`;
}
