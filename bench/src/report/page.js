// Lays out the page: the data of view.rs as texts, tables and charts. Texts of results go into the document as texts,
// never as markup.

const { results, runs, whose } = JSON.parse(document.getElementById("data").textContent);
const columns = runs.columns;

// Every chart of the page. They are drawn when all of them have their places.
const charts = [];

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.flat().filter((child) => child !== null && child !== false));
  return made;
}

function add(...children) {
  document.body.append(...children.flat().filter((child) => child !== null && child !== false));
}

function addCharts(made) {
  charts.push(...made);
  add(element("div", { class: "grid" }, made.map(figureOf)));
}

// A value in its unit; null where there is none.
function shown(unit, value) {
  return value === null ? null : show({ unit }, value);
}

// Microseconds of a result as a text.
function microseconds(value) {
  return value === null ? null : shown("ns", value * 1e3);
}

function times(value, factor) {
  return value === null ? null : value * factor;
}

function percent(share) {
  return share === null ? null : `${number(share * 100)} %`;
}

// A table whose first column names the rows. A cell is a text, a text with a class of style.css, or null.
function table(head, rows) {
  const cell = (content, index) => {
    const [text, kind] = [content ?? "–"].flat();
    return index === 0 ? element("th", { scope: "row" }, text) : element("td", kind ? { class: kind } : {}, text);
  };
  const names = head.map((name) => element("th", { scope: "col" }, name));
  return element("div", { class: "card scroll" }, element("table", {},
    head.some((name) => name !== "") && element("thead", {}, element("tr", {}, names)),
    element("tbody", {}, rows.map((row) => element("tr", {}, row.map(cell))))));
}

// A table with a column per run. It leaves out rows for which no run has a value.
function tableOfRuns(rows) {
  const names = columns.map((column) => columns.length === 1 ? "" : column.name);
  const made = rows.map(([name, value]) => [name, ...columns.map(value)]);
  return table(["", ...names], made.filter(([, ...cells]) => cells.some((cell) => cell !== null)));
}

// The title of a figure. Where several columns stand beside each other, the title begins with the column's name.
function titled(column, what) {
  return columns.length === 1 ? what : `${column.name}: ${what}`;
}

// The head of the page.

function title() {
  if (results.length > 1) return results.map((result) => result.name).join(" · ");
  const { name, kind, scenario, a, b } = results[0];
  if (kind === "run" && scenario !== "") return `${scenario} · ${name}`;
  return kind === "compare" ? `${b.name} against ${a.name}: ${scenario}` : name;
}

function about(result) {
  switch (result.kind) {
    case "run": return result.summary;
    case "sweep": return `sweep over ${result.columns.length} rates`;
    case "find-max": return `search for the highest rate within ${result.slo}`;
    default: return `comparison over ${result.rounds} rounds`;
  }
}

// Unix milliseconds as a date in UTC.
function date(unixMs) {
  return `${new Date(unixMs).toISOString().slice(0, 16).replace("T", " ")} UTC`;
}

function addHeader() {
  document.title = title();
  const lines = results.map((result) => {
    const { cpu_model, cores, memory_bytes, kernel } = result.machine;
    const machine = `${cpu_model}, ${cores} cores, ${shown("bytes", memory_bytes)} of memory, ${kernel}`;
    const text = `${about(result)}. ${date(result.started_unix_ms)}, on ${machine}.`;
    const named = results.length === 1 ? [text] : [element("b", {}, result.name), `: ${text}`];
    return element("p", { class: "sub" }, named);
  });
  add(element("header", {}, element("h1", {}, title()), lines));
}

// Verdicts.

const SIGNS = { good: "✓", warn: "!", bad: "✗" };

function verdict({ tone, about, head, text, reasons }) {
  const subject = about === "" ? "" : `${about}: `;
  return element("div", { class: `verdict ${tone}` }, element("b", {}, `${SIGNS[tone]} ${subject}${head}`), text,
    reasons.length > 0 && element("ul", {}, reasons.map((reason) => element("li", {}, reason))));
}

function addVerdicts() {
  for (const result of results) {
    if (result.kind === "compare") add(verdict(result.verdict));
  }
  const section = element("section", { id: "verdicts" });
  for (const column of columns) {
    if (columns.length > 1) section.append(element("h3", {}, column.name));
    if (column.remark !== "") section.append(element("p", { class: "note" }, `${column.remark}.`));
    section.append(element("div", { class: "verdicts" }, column.verdicts.map(verdict)));
  }
  for (const result of results.filter((result) => result.kind === "sweep")) {
    if (results.length > 1) section.append(element("h3", {}, result.name));
    section.append(element("div", { class: "verdicts" }, result.verdicts.map(verdict)));
  }
  add(section);
}

// The handful of figures to see first, for a page of one run.
function tiles({ run, latencies, has_own_rates }) {
  const limit = has_own_rates ? "" : " (generator's limit)";
  const { acknowledged_per_s, delivered_per_s } = run.totals;
  const made = [["acknowledged", acknowledged_per_s], ["delivered", delivered_per_s]]
    .filter(([, rate]) => rate > 0)
    .map(([name, rate]) => [name + limit, shown("messages/s", rate)]);
  if (latencies.length > 0) {
    const { what, percentiles, max } = latencies[0];
    const [p50, , p99, p999] = percentiles;
    const named = { p50, p99, "p99.9": p999, max };
    made.push(...Object.entries(named).map(([name, ns]) => [`${what} ${name}`, shown("ns", ns)]));
  }
  if (run.resources !== null) {
    made.push(["daemon CPU per message", microseconds(run.resources.cpu_us_per_message)]);
    made.push(["daemon memory, at most", shown("bytes", run.resources.rss_max_bytes)]);
  }
  const tile = ([name, value]) => element("div", { class: "tile" }, element("span", {}, name), element("b", {}, value));
  return element("div", { class: "tiles" }, made.filter(([, value]) => value !== null).map(tile));
}

// Charts. A line has a name, a colour, a dash, a form, and the value of a row or step.

const LATENCY = { title: "latency (logarithmic)", unit: "ns", scale: "log" };
const OFFERED = linear("offered, messages per second", "messages/s");
const PERCENTILES = [
  ["p50", 1, 0, "p50_us"],
  ["p99", 2, 0, "p99_us"],
  ["p99.9", 3, 1, "p999_us"],
  ["max", 4, 2, "max_us"],
];

function linear(title, unit) {
  return { title, unit, scale: "linear" };
}

function percentileLines(form, percentiles) {
  return PERCENTILES.map(([name, colour, dash, key]) =>
    [name, colour, dash, form, (row) => times(percentiles(row)?.[key] ?? null, 1e3)]);
}

function seriesOf(lines, rows) {
  return lines.map(([name, colour, dash, form, value]) => ({ name, colour, dash, form, y: rows.map(value) }));
}

function chartOf(properties) {
  return { wide: false, group: "", rules: [], bands: [], ...properties };
}

// The lines of a spectrum have names, colours and dashes of their own; view.rs has computed their points.
function spectrumChart(id, title, note, { at, ns }, lines) {
  return chartOf({
    id, title, note, at, wide: true,
    x: { title: "percentile, each step ten times rarer", unit: "messages", scale: "nines" },
    y: LATENCY,
    series: lines.map((line, index) => ({ form: "line", y: ns[index], ...line })),
  });
}

const ofInterval = (kind) => (row) => row[kind]?.count > 0 ? row[kind] : null;

// The charts over time.
const TIMELINES = [
  {
    id: "delivery-latency", title: "Publish-to-delivery latency", y: LATENCY, isLatency: true,
    note: "Of the messages that arrived in each interval",
    lines: percentileLines("line", ofInterval("delivery")),
  },
  {
    id: "publish-latency", title: "Publish latency", y: LATENCY, isLatency: true,
    note: "Until the OK, of those that came in each interval",
    lines: percentileLines("line", ofInterval("publish")),
  },
  {
    id: "rate", title: "Rate", y: linear("messages per second", "messages/s"),
    note: "Offered is what was due, delivered counts every channel",
    lines: [
      ["delivered", 2, 0, "line", (row) => row.delivered_per_s],
      ["acknowledged", 1, 1, "line", (row) => row.acknowledged_per_s],
      ["sent", 4, 3, "line", (row) => row.sent_per_s],
      ["offered", 5, 2, "line", (row) => row.offered_per_s],
    ],
  },
  {
    id: "depth", title: "Waiting messages", y: linear("messages", "messages"),
    note: "From /stats, all channels together",
    lines: [
      ["depth", 1, 0, "area", (row) => row.depth],
      ["in flight", 2, 1, "line", (row) => row.in_flight],
      ["deferred", 3, 2, "line", (row) => row.deferred],
    ],
  },
  {
    id: "cpu", title: "CPU", y: linear("cores in use", "cores"),
    note: "All threads; 1 is one core. The generator's for comparison",
    lines: [
      ["daemon", 1, 0, "area", (row) => times(row.daemon?.cpu_percent ?? null, 0.01)],
      ["generator", 2, 1, "line", (row) => row.generator_cpu_percent / 100],
    ],
  },
  {
    id: "memory", title: "Memory of the daemon", y: linear("bytes", "bytes"),
    note: "Resident set at the end of each interval",
    lines: [["resident", 1, 0, "area", (row) => row.daemon?.rss_bytes ?? null]],
  },
  {
    id: "disk", title: "Disk writes of the daemon", y: linear("bytes per second", "bytes/s"),
    note: "As the system accounts them to the process",
    lines: [["written", 1, 0, "area", (row) => row.daemon?.disk_written_bytes_per_s ?? null]],
  },
  {
    id: "lateness", title: "Lateness of the generator", y: { ...LATENCY, title: "lateness (logarithmic)" },
    note: "How far behind its schedule the generator itself was; it is part of every latency",
    lines: percentileLines("line", ofInterval("lateness")).filter(([name]) => name !== "p99.9"),
  },
];

// The chart of a run over time; null if nothing of this kind was measured.
function timeline(kind, column, index) {
  const rows = column.run.series;
  // A line that is always zero is left out, unless it is the first.
  const series = seriesOf(kind.lines, rows)
    .filter(({ y }, nth) => y.some((value) => value !== null && (value > 0 || nth === 0)));
  if (series.length === 0) return null;
  return chartOf({
    id: `${kind.id}-${index + 1}`,
    group: kind.id,
    title: columns.length === 1 ? kind.title : `${kind.title}: ${column.name}`,
    note: `${kind.note}${kind.isLatency ? `, ${column.counted_from}` : ""}.`,
    x: linear("time since the first send", "s"),
    y: kind.y,
    at: rows.map((row) => row.at_s),
    series,
    bands: unmeasured(rows),
  });
}

// The stretches that were not measured: warm-up and drain.
function unmeasured(rows) {
  const bands = [];
  for (const { phase, at_s, length_s } of rows.filter((row) => row.phase !== "measure")) {
    const last = bands.at(-1);
    if (last?.label === phase) last.until = at_s;
    else bands.push({ from: Math.max(at_s - length_s, 0), until: at_s, label: phase });
  }
  return bands;
}

// The sections of single runs.

function spectrumNote() {
  const closed = columns.filter((column) => column.run.loop === "closed").map((column) => column.name);
  return closed.length === 0
    ? "Latency from the intended send time of each message: a stall counts for every message that was due meanwhile. "
      + "A point at 99.9 % says that one message in a thousand took longer."
    : `CLOSED LOOP (${closed.join(", ")}): latency from the actual send. While the daemon stalls nothing is sent, so `
      + "the rare latencies look better than users would see them.";
}

// The colour of a line says which run, the dash which latency. With one run the colour says which latency, too.
function spectrumLines() {
  return columns.flatMap((column, index) => column.latencies.map(({ what }) => {
    const dash = what === "publish" ? 1 : 0;
    return { name: titled(column, what), colour: columns.length === 1 ? dash + 1 : index % 6 + 1, dash };
  }));
}

function percentileTable() {
  const all = columns.flatMap((column) => column.latencies.map((latency) => [titled(column, latency.what), latency]));
  const row = (name, unit, value) => [name, ...all.map(([, latency]) => shown(unit, value(latency)))];
  const names = ["50 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %"];
  const rows = [
    row("min", "ns", ({ min }) => min),
    ...names.map((name, index) => row(name, "ns", ({ percentiles }) => percentiles[index])),
    row("max", "ns", ({ max }) => max),
    row("mean", "ns", ({ mean }) => mean),
    row("values", "messages", ({ count }) => count),
  ];
  return table(["", ...all.map(([name]) => name)], rows.filter(([, ...cells]) => cells.some((cell) => cell !== null)));
}

// The figures of a run: name, unit, value, and true for a rate that may be the generator's limit.
const FIGURES = [
  ["offered", "messages/s", ({ run }) => run.totals.offered_per_s],
  ["acknowledged", "messages/s", ({ run }) => run.totals.acknowledged_per_s || null, true],
  ["delivered, all channels", "messages/s", ({ run }) => run.totals.delivered_per_s || null, true],
  ["acknowledged bodies", "bytes/s", ({ run }) => run.totals.acknowledged_bytes_per_s || null],
  ["CPU of the daemon", "cores", ({ cores_used }) => cores_used],
  ["CPU per message published or delivered", "ns", ({ run }) => times(run.resources?.cpu_us_per_message ?? null, 1e3)],
  ["memory at the start", "bytes", ({ run }) => run.resources?.rss_start_bytes ?? null],
  ["memory at most", "bytes", ({ run }) => run.resources?.rss_max_bytes ?? null],
  ["memory per queued message", "bytes", ({ run }) => run.resources?.memory_bytes_per_queued ?? null],
  ["written to disk", "bytes", ({ run }) => run.resources?.disk_written_bytes ?? null],
  ["written to disk per message", "bytes", ({ run }) => run.resources?.disk_bytes_per_message ?? null],
  ["context switches, voluntary", "messages", ({ run }) => run.resources?.switches_voluntary ?? null],
  ["context switches, involuntary", "messages", ({ run }) => run.resources?.switches_involuntary ?? null],
  ["measured time", "s", ({ run }) => run.totals.measured_s],
];

// Each figure has its ratio to that of the first run.
function figureTable() {
  return tableOfRuns(FIGURES.map(([name, unit, value, isRate]) => [name, (column, index) => {
    const [found, first] = [value(column), value(columns[0])];
    if (found === null) return null;
    const text = shown(unit, found) + (index > 0 && first > 0 ? ` (${number(found / first)} x)` : "");
    return isRate && !column.has_own_rates ? [`${text}, the generator's limit`, "warn-text"] : text;
  }]));
}

// The counts of the ledger; true for those that must be zero.
const COUNTS = [
  ["sent", "sent", false],
  ["acknowledged", "acknowledged", false],
  ["refused", "refused", true],
  ["unconfirmed", "unconfirmed", true],
  ["received, all channels", "received", false],
  ["lost", "lost", true],
  ["duplicated", "duplicated", true],
  ["corrupted", "corrupted", true],
  ["reordered", "reordered", false],
  ["redelivered, as expected", "redelivered", false],
  ["of somebody else", "foreign", false],
];

function ledgerTable() {
  const counts = COUNTS.map(([name, key, mustBeZero]) => [name, ({ ledger }) =>
    [number(ledger[key]), mustBeZero && ledger[key] > 0 ? "bad-text" : ""]]);
  return tableOfRuns([...counts, ["verdict", ({ verdicts: [{ head, tone }] }) => [head, `${tone}-text`]]]);
}

function setUpTable() {
  const text = (value) => value ? [value, "text"] : null;
  return tableOfRuns([
    ["daemon", ({ run }) => text(`${run.daemon.kind} ${run.daemon.version}`)],
    ["its address", ({ run }) => text(run.daemon.tcp_address)],
    ["its command", ({ run }) => text(run.daemon.command)],
    ["scenario", ({ summary }) => text(summary)],
    ["processor", ({ machine }) => text(machine.cpu_model)],
    ["cores", ({ machine }) => text(String(machine.cores))],
    ["memory", ({ machine }) => text(shown("bytes", machine.memory_bytes))],
    ["kernel", ({ machine }) => text(machine.kernel)],
  ]);
}

function addRuns() {
  if (columns.length === 0) return;
  add(element("h2", {}, "Latency"));
  const lines = spectrumLines();
  if (lines.length > 0) {
    addCharts([spectrumChart("spectrum", "Percentile spectrum", spectrumNote(), runs.spectrum, lines)]);
  }
  add(element("h3", {}, "Percentiles"), percentileTable());
  add(element("h2", {}, "Over time"));
  add(element("p", { class: "sub" }, "Point at a chart for its values. Shaded: not measured."));
  const timelines = TIMELINES.flatMap((kind) => columns.map((column, index) => timeline(kind, column, index)));
  addCharts(timelines.filter((chart) => chart !== null));
  // The tables of one run are narrow: two beside each other.
  add(element("div", { class: columns.length === 1 ? "grid" : "" },
    element("div", {}, element("h2", {}, "Figures"), figureTable()),
    element("div", {}, element("h2", {}, "Ledger"), ledgerTable())));
  add(element("h2", {}, "Set-up"), setUpTable());
}

// A sweep: latency against rate, and its knee.

function offered({ run: { totals } }) {
  return totals.offered_per_s ?? totals.acknowledged_per_s;
}

// The record of the latency that counts: that of deliveries, or of publishes where nothing was consumed.
function mainLatency({ run, latencies }) {
  return run.histograms.find((record) => record.kind === latencies[0]?.what);
}

// Says in a cell whose limit the figures of a step are.
function checked(verdict) {
  return [whose[verdict], verdict === "trusted" ? "good-text" : "warn-text"];
}

function addSweep(result, place) {
  add(element("h2", {}, `${result.name}: latency against rate`), element("p", { class: "sub" }, result.knee));
  const steps = result.columns.toSorted((one, other) => offered(one) - offered(other));
  const byRate = (id, title, note, y, lines) => chartOf({
    id: `${id}-${place}`, title, note, x: OFFERED, y, at: steps.map(offered), series: seriesOf(lines, steps),
  });
  const knee = {
    ...byRate("knee", "Latency against rate",
      "Publish-to-delivery latency from the intended send time; publish latency where nothing was consumed. Each mark is "
        + "a run.",
      LATENCY, percentileLines("marks", mainLatency)),
    wide: true,
    // The steps are at even ratios, so a logarithmic axis shows them at even distances.
    x: { title: "offered, messages per second (logarithmic)", unit: "messages/s", scale: "log" },
    bands: result.knee_per_s === null ? [] : [{ from: result.knee_per_s, until: null, label: "beyond the knee" }],
  };
  const carried = byRate("carried", "What was carried",
    "Where acknowledged leaves the line of what was offered, the daemon is behind.",
    linear("messages per second", "messages/s"), [
      ["delivered, all channels", 2, 0, "marks", ({ run }) => run.totals.delivered_per_s],
      ["acknowledged", 1, 1, "marks", ({ run }) => run.totals.acknowledged_per_s],
      ["offered", 5, 2, "marks", offered],
    ]);
  const cpu = byRate("sweep-cpu", "CPU of the daemon", "All its threads; 1 is one core.",
    linear("cores in use", "cores"), [["daemon", 1, 0, "marks", ({ cores_used }) => cores_used]]);
  const lines = result.columns.filter(({ latencies }) => latencies.length > 0).map((step, index) =>
    ({ name: shown("messages/s", offered(step)), colour: index % 6 + 1, dash: Math.floor(index / 6) % 4 }));
  addCharts([
    knee,
    carried,
    ...steps.some(({ cores_used }) => cores_used !== null) ? [cpu] : [],
    ...lines.length > 0 ? [spectrumChart(`sweep-spectrum-${place}`, "Percentile spectrum of each step",
      "One line per step, named by the offered rate.", result.spectrum, lines)] : [],
  ]);
  const head = ["offered", "acknowledged", "delivered", "p50", "p99", "p99.9", "max", "cores", "ledger", "self-check"];
  const row = (step) => [
    ...[offered(step), step.run.totals.acknowledged_per_s, step.run.totals.delivered_per_s]
      .map((rate) => shown("messages/s", rate)),
    ...PERCENTILES.map(([, , , key]) => microseconds(mainLatency(step)?.[key] ?? null)),
    step.cores_used === null ? null : number(step.cores_used),
    [step.verdicts[0].head, step.verdicts[0].tone === "bad" ? "bad-text" : ""],
    checked(step.run.self_check.verdict),
  ];
  add(element("h3", {}, "Steps"), table(head, result.columns.map(row)));
}

// A search for the highest rate within an objective, and the profile it leaves.

// The line across at the objective's limit for the 99th percentile; none where the objective has no such limit.
function limitOf(found) {
  const term = found.headroom.find(({ term }) => term.startsWith("p99<"));
  const y = (term?.measured ?? 0) * 1e3 / (1 - (term?.left_share ?? 1));
  return y > 0 && Number.isFinite(y) ? [{ y, label: `the objective: ${term.term}` }] : [];
}

function searchChart(found, place) {
  const steps = found.steps.toSorted((one, other) => one.offered_per_s - other.offered_per_s);
  const p99 = (passed) => (step) => step.passed === passed
    ? times(step.delivery_p99_us ?? step.publish_p99_us, 1e3) : null;
  const lines = [["met the objective", 3, 0, "dots", p99(true)], ["missed it", 2, 0, "rings", p99(false)]];
  return chartOf({
    id: `search-${place}`,
    title: "The search",
    note: "The 99th percentile of publish-to-delivery latency (publish latency where nothing was consumed) at each "
      + "rate that was tried.",
    wide: true,
    x: OFFERED,
    y: { ...LATENCY, title: "p99 latency (logarithmic)" },
    at: steps.map((step) => step.offered_per_s),
    series: seriesOf(lines, steps).filter(({ y }) => y.some((value) => value !== null)),
    rules: limitOf(found),
  });
}

function profileTable(profile) {
  const rows = [
    ["rate", "messages/s", profile.messages_per_s],
    ["message size", "bytes", profile.message_bytes],
    ["channels", "messages", profile.channels],
    ["cores used by the daemon", "messages", profile.daemon_cores_used],
    ["CPU per published message", "ns", times(profile.cpu_s_per_published, 1e9)],
    ["CPU per delivered message", "ns", times(profile.cpu_s_per_delivered, 1e9)],
    ["memory, nothing queued", "bytes", profile.memory_bytes_idle],
    ["memory per queued message", "bytes", profile.memory_bytes_per_queued],
    ["disk per queued message", "bytes", profile.disk_bytes_per_message],
  ];
  const measured = rows.filter(([, , value]) => value !== null);
  return table(["", ""], measured.map(([name, unit, value]) => [name, shown(unit, value)]));
}

function addSearch(found, place) {
  add(element("h2", {}, `${found.name}: the highest rate within ${found.slo}`));
  const rate = (value, what) => value === null ? null : `${shown("messages/s", value)} ${what}`;
  const parts = [
    rate(found.found_per_s, "held and confirmed") ?? "No rate met the objective",
    rate(found.failed_per_s, "failed"),
    found.limit,
  ];
  add(element("p", { class: "sub" }, `${parts.filter((part) => part !== null).join("; ")}.`));
  addCharts([searchChart(found, place)]);
  if (found.headroom.length > 0) {
    // Terms such as p99<5ms bound a time, the others count messages.
    const rows = found.headroom.map(({ term, measured, left_share }) =>
      [term, term.endsWith("s") ? microseconds(measured) : number(measured), percent(left_share)]);
    add(element("h3", {}, "Headroom"), table(["term of the objective", "measured", "left"], rows));
  }
  const head = ["stage", "offered", "acknowledged", "publish p99", "delivery p99", "objective", "self-check"];
  const tried = found.steps.map((step) => [
    step.stage,
    shown("messages/s", step.offered_per_s),
    shown("messages/s", step.acknowledged_per_s),
    microseconds(step.publish_p99_us),
    microseconds(step.delivery_p99_us),
    step.passed ? ["met", "good-text"] : [`missed: ${step.missed.join(", ")}`, "bad-text"],
    checked(step.verdict),
  ]);
  add(element("h3", {}, "Rates tried"), table(head, tried));
  if (found.profile !== null) {
    add(element("h3", {}, "Profile for capacity planning"), profileTable(found.profile));
  }
}

// A comparison: every metric with the spread of its rounds, and the ratios.

// The name of a metric in words: without the unit, which its figures have.
function metricTitle(name) {
  const known = { cpu: "CPU", rss: "RSS", p999: "p99.9", us: "", bytes: "" };
  const words = name.replace("per_s", "per second").split("_").map((word) => known[word] ?? word);
  const title = words.filter((word) => word !== "").join(" ");
  return title[0].toUpperCase() + title.slice(1);
}

function metricText({ unit }, value) {
  switch (unit) {
    case "msg/s": return shown("messages/s", value);
    case "us": return microseconds(value);
    case "bytes": return shown("bytes", value);
    default: return `${number(value)} ${unit}`;
  }
}

// What a ratio means: a difference only if all rounds agree on its direction.
function judged({ min, max, higher_is_better }) {
  if (min <= 1 && max >= 1) return ["no difference that all rounds agree on", ""];
  return (min > 1) === higher_is_better ? ["better in every round", "good-text"] : ["worse in every round", "bad-text"];
}

// A name with the median, and below them the bar of the median, the range, and a dot per round, on an axis from zero to
// `most`.
function bar(colour, name, metric, most) {
  const across = (value) => `${(100 * value / (most || 1)).toFixed(2)}%`;
  const text = (value) => metricText(metric, value);
  const { median, min, max, values } = metric;
  const dot = (value, index) => value !== null
    && element("i", { style: `left:${across(value)}`, title: `${name}, round ${index + 1}: ${text(value)}` });
  return [
    element("div", { class: "bar-name" }, element("span", {}, name), element("b", {}, text(median))),
    element("div", { class: `bars c${colour}` },
      element("div", {
        class: "bar", style: `width:${across(median)}`,
        title: `${name}: median ${text(median)}, from ${text(min)} to ${text(max)}`,
      }),
      element("div", { class: "range", style: `left:${across(min)};width:${across(max - min)}` }),
      values.map(dot)),
  ];
}

function metricFigure({ a, b, ratios }, metric, index) {
  const other = b.metrics.find(({ name }) => name === metric.name);
  if (!other) return null;
  const ratio = ratios.find((ratio) => ratio.metric === metric.name);
  const note = element("p", { class: "note" }, metric.higher_is_better ? "More is better." : "Less is better.");
  if (ratio) {
    const [words, kind] = judged(ratio);
    note.append(" Ratio ", element("b", { class: kind }, number(ratio.median)),
      ` (${number(ratio.min)} to ${number(ratio.max)}): `, element("span", { class: kind }, words), ".");
  }
  const most = Math.max(metric.max, other.max);
  return element("figure", { class: "chart", id: `compare-${index + 1}` },
    element("figcaption", {}, element("h3", {}, metricTitle(metric.name)), note),
    bar(1, a.name, metric, most), bar(2, b.name, other, most));
}

function addComparison(compare) {
  const { a, b, thresholds } = compare;
  add(element("h2", {}, `${b.name} against ${a.name}`));
  add(element("p", { class: "sub" },
    `Scenario ${compare.scenario}, ${compare.rounds} rounds, each of which ran ${a.name} and then ${b.name} with a `
      + `fresh data directory. Bars are medians and start at zero, dots are the rounds. A ratio is ${b.name} over `
      + `${a.name}, the median of the rounds' ratios: each round compares neighbours in time.`));
  add(element("div", { class: "grid" }, a.metrics.map((metric, index) => metricFigure(compare, metric, index))));
  if (thresholds.length > 0) {
    const rows = thresholds.map(({ metric, bound, limit, measured, met }) => [
      metric,
      `${bound.replace("-", " ")} ${number(limit)} x`,
      measured === null ? "not measured" : number(measured),
      met ? ["met", "good-text"] : ["missed", "bad-text"],
    ]);
    add(element("h3", {}, "Thresholds"), table(["metric", "asked for", "measured", ""], rows));
  }
  add(element("h3", {}, "Commands of the daemons"));
  add([a, b].map((side) => element("pre", {}, `${side.name}: ${side.command}`)));
}

// The end of the page.

// A word as a shell takes it.
function quoted(word) {
  return /^[A-Za-z0-9_=+:,./@%-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

function addFooter() {
  add(element("h2", {}, results.length === 1 ? "Command" : "Commands"));
  add(results.map((result) => element("pre", {}, result.command.map(quoted).join(" "))));
  const tools = [...new Set(results.map((result) => result.tool))].sort().join(", ");
  add(element("footer", {},
    `Measured by ${tools}. 1 MB is 1,000,000 bytes. This page loads nothing from anywhere.`));
}

addHeader();
addVerdicts();
if (columns.length === 1) add(tiles(columns[0]));
results.forEach((result, index) => {
  if (result.kind === "sweep") addSweep(result, index + 1);
  if (result.kind === "find-max") addSearch(result, index + 1);
  if (result.kind === "compare") addComparison(result);
});
addRuns();
addFooter();
for (const chart of charts) {
  const peers = charts.filter((other) => other === chart || (chart.group !== "" && other.group === chart.group));
  draw(document.getElementById(chart.id), chart, peers);
}
