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

// The steps of the server's past that are asked for, in seconds, and the points of an hour.
const STEP = 10;
const PAST_MAX = 360;

// Asks the server for the last hour of a topic (`{topic}`), a channel (`{topic, channel}`) or a node (`{node}`), if it keeps live
// figures, and puts the points in front. Returns true if there were some.
export async function loadHistory(series, subject) {
  if (series.isLoaded) return false;
  series.isLoaded = true;
  if (!(await facts.known()).live) return false;
  let answer;
  try {
    answer = await ask(`api/live/history?${new URLSearchParams({ ...subject, step: STEP })}`);
  } catch {
    // A subject that is new has no past, and the chart begins now.
    return false;
  }
  const last = (values) => values.slice(-PAST_MAX);
  const times = last(answer.depth.map((_, index) => answer.start + index * STEP));
  const figures = { depth: last(answer.depth), arrivals: last(answer.rate) };
  const ages = last(answer.oldest_seconds);
  // Nodes that tell no age have 0.
  if (ages.some((age) => age > 0)) figures.oldest = ages;
  if (!figures.depth.some((depth) => depth !== null)) return false;
  series.prepend(times, figures);
  return true;
}
