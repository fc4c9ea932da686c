// The address of the page: its view and its query. Links inside the page load no new document.

import { useEffect, useState } from "./html.js";

const BASE = new URL(document.baseURI).pathname;
// A relative base would count from the next address, once the page has changed it.
document.querySelector("base").href = document.baseURI;
const listeners = new Set();

// The address of a view, such as link("topics", "orders"). Without arguments, the list of topics.
export function link(...segments) {
  return BASE + segments.map(escaped).join("/");
}

// A segment of an address. Browsers remove the segments . and .. from addresses, which nsqd takes as names: the address of the channel
// "orders" of the topic "." would be that of the topic "orders". So both have a ~ in front, which no name of a topic or channel has.
export function escaped(segment) {
  return encodeURIComponent(segment).replace(/^\.{1,2}$/, "~$&");
}

// The present view and query. `segments` are the decoded parts of the path below the base path.
function present() {
  const path = location.pathname;
  const below = path.startsWith(BASE) ? path.slice(BASE.length) : "";
  return { segments: below.split("/").filter(Boolean).map(decode), query: new URLSearchParams(location.search) };
}

function decode(segment) {
  try {
    return decodeURIComponent(segment).replace(/^~(?=\.{1,2}$)/, "");
  } catch {
    return segment;
  }
}

// The parameters of the query that stay from view to view.
const LASTING = ["range"];

// Goes to another view.
export function go(href) {
  history.pushState(null, "", withLasting(href));
  window.scrollTo(0, 0);
  changed();
}

// Adds the lasting parameters of the present address.
function withLasting(href) {
  const url = new URL(href, location.href);
  const present = new URLSearchParams(location.search);
  for (const name of LASTING) if (present.has(name) && !url.searchParams.has(name)) url.searchParams.set(name, present.get(name));
  return url;
}

// Sets parameters of the query without a new entry in the browser's history. An empty value removes its parameter.
export function setQuery(changes) {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(changes)) {
    if (value) url.searchParams.set(name, value);
    else url.searchParams.delete(name);
  }
  history.replaceState(null, "", url);
  changed();
}

function changed() {
  for (const listener of [...listeners]) listener();
}

// Draws the component again when the address changes.
export function useRoute() {
  const [route, setRoute] = useState(present);
  useEffect(() => {
    const listener = () => setRoute(present());
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, []);
  return route;
}

addEventListener("popstate", changed);

document.addEventListener("click", (event) => {
  const anchor = event.target.closest?.("a[href]");
  const isPlain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
  if (!anchor || !isPlain || event.defaultPrevented || anchor.target || anchor.origin !== location.origin) return;
  if (!anchor.pathname.startsWith(BASE)) return;
  event.preventDefault();
  go(anchor.href);
});
