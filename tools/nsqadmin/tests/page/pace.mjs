// The pace of the machine. Checks of times hold the goals of docs/reference/nsqadmin.md on a quiet machine. Other work makes everything slower, so a
// busy machine gets more time.

import { loadavg } from "node:os";

// The load from which on the machine counts as busy. It is an average of the last minute.
const BUSY_LOAD = 1.5;

// The largest factor of a quiet machine, and the factor of a busy one.
export const QUIET_FACTOR_MAX = 2;
const BUSY_FACTOR = 10;

// The time of `work` on the machine of docs/reference/nsqadmin.md, while that was quiet, in milliseconds. The median of the repetitions counts.
const [WORK_MS, REPEATS] = [11, 9];

export class Pace {
  #largest = 1;

  // The pace at the begin of a check counts as well as that at its end.
  constructor() {
    this.#take();
  }

  // The factor by which times may exceed the goals: 1 to 2 on a quiet machine, depending on its load and its speed, and 10 on a busy one.
  factor() {
    this.#take();
    return this.#largest;
  }

  #take() {
    // In CI, other tests run beside these, and begin and end at any time. The work would hold up the checks beside this one.
    if (process.env.CI) {
      this.#largest = BUSY_FACTOR;
      return;
    }
    const [load] = loadavg();
    const quiet = Math.max(1 + load / BUSY_LOAD, workTime() / WORK_MS);
    this.#largest = Math.max(this.#largest, quiet < QUIET_FACTOR_MAX ? quiet : BUSY_FACTOR);
  }
}

// The result of the last work. Without it, the compiler could leave the work out.
let result = 0;

// The time of a fixed work in milliseconds. It is longer on a slow machine, and while other processes want the cores.
function workTime() {
  const times = Array.from({ length: REPEATS }, () => {
    const begun = performance.now();
    result = work();
    return performance.now() - begun;
  });
  return times.toSorted((a, b) => a - b)[Math.floor(REPEATS / 2)];
}

function work() {
  let state = result;
  for (let turn = 0; turn < 10_000_000; turn += 1) state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0;
  return state;
}
