// Rates: what the page computes from two samples of counters.

import { difference } from "./exact.js";

// Two samples closer than this give no rate, in milliseconds: the server may have answered both from one sample.
const CLOSEST = 500;

// The last two samples of many things, by name.
export class Samples {
  #last = new Map();

  // Takes a new sample of `name` with these figures. Returns the earlier figures and the seconds since, or null. What
  // comes too soon after the last sample is compared with the one before. `nodes` says of which nodes the figures are a sum. If these
  // have changed, there are no earlier figures: a node that comes back would look like a burst of all its messages. The same holds if
  // the clock has gone back.
  take(name, at, figures, nodes = "") {
    const last = this.#last.get(name);
    const known = last?.nodes === nodes && at >= last.at ? last : undefined;
    if (known && at - known.at < CLOSEST) return known.before && compare(known.before, at);
    this.#last.set(name, { at, figures, nodes, before: known && { at: known.at, figures: known.figures } });
    return known ? compare(known, at) : null;
  }

  // Forgets the things that are not in `names`.
  keep(names) {
    for (const name of this.#last.keys()) if (!names.has(name)) this.#last.delete(name);
  }
}

function compare(sample, at) {
  return { figures: sample.figures, seconds: (at - sample.at) / 1000 };
}

// The growth of a counter per second, or null: without an earlier figure, and after a restart, which sets counters back.
export function perSecond(before, name, now) {
  if (!before || now === undefined || before.figures[name] === undefined) return null;
  const grown = difference(now, before.figures[name]);
  return grown < 0 ? null : grown / before.seconds;
}

// The change of a gauge per second, or null.
export function change(before, name, now) {
  if (!before || now === undefined || before.figures[name] === undefined) return null;
  return difference(now, before.figures[name]) / before.seconds;
}
