// Values that several parts of the page share: the facts of the server, the hold switch, the theme.

import { useEffect, useState } from "./html.js";

export class Store {
  #value;
  #listeners = new Set();

  constructor(value) {
    this.#value = value;
  }

  get() {
    return this.#value;
  }

  set(value) {
    if (value === this.#value) return;
    this.#value = value;
    for (const listener of [...this.#listeners]) listener(value);
  }

  // Waits for a value that is not null.
  async known() {
    if (this.#value === null) await new Promise((resolve) => {
      const end = this.listen(() => {
        end();
        resolve();
      });
    });
    return this.#value;
  }

  // Calls `listener` after each change. Returns the function that ends this.
  listen(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

// The answer of api/settings, or null until the server has given it.
export const facts = new Store(null);

// True while the user holds all live updates.
export const held = new Store(false);

// "light", "dark" or "system".
export const theme = new Store(document.documentElement.dataset.theme ?? "system");

// The time of the last answer of the server, or null.
export const lastAnswer = new Store(null);

// The milliseconds by which the server's clock is ahead of the browser's. Answers tell whole seconds, so a smaller change than AHEAD_STEP
// counts as none.
let ahead = 0;
const AHEAD_STEP = 5000;

// Takes the server's time from the header Date of an answer that has just come.
export function noteServerTime(date) {
  const found = Date.parse(date) - Date.now();
  if (Math.abs(found - ahead) > AHEAD_STEP) ahead = found;
}

// The server's time, in milliseconds since 1970. Figures and their past have times of the server, whatever the browser's clock says.
export function serverNow() {
  return Date.now() + ahead;
}

// The time of the last request that may have changed something: that of performance.now(). 0 before the first one.
export const lastAct = new Store(0);

// Draws the component again after each change of `store`. Returns the present value.
export function useStore(store) {
  const [, redraw] = useState(0);
  useEffect(() => store.listen(() => redraw((count) => count + 1)), [store]);
  return store.get();
}

// A value of an earlier visit, or null.
export function kept(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

// Keeps a value for the next visit.
export function keep(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // Without storage, the value holds until the page is closed.
  }
}

// Chooses the theme, and keeps the choice for the next visit.
export function chooseTheme(choice) {
  if (choice === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
  keep("theme", choice);
  theme.set(choice);
}
