// What nsqlookupd knows beyond the nodes: topics without a node. Here topics and channels are created.

import { html, useState } from "../html.js";
import { forget, useActions } from "../actions.js";
import { ask } from "../api.js";
import { ActionBar, PollBars } from "../bars.js";
import { OwnName } from "../own-name.js";
import { Loading } from "../parts.js";
import { usePoll } from "../poll.js";
import { link } from "../route.js";
import { facts, useStore } from "../store.js";
import { Table } from "../table.js";

// The server asks nsqlookupd once per topic for this page, so it asks less often.
const SECONDS = 10;

export function Lookup() {
  const known = useStore(facts);
  return html`
    <h1>Lookup</h1>
    ${known && (known.is_lookup_mode
      ? html`<${Lookupds} addresses=${known.nsqlookupd} /><${Inactive} />`
      : html`<p class="empty">nsqadmin is not configured with nsqlookupd hosts. It asks the nsqds that it was started with.</p>`)}
    ${known?.is_admin && html`<${Create} />`}`;
}

// The hosts, and what is wrong with them.
function Lookupds({ addresses }) {
  const poll = usePoll("concerns", loadConcerns, undefined, SECONDS * 1000);
  const sentenceOf = (address) => poll.data?.concerns.find((concern) => concern.lookupd === address)?.sentence;
  return html`<h2>nsqlookupd hosts</h2>
    <ul class="hosts">${addresses.map((address) => html`<li key=${address}><code>${address}</code>
      ${sentenceOf(address) && html` <b class="failure">${sentenceOf(address)}.</b>`}</li>`)}</ul>`;
}

// The concerns about nsqlookupds. Without live figures, the server does not know them.
async function loadConcerns(signal) {
  const { live: isLive } = await facts.known();
  return isLive ? ask("api/live/attention", { signal }) : { concerns: [] };
}

function Inactive() {
  const poll = usePoll("inactive", (signal) => ask("api/topics?inactive=true", { signal }), undefined, SECONDS * 1000);
  const actions = useActions(() => poll.reload());
  const rows = poll.data && Object.entries(poll.data.topics ?? {}).flatMap(([topic, channels]) =>
    [{ topic, channel: null }, ...(channels ?? []).map((channel) => ({ topic, channel }))]);
  return html`<h2>Inactive topics</h2>
    <p class="note">nsqlookupd knows these names, but no nsqd has the topic. A topic whose nsqds are down for a while looks the same.</p>
    ${actions.shown}
    <${PollBars} poll=${poll} what="The list of inactive topics" />
    ${!rows && !poll.error && html`<${Loading} what="inactive topics" />`}
    ${rows && html`<${Table} caption="Inactive topics and their channels" rows=${rows} rowKey=${rowKey} text=${rowText} first="topic"
      search=${rows.length > 0 && "Search inactive topics"} columns=${columns(actions)} empty="No inactive topics." />`}`;
}

const rowKey = (row) => row.channel === null ? row.topic : `${row.topic}/${row.channel}`;
const rowText = (row) => rowKey(row).toLowerCase();

function columns(actions) {
  return [
    { key: "topic", title: "Topic", isText: true, value: rowKey, cell: (row) => row.channel === null
      ? html`<a href=${link("topics", row.topic)}>${row.topic}</a>` : html`<span class="note">${row.topic}</span>` },
    { key: "channel", title: "Channel", isText: true, value: (row) => row.channel ?? "", cell: (row) => row.channel ?? "" },
    ...(actions.canAct ? [{ key: "act", title: "Action", value: rowKey, cell: (row) => html`<button type="button" class="danger small"
      aria-label=${`Delete ${rowKey(row)}`} onClick=${() => actions.start(forget(row.topic, row.channel))}>Delete</button>` }] : []),
  ];
}

function Create() {
  const [names, setNames] = useState({ topic: "", channel: "" });
  const [outcome, setOutcome] = useState(null);
  async function submit(event) {
    event.preventDefault();
    const [topic, channel] = [names.topic.trim(), names.channel.trim()];
    if (topic === "" && channel === "") return;
    const what = channel ? `Create the topic ${topic} with the channel ${channel}` : `Create the topic ${topic}`;
    try {
      const { message } = await ask("api/topics", { method: "POST", body: { topic, channel } });
      setOutcome({ what, message });
      setNames({ topic: "", channel: "" });
    } catch (error) {
      setOutcome({ what, error });
    }
  }
  const field = (name, label) => html`<label>${label} <input type="text" name=${name} value=${names[name]} autocomplete="off" autocapitalize="off"
    spellcheck=${false} onInput=${(event) => setNames({ ...names, [name]: event.target.value })} /></label>`;
  return html`<h2>Create a topic or channel</h2>
    <p class="note">Messages that a producer publishes before a channel exists wait in the topic. A channel that exists early gets its copies from the start.</p>
    <${ActionBar} outcome=${outcome} onClose=${() => setOutcome(null)} />
    <form class="create" onSubmit=${submit}>${field("topic", "Topic name")} ${field("channel", "Channel name (may be empty)")} <${OwnName} />
      <button type="submit" class="primary">Create</button></form>`;
}
