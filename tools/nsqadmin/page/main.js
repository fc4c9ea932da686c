// The frame of the page: header, the view of the address, help.

import { html, render, useEffect, useMemo, useState } from "./html.js";
import { ask, sentence } from "./api.js";
import { Boundary } from "./boundary.js";
import { clock } from "./format.js";
import { Help } from "./help.js";
import { useKeys } from "./keys.js";
import { go, link, useRoute } from "./route.js";
import { chooseTheme, facts, held, lastAnswer, theme, useStore } from "./store.js";
import { Channel } from "./views/channel.js";
import { Counter } from "./views/counter.js";
import { Lookup } from "./views/lookup.js";
import { Messages } from "./views/messages.js";
import { Node } from "./views/node.js";
import { Nodes } from "./views/nodes.js";
import { Topic } from "./views/topic.js";
import { Topics } from "./views/topics.js";

// The time between two tries to get the facts of the server, in milliseconds.
const FACTS_RETRY = 3000;

function view([first, second, third, ...rest]) {
  if (rest.length > 0) return null;
  if (first === undefined || (first === "topics" && second === undefined)) return html`<${Topics} />`;
  if (first === "topics" && third === undefined) return html`<${Topic} key=${second} name=${second} />`;
  if (first === "topics") return html`<${Channel} key=${`${second}/${third}`} topic=${second} name=${third} />`;
  if (first === "peek" && second !== undefined) return html`<${Messages} key=${`${second}/${third}`} topic=${second} channel=${third} />`;
  if (first === "nodes" && second === undefined) return html`<${Nodes} />`;
  if (first === "nodes" && third === undefined) return html`<${Node} key=${second} name=${second} />`;
  if (first === "lookup" && second === undefined) return html`<${Lookup} />`;
  return first === "counter" && second === undefined ? html`<${Counter} />` : null;
}

function App() {
  const { segments } = useRoute();
  const [isHelpOpen, setHelpOpen] = useState(false);
  const failure = useFacts();
  const known = useStore(facts);
  const ignored = !known?.is_admin && known?.ignored_user;
  const keys = useMemo(() => ({ help: () => setHelpOpen(true), up }), []);
  useKeys(keys);
  const title = segments.slice(segments[0] === "topics" ? 1 : 0).join(" / ") || "topics";
  useEffect(() => {
    document.title = `${title} – nsqadmin`;
  }, [title]);
  return html`
    <${Header} section=${segments[0] === "peek" ? "topics" : segments[0] ?? "topics"} onHelp=${() => setHelpOpen(true)} />
    <main>
      ${failure && html`<div class="bar bad" role="alert"><b>The page does not know who you are, so it shows no actions.</b> ${failure.message}</div>`}
      ${ignored && html`<p class="bar warn" role="status"><b>The page does not know who you are.</b> ${sentence(ignored)}</p>`}
      <${Boundary} key=${segments.join("/")} what="This page">${view(segments) ?? html`<${NotFound} />`}<//>
    </main>
    ${isHelpOpen && html`<${Help} onClose=${() => setHelpOpen(false)} />`}`;
}

// The view of an address that no view has.
function NotFound() {
  return html`<h1>There is nothing here</h1>
    <p class="empty">nsqadmin has no page with the address <code>${location.pathname}</code>.</p>
    <p><a href=${link()}>All topics</a></p>`;
}

// One level up: from a channel to its topic, from there to the list.
function up() {
  const [first, ...rest] = new URL(location.href).pathname.slice(link().length).split("/").filter(Boolean);
  if (first === undefined) return;
  if (first === "peek") go(link("topics", ...rest.map(decodeURIComponent)));
  else if (rest.length === 0) go(link());
  else if (rest.length === 1) go(first === "topics" ? link() : link(first));
  else go(link(first, decodeURIComponent(rest[0])));
}

// Asks for the facts of the server until it gives them. Returns the failure meanwhile.
function useFacts() {
  const [failure, setFailure] = useState(null);
  useEffect(() => {
    let timer;
    const load = () => ask("api/settings").then(
      (answer) => {
        setFailure(null);
        facts.set(answer);
      },
      (error) => {
        setFailure(error);
        timer = setTimeout(load, FACTS_RETRY);
      },
    );
    load();
    return () => clearTimeout(timer);
  }, []);
  return failure;
}

const SECTIONS = [["topics", "Topics", []], ["nodes", "Nodes", ["nodes"]], ["lookup", "Lookup", ["lookup"]], ["counter", "Counter", ["counter"]]];

function Header({ section, onHelp }) {
  const known = useStore(facts);
  return html`<header>
    <a class="brand" href=${link()}>nsqadmin</a>
    <nav aria-label="Main">${SECTIONS.map(([key, title, path]) => html`<a key=${key} href=${link(...path)}
      aria-current=${key === section ? "page" : undefined}>${title}</a>`)}</nav>
    <div class="controls">
      <${Hold} />
      <${Theme} />
      <button type="button" onClick=${onHelp} aria-label="Help" title="Help ( ? )">?</button>
      ${known && html`<span class="who">${known.user ? `${known.user}${known.is_admin ? "" : " (may only look)"}` : known.is_admin ? "" : "may only look"}${" "}<span class="version">${known.version}</span></span>`}
    </div>
  </header>`;
}

// The switch that holds all live updates, with the time of the last answer.
function Hold() {
  const isHeld = useStore(held);
  const last = useStore(lastAnswer);
  return html`<button type="button" class=${isHeld ? "hold held" : "hold"} aria-pressed=${isHeld} title="Hold all live updates ( h )"
    onClick=${() => held.set(!isHeld)}><span class="dot" aria-hidden="true"></span>${isHeld ? "On hold" : "Live"}
    ${last && html`<small>${clock(last)}</small>`}</button>`;
}

function Theme() {
  const chosen = useStore(theme);
  return html`<select aria-label="Colours" value=${chosen} onChange=${(event) => chooseTheme(event.target.value)}>
    <option value="system">System</option><option value="light">Light</option><option value="dark">Dark</option></select>`;
}

render(html`<${App} />`, document.getElementById("app"));
