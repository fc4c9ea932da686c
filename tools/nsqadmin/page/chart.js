// Charts over time, drawn by uPlot. Colours are the variables of style.css.

import { Boundary } from "./boundary.js";
import { html, useEffect, useRef } from "./html.js";
import { theme } from "./store.js";

// Charts of one view share their pointer, so that all show the same moment.
const SYNC = "time";

// The time that a chart shows at least, in seconds.
const SPAN_MIN = 60;

// The steps of the axis of time, in seconds. uPlot's own have none between 1 and 5 minutes, so that a narrow chart of 5 minutes would
// have no label.
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 28_800, 43_200, 86_400, 172_800];

// A probe that computes the colours of the present theme, which a canvas cannot.
const probe = document.createElement("span");

function colour(name) {
  if (!probe.isConnected) {
    probe.hidden = true;
    document.body.append(probe);
  }
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

// Properties: `title`; `series`: {times, figures}, a new object when points are new; `lines`: {figure, name, colour}; `show(value)`, a
// figure as text. A figure above 2^53 is a BigInt: lines are drawn of numbers, which are close enough, and texts are exact.
export function Chart(properties) {
  return html`<${Boundary} what=${`The chart “${properties.title}”`}><${Plot} ...${properties} /><//>`;
}

function Plot({ title, series, lines, show }) {
  const place = useRef();
  const plot = useRef();
  const known = lines.filter((line) => series.figures[line.figure]);
  const names = known.map((line) => line.figure).join();
  useEffect(() => {
    if (known.length === 0) return undefined;
    const element = place.current;
    const drawn = new uPlot(options(known, show, element.clientWidth), null, element);
    plot.current = drawn;
    const observer = new ResizeObserver(() => drawn.setSize(size(element.clientWidth)));
    observer.observe(element);
    const unlisten = theme.listen(() => drawn.redraw(false));
    const system = matchMedia("(prefers-color-scheme: dark)");
    const redraw = () => drawn.redraw(false);
    system.addEventListener("change", redraw);
    return () => {
      observer.disconnect();
      unlisten();
      system.removeEventListener("change", redraw);
      drawn.destroy();
    };
  }, [names]);
  useEffect(() => plot.current && fill(plot.current, series, known), [series, names]);
  if (known.length === 0) return null;
  const last = known.map((line) => ({ ...line, value: series.figures[line.figure].at(-1) }));
  const spoken = last.map((line) => `${line.name} ${show(line.value)}`).join(", ");
  return html`<figure class="chart">
    <figcaption><b>${title}</b>${last.map((line) => html`<span key=${line.figure} class=${`key ${line.colour}`}>${line.name}
      <b>${show(line.value)}</b></span>`)}</figcaption>
    <div class="plot" ref=${place} role="img" aria-label=${`${title} over time. Now: ${spoken}`}></div>
  </figure>`;
}

// Gives the points to a plot, and keeps the exact figures for its texts. A first point without figures makes a short series begin at
// the right edge.
function fill(plot, series, lines) {
  const start = series.times.at(-1) - SPAN_MIN;
  const isShort = series.times[0] > start;
  const from = (first, array) => isShort ? [first, ...array] : array;
  plot.exact = lines.map((line) => from(null, series.figures[line.figure]));
  const numbers = (array) => array.map((value) => typeof value === "bigint" ? Number(value) : value);
  plot.setData([from(start, series.times), ...plot.exact.map(numbers)]);
}

function size(width) {
  return { width: Math.max(width, 120), height: 150 };
}

function options(lines, show, width) {
  const axis = (rest) => ({
    stroke: () => colour("muted"),
    grid: { stroke: () => colour("grid"), width: 1 },
    ticks: { stroke: () => colour("grid"), width: 1, size: 4 },
    font: "12px system-ui, sans-serif",
    ...rest,
  });
  return {
    ...size(width),
    cursor: { sync: { key: SYNC }, drag: { x: false, y: false }, points: { size: 6 } },
    legend: { show: false },
    padding: [8, 26, 0, 0],
    scales: {
      y: { range: (plot, least, most) => [Math.min(0, least ?? 0), most > 0 ? most * 1.08 : 1] },
    },
    axes: [
      axis({ size: 26, space: 70, incrs: STEPS, values: (plot, times) => times.map(label) }),
      axis({ size: show.isTime ? 80 : 58, space: 32, values: (plot, values) => values.map((value) => short(value, show)) }),
    ],
    series: [{}, ...lines.map((line) => ({
      label: line.name,
      stroke: () => colour(line.colour),
      fill: lines.length === 1 ? () => colour(`${line.colour}-area`) : undefined,
      width: 2,
      points: { show: false },
      spanGaps: false,
    }))],
    hooks: { setCursor: [tip(lines, show)] },
  };
}

function clock(seconds) {
  return new Date(seconds * 1000).toTimeString().slice(0, seconds % 60 ? 8 : 5);
}

// A time at the axis: "14:10", or the day at its beginning: "Tue 24".
function label(seconds) {
  const text = clock(seconds);
  return text === "00:00" ? day(seconds) : text;
}

function day(seconds) {
  const date = new Date(seconds * 1000);
  return `${date.toLocaleDateString("en", { weekday: "short" })} ${date.getDate()}`;
}

// A moment under the pointer: "14:10:30", with its day if that is not the last one of the chart.
function moment(seconds, last) {
  return day(seconds) === day(last) ? clock(seconds) : `${day(seconds)} ${clock(seconds)}`;
}

// A figure at an axis: "1.2k" for counts, else as elsewhere.
function short(value, show) {
  if (Math.abs(value) < 1000 || show.isTime) return show(value);
  return new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(value);
}

// Shows the figures under the pointer.
function tip(lines, show) {
  let box;
  return (plot) => {
    if (!box) {
      box = document.createElement("div");
      box.className = "tip";
      plot.over.append(box);
    }
    const { idx, left } = plot.cursor;
    box.hidden = idx === null || idx === undefined || left < 0;
    if (box.hidden) return;
    const figures = lines.map((line, index) => `${line.name} ${show(plot.exact[index][idx])}`);
    box.textContent = [moment(Math.round(plot.data[0][idx]), plot.data[0].at(-1)), ...figures].join("  ·  ");
    box.classList.toggle("left", left > plot.over.clientWidth / 2);
  };
}
