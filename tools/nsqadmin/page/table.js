// A table that can be sorted and searched, and that stays quick with many rows: beyond fifty rows it draws only those that
// can be seen.

import { Boundary } from "./boundary.js";
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./html.js";
import { useTableKeys } from "./keys.js";
import { setQuery, useRoute } from "./route.js";

// The height of a row in pixels; style.css has the same number.
const ROW = 36;

// Tables with more rows scroll within themselves, and draw only what can be seen.
const ROWS_DRAWN_MAX = 50;

// The rows that are drawn above and below the visible ones.
const MARGIN = 12;

// Properties:
//   name       the prefix of the table's parameters in the address; "" for the main table
//   caption    what the table shows, for screen readers
//   rows       the rows; `rowKey(row)` names one, `text(row)` is what the search looks at, in lower case
//   columns    {key, title, help, value(row) to sort by, cell(row) to show, isText}; the first column has the row's link
//   first      the key of the first order, with "-" for descending
//   total      a row that stays at the end, if any
//   rowClass   the class of a row
//   empty      what to say without rows
//   search     the label of the search field; without it there is none
//   tools      more controls beside the search field
export function Table(properties) {
  return html`<${Boundary} what=${`The table “${properties.caption}”`}><${Rows} ...${properties} /><//>`;
}

function Rows({ name = "", caption, rows, rowKey, text, columns, first, total, rowClass, empty, search, tools }) {
  const { query } = useRoute();
  const [needle, order] = [query.get(`${name}q`) ?? "", query.get(`${name}sort`) ?? first];
  const isPointed = useRef(false);
  const ordered = useOrder(rows, columns, order, rowKey, isPointed);
  const shown = useMemo(() => matching(ordered, text, needle), [ordered, text, needle]);
  const sortBy = (key, isDescending) => setQuery({ [`${name}sort`]: isDescending ? `-${key}` : key });
  return html`
    <div class="table">
      ${(search || tools) && html`<div class="tools">
        ${search && html`<${Search} label=${search} value=${needle} onInput=${(value) => setQuery({ [`${name}q`]: value })} />`}
        ${tools}
        <span class="note" role="status">${needle || shown.length !== rows.length ? `${shown.length} of ${rows.length}` : `${rows.length}`}</span>
      </div>`}
      ${shown.length === 0 && !total
        ? html`<p class="empty">${needle ? `Nothing matches “${needle}”.` : empty}</p>`
        : html`<${Body} ...${{ caption, shown, rowKey, columns, order, sortBy, total, rowClass, isPointed }} />`}
    </div>`;
}

function Search({ label, value, onInput }) {
  return html`<input type="search" placeholder=${`${label}  ( / )`} aria-label=${label} value=${value} spellcheck=${false}
    autocomplete="off" autocapitalize="off" onInput=${(event) => onInput(event.target.value)} />`;
}

// The rows that contain every word of `needle`, as the search of a table finds them.
export function matching(rows, text, needle) {
  const words = needle.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return rows;
  return rows.filter((row) => words.every((word) => text(row).includes(word)));
}

// Sorts the rows. While the pointer is on the table, rows keep their places, so that no click hits another row than it was
// meant for.
function useOrder(rows, columns, order, rowKey, isPointed) {
  const kept = useRef({ order: null, rows: [] });
  return useMemo(() => {
    const places = isPointed.current && kept.current.order === order && new Map(kept.current.rows.map((row, index) => [rowKey(row), index]));
    const isKept = places && rows.every((row) => places.has(rowKey(row)));
    const sorted = isKept
      ? [...rows].sort((a, b) => places.get(rowKey(a)) - places.get(rowKey(b)))
      : sort(rows, columns, order);
    kept.current = { order, rows: sorted };
    return sorted;
  }, [rows, columns, order]);
}

function sort(rows, columns, order) {
  const isDescending = order?.startsWith("-");
  const column = columns.find((column) => column.key === (isDescending ? order.slice(1) : order)) ?? columns[0];
  const keyed = rows.map((row) => [column.value(row), row]);
  keyed.sort(([a], [b]) => {
    // Rows without a figure stay at the end in both directions.
    const [hasA, hasB] = [a !== undefined && a !== null, b !== undefined && b !== null];
    if (!hasA || !hasB) return hasB - hasA;
    if (a === b) return 0;
    return (a < b) === !isDescending ? -1 : 1;
  });
  return keyed.map(([, row]) => row);
}

function Body({ caption, shown, rowKey, columns, order, sortBy, total, rowClass, isPointed }) {
  const scroller = useRef();
  const [top, setTop] = useState(0);
  const [active, setActive] = useState(null);
  const isLong = shown.length > ROWS_DRAWN_MAX;
  const [from, until] = isLong ? visible(scroller.current, top, shown.length) : [0, shown.length];
  useActiveRow({ scroller, shown, rowKey, active, setActive, isLong });
  useEffect(() => {
    // A shorter list may end above the place that was visible.
    if (scroller.current) setTop(scroller.current.scrollTop);
  }, [shown.length]);
  return html`
    <div class=${`scroll${isLong ? " long" : ""}`} ref=${scroller} tabindex="0" role="region" aria-label=${caption}
      onScroll=${isLong ? (event) => setTop(event.currentTarget.scrollTop) : undefined}
      onPointerEnter=${() => { isPointed.current = true; }} onPointerLeave=${() => { isPointed.current = false; }}>
      <table aria-rowcount=${shown.length + 1 + (total ? 1 : 0)}>
        <caption class="hidden">${caption}</caption>
        <thead><tr>${columns.map((column) => html`<${Heading} key=${column.key} ...${{ column, order, sortBy }} />`)}</tr></thead>
        <tbody>
          ${from > 0 && html`<tr class="gap" key="above" aria-hidden="true"><td colspan=${columns.length}
            style=${{ height: `${from * ROW}px` }}></td></tr>`}
          ${shown.slice(from, until).map((row, index) => html`<${Row} key=${rowKey(row)} id=${rowKey(row)} position=${from + index + 2}
            ...${{ row, columns, rowClass }} onFocus=${() => setActive(rowKey(row))} />`)}
          ${until < shown.length && html`<tr class="gap" key="below" aria-hidden="true"><td colspan=${columns.length}
            style=${{ height: `${(shown.length - until) * ROW}px` }}></td></tr>`}
        </tbody>
        ${total && html`<tfoot><${Row} row=${total} columns=${columns} position=${shown.length + 2} /></tfoot>`}
      </table>
    </div>`;
}

function visible(element, top, length) {
  const height = element?.clientHeight ?? 700;
  const from = Math.max(0, Math.min(Math.floor(top / ROW), length) - MARGIN);
  return [from, Math.min(length, Math.ceil((top + height) / ROW) + MARGIN)];
}

function Heading({ column, order, sortBy }) {
  const isDescending = order === `-${column.key}`;
  const isSorted = isDescending || order === column.key;
  const state = isDescending ? "descending" : "ascending";
  // Figures are most interesting when they are large, so their first order is descending.
  const next = isSorted ? !isDescending : !column.isText;
  return html`<th scope="col" class=${column.isText ? "text" : ""} aria-sort=${isSorted ? state : undefined} title=${column.help}>
    <button type="button" onClick=${() => sortBy(column.key, next)}>${column.title}${isSorted && html`<span class="order" aria-hidden="true"
      >${isDescending ? "▼" : "▲"}</span>`}</button></th>`;
}

function Row({ row, id, columns, position, rowClass, onFocus }) {
  return html`<tr class=${rowClass?.(row)} data-row=${id} aria-rowindex=${position} onFocusIn=${onFocus}>
    ${columns.map((column, index) => index === 0
      ? html`<th scope="row" key=${column.key} class="text">${column.cell(row)}</th>`
      : html`<td key=${column.key} class=${column.isText ? "text" : ""}>${column.cell(row)}</td>`)}</tr>`;
}

// Moves the focus from row to row: to the link in a row's first cell.
function useActiveRow({ scroller, shown, rowKey, active, setActive, isLong }) {
  const moved = useRef(false);
  const latest = useRef();
  latest.current = { shown, active };
  const table = useMemo(() => {
    const to = (index) => {
      const { shown } = latest.current;
      if (shown.length === 0) return;
      moved.current = true;
      const place = Math.max(0, Math.min(index, shown.length - 1));
      if (isLong) reveal(scroller.current, place);
      setActive(rowKey(shown[place]));
    };
    const present = () => latest.current.shown.findIndex((row) => rowKey(row) === latest.current.active);
    return {
      root: () => scroller.current,
      move: (step) => present() < 0 ? to(0) : to(present() + step),
      edge: (isEnd) => to(isEnd ? Infinity : 0),
    };
  }, [isLong]);
  useTableKeys(table);
  useLayoutEffect(() => {
    if (!moved.current || active === null) return;
    const row = scroller.current?.querySelector(`[data-row="${CSS.escape(active)}"]`);
    const target = row?.querySelector("a, button");
    if (!target) return;
    moved.current = false;
    target.focus({ preventScroll: isLong });
  });
}

// Scrolls a row into view, with room for the heading, which covers the first row.
function reveal(element, place) {
  const [above, below] = [place * ROW, (place + 2) * ROW];
  if (above < element.scrollTop) element.scrollTop = above;
  else if (below > element.scrollTop + element.clientHeight) element.scrollTop = below - element.clientHeight + ROW;
}
