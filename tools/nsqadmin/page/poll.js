// Live updates: a view asks again and again while it is open, unless the user holds all updates.

import { useEffect, useRef, useState } from "./html.js";
import { held, serverNow } from "./store.js";

// The time between two polls, in milliseconds: in a visible page, and in one behind others.
const INTERVAL = 2000;
const INTERVAL_HIDDEN = 10_000;

// The server may say in how many milliseconds it will know more (`next_ms`). The next poll comes a little later, but not at once.
const [LATER, SOONEST] = [50, 500];

// The time without newer figures after which those that are shown are called old, in milliseconds.
const OLD = 15_000;

// An answer that is expensive is asked for less often: this many times its duration passes between two polls, and at most IDLE_MAX
// milliseconds. An answer may also take long because a server hangs, and its figures must not become old for that.
const [IDLE_SHARE, IDLE_MAX] = [8, 8000];

// The time between two looks at the age of the figures, in milliseconds. More time between two looks counts as this much: the computer
// slept, or the browser had put the page to sleep.
const TICK = 1000;
const TICK_MAX = 2 * TICK;

// Calls `load(signal)` at once and then regularly. `key` names what is loaded. When the key changes, everything starts
// again. `onData(data, at)` sees each answer once, before it is drawn. `interval` is the time between two polls.
//
// Returns `data` (null before the first answer), `error` (of the last poll, or null), `failedSince` (a Date of the server's clock), `at` (the
// server's time of the data in milliseconds), `isOld` (true if there were no newer figures for long, although the page was visible and not
// held), and `reload()`, which asks now, also while updates are held.
export function usePoll(key, load, onData, interval = INTERVAL) {
  const [state, setState] = useState({ key, data: null, error: null, failedSince: null, at: null });
  const latest = useRef();
  latest.current = { load, onData };
  const poller = useRef(null);
  useEffect(() => {
    poller.current = start(() => latest.current, interval, (change) => {
      setState((state) => ({ ...(state.key === key ? state : { data: null, failedSince: null, at: null }), key, ...change(state) }));
    });
    return poller.current.stop;
  }, [key]);
  const shown = state.key === key ? state : { data: null, error: null, failedSince: null, at: null };
  return { ...shown, reload: () => poller.current.now() };
}

function start(latest, interval, update) {
  let [timer, stopped, running, again, nextMs] = [0, false, null, false, undefined];
  // The server's time of the last figures, and for how many milliseconds the page has waited for newer ones. The clocks of both may differ.
  let [sampledAt, waited, ticked, wasOld] = [undefined, 0, performance.now(), false];
  const cancel = new AbortController();

  // Returns true if the figures are old.
  function count() {
    const now = performance.now();
    if (!document.hidden && !held.get()) waited += Math.min(now - ticked, TICK_MAX);
    ticked = now;
    return waited > OLD;
  }

  async function cycle(isAsked) {
    clearTimeout(timer);
    if (running) {
      again ||= isAsked;
      return running;
    }
    const begun = performance.now();
    running = once(isAsked);
    const hasData = await running;
    running = null;
    if (stopped) return;
    if (again) {
      again = false;
      return cycle(true);
    }
    const due = nextMs === undefined ? interval : Math.min(Math.max(nextMs + LATER, SOONEST), INTERVAL_HIDDEN);
    const least = document.hidden ? Math.max(due, INTERVAL_HIDDEN) : due;
    const idle = hasData ? Math.min(IDLE_SHARE * (performance.now() - begun), IDLE_MAX) : 0;
    if (!held.get()) timer = setTimeout(cycle, Math.max(least, idle));
  }

  // Returns true if there was an answer.
  async function once(isAsked) {
    try {
      nextMs = undefined;
      const data = await latest().load(cancel.signal);
      nextMs = data.next_ms;
      // An automatic answer that comes after the user has held all updates changes nothing.
      if (stopped || (held.get() && !isAsked)) return true;
      const at = Number(data.sampled_at ?? serverNow());
      if (data.sampled_at === undefined || data.sampled_at !== sampledAt) [sampledAt, waited, ticked] = [data.sampled_at, 0, performance.now()];
      const isOld = wasOld = count();
      latest().onData?.(data, at);
      update(() => ({ data, at, isOld, error: null, failedSince: null }));
      return true;
    } catch (error) {
      if (!stopped) update((state) => ({ error, failedSince: state.failedSince ?? new Date(serverNow()) }));
      return false;
    }
  }

  const ticker = setInterval(() => {
    const isOld = count();
    if (isOld === wasOld) return;
    wasOld = isOld;
    update(() => ({ isOld }));
  }, TICK);

  const unlisten = held.listen((isHeld) => {
    clearTimeout(timer);
    if (!isHeld) cycle(false);
  });
  const onVisible = () => {
    // An update that runs may have waited for the browser, which delays the work of hidden pages. Another one follows at once.
    if (!document.hidden && !held.get()) cycle(true);
  };
  document.addEventListener("visibilitychange", onVisible);
  cycle(true);
  return {
    now: () => cycle(true),
    stop() {
      stopped = true;
      cancel.abort();
      clearTimeout(timer);
      clearInterval(ticker);
      unlisten();
      document.removeEventListener("visibilitychange", onVisible);
    },
  };
}
