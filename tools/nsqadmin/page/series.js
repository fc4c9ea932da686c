// The points of charts: those that the page has seen, kept for as long as it is open, and those that the server keeps.

// The most points of the page's own in one series. At one poll in two seconds, this is an hour.
const POINTS_MAX = 1800;

// The most series that are kept. The one that was used longest ago is forgotten first.
const SERIES_MAX = 200;

// The seconds between two points of the page's own from which on the server's points are shown in between: after a sleep of the
// computer, or while updates were held.
const GAP = 60;

const kept = new Map();

// Points over time: `times` in Unix seconds, and one array per figure. A figure above 2^53 is a BigInt.
export class Series {
  times = [];
  figures = {};
  // The server's past by its step in seconds: see past.js.
  pasts = new Map();
  // Changes with each point.
  version = 0;

  // Adds a point. A figure that is missing becomes null, which is a gap in the chart. If the clock has gone back, the points in its future
  // go, and the server is asked anew for its own.
  add(at, values) {
    const time = at / 1000;
    if (time === this.times.at(-1)) return;
    const kept = this.times.findLastIndex((known) => known < time) + 1;
    if (kept < this.times.length) {
      this.#remove(kept, this.times.length - kept);
      this.pasts.clear();
    }
    for (const name of Object.keys(values)) this.figures[name] ??= Array(this.times.length).fill(null);
    this.times.push(time);
    for (const [name, array] of Object.entries(this.figures)) {
      const value = values[name];
      array.push(value ?? null);
    }
    if (this.times.length > POINTS_MAX * 1.1) this.#remove(0, this.times.length - POINTS_MAX);
    this.version += 1;
  }

  #remove(start, count) {
    for (const array of [this.times, ...Object.values(this.figures)]) array.splice(start, count);
  }

  // True if some time has passed between the last two points without a point.
  hasGap() {
    return this.times.at(-1) - this.times.at(-2) > GAP;
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

// Returns the points of the last `seconds`: {times, figures}. `past` has the server's points, which are shown where `own` has none.
export function together(past, own, seconds) {
  const picks = [];
  let next = 0;
  past.times.forEach((time, index) => {
    for (; own.times[next] <= time; next += 1) picks.push([own, next]);
    if (time - (own.times[next - 1] ?? -Infinity) > GAP) picks.push([past, index]);
  });
  for (; next < own.times.length; next += 1) picks.push([own, next]);
  const end = picks.length > 0 ? timeOf(picks.at(-1)) : 0;
  const shown = picks.filter((pick) => timeOf(pick) >= end - seconds);
  const names = new Set([...Object.keys(own.figures), ...Object.keys(past.figures)]);
  const figures = [...names].map((name) => [name, shown.map(([part, index]) => part.figures[name]?.[index] ?? null)]);
  return { times: shown.map(timeOf), figures: Object.fromEntries(figures) };
}

function timeOf([part, index]) {
  return part.times[index];
}
