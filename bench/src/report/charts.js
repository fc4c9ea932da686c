// Draws the charts of the page with uPlot. Colours are the variables of style.css, so that light and dark are one page.
//
// A chart has
//   id, title, note   for its figure; `note` is a sentence that tells how to read the chart
//   wide              true when the chart goes across the page
//   group             charts of one group get the same axes, so that their heights compare
//   x, y              axes: title, unit and scale. The scale is "linear" from zero, "log", or "nines": a value n is the
//                     fraction 1 - 10^-n, so that 90 %, 99 % and 99.9 % are one step apart each
//   at                the x of each point, ascending
//   series            lines: name, colour (1 to 6), dash (0 to 3), form and y. null in y is a gap. The form is "line",
//                     "area" (filled down to zero), "marks" (a line with a mark at each point), "dots" or "rings"
//   rules             lines across: y and label
//   bands             stretches of the x axis that are set apart: from, until (null: to the end) and label
"use strict";

const DASHES = [[], [7, 4], [2, 4], [9, 4, 2, 4]];
const BORDERS = ["solid", "dashed", "dotted", "dashed"];

// Steps between the ticks of a time axis, in seconds.
const TIME_STEPS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400];

// Steps between the ticks of a count. They are whole numbers: there is no half message.
const WHOLE_STEPS = Array.from({ length: 40 }, (_, nth) => [1, 2, 5][nth % 3] * 10 ** Math.floor(nth / 3));

// Figures as people read them, by the rules of unit.rs. `tick` is the shorter form at an axis.

function number(value) {
  return Math.abs(value) < 100
    ? Number(value.toPrecision(3)).toLocaleString("en", { maximumFractionDigits: 12 })
    : Math.round(value).toLocaleString("en");
}

function scaled(value, units) {
  let index = 0;
  while (Math.abs(value) >= 999.5 && index + 1 < units.length) {
    value /= 1000;
    index += 1;
  }
  return `${number(value)} ${units[index]}`.trim();
}

function duration(seconds) {
  if (seconds < 1) return UNITS.ns.show(seconds * 1e9);
  if (seconds < 120) return `${number(seconds)} s`;
  if (seconds < 7200) {
    const whole = Math.round(seconds);
    const rest = whole % 60;
    return `${Math.floor(whole / 60)} min` + (rest ? ` ${rest} s` : "");
  }
  return seconds < 172800 ? `${number(seconds / 3600)} h` : `${number(seconds / 86400)} days`;
}

// A moment on a time axis: "0", "15 s", "2:30 min", "1:30 h".
function clock(seconds) {
  if (seconds === 0) return "0";
  if (seconds < 120) return `${number(seconds)} s`;
  const whole = Math.round(seconds);
  const two = (value) => String(Math.floor(value)).padStart(2, "0");
  return whole < 3600
    ? `${Math.floor(whole / 60)}:${two(whole % 60)} min`
    : `${Math.floor(whole / 3600)}:${two((whole % 3600) / 60)} h`;
}

// "99.9 %" for three nines: as many digits as there are nines, and no more.
function percentile(nines) {
  const digits = Math.max(Math.floor(nines + 1e-6), 2) - 2;
  return `${Number((100 * (1 - 10 ** -nines)).toFixed(digits + 2))} %`;
}

function bytes(value) {
  return value === 0 ? "0" : scaled(value, ["B", "kB", "MB", "GB", "TB", "PB"]);
}

function count(value) {
  return scaled(value, ["", "k", "M", "G", "T"]);
}

const UNITS = {
  "s": { show: duration, tick: clock },
  "ns": {
    show: (value) => value < 999.5e6 ? scaled(value, ["ns", "µs", "ms"]) : `${number(value / 1e9)} s`,
  },
  "messages": { show: number, tick: count },
  "messages/s": { show: (value) => `${number(value)}/s`, tick: count },
  "bytes": { show: bytes },
  "bytes/s": { show: (value) => `${bytes(value)}/s`, tick: bytes },
  "cores": { show: (value) => `${number(value)} cores`, tick: number },
};

function show(axis, value) {
  return axis.scale === "nines" ? percentile(value) : UNITS[axis.unit].show(value);
}

function tick(axis, value) {
  const unit = UNITS[axis.unit];
  return axis.scale === "nines" ? percentile(value) : (unit.tick || unit.show)(value);
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// The smallest and the largest of the values that can be drawn on an axis.
function extent(axis, values) {
  const drawn = values.filter((value) => value !== null && (axis.scale !== "log" || value > 0));
  return drawn.reduce(([least, most], value) => [Math.min(least, value), Math.max(most, value)],
    [Infinity, -Infinity]);
}

// The digits that get a tick on a logarithmic axis, as far as there is room for them.
function logDigits(least, most) {
  const decades = Math.log10(most / least);
  return decades <= 3 ? [1, 2, 5] : decades <= 4.6 ? [1, 3] : [1];
}

// The ticks of a logarithmic axis, and one more on either side.
function logTicks(least, most) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(least)); power <= Math.ceil(Math.log10(most)); power += 1) {
    ticks.push(...logDigits(least, most).map((digit) => digit * 10 ** power));
  }
  return ticks;
}

// The range of an axis over these values: from zero, or between two ticks of a logarithmic axis.
function range(axis, values) {
  const [least, most] = extent(axis, values);
  if (axis.scale === "log") {
    if (!(most > 0)) return [1, 10];
    const ticks = logTicks(least, most);
    const from = ticks.findLast((tick) => tick <= least * 1.000001);
    const until = ticks.find((tick) => tick >= most * 0.999999);
    return [from, until > from ? until : from * 10];
  }
  if (axis.scale === "nines" || axis.unit === "s") return [0, Math.max(most, 1e-9)];
  return most > 0 ? uPlot.rangeNum(0, most, 0.1, true) : [0, 1];
}

// The labels of the x axis, without those that would touch the one before.
function spaced(plot, axis, ticks) {
  let free = -Infinity;
  return ticks.map((value) => {
    const label = tick(axis, value);
    const [at, half] = [plot.valToPos(value, "x"), label.length * 3.5];
    if (at - half < free) return "";
    free = at + half + 8;
    return label;
  });
}

// The options of uPlot for one of the axes; `size` is its extent, `space` that of a label, in pixels.
function axisOptions(axis, size, space) {
  const within = (ticks, from, until) => ticks.filter((tick) => tick >= from * 0.999999 && tick <= until * 1.000001);
  const splits = {
    log: (plot, index, from, until) => within(logTicks(from, until), from, until),
    nines: (plot, index, from, until) => within([0, Math.log10(2), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], from, until),
  }[axis.scale];
  const incrs = { "s": TIME_STEPS, "messages": WHOLE_STEPS }[axis.unit];
  return {
    size,
    space,
    font: "12px system-ui, sans-serif",
    labelFont: "12px system-ui, sans-serif",
    label: axis.title,
    labelSize: 20,
    stroke: () => colour("muted"),
    grid: { stroke: () => colour("grid"), width: 1 },
    ticks: { stroke: () => colour("line"), width: 1, size: 5 },
    filter: (plot, ticks) => ticks,
    values: (plot, ticks, index) => index === 0 ? spaced(plot, axis, ticks) : ticks.map((value) => tick(axis, value)),
    ...(splits && { splits }),
    ...(incrs && { incrs }),
  };
}

// The options of uPlot for a series.
function seriesOptions(series) {
  const isLoose = series.form === "dots" || series.form === "rings";
  const stroke = () => colour(`c${series.colour}`);
  const marks = {
    show: true,
    size: isLoose ? 10 : 7,
    width: series.form === "rings" ? 2 : 1,
    stroke: () => series.form === "rings" ? stroke() : colour("card"),
    fill: () => series.form === "rings" ? colour("card") : stroke(),
  };
  return {
    label: series.name,
    stroke,
    width: 2,
    dash: DASHES[series.dash],
    ...(series.form === "area" && { fill: () => `${stroke()}22` }),
    ...(isLoose && { paths: () => null }),
    ...((isLoose || series.form === "marks") && { points: marks }),
  };
}

// Stretches of the x axis that are set apart, behind everything else.
function drawBands(plot, chart) {
  const { ctx, bbox } = plot;
  for (const band of chart.bands) {
    const from = plot.valToPos(band.from, "x", true);
    const until = plot.valToPos(band.until ?? plot.scales.x.max, "x", true);
    ctx.fillStyle = colour("band");
    ctx.fillRect(from, bbox.top, until - from, bbox.height);
  }
}

// The names of the bands, where a band is wide enough for its name, and the lines across.
function drawNames(plot, chart) {
  const { ctx, bbox } = plot;
  const pixels = uPlot.pxRatio;
  ctx.save();
  ctx.font = `${12 * pixels}px system-ui, sans-serif`;
  ctx.fillStyle = ctx.strokeStyle = colour("ink");
  ctx.textBaseline = "alphabetic";
  for (const band of chart.bands) {
    const from = plot.valToPos(band.from, "x", true);
    const until = plot.valToPos(band.until ?? plot.scales.x.max, "x", true);
    if (until - from < ctx.measureText(band.label).width + 8 * pixels) continue;
    ctx.textAlign = "center";
    ctx.fillText(band.label, (from + until) / 2, bbox.top + bbox.height - 9 * pixels);
  }
  for (const rule of chart.rules) {
    const y = plot.valToPos(rule.y, "y", true);
    const right = bbox.left + bbox.width;
    ctx.setLineDash([2 * pixels, 3 * pixels]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(right, y);
    ctx.stroke();
    ctx.textAlign = "right";
    const above = y < bbox.top + 16 * pixels ? y + 14 * pixels : y - 5 * pixels;
    ctx.fillText(rule.label, right - 4 * pixels, above);
  }
  ctx.restore();
}

// The values at the x that is pointed at, one line a series.
function tooltipText(plot, chart, index) {
  const x = chart.at[index];
  const band = chart.bands.find((band) => band.from < x && x <= (band.until ?? Infinity));
  const lines = [show(chart.x, x) + (band ? ` (${band.label})` : "")];
  chart.series.forEach((series, nth) => {
    if (!plot.series[nth + 1].show) return;
    // Several points may have the same x.
    chart.at.forEach((at, place) => {
      const y = series.y[place];
      if (at === x && y !== null) lines.push(`${series.name}: ${show(chart.y, y)}`);
    });
  });
  return lines.join("\n");
}

function showTooltip(plot, chart, tooltip) {
  const { idx, left, top } = plot.cursor;
  tooltip.hidden = idx == null || left < 0;
  if (tooltip.hidden) return;
  tooltip.textContent = tooltipText(plot, chart, idx);
  const isLeft = left > plot.over.clientWidth / 2;
  tooltip.style.left = isLeft ? "" : `${left + 14}px`;
  tooltip.style.right = isLeft ? `${plot.over.clientWidth - left + 14}px` : "";
  tooltip.style.top = `${Math.min(top, plot.over.clientHeight - tooltip.offsetHeight)}px`;
}

// The figure of a chart, without the drawing, which comes later.
function figureOf(chart) {
  const names = chart.series.map((series) => series.name).join(", ");
  const label = `${chart.title}: ${chart.y.title} over ${chart.x.title}; ${names}`;
  return element("figure", { id: chart.id, class: chart.wide ? "chart wide" : "chart" },
    element("figcaption", {}, element("h3", {}, chart.title), element("p", { class: "note" }, chart.note)),
    element("div", { class: "plot", role: "img", "aria-label": label }));
}

function draw(figure, chart, peers) {
  const place = figure.querySelector(".plot");
  const tooltip = document.createElement("div");
  tooltip.className = "tooltip";
  const size = () => ({ width: place.clientWidth, height: figure.classList.contains("wide") ? 340 : 250 });
  const xRange = range(chart.x, peers.flatMap((peer) => peer.at));
  const yRange = range(chart.y, peers.flatMap((peer) => [
    ...peer.series.flatMap((series) => series.y),
    ...peer.rules.map((rule) => rule.y),
  ]));
  const distribution = (axis) => axis.scale === "log" ? 3 : 1;
  const plot = new uPlot({
    ...size(),
    // The label of the last tick needs room beyond the axis.
    padding: [null, 32, null, null],
    scales: {
      x: { time: false, distr: distribution(chart.x), range: () => xRange },
      y: { distr: distribution(chart.y), range: () => yRange },
    },
    axes: [axisOptions(chart.x, 34, 80), axisOptions(chart.y, 64, 34)],
    series: [{}, ...chart.series.map(seriesOptions)],
    cursor: { y: false, drag: { x: false, y: false } },
    legend: {
      live: false,
      markers: {
        stroke: (plot, nth) => `var(--c${chart.series[nth - 1].colour})`,
        dash: (plot, nth) => BORDERS[chart.series[nth - 1].dash],
        fill: () => "none",
      },
    },
    hooks: {
      drawClear: [(plot) => drawBands(plot, chart)],
      draw: [(plot) => drawNames(plot, chart)],
      setCursor: [(plot) => showTooltip(plot, chart, tooltip)],
    },
  }, [chart.at, ...chart.series.map((series) => series.y)], place);
  plot.over.append(tooltip);
  plot.root.querySelectorAll(".u-marker").forEach((marker, nth) => marker.classList.add(chart.series[nth].form));
  new ResizeObserver(() => plot.setSize(size())).observe(place);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plot.redraw());
  // For the console, and for tests.
  figure.plot = plot;
}
