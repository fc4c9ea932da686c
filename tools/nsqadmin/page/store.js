// Values that several parts of the page share: the facts of the server, the hold switch, the theme.

import { useEffect, useState } from "./html.js";

class Store {
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

// The time of the last request that may have changed something, in milliseconds since 1970. 0 before the first one.
export const lastAct = new Store(0);

// Draws the component again after each change of `store`. Returns the present value.
export function useStore(store) {
  const [, redraw] = useState(0);
  useEffect(() => store.listen(() => redraw((count) => count + 1)), [store]);
  return store.get();
}

// Chooses the theme, and keeps the choice for the next visit.
export function chooseTheme(choice) {
  if (choice === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
  try {
    localStorage.setItem("theme", choice);
  } catch {
    // Without storage, the choice holds until the page is closed.
  }
  theme.set(choice);
}
