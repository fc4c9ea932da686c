// The dialog that asks before an action. What destroys something says what, and asks for the name.

import { html, useEffect, useRef, useState } from "./html.js";
import { useAbilities } from "./abilities.js";
import { useDiskUse } from "./disk-use.js";
import { OwnName } from "./own-name.js";
import { PauseTerms, UndoTerms } from "./terms.js";

// Properties: `action`:
//   title       the question, such as "Delete the channel archive?"
//   button      the word on the button
//   isDangerous true for what destroys
//   name        what the user has to type, for what destroys
//   effect      a sentence that says what happens
//   destroys    {label, value} of each figure that will be gone
//   frees       {topic, channel} of a channel whose part of the disk becomes free
//   terms       "pause", "undo" or "topicUndo" for what only ringq's nsqds know; `topic` is then the topic whose nodes are asked
//   run(terms)  does it; a failure is shown in the dialog
// and `onDone(answer)`, `onFailed(error)` for a failure after the dialog was closed, `onClose()`.
export function Confirm({ action, onDone, onFailed, onClose }) {
  const [typed, setTyped] = useState("");
  const [terms, setTerms] = useState({});
  const [state, setState] = useState({ isRunning: false, error: null });
  const isClosed = useClosed();
  const abilities = useAbilities(action.topic, Boolean(action.terms));
  const freed = useDiskUse(action.frees);
  const hasUndo = action.terms === "undo" || action.terms === "topicUndo";
  useEffect(() => {
    if (hasUndo && abilities?.[action.terms].all) setTerms({ undo: "10m" });
  }, [abilities]);
  // Without the answer, an empty could not be undone although the nodes can.
  const isReady = (!action.name || typed === action.name) && (!action.terms || abilities !== null);
  async function submit(event) {
    event.preventDefault();
    if (!isReady || state.isRunning) return;
    setState({ isRunning: true, error: null });
    try {
      onDone(await action.run(given(terms)));
    } catch (error) {
      if (isClosed()) onFailed(error);
      else setState({ isRunning: false, error });
    }
  }
  return html`<${Dialog} title=${action.title} onClose=${onClose} onSubmit=${submit} error=${state.error} isRunning=${state.isRunning}
      isReady=${isReady} button=${action.button} isDangerous=${action.isDangerous}>
    <p>${action.effect}</p>
    ${action.destroys && html`<${Figures} rows=${action.destroys} />`}
    ${freed && html`<p class="frees"><b>Disk space that this frees${terms.undo ? ", when the messages can no longer be brought back" : ""}:</b> ${freed}.</p>`}
    ${action.terms === "pause" && html`<${PauseTerms} takesFocus ability=${abilities?.pauseTerms} terms=${terms} onChange=${setTerms} />`}
    ${hasUndo && html`<${UndoTerms} ability=${abilities?.[action.terms]} terms=${terms} onChange=${setTerms} />`}
    ${action.name && html`<${Typed} word=${action.name} value=${typed} onInput=${setTyped} />`}<//>`;
}

// The terms that are not empty.
export function given(terms) {
  return Object.fromEntries(Object.entries(terms).filter(([, value]) => value));
}

// Returns a function that says whether the dialog has been closed. An act goes on without its dialog.
export function useClosed() {
  const closed = useRef(false);
  useEffect(() => () => { closed.current = true; }, []);
  return () => closed.current;
}

// The frame of a dialog: its title, the field for the user's name, a failure, and its buttons.
export function Dialog({ title, children, error, button, isDangerous, isReady, isRunning, onSubmit, onClose }) {
  const [dialog, cancel, submit] = [useRef(), useRef(), useRef()];
  useEffect(() => {
    const opener = document.activeElement;
    dialog.current.showModal();
    // The name is no question that each act begins with.
    if (document.activeElement.closest(".own-name")) cancel.current.focus();
    return () => opener?.focus?.();
  }, []);
  // Without a field that has the keyboard, Enter confirms what destroys nothing, and cancels what does.
  useEffect(() => {
    if (isReady && !isDangerous && document.activeElement === cancel.current) submit.current.focus();
  }, [isReady]);
  return html`<dialog ref=${dialog} aria-labelledby="confirm-title" onClose=${onClose}>
    <form onSubmit=${onSubmit}>
      <h2 id="confirm-title">${title}</h2>
      ${children}
      <${OwnName} />
      ${error && html`<p class="failure" role="alert"><b>${error.isOpen ? "There is no answer." : "It failed."}</b> ${error.message}
        ${error.raw && html` <code>${error.raw}</code>`}</p>`}
      <div class="buttons">
        <button ref=${cancel} type="button" onClick=${() => dialog.current.close()}>${isRunning ? "Close, and let it go on" : "Cancel"}</button>
        <button ref=${submit} type="submit" class=${isDangerous ? "danger" : "primary"} disabled=${!isReady || isRunning}>
          ${isRunning ? "Working …" : button}</button>
      </div>
    </form>
  </dialog>`;
}

export function Figures({ rows }) {
  return html`<table class="destroys"><caption>This is there now:</caption><tbody>${rows.map(({ label, value }) =>
    html`<tr key=${label}><th scope="row">${label}</th><td>${value}</td></tr>`)}</tbody></table>`;
}

// The field for the word without which nothing is destroyed.
export function Typed({ word, value, onInput }) {
  return html`<label>Type <code>${word}</code> to go on
    <input type="text" value=${value} autocomplete="off" autocapitalize="off" spellcheck=${false}
      onInput=${(event) => onInput(event.target.value)} /></label>`;
}
