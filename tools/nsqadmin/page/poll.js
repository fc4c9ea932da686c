// Live updates: a view asks again and again while it is open, unless the user holds all updates.

import { useEffect, useRef, useState } from "./html.js";
import { held } from "./store.js";

// The time between two polls, in milliseconds: in a visible page, and in one behind others.
const INTERVAL = 2000;
const INTERVAL_HIDDEN = 10_000;

// An answer that is expensive is asked for less often: this many times its duration passes between two polls.
const IDLE_SHARE = 8;

// Calls `load(signal)` at once and then regularly. `key` names what is loaded. When the key changes, everything starts
// again. `onData(data, at)` sees each answer once, before it is drawn. `interval` is the time between two polls.
//
// Returns `data` (null before the first answer), `error` (of the last poll, or null), `failedSince` (a Date), `at` (the time
// of the data in milliseconds), and `reload()`, which asks now, also while updates are held.
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
  let [timer, stopped, running, again] = [0, false, null, false];
  const cancel = new AbortController();

  async function cycle(isAsked) {
    clearTimeout(timer);
    if (running) {
      again ||= isAsked;
      return running;
    }
    const begun = performance.now();
    running = once(isAsked);
    await running;
    running = null;
    if (stopped) return;
    if (again) {
      again = false;
      return cycle(true);
    }
    const least = document.hidden ? Math.max(interval, INTERVAL_HIDDEN) : interval;
    if (!held.get()) timer = setTimeout(cycle, Math.max(least, IDLE_SHARE * (performance.now() - begun)));
  }

  async function once(isAsked) {
    try {
      const data = await latest().load(cancel.signal);
      // An automatic answer that comes after the user has held all updates changes nothing.
      if (stopped || (held.get() && !isAsked)) return;
      const at = Number(data.sampled_at ?? Date.now());
      latest().onData?.(data, at);
      update(() => ({ data, at, error: null, failedSince: null }));
    } catch (error) {
      if (stopped) return;
      update((state) => ({ error, failedSince: state.failedSince ?? new Date() }));
    }
  }

  const unlisten = held.listen((isHeld) => {
    clearTimeout(timer);
    if (!isHeld) cycle(false);
  });
  const onVisible = () => {
    if (!document.hidden && !held.get()) cycle(false);
  };
  document.addEventListener("visibilitychange", onVisible);
  cycle(true);
  return {
    now: () => cycle(true),
    stop() {
      stopped = true;
      cancel.abort();
      clearTimeout(timer);
      unlisten();
      document.removeEventListener("visibilitychange", onVisible);
    },
  };
}
