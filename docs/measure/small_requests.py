#!/usr/bin/env python3
"""Compares programs under many small requests: each connection waits for each answer, on at most 32 event loops.

    docs/measure/small_requests.py --original NSQD [--before OLD/nsqd] [--rows pub-1,pub-32] [--rounds 5]

The programs are the original with its queue in memory, an older nsqd of ours if --before names one, ours, and the null
daemon `nsq-bench sink`, which answers OK and does nothing else: it shows what the kernel's part costs at least. Ours has
its defaults, and in the rows with MPUB its backlog in memory, as the original's: otherwise these rows measure the disk.
Each round runs all programs, on fresh data paths, in the reverse order of the round before. Prints a line of Markdown
per row, program and figure: the median (range), and its ratio to the original. Needs
`cargo build --profile dist -p nsqd -p nsq-bench`.
"""

import hot_path
from engines import figure
from measuring import Broker, in_turns, measure_rows, parse_comparison

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

    def figures(program):
        outcome = runner.run(program, load)
        return {metric: figure(outcome, metric) for metric in (hot_path.RATE_P, hot_path.CPU, hot_path.PUB99)}

    in_turns(name, programs, options.rounds, figures)


if __name__ == "__main__":
    measure_rows(measure, parse_comparison(__doc__, ROWS))
