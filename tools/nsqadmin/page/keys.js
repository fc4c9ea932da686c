// The keyboard. Tables take the arrows, dialogs take everything.

import { useEffect } from "./html.js";
import { held } from "./store.js";

// The keys, as the help shows them.
export const KEYS = [
  ["/", "go to the search field"],
  ["↓ ↑", "next and previous row (also Page Down, Page Up, Home, End)"],
  ["Enter", "open the row"],
  ["Esc", "leave the search field, and empty it; else go one level up"],
  ["h", "hold all live updates, or go on"],
  ["?", "this help"],
  ["0 … 8", "in the dialog of a pause: choose its end, and go to the note. Enter confirms"],
];

// The tables of the page that take the arrows, in the order of the page.
const tables = [];

// Registers a table: {root(), move(step), edge(isEnd)}. `root()` is its element.
export function useTableKeys(table) {
  useEffect(() => {
    tables.push(table);
    return () => tables.splice(tables.indexOf(table), 1);
  }, [table]);
}

// Calls these for keys that belong to no table: {help(), up()}.
export function useKeys(actions) {
  useEffect(() => {
    const listener = (event) => press(event, actions);
    addEventListener("keydown", listener);
    return () => removeEventListener("keydown", listener);
  }, [actions]);
}

const STEPS = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15 };

function press(event, actions) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const field = event.target.closest?.("input, select, textarea");
  const isSearch = field?.type === "search";
  if (event.key === "Escape") return escape(event, field, actions);
  if (field && !(isSearch && event.key in STEPS)) return;
  if (event.key in STEPS || ((event.key === "Home" || event.key === "End") && tableOf(document.activeElement))) {
    const table = tableOf(event.target) ?? tables[0];
    // Without a table, the arrows scroll.
    if (!table) return;
    event.preventDefault();
    if (event.key in STEPS) table.move(STEPS[event.key]);
    else table.edge(event.key === "End");
  } else if (event.key === "/") {
    event.preventDefault();
    document.querySelector("input[type=search]")?.focus();
  } else if (event.key === "h") {
    held.set(!held.get());
  } else if (event.key === "?") {
    event.preventDefault();
    actions.help();
  }
}

function tableOf(element) {
  return tables.find((table) => table.root()?.contains(element));
}

function escape(event, field, actions) {
  if (field) {
    if (field.type === "search" && field.value) {
      field.value = "";
      field.dispatchEvent(new Event("input", { bubbles: true }));
    }
    field.blur();
  } else if (document.activeElement !== document.body && tableOf(document.activeElement)) {
    document.activeElement.blur();
  } else {
    actions.up();
  }
  event.preventDefault();
}
