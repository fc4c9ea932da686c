#!/usr/bin/env python3
"""Compares the engines of `--io` in every row of hot_path.py.

    docs/measure/engines.py [--engines io_uring,epoll,glommio] [--rows mpub,both] [--rounds 9] [--ours target/dist]

One broker of each engine runs all the time, on a fresh data path. In each round, nsq-bench loads the brokers one after
the other. Each round begins with another engine. Prints a line of Markdown per row and metric: the first engine's
median, and for each other engine the median of the rounds' ratios to the first engine, with the range that holds this
median with 95 % (by order statistics, which assume no distribution).
"""

import argparse
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

import hot_path
from before_after import confidence, for_a_second
from measuring import Broker, measure_rows, number


# The row about memory per queued message is left out, because it does not depend on the engine.
ROWS = [name for name in hot_path.ROWS if name != "memory"]


def measure(name, runner, options):
    flags, _, ours, _ = hot_path.ROWS[name]
    # A row with a fixed number of messages has no fixed duration.
    load = flags if "--messages" in flags else for_a_second(flags)
    values = {metric: {engine: [] for engine in options.engines} for metric in hot_path.metrics_of(name)}
    with ExitStack() as stack:
        brokers = {engine: stack.enter_context(Broker(runner, f"{ours} --io={engine}")) for engine in options.engines}
        for round_number in range(options.rounds):
            first = round_number % len(options.engines)
            for engine in options.engines[first:] + options.engines[:first]:
                outcome = runner.run(brokers[engine], load)
                for metric in values:
                    values[metric][engine].append(figure(outcome, metric))
    for metric in values:
        show(name, metric, values[metric])


def figure(outcome, metric):
    """Returns one figure of a run, by its name in `nsq-bench compare`, or None if the run has left it out."""
    if metric == hot_path.RATE_P:
        return outcome["totals"]["acknowledged_per_s"]
    if metric == hot_path.RATE_D:
        return outcome["totals"]["delivered_per_s"]
    if metric in (hot_path.PUB99, hot_path.DEL99):
        kind = metric.removesuffix("_p99_us")
        return next(record["p99_us"] for record in outcome["histograms"] if record["kind"] == kind)
    resources = outcome["resources"]
    return resources and resources[metric]


def show(name, metric, values):
    base, *others = values
    cells = [f"{base} {number(statistics.median(values[base]))}"]
    for engine in others:
        ratios = [new / old for old, new in zip(values[base], values[engine])]
        low, high = confidence(ratios)
        cells.append(f"{statistics.median(ratios):.2f} ({low:.2f}-{high:.2f})")
    print(f"| {name} | {metric} | {' | '.join(cells)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default="io_uring,epoll,glommio", help="values of --io; the others are compared with the first")
    parser.add_argument("--ours", type=Path, default=Path("target/dist"), help="folder of our programs")
    parser.add_argument("--rows", default=",".join(ROWS), help="names of hot_path.py, separated by commas")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()), help="where data paths are made")
    options = parser.parse_args()
    options.engines = options.engines.split(",")
    measure_rows(measure, options)


if __name__ == "__main__":
    main()
