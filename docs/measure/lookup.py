#!/usr/bin/env python3
"""Measures ringq's nsqlookupd against the original, in turns, and writes results/lookup.json.

    docs/measure/lookup.py --original NSQLOOKUPD [--ours target/dist] [--rounds 3]

All producers connect at the same time and register their topics, as after a restart of nsqlookupd. Then consumers poll
/lookup for a while. Then all producers close. CASES has the numbers. A run of more than four minutes is stopped, and
its result is null. Needs `cargo build --profile dist -p nsqlookupd --bins --examples`. The log, at the default level, goes to a file.
"""

import argparse
import datetime
import json
import os
import re
import resource
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results" / "lookup.json"
# Producers, topics, nodes per topic, consumers, poll interval in seconds, seconds of polling.
CASES = {
    "each topic on each of 1,000 nodes": [1000, 1000, 1000, 1000, 10, 15],
    "each topic on 3 of 1,000 nodes": [1000, 1000, 3, 1000, 1, 10],
    "10,000 topics, each on 10 of 1,000 nodes": [1000, 10000, 10, 1000, 10, 15],
    "10,000 topics, each on each of 1,000 nodes": [1000, 10000, 1000, 1000, 10, 15],
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ours", type=Path, default=Path("target/dist"))
    parser.add_argument("--original", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    programs = {"ringq": options.ours / "nsqlookupd", "original": options.original}
    load = options.ours / "examples" / "load"
    cases = {}
    for case, sizes in CASES.items():
        runs = {name: [] for name in programs}
        # Ten million registrations take minutes.
        rounds = options.rounds if sizes[1] * sizes[2] < 5_000_000 else 1
        for number in range(rounds):
            order = list(programs) if number % 2 == 0 else list(reversed(programs))
            for name in order:
                try:
                    run = measure(programs[name], [load, *map(str, sizes)])
                except subprocess.TimeoutExpired:
                    run = None
                print(case, name, json.dumps(run), flush=True)
                runs[name].append(run)
        cases[case] = {
            "sizes": dict(zip(["producers", "topics", "nodes_per_topic", "consumers", "interval_s", "polled_s"], sizes)),
            "median": {name: median(of_program) for name, of_program in runs.items()},
            "runs": runs,
        }
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    RESULTS.write_text(json.dumps({
        "date": datetime.date.today().isoformat(),
        "commit": commit,
        "cores": os.cpu_count(),
        "cases": cases,
    }, indent=1) + "\n")


def median(runs):
    if None in runs:
        return None
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def measure(program, command):
    with tempfile.TemporaryDirectory(prefix="ringq-") as folder:
        log = Path(folder) / "log"
        with log.open("wb") as target:
            daemon = subprocess.Popen(
                [program, "--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0", "--broadcast-address=lk"],
                stderr=target)
        try:
            tcp, http = addresses(log)
            output = subprocess.run([command[0], tcp, http, *command[1:]], check=True, capture_output=True, text=True,
                                    timeout=240).stdout
            run = json.loads(output)
            status = Path(f"/proc/{daemon.pid}/status").read_text()
            run["peak_rss_mb"] = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024
            ticks = Path(f"/proc/{daemon.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
            run["cpu_s"] = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
            return run
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(60)


def addresses(log):
    for _ in range(500):
        text = log.read_text()
        found = [re.search(rf" {kind}: listening on (\S+)", text) for kind in ("TCP", "HTTP")]
        if all(found):
            return [match[1] for match in found]
        time.sleep(0.01)
    raise RuntimeError(f"no start: {text}")


if __name__ == "__main__":
    main()
