#!/usr/bin/env python3
"""Compares programs under many small requests: one thread per connection, which waits for each answer.

    docs/measure/small_requests.py --original NSQD [--before OLD/nsqd] [--rows pub-1,pub-32] [--rounds 5]

The programs are the original with its queue in memory, an older nsqd of ours if --before names one, ours, and the null
daemon `nsq-bench sink`, which answers OK and does nothing else: it shows what the kernel's part costs at least. Ours has
its defaults, and in the rows with MPUB its backlog in memory, as the original's: otherwise these rows measure the disk.
Each round runs all programs, on fresh data paths, in the other order than the round before. Prints a line of Markdown
per row, program and figure: the median (range), and its ratio to the original. Needs
`cargo build --release -p engine -p nsq-bench`.
"""

import argparse
import tempfile
from pathlib import Path

import hot_path
from engines import figure
from measuring import Broker, Table, measure_rows

MEASURED = "--consumers 0 --channels 0 --warm-up 500ms --duration 2s"
# With more threads, the generator would be too late to read what the daemon has used.
THREADS_MAX = 32
# name: (connections, flags)
ROWS = {
    "pub-1": (1, "--via pub --window 1"),
    "pub-32": (32, "--via pub --window 1"),
    "pub-256": (256, "--via pub --window 1"),
    "http-pub-32": (32, "--via http-pub --window 1"),
    "mpub-4k": (4, "--via mpub --size 4096 --batch 50 --window 50"),
    "mpub-64k": (4, "--via mpub --size 65536 --batch 4 --window 4"),
    "mpub-200": (4, "--via mpub --batch 200 --window 200"),
}


class Sink(Broker):
    """The running null daemon, which has one address for V2 and HTTP."""

    def command(self, tcp, http):
        return [self.program, "sink", f"--address={tcp}"]

    def start(self, tcp="127.0.0.1:0", http=None):
        self.launch(tcp, http)
        self.tcp = self.http = self.port("sink")


def measure(name, runner, options):
    connections, flags = ROWS[name]
    load = f"--producers {connections} --threads {min(connections, THREADS_MAX)} {MEASURED} {flags}"
    ours = hot_path.IN_MEMORY if "mpub" in flags else ""
    programs = {"nsqd": lambda: Broker(runner, hot_path.IN_MEMORY, program=options.original)}
    if options.before:
        programs["before"] = lambda: Broker(runner, ours, program=options.before)
    programs["ringq"] = lambda: Broker(runner, ours)
    programs["null daemon"] = lambda: Sink(runner, program=options.ours / "nsq-bench")
    table = Table(name)
    for round_number in range(options.rounds):
        for variant in list(programs)[::-1 if round_number % 2 else 1]:
            with programs[variant]() as program:
                outcome = runner.run(program, load)
            for metric in (hot_path.RATE_P, hot_path.CPU, hot_path.PUB99):
                table.add(variant, metric, figure(outcome, metric))
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
    measure_rows(measure, options)


if __name__ == "__main__":
    main()
