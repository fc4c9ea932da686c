#!/usr/bin/env python3
"""Compares nsqd with the original under clients that wait for each answer.

    docs/measure/callers.py --original NSQD [--before OLD/nsqd] [--rows go-1,blocking-1] [--rounds 5]

The rows `go-*` run callers/main.go, `pynsq-*` callers/pynsq_callers.py, and `rust-*` the example `callers` of ringq's
client: callers that publish over shared connections or their own. The rows `blocking-*` run `nsq-bench run --client
blocking`: a thread and a connection for each caller. The original has its queue in memory, ours its defaults. Each round
runs all programs, on fresh data paths, in the reverse order of the round before. Prints a line of Markdown per row,
program and figure: the median (range), and its ratio to the original. CPU is that of the daemon for one message. Needs
Go, pynsq, `cargo build --profile dist -p nsqd -p nsq-bench` and `cargo build --profile dist -p ringq-client --example callers`.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import hot_path
from engines import figure
from measuring import Broker, in_turns, measure_rows, parse_comparison

TOPIC = "callers"
SOURCES = Path(__file__).parent / "callers"
# name: (callers, connections)
ROWS = {
    "go-1": (1, 1),
    "go-32-on-1": (32, 1),
    "go-32": (32, 32),
    "go-256-on-32": (256, 32),
    "pynsq-1": (1, 1),
    "rust-1": (1, 1),
    "rust-32-on-1": (32, 1),
    "rust-32": (32, 32),
    "blocking-1": (1, 1),
    "blocking-32": (32, 32),
}
RATE, CPU, P50, P99 = "messages/s", "CPU us/message", "p50 us", "p99 us"


def client(kind, options, folder):
    """Returns the command of a client, which is built if it is to be."""
    if kind == "go":
        program = folder / "callers"
        subprocess.run(["go", "build", "-o", program, "."], cwd=SOURCES, check=True)
        return [program]
    if kind == "pynsq":
        return [sys.executable, SOURCES / "pynsq_callers.py"]
    return [options.ours / "examples" / "callers"]


def publish(runner, command, broker, callers, connections):
    command = [*command, f"--address={broker.tcp}", f"--callers={callers}", f"--connections={connections}"]
    runner.say(command)
    # The depth of the channel is the number of messages.
    broker.post([f"/topic/create?topic={TOPIC}", f"/channel/create?topic={TOPIC}&channel=c"])
    before = broker.cpu_s()
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    cpu_s = broker.cpu_s() - before
    return {RATE: found["messages_per_s"], CPU: cpu_s * 1e6 / broker.depth(TOPIC), P50: found["p50_us"],
            P99: found["p99_us"]}


def block(runner, broker, callers):
    outcome = runner.run(broker, f"--via pub --client blocking --producers {callers} --consumers 0 --channels 0 "
                                 "--warm-up 500ms --duration 2s")
    publish = next(record for record in outcome["histograms"] if record["kind"] == "publish")
    return {RATE: figure(outcome, hot_path.RATE_P), CPU: figure(outcome, hot_path.CPU), P50: publish["p50_us"],
            P99: publish["p99_us"]}


def measure(name, runner, options):
    callers, connections = ROWS[name]
    kind = name.split("-")[0]
    programs = {"nsqd": lambda: Broker(runner, hot_path.IN_MEMORY, program=options.original)}
    if options.before:
        programs["before"] = lambda: Broker(runner, program=options.before)
    programs["ringq"] = lambda: Broker(runner)
    with tempfile.TemporaryDirectory(prefix="ringq-") as folder:
        if kind == "blocking":
            def figures(broker): return block(runner, broker, callers)
        else:
            command = client(kind, options, Path(folder))
            def figures(broker): return publish(runner, command, broker, callers, connections)
        in_turns(name, programs, options.rounds, figures)


if __name__ == "__main__":
    measure_rows(measure, parse_comparison(__doc__, ROWS))
