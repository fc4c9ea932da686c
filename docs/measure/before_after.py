#!/usr/bin/env python3
"""Compares the CPU time per message of two binaries of our nsqd, before and after a change.

    docs/measure/before_after.py --before OLD/nsqd [--after target/dist/nsqd] [--rows sync-32] [--pairs 40]

For each row of hot_path.py, both brokers run all the time, on fresh data paths. nsq-bench loads one broker for a second
and then the other. The next pair of loads has the other order. So a busy minute of the machine affects both brokers.
Prints a line of Markdown per row: the medians, the median of the pairs' ratios (after to before), and the range that
holds this median with 95 % (by order statistics, which assume no distribution).
"""

import argparse
import shlex
import statistics
import tempfile
from pathlib import Path

import hot_path
from measuring import Broker, measure_rows

CPU_ROWS = [name for name, row in hot_path.ROWS.items() if hot_path.CPU in row[3] and "after-publish" not in row[0]]


def for_a_second(flags):
    """Returns the row's load, cut to a second."""
    words = shlex.split(flags)
    for name, value in (("--warm-up", "200ms"), ("--duration", "1s")):
        while name in words:
            at = words.index(name)
            del words[at:at + 2]
        words += [name, value]
    return " ".join(words)


def confidence(ratios):
    """Returns the ratios between which the median lies with 95 % (binomial, by its normal approximation)."""
    ordered = sorted(ratios)
    away = 0.98 * len(ordered) ** 0.5
    low = max(0, round(len(ordered) / 2 - away) - 1)
    return ordered[low], ordered[min(len(ordered) - 1, round(len(ordered) / 2 + away))]


def measure(name, runner, options):
    flags, _, ours, _ = hot_path.ROWS[name]
    load = for_a_second(flags)
    cpu = {"before": [], "after": []}
    with Broker(runner, ours, program=options.before) as before, Broker(runner, ours, program=options.after) as after:
        brokers = {"before": before, "after": after}
        for pair in range(options.pairs):
            for side in sorted(brokers, reverse=pair % 2 == 0):
                cpu[side].append(runner.run(brokers[side], load)["resources"][hot_path.CPU])
    ratios = [new / old for old, new in zip(cpu["before"], cpu["after"])]
    low, high = confidence(ratios)
    medians = (f"{statistics.median(cpu[side]):.3g}" for side in ("before", "after"))
    print(f"| {name} | {' | '.join(medians)} us | {statistics.median(ratios):.3f} ({low:.3f}-{high:.3f}) | "
          f"{options.pairs} pairs, {min(ratios):.2f}-{max(ratios):.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, type=Path, help="the older nsqd")
    parser.add_argument("--after", type=Path, default=Path("target/dist/nsqd"), help="the newer nsqd")
    parser.add_argument("--ours", type=Path, default=Path("target/dist"), help="folder of nsq-bench")
    parser.add_argument("--rows", default=",".join(CPU_ROWS), help="names of hot_path.py, separated by commas")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()), help="where data paths are made")
    options = parser.parse_args()
    measure_rows(measure, options)


if __name__ == "__main__":
    main()
