// The figures of the last hour, kept for as long as the page is open, for charts.

import { ask } from "./api.js";
import { facts } from "./store.js";

// The most points of one series. At one poll in two seconds, this is an hour.
const POINTS_MAX = 1800;

// The most series that are kept. The one that was used longest ago is forgotten first.
const SERIES_MAX = 200;

const kept = new Map();

// Points over time: `times` in Unix seconds, and one array per figure.
export class Series {
  times = [];
  figures = {};
  // Changes with each point, so that a chart knows when to draw.
  version = 0;

  // Adds a point. A figure that is missing becomes null, which is a gap in the chart.
  add(at, values) {
    const time = at / 1000;
    if (this.times.length > 0 && time <= this.times.at(-1)) return;
    for (const name of Object.keys(values)) this.figures[name] ??= Array(this.times.length).fill(null);
    this.times.push(time);
    for (const [name, array] of Object.entries(this.figures)) {
      const value = values[name];
      array.push(value === undefined || value === null ? null : Number(value));
    }
    if (this.times.length > POINTS_MAX * 1.1) {
      const surplus = this.times.length - POINTS_MAX;
      this.times.splice(0, surplus);
      for (const array of Object.values(this.figures)) array.splice(0, surplus);
    }
    this.version += 1;
  }

  // Puts the points of an earlier time in front of those that are there.
  prepend(times, figures) {
    const until = this.times[0] ?? Infinity;
    const used = times.filter((time) => time < until - 0.5).length;
    if (used === 0) return;
    const had = this.times.length;
    for (const name of new Set([...Object.keys(figures), ...Object.keys(this.figures)])) {
      const earlier = figures[name]?.slice(0, used) ?? Array(used).fill(null);
      this.figures[name] = [...earlier, ...(this.figures[name] ?? Array(had).fill(null))];
    }
    this.times = [...times.slice(0, used), ...this.times];
    this.version += 1;
  }
}

// Returns the series with this name, which is empty at first.
export function series(name) {
  const found = kept.get(name) ?? new Series();
  kept.delete(name);
  kept.set(name, found);
  if (kept.size > SERIES_MAX) kept.delete(kept.keys().next().value);
  return found;
}

// Asks the server for the figures of the last minutes, if it keeps them, and puts them in front. Charts do without them if the
// server has none. Returns true if there were some.
export async function loadHistory(series, topic, channel) {
  if (series.isLoaded) return false;
  series.isLoaded = true;
  if (!(await facts.known()).has_history) return false;
  const query = new URLSearchParams({ topic, ...(channel && { channel }) });
  let answer;
  try {
    answer = await ask(`api/live/history?${query}`);
  } catch {
    return false;
  }
  const { times, message, ...figures } = answer;
  if (!Array.isArray(times) || times.length === 0) return false;
  series.prepend(times, chartFigures(times, figures));
  return true;
}

// Counters become rates, and gauges stay.
function chartFigures(times, figures) {
  const rate = (values) => values?.map((value, index) => {
    const [before, seconds] = [values[index - 1], times[index] - times[index - 1]];
    const grown = Number(value) - Number(before);
    return index === 0 || value === null || before === null || grown < 0 ? null : grown / seconds;
  });
  const gauge = (values) => values?.map((value) => value === null ? null : Number(value));
  const found = {
    depth: gauge(figures.depth),
    inFlight: gauge(figures.in_flight_count),
    deferred: gauge(figures.deferred_count),
    oldest: gauge(figures.oldest_unfinished_ms)?.map((value) => value === null ? null : value / 1000),
    arrivals: rate(figures.message_count),
    done: rate(figures.finish_count),
    requeues: rate(figures.requeue_count),
    timeouts: rate(figures.timeout_count),
  };
  return Object.fromEntries(Object.entries(found).filter(([, values]) => values));
}
