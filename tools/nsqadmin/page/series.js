// The points of charts: those that the page has seen, kept for as long as it is open, and those that the server keeps.

// The most points of the page's own in one series. At one poll in two seconds, this is an hour.
const POINTS_MAX = 1800;

// The most series that are kept. The one that was used longest ago is forgotten first.
const SERIES_MAX = 200;

// The seconds between two points of the page's own from which on the server's points are shown in between: after a sleep of the
// computer, or while updates were held.
const GAP = 60;

const kept = new Map();

// Points over time: `times` in Unix seconds, and one array per figure.
export class Series {
  times = [];
  figures = {};
  // The server's past by its step in seconds: see past.js.
  pasts = new Map();
  // Changes with each point.
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
