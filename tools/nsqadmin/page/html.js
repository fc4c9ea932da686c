// preact and htm, as every part of the page imports them.

import { h } from "./vendor/preact/preact.mjs";
import htm from "./vendor/htm/htm.mjs";

export { Component, render } from "./vendor/preact/preact.mjs";
export { useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/preact/hooks.mjs";

export const html = htm.bind(h);
