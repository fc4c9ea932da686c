// The list of what needs attention: servers first, because they explain the rest, then the channel with the oldest message.

import { html, useState } from "./html.js";
import { count, many } from "./format.js";
import { Age } from "./parts.js";
import { link } from "./route.js";

// The concerns that are shown at first.
const SHOWN = 6;

// The server's concerns, and those that only the rows tell: about channels that the server has not looked at yet, or never does. A row
// that is marked is in the list, too.
export function allConcerns(known = [], rows) {
  const told = new Set(known.map(nameOf));
  const own = rows.flatMap((row) => row.problems).filter((channel) => !told.has(`${channel.topicName} / ${channel.channel_name}`));
  return [...known, ...own.map(concernOf).sort((a, b) => Number(b.oldest_ms ?? -1) - Number(a.oldest_ms ?? -1) || Number(b.depth) - Number(a.depth))];
}

function concernOf(channel) {
  return {
    topic: channel.topicName, channel: channel.channel_name, sentence: channel.problem, depth: channel.depth,
    oldest_ms: channel.oldest_unfinished_ms, is_older: channel.doctor?.is_older,
  };
}

// Properties: `concerns`, as api/live/attention has them, and `isWhole`, false if the server has not told its own yet.
export function Attention({ concerns, isWhole }) {
  const [showsAll, setShowsAll] = useState(false);
  if (concerns.length === 0 && !isWhole) return null;
  if (concerns.length === 0) {
    return html`<p class="bar good" role="status"><b>Nothing needs attention.</b> Consumers keep up, or nothing waits.</p>`;
  }
  const shown = showsAll ? concerns : concerns.slice(0, SHOWN);
  const rest = concerns.length - shown.length;
  return html`<section class="problems" aria-labelledby="problems">
    <h2 id="problems">${many(concerns.length, "thing needs", "things need")} attention</h2>
    <ul>${shown.map((concern) => html`<li key=${`${nameOf(concern)} ${concern.sentence.slice(0, 20)}`}>
      <a href=${linkTo(concern)}>${nameOf(concern)}</a>
      <span class="facts">${factsOf(concern)}</span>
      <span class="sentence">${concern.sentence.replace(/\.$/, "")}.${concern.is_retried && html` <a
        href=${attemptsOf(concern)}>Messages with the most attempts</a>`}</span></li>`)}</ul>
    ${rest > 0 && html`<p><button type="button" class="small" onClick=${() => setShowsAll(true)}>and ${rest} more</button></p>`}
  </section>`;
}

function nameOf({ lookupd, node, topic, channel }) {
  return lookupd ?? node ?? (channel ? `${topic} / ${channel}` : topic);
}

function linkTo({ lookupd, node, topic, channel }) {
  if (lookupd) return link("lookup");
  if (node) return link("nodes", node);
  return channel ? link("topics", topic, channel) : link("topics", topic);
}

// The messages of a channel that are delivered again and again, with their bodies.
function attemptsOf({ topic, channel }) {
  return `${link("peek", topic, channel)}?from=attempts`;
}

function factsOf(concern) {
  if (concern.lookupd) return "nsqlookupd";
  if (concern.node) return "node";
  return html`${count(concern.depth)} waiting${concern.oldest_ms > 0 && html`, oldest <${Age} ms=${concern.oldest_ms} isOlder=${concern.is_older} />`}`;
}
