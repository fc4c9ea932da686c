// The name that the user gives acts, if the server knows no user. Nobody checks it, so the server marks it wherever it is shown.

import { html } from "./html.js";
import { Store, facts, keep, kept, useStore } from "./store.js";

// Most characters of the name, as on the server.
const CHARACTERS_MAX = 50;

const ownName = new Store(kept("own-name") ?? "");

// True if acts have the name that the user types.
function isAsked(known) {
  return known?.is_user_known === false;
}

// The header with the name, for a request that acts. A header takes bytes, so each byte of UTF-8 is a character of the text.
export function ownNameHeader() {
  const name = isAsked(facts.get()) ? ownName.get().trim() : "";
  return name ? { "X-Claimed-User": String.fromCharCode(...new TextEncoder().encode(name)) } : {};
}

// The field for the name. The browser keeps it for the next act.
export function OwnName() {
  const name = useStore(ownName);
  if (!isAsked(useStore(facts))) return null;
  const take = (event) => {
    // No header takes control characters.
    const typed = event.target.value.replace(/\p{Cc}/gu, "");
    ownName.set(typed);
    keep("own-name", typed);
  };
  return html`<label class="own-name">Your name, if wanted
    <input type="text" value=${name} maxlength=${CHARACTERS_MAX} autocomplete="off" spellcheck=${false} placeholder="ann, which others see as “ann (unverified)”"
      onInput=${take} /></label>`;
}
