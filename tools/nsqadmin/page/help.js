// The help: keys, and what the figures mean.

import { html, useEffect, useRef } from "./html.js";
import { KEYS } from "./keys.js";
import { facts, useStore } from "./store.js";

const WORDS = [
  ["Oldest", "the age of the oldest message that no consumer has finished. With ▲ it gets older all the time: nobody finishes that message"],
  ["Depth", "messages that wait; for a topic or a node, those in channels are among them. Messages in flight and deferred ones are not"],
  ["In flight", "messages that consumers have got and not finished"],
  ["Deferred", "messages that wait for a time: published with a delay, or requeued with one"],
  ["Drained in", "the time until no message waits, if messages come and go as in the last five seconds"],
  ["Requeued", "how often consumers have given a message back"],
  ["Timed out", "how often a consumer has taken too long for a message, so that it was delivered again"],
  ["Duplicates", "messages that came again and were not stored, in a topic with a rule of --dedup; or in a sample, those with a body, or a value in it, that has come before"],
  ["Done/s", "messages that left the channel: finished, or emptied"],
  ["Rates", "are computed by this page from two answers, so the first ones appear after two seconds. The buttons above the charts choose the time that they show, if the server remembers the past"],
];

export function Help({ onClose }) {
  const dialog = useRef();
  const known = useStore(facts);
  useEffect(() => dialog.current.showModal(), []);
  return html`<dialog ref=${dialog} class="help" aria-labelledby="help-title" onClose=${onClose}>
    <h2 id="help-title">Help</h2>
    <h3>Keys</h3>
    <dl>${KEYS.map(([key, effect]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${effect}</dd></div>`)}</dl>
    <h3>Words</h3>
    <dl>${WORDS.map(([word, meaning]) => html`<div key=${word}><dt>${word}</dt><dd>${meaning}</dd></div>`)}</dl>
    <p class="note">${known && `nsqadmin ${known.version}. `}<a href="https://nsq.io/" target="_blank" rel="noreferrer">NSQ's documentation</a></p>
    <div class="buttons"><button type="button" class="primary" onClick=${() => dialog.current.close()}>Close</button></div>
  </dialog>`;
}
