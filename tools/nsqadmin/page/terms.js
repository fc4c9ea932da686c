// The fields of dialogs for what only ringq's nsqds know: the end and the reason of a pause, and the undo of an empty.

import { html } from "./html.js";

const LIMITS = { "": "never, until somebody unpauses it", "5m": "5 minutes", "10m": "10 minutes", "30m": "30 minutes", "1h": "1 hour", "4h": "4 hours",
  "12h": "12 hours", "24h": "24 hours", "168h": "7 days" };
const UNDOS = { "10m": "10 minutes", "1h": "1 hour", "24h": "24 hours", "": "not at all, and their disk space is free at once" };

// The longest note that nsqd takes, in characters.
const NOTE_MAX = 200;

// `ability` is that of useAbilities, or null before its answer. `terms` has `for` and `note`.
export function PauseTerms({ ability, terms, onChange }) {
  if (!ability?.any) return null;
  return html`
    <${Choice} label="It ends by itself after" choices=${LIMITS} value=${terms.for ?? ""} isOff=${!ability.all} onChange=${(value) => onChange({ ...terms, for: value })} />
    ${!ability.all && html`<p class="note">A limit is not possible here, because these nodes would pause without an end: ${ability.without.join(", ")}.</p>`}
    <label>Note for others, if wanted
      <input type="text" value=${terms.note ?? ""} maxlength=${NOTE_MAX} autocomplete="off" placeholder="deploying the archive"
        onInput=${(event) => onChange({ ...terms, note: event.target.value })} /></label>`;
}

// `terms` has `undo`.
export function UndoTerms({ ability, terms, onChange }) {
  if (!ability?.any) return null;
  if (!ability.all) return html`<p class="note">The messages cannot come back, because these nodes know no undo: ${ability.without.join(", ")}.</p>`;
  return html`<${Choice} label="The messages can be brought back for" choices=${UNDOS} value=${terms.undo ?? ""} onChange=${(value) => onChange({ ...terms, undo: value })} />`;
}

function Choice({ label, choices, value, isOff, onChange }) {
  return html`<label>${label}
    <select value=${value} disabled=${isOff} onChange=${(event) => onChange(event.target.value)}>
      ${Object.entries(choices).map(([key, title]) => html`<option key=${key} value=${key}>${title}</option>`)}</select></label>`;
}
