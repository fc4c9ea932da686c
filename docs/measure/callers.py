#!/usr/bin/env python3
"""Compares nsqd with the original under clients that wait for each answer: go-nsq, and blocking threads.

    docs/measure/callers.py --original NSQD [--before OLD/nsqd] [--rows go-1,blocking-1] [--rounds 5]

The rows `go-*` run callers/main.go: goroutines that publish over shared connections or their own. The rows `blocking-*`
run `nsq-bench run --client blocking`: a thread and a connection for each caller. The original has its queue in memory,
ours its defaults. Each round runs all programs, on fresh data paths, in the other order than the round before. Prints a
line of Markdown per row, program and figure: the median (range), and its ratio to the original. CPU is that of the
daemon for one message. Needs Go and `cargo build --release -p engine -p nsq-bench`.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import hot_path
from engines import figure
from measuring import Broker, Table, measure_rows

TOPIC = "callers"
# name: (callers, connections)
ROWS = {
    "go-1": (1, 1),
    "go-32-on-1": (32, 1),
    "go-32": (32, 32),
    "go-256-on-32": (256, 32),
    "blocking-1": (1, 1),
    "blocking-32": (32, 32),
}
RATE, CPU, P50, P99 = "messages/s", "CPU us/message", "p50 us", "p99 us"


def go_client(folder):
    source = Path(__file__).parent / "callers"
    program = folder / "callers"
    subprocess.run(["go", "build", "-o", program, "."], cwd=source, check=True)
    return program


def go(runner, options, broker, callers, connections):
    command = [options.callers, f"--address={broker.tcp}", f"--callers={callers}", f"--connections={connections}"]
    runner.say(command)
    # The depth of the channel is the number of messages.
    broker.post([f"/topic/create?topic={TOPIC}", f"/channel/create?topic={TOPIC}&channel=c"])
    before = broker.cpu_s()
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    cpu_s = broker.cpu_s() - before
    return {RATE: found["messages_per_s"], CPU: cpu_s * 1e6 / broker.depth(TOPIC), P50: found["p50_us"],
            P99: found["p99_us"]}


def blocking(runner, broker, callers):
    outcome = runner.run(broker, f"--via pub --client blocking --producers {callers} --consumers 0 --channels 0 "
                                 "--warm-up 500ms --duration 2s")
    publish = next(record for record in outcome["histograms"] if record["kind"] == "publish")
    return {RATE: figure(outcome, hot_path.RATE_P), CPU: figure(outcome, hot_path.CPU), P50: publish["p50_us"],
            P99: publish["p99_us"]}


def measure(name, runner, options):
    callers, connections = ROWS[name]
    programs = {"nsqd": lambda: Broker(runner, hot_path.IN_MEMORY, program=options.original)}
    if options.before:
        programs["before"] = lambda: Broker(runner, program=options.before)
    programs["ringq"] = lambda: Broker(runner)
    table = Table(name)
    for round_number in range(options.rounds):
        for variant in list(programs)[::-1 if round_number % 2 else 1]:
            with programs[variant]() as broker:
                if name.startswith("go"):
                    figures = go(runner, options, broker, callers, connections)
                else:
                    figures = blocking(runner, broker, callers)
            for metric in (RATE, CPU, P50, P99):
                table.add(variant, metric, figures[metric])
    table.show()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--original", required=True, type=Path, help="the original's nsqd")
    parser.add_argument("--before", type=Path, help="an older nsqd of ours")
    parser.add_argument("--ours", type=Path, default=Path("target/release"), help="folder of our programs")
    parser.add_argument("--rows", default=",".join(ROWS), help="names, separated by commas")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()), help="where data paths are made")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ringq-") as folder:
        options.callers = go_client(Path(folder))
        measure_rows(measure, options)


if __name__ == "__main__":
    main()
