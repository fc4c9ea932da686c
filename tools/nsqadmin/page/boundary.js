// A boundary: if a part of the page fails, a sentence takes its place, and the rest of the page stays.

import { Component, html } from "./html.js";

// Properties: `what`, the part in words, such as "This page". The part is drawn again with its next figures, or when the user asks.
export class Boundary extends Component {
  state = { error: null };

  static getDerivedStateFromError(error) {
    return { error };
  }

  componentDidCatch(error) {
    console.error(error);
  }

  componentDidUpdate(before) {
    if (this.state.error && before.children !== this.props.children) this.setState({ error: null });
  }

  render({ what, children }, { error }) {
    if (!error) return children;
    return html`<div class="bar bad" role="alert"><div><b>${what} cannot be shown.</b> A figure is not as expected. <code>${String(error)}</code></div>
      <button type="button" onClick=${() => this.setState({ error: null })}>Try again</button></div>`;
  }
}
