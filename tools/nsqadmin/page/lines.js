// Long lists, which are read in slices: a list of 10,000 topics takes longer than the 50 ms after which a page feels slow.

import { parse } from "./exact.js";

// The time after which work gives way to the browser, in milliseconds.
const SLICE = 12;

// Work that gives way to clicks, keys and frames: after each item, `if (slices.areOver()) await slices.next()`.
export class Slices {
  #began = performance.now();

  areOver() {
    return performance.now() - this.#began > SLICE;
  }

  async next() {
    await new Promise((resolve) => setTimeout(resolve));
    this.#began = performance.now();
  }
}

// Reads answers whose list has a line for each entry, again and again. An entry whose line is the same as before is the same object as
// before, and costs almost nothing.
export class Lines {
  #name;
  #make;
  #entries = new Map();

  // `name` is the key of the list, and `make(entry)` returns what stands for an entry.
  constructor(name, make) {
    this.#name = name;
    this.#make = make;
  }

  // Throws a SyntaxError as JSON.parse does.
  async read(text) {
    const lines = text.split("\n");
    // A server of another version has everything in one line.
    if (lines.length < 3) {
      const data = parse(text);
      return { ...data, [this.#name]: data[this.#name]?.map(this.#make) };
    }
    const data = parse(lines[0] + lines.at(-1));
    const [entries, slices] = [new Map(), new Slices()];
    for (let index = 1; index < lines.length - 1; index += 1) {
      const line = lines[index];
      entries.set(line, this.#entries.get(line) ?? this.#make(parse(line.endsWith(",") ? line.slice(0, -1) : line)));
      if (slices.areOver()) await slices.next();
    }
    this.#entries = entries;
    return { ...data, [this.#name]: [...entries.values()] };
  }
}
