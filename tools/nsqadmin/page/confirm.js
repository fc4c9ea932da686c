// The dialog that asks before an action. What destroys something says what, and asks for the name.

import { html, useEffect, useRef, useState } from "./html.js";

// Properties: `action`:
//   title       the question, such as "Delete the channel archive?"
//   button      the word on the button
//   isDangerous true for what destroys
//   name        what the user has to type, for what destroys
//   effect      a sentence that says what happens
//   destroys    {label, value} of each figure that will be gone
//   run()       does it; a failure is shown in the dialog
// and `onDone(answer)`, `onClose()`.
export function Confirm({ action, onDone, onClose }) {
  const dialog = useRef();
  const [typed, setTyped] = useState("");
  const [state, setState] = useState({ isRunning: false, error: null });
  useEffect(() => {
    const opener = document.activeElement;
    dialog.current.showModal();
    return () => opener?.focus?.();
  }, []);
  const isReady = !action.name || typed === action.name;
  async function submit(event) {
    event.preventDefault();
    if (!isReady || state.isRunning) return;
    setState({ isRunning: true, error: null });
    try {
      onDone(await action.run());
    } catch (error) {
      setState({ isRunning: false, error });
    }
  }
  return html`<dialog ref=${dialog} aria-labelledby="confirm-title" onClose=${onClose}>
    <form onSubmit=${submit}>
      <h2 id="confirm-title">${action.title}</h2>
      <p>${action.effect}</p>
      ${action.destroys && html`<table class="destroys"><caption>This is there now:</caption><tbody>${action.destroys.map(({ label, value }) =>
        html`<tr key=${label}><th scope="row">${label}</th><td>${value}</td></tr>`)}</tbody></table>`}
      ${action.name && html`<label>Type <code>${action.name}</code> to go on
        <input type="text" value=${typed} autocomplete="off" autocapitalize="off" spellcheck=${false}
          onInput=${(event) => setTyped(event.target.value)} /></label>`}
      ${state.error && html`<p class="failure" role="alert"><b>It failed.</b> ${state.error.message}
        ${state.error.raw && html` <code>${state.error.raw}</code>`}</p>`}
      <div class="buttons">
        <button type="button" onClick=${() => dialog.current.close()}>Cancel</button>
        <button type="submit" class=${action.isDangerous ? "danger" : "primary"} disabled=${!isReady || state.isRunning}>
          ${state.isRunning ? "Working …" : action.button}</button>
      </div>
    </form>
  </dialog>`;
}
