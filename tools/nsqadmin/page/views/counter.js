// One large number: the messages that all channels have got.

import { html, useEffect, useRef, useState } from "../html.js";
import { ask } from "../api.js";
import { PollBars } from "../bars.js";
import { difference, plus } from "../exact.js";
import { count, rate } from "../format.js";
import { Graphs } from "../graphite.js";
import { usePoll } from "../poll.js";
import { held, useStore } from "../store.js";

export function Counter() {
  // `total` never goes down: a node that is gone, or restarted, takes nothing away.
  const [state, setState] = useState({ total: null, parts: null, at: null, perSecond: null, joined: 0 });
  const poll = usePoll("counter", (signal) => ask("api/counter", { signal }), ({ stats }, at) =>
    setState((state) => next(state, stats ?? {}, at)));
  const shown = useRunning(state);
  return html`
    <h1 class="hidden">Counter</h1>
    <${PollBars} poll=${poll} what="The counter" />
    <div class="counter"><p class="digits" aria-hidden="true">${count(shown)}</p>
      <p class="hidden" role="status">${count(state.total)} messages processed</p>
      <p>Messages processed${state.perSecond !== null && html`, <b>${rate(state.perSecond)}</b> per second`}</p>
      <p class="note">The messages of all channels since their nodes were started.</p></div>
    <${Graphs} kind="all" />`;
}

// Adds what each part has grown by. A part that became smaller has started again from zero. All messages of a part that is new belong to
// the total (`joined`), but not to the rate: its node may have answered for the first time.
export function next({ total, parts, at: before }, stats, at) {
  const now = new Map(Object.entries(stats).map(([key, part]) => [key, part.message_count]));
  if (parts === null) {
    const sum = [...now.values()].reduce((sum, value) => plus(sum, value), 0);
    return { total: sum, parts: now, at, perSecond: null, joined: 0 };
  }
  let [grown, joined] = [0, 0];
  for (const [key, value] of now) {
    const more = difference(value, parts.get(key) ?? 0);
    if (!parts.has(key)) joined = plus(joined, value);
    else grown = plus(grown, more < 0 ? value : more);
  }
  const perSecond = Number(grown) / ((at - before) / 1000);
  return { total: plus(plus(total, grown), joined), parts: new Map([...parts, ...now]), at, perSecond, joined };
}

// The number between two polls: it runs at the last rate, never beyond the last total, and never back. Messages of new parts count at once.
function useRunning({ total, perSecond, joined }) {
  const [shown, setShown] = useState(total);
  const last = useRef(total);
  const isHeld = useStore(held);
  useEffect(() => {
    const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (total === null || last.current === null || isStill || isHeld || !(perSecond > 0)) {
      last.current = total;
      setShown(total);
      return undefined;
    }
    const [begun, from] = [performance.now(), plus(last.current, joined)];
    let frame = requestAnimationFrame(function step() {
      const run = Math.round((perSecond * (performance.now() - begun)) / 1000);
      const value = difference(total, from) <= run ? total : plus(from, run);
      last.current = value;
      setShown(value);
      if (value !== total) frame = requestAnimationFrame(step);
    });
    return () => cancelAnimationFrame(frame);
  }, [total, isHeld]);
  return shown;
}
