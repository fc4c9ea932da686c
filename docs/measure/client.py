#!/usr/bin/env python3
"""Measures the CPU time of the client library per message, published and consumed, and writes results/client.json.

    docs/measure/client.py [--ours target/dist] [--rounds 5] [--data DIR]

Each run has a fresh nsqd of ours, and the client's example `throughput` with its defaults, whose output has the figures.
Needs `cargo build --profile dist -p nsqd` and `cargo build --profile dist -p ringq-client --example throughput`.
"""

import argparse
import re
import statistics
import subprocess
from pathlib import Path

from measuring import Broker, Runner
from tools import save

LINE = re.compile(r"(\d+) messages of (\d+) bytes, .*: (\d+) messages/s, (\d+) ns of CPU per message")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", type=Path, default=Path("target/dist"), help="folder of our programs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", default=None, help="where data paths are made")
    options = parser.parse_args()
    runner = Runner(options)
    runs = [measure(runner) for _ in range(options.rounds)]
    median = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    print(f"medians: {median}")
    save("client", {"median": median, "runs": runs})


def measure(runner):
    with Broker(runner) as broker:
        command = [runner.options.ours / "examples" / "throughput", broker.tcp]
        runner.say(command)
        before = broker.cpu_s()
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        cpu_s = broker.cpu_s() - before
    messages, size, rate, client_ns = map(int, LINE.search(text).groups())
    run = {"messages": messages, "bytes": size, "messages_per_s": rate, "client_cpu_ns_per_message": client_ns,
           "nsqd_cpu_ns_per_message": round(cpu_s * 1e9 / messages)}
    print(run, flush=True)
    return run


if __name__ == "__main__":
    main()
