// The past of a topic, a channel or a node that the server keeps, and the choice of the time that charts show.

import { html, useEffect, useMemo, useState } from "./html.js";
import { ask } from "./api.js";
import { age } from "./format.js";
import { setQuery, useRoute } from "./route.js";
import { series, together } from "./series.js";
import { facts, serverNow, useStore } from "./store.js";

// The times that charts can show, and the steps of the server's past for them, both in seconds. The server keeps its steps of 1 s for
// ten minutes, of 10 s for six hours, and of 60 s for seven days (`TIERS` in history.rs).
const RANGES = {
  "10m": { title: "10 min", spoken: "10 minutes", seconds: 600, step: 1 },
  "1h": { title: "1 h", spoken: "hour", seconds: 3600, step: 10 },
  "6h": { title: "6 h", spoken: "6 hours", seconds: 21_600, step: 10 },
  "7d": { title: "7 d", spoken: "7 days", seconds: 604_800, step: 60 },
};
const FIRST = "1h";

// The time after which the past is asked for again, in milliseconds. The page's own points reach back longer.
const AGE_MAX = 600_000;

// The time after which a failed question is asked again, in milliseconds.
const RETRY = 20_000;

const NOTHING = { times: [], figures: {} };

// Returns the points that the charts of a subject show. `name` is that of the series. `subject` has the parameters of
// api/live/history. Returns `own`, the series to which new points are added, `shown` ({times, figures}), `failure`: why there
// is no past, or null, and `keptSince`: the time in seconds before which the server has dropped points, or undefined.
export function usePast(name, subject) {
  const own = series(name);
  const isKept = useStore(facts)?.live === true;
  const { seconds, step } = RANGES[useRange()];
  const [, redraw] = useState(0);
  const past = own.pasts.get(step);
  useEffect(() => {
    if (!isKept || !isDue(own, step)) return;
    load(own, step, subject).then(() => redraw((count) => count + 1));
  }, [isKept, own, step, own.version]);
  const points = past?.points ?? NOTHING;
  const shown = useMemo(() => together(points, own, seconds), [points, own, own.version, seconds]);
  return { own, shown, failure: past?.failure ?? null, keptSince: past?.keptSince };
}

function isDue(own, step) {
  const past = own.pasts.get(step);
  if (!past) return true;
  if (past.isLoading) return false;
  const age = serverNow() - past.at;
  return age > (past.failure ? RETRY : AGE_MAX) || (own.hasGap() && past.at / 1000 < own.times.at(-1));
}

// Asks the server for the past, and keeps the answer. The points of before stay if the server does not answer.
async function load(own, step, subject) {
  const before = own.pasts.get(step);
  own.pasts.set(step, { points: NOTHING, failure: null, ...before, isLoading: true });
  const keep = (change) => own.pasts.set(step, { ...own.pasts.get(step), ...change, at: serverNow(), isLoading: false });
  try {
    const answer = await ask(`api/live/history?${new URLSearchParams({ ...subject, step })}`);
    keep({ points: pointsOf(answer), failure: null, keptSince: answer.kept_since });
  } catch (error) {
    keep({ failure: error });
  }
}

// The points of the server's answer. Depths are exact. Charts calculate with ages, which a BigInt would not permit.
function pointsOf({ start, step, depth, rate, oldest_seconds: ages }) {
  const numbers = (figures) => figures.map((figure) => figure === null ? null : Number(figure));
  // Nodes that tell no age have 0.
  const oldest = ages.some((age) => age > 0) && { oldest: numbers(ages) };
  return { times: depth.map((_, index) => start + index * step), figures: { depth, arrivals: numbers(rate), ...oldest } };
}

// The range in the address.
function useRange() {
  const asked = useRoute().query.get("range");
  return Object.hasOwn(RANGES, asked ?? "") ? asked : FIRST;
}

// The choice of the time that the charts of `past` show, and why they have no past or a short one.
export function Ranges({ past }) {
  const chosen = useRange();
  if (!useStore(facts)?.live) return null;
  const note = past.failure ? reason(past.failure) : shortness(past.keptSince, RANGES[chosen].seconds);
  const choose = (key) => setQuery({ range: key === FIRST ? "" : key });
  return html`<div class="ranges"><div role="group" aria-label="Time that the charts show">
    ${Object.entries(RANGES).map(([key, { title, spoken }]) => html`<button type="button" key=${key} class="small" aria-pressed=${key === chosen}
      title=${`Show the last ${spoken}`} onClick=${() => choose(key)}>${title}</button>`)}</div>
    ${note && html`<span class="note" role="status">${note}</span>`}</div>`;
}

const NO_PAST = {
  HISTORY_NOT_FOUND: "this is new",
  HISTORY_FULL: "there is no room (--history-max-bytes)",
};

function reason({ raw, message }) {
  if (!Object.hasOwn(NO_PAST, raw)) return `The charts lack their past: ${message}`;
  return `The server keeps no past here: ${NO_PAST[raw]}. The charts begin when the page is opened.`;
}

// Says why charts of so many seconds begin late, if the server has dropped points of this time.
function shortness(keptSince, seconds) {
  const ago = serverNow() / 1000 - keptSince;
  if (keptSince === undefined || ago >= seconds) return null;
  return `The past reaches back ${age(ago * 1000)} only: the server has no room for more (--history-max-bytes).`;
}
