// The fields of dialogs for what only ringq's nsqds know: the end and the reason of a pause, and the undo of an empty.

import { html, useEffect, useRef } from "./html.js";
import { Addresses } from "./parts.js";

// The limits of a pause, and their titles. The key of a digit chooses the limit with this index.
const LIMITS = [["", "never"], ["5m", "5 min"], ["10m", "10 min"], ["30m", "30 min"], ["1h", "1 h"], ["4h", "4 h"], ["12h", "12 h"], ["24h", "24 h"], ["168h", "7 days"]];
const UNDOS = { "10m": "10 minutes", "1h": "1 hour", "24h": "24 hours", "": "not at all" };

// The other end of an undo: nsqd needs the room for new messages.
export const FULL_DISK = "If the disk has no room for a new message, this ends at once, and they are gone.";

// The longest note that nsqd takes, in characters.
const NOTE_MAX = 200;

// `ability` is that of useAbilities, or null before its answer. `terms` has `for` and `note`. With `takesFocus`, the keyboard begins here.
export function PauseTerms({ ability, terms, takesFocus, onChange }) {
  const note = useRef();
  if (!ability?.any) return null;
  return html`
    <${Limits} value=${terms.for ?? ""} isOff=${!ability.all} ...${{ note, takesFocus }} onChange=${(value) => onChange({ ...terms, for: value })} />
    ${!ability.all && html`<p class="note">A limit is not possible here, because these nodes would pause without an end: <${Addresses} nodes=${ability.without} />.</p>`}
    <label>Note for others, if wanted
      <input ref=${note} type="text" value=${terms.note ?? ""} maxlength=${NOTE_MAX} autocomplete="off" placeholder="deploying the archive"
        onInput=${(event) => onChange({ ...terms, note: event.target.value })} /></label>`;
}

// The limits as one row. A digit chooses one and goes on to the note, where Enter confirms.
function Limits({ value, isOff, note, takesFocus, onChange }) {
  const group = useRef();
  useEffect(() => {
    if (takesFocus) (isOff ? note.current : group.current.querySelector("input:checked"))?.focus();
  }, []);
  const press = (event) => {
    const limit = /^\d$/.test(event.key) && LIMITS[Number(event.key)];
    if (!limit || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    onChange(limit[0]);
    note.current?.focus();
  };
  return html`<fieldset class="limits" ref=${group} disabled=${isOff} onKeyDown=${press}><legend>It ends by itself after</legend>
    ${LIMITS.map(([key, title], digit) => html`<label key=${key}><input type="radio" name="limit" value=${key} checked=${value === key}
      aria-keyshortcuts=${digit} onChange=${() => onChange(key)} />${title} <kbd aria-hidden="true">${digit}</kbd></label>`)}</fieldset>`;
}

// `terms` has `undo`.
export function UndoTerms({ ability, terms, onChange }) {
  if (ability?.isUnknown) return html`<p class="note">The messages cannot come back: no node has said whether it knows an undo.</p>`;
  if (!ability?.any) return null;
  if (!ability.all) return html`<p class="note">The messages cannot come back, because these nodes know no undo: <${Addresses} nodes=${ability.without} />.</p>`;
  return html`<${Choice} label="The messages can be brought back for" choices=${UNDOS} value=${terms.undo ?? ""} onChange=${(value) => onChange({ ...terms, undo: value })} />
    ${terms.undo && html`<p class="note">${FULL_DISK}</p>`}`;
}

function Choice({ label, choices, value, onChange }) {
  return html`<label>${label}
    <select value=${value} onChange=${(event) => onChange(event.target.value)}>
      ${Object.entries(choices).map(([key, title]) => html`<option key=${key} value=${key}>${title}</option>`)}</select></label>`;
}
