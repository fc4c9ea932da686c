#!/usr/bin/env python3
"""Measures ringq against the original nsqd, and makes the table and the charts of the pages performance.md and README.md.

    docs/measure/all.py --original NSQD [--tools DIR] [--rows mpub,both] [--rounds 5] [--ours target/dist]
    docs/measure/all.py --table      prints the page's table from the results
    docs/measure/all.py --write      puts the table into the page, draws the charts, and describes README's chart there
    docs/measure/all.py --check      fails if a page or a chart differs from the results

NSQD is the original's program. DIR has the original's bench_writer and bench_reader. The rows `tools-...` need them.
Both brokers run in turns, round by round. Each measured row replaces the row of results/against-nsqd.json.
"""

import argparse
import datetime
import json
import re
import statistics
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import chart
import hot_path
import side_by_side
from measuring import number

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "against-nsqd.json"
CHART = HERE / "results" / "against-nsqd.svg"
README_CHART = HERE / "results" / "readme.svg"
PAGE = HERE.parent / "explain/performance.md"
README = HERE.parents[1] / "README.md"
# What stands between the two lines of a page is made.
BEGIN, END = "<!-- docs/measure/all.py --write makes this -->\n", "<!-- end of it -->\n"
# The rows of the page, with their texts.
SHOWN = {
    "tools-publish": "MPUB of 200, by `bench_writer`",
    "tools-deliver": "deliver and FIN, by `bench_reader`",
    "mpub": "MPUB of 200",
    "mpub-disk": "MPUB of 200, the backlog outgrows memory",
    "both": "publish and deliver at once",
    "deliver-disk": "deliver a cold backlog from disk",
    "fan-out-16": "fan-out to 16 channels, deliveries",
    "64k": "64 KiB messages, publish and deliver",
    "pub-50k": "single PUBs at 50,000/s, delivery",
    "pub-200k": "single PUBs at 200,000/s, delivery",
    "sync-1": "one synchronous producer",
    "sync-32": "32 synchronous producers",
    "group-commit-32": "32 producers, each OK waits for a sync",
    "http-pub": "HTTP `/pub`, 32 connections",
}
# The rows of README's chart: three that ringq wins, and the one that it does not win.
IN_README = "tools-publish", "both", "group-commit-32", "sync-1"
TOOLS = {"tools-publish": "publish", "tools-deliver": "deliver"}


def table(rows):
    """Returns the page's table, and the source of its figures."""
    lines = ["| load | messages/s: ringq, nsqd | ratio | CPU per message, µs | ratio | p99, ms | ratio |",
             "|---|---|---|---|---|---|---|"]
    for name, text in SHOWN.items():
        cells = [text]
        for figure in chart.FIGURES:
            values = rows[name].get(figure)
            cells += [", ".join(short(values[side], figure) for side in ("ringq", "original")),
                      ratio(chart.ratio(rows[name], figure))] if values else ["–", ""]
        lines.append(f"| {' | '.join(cells)} |")
    sources = {}
    for name in SHOWN:
        row = rows[name]
        source = row["measured"], row["program"], without_build(row["machine"]), row["rounds"]
        sources.setdefault(source, []).append(name)
    for (day, program, machine, rounds), names in sources.items():
        which = "All rows" if len(sources) == 1 else ", ".join(names)
        text = f"{which}: {day}, program of commit {program}, medians of {rounds} rounds, on {machine}."
        lines += ["", *textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)]
    return "\n".join(lines) + "\n"


def without_build(machine):
    """Returns a machine whose kernel has its version only: the name of one host's build says nothing to others."""
    return re.sub(r"(Linux \d+(?:\.\d+)*)[^\s,]*", r"\1", machine)


def short(value, figure):
    if figure == "rate_per_s":
        unit, size = ("M", 1e6) if value >= 1e6 else ("k", 1e3)
        return f"{value / size:.3g} {unit}"
    return number(value)


def ratio(value):
    return f"{value:.2g} x" if value >= 1 else f"1/{number(float(f'{1 / value:.2g}'))}"


def readme_chart(rows):
    """Returns README's line of the chart. Its text has the figures for those who see no picture."""
    figures = [f"{SHOWN[name]}: {', '.join(better(rows[name]))}".replace("`", "") for name in IN_README]
    text = f"![ringq against nsqd 1.3.0, times better. {'; '.join(figures)}]({README_CHART.relative_to(README.parent)})"
    return "\n".join(textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)) + "\n"


def better(row):
    """Returns the figures of a row, each as how many times better it is."""
    figures = [(name, chart.better(row, figure)) for figure, (_, _, name) in chart.FIGURES.items()]
    return [f"{name} {chart.times(factor)}" for name, factor in figures if factor is not None]


def page_with(path, text):
    """Returns a page, and what it should be: with `text` between its two lines."""
    page = path.read_text()
    head, rest = page.split(BEGIN)
    return page, head + BEGIN + text + rest[rest.index(END):]


def measure(options):
    saved = json.loads(RESULTS.read_text())
    saved["original"] = output(options.original, "-version").split(" (")[0]
    names = options.rows.split(",")
    for name in names:
        if name not in TOOLS:
            keep(saved, name, options, compared(name, options))
    if tools := [name for name in names if name in TOOLS]:
        for name, row in by_tools(tools, options).items():
            keep(saved, name, options, row)


def keep(saved, name, options, row):
    """Writes a row at once, so that the file has the row even if a later row fails."""
    row = {"measured": datetime.date.today().isoformat(), "program": options.program, "rounds": options.rounds, **row}
    row.setdefault("machine", next((old["machine"] for old in saved["rows"].values() if old["measured"] == row["measured"]
                                    and old["program"] == row["program"]), without_build(output("uname", "-srm"))))
    saved["rows"][name] = row
    RESULTS.write_text(json.dumps(saved, indent=1, ensure_ascii=False) + "\n")


def compared(name, options):
    """Measures a row by `nsq-bench compare`."""
    result = hot_path.run(name, options)
    hot_path.show(name, result["outcome"])
    machine = result["machine"]
    row = {"machine": f"{machine['cores']} cores of {machine['cpu_model']}, {without_build(machine['kernel'])}, "
                      f"{machine['memory_bytes'] / 2**30:.0f} GiB"}
    original, ringq = ({metric["name"]: metric for metric in result["outcome"][side]["metrics"]} for side in "ab")
    ratios = {of["metric"]: of["median"] for of in result["outcome"]["ratios"]}
    for metric in hot_path.metrics_of(name) or hot_path.ROWS[name][3]:
        if metric not in ratios:
            continue
        key, scale = ("p99_ms", 1e3) if "p99" in metric else ("rate_per_s", 1) if metric.endswith("_per_s") else \
            ("cpu_us", 1) if metric.startswith("cpu_us") else (metric, 1)
        row[key] = {"ringq": ringq[metric]["median"] / scale, "original": original[metric]["median"] / scale}
        row[key + "_ratio"] = ratios[metric]
        row[key + "_range"] = {
            side: [value["min"] / scale, value["max"] / scale]
            for side, value in (("ringq", ringq[metric]), ("original", original[metric]))}
    if len(row) == 1:
        raise SystemExit(f"{name}: nsq-bench measured nothing on both sides")
    return row


def by_tools(names, options):
    """Measures the rows by the original's own load tools."""
    if not options.tools:
        raise SystemExit(f"{', '.join(names)}: --tools must name the folder of bench_writer and bench_reader")
    runs = side_by_side.rounds(argparse.Namespace(
        a=options.ours / "nsqd", b=options.original, a_args="", b_args=hot_path.IN_MEMORY, tools=options.tools,
        rounds=options.rounds, seconds=4, settle=3, warm=0, data=tempfile.gettempdir()))
    median = {side: {key: statistics.median(run[key] for run in runs[letter]) for key in side_by_side.FIGURES}
              for side, letter in (("ringq", "A"), ("original", "B"))}
    rows = {name: {"rate_per_s": {side: of[f"{TOOLS[name]} msg/s"] for side, of in median.items()},
                   "cpu_us": {side: of[f"{TOOLS[name]} ns/msg"] / 1e3 for side, of in median.items()}} for name in names}
    rows["tools-memory"] = {"memory_bytes_per_queued": {side: of["bytes/queued msg"] for side, of in median.items()}}
    return rows


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=HERE).stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--original", type=Path, help="the original's nsqd")
    parser.add_argument("--tools", type=Path, help="folder of the original's bench_writer and bench_reader")
    parser.add_argument("--ours", type=Path, default=Path("target/dist"), help="folder of our programs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", help="names of results/against-nsqd.json; default: those of the page")
    for flag in ("--table", "--write", "--check"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    if options.original:
        options.original = options.original.resolve()
        options.rows = options.rows or ",".join(name for name in SHOWN if options.tools or name not in TOOLS)
        options.program = output("git", "describe", "--always", "--dirty")
        measure(options)
    rows = json.loads(RESULTS.read_text())["rows"]
    if options.table:
        print(table(rows), end="")
    drawn = {CHART: drawing(SHOWN, rows), README_CHART: drawing(IN_README, rows)}
    made = {PAGE: page_with(PAGE, table(rows)), README: page_with(README, readme_chart(rows))}
    made |= {path: (path.read_text() if path.exists() else "", text) for path, text in drawn.items()}
    for path, (present, text) in made.items():
        if options.write:
            path.write_text(text)
        elif options.check and present != text:
            sys.exit(f"{path} is not what {RESULTS} says: docs/measure/all.py --write")


def drawing(names, rows):
    return chart.draw([(SHOWN[name].replace("`", ""), rows[name]) for name in names])


if __name__ == "__main__":
    main()
