#!/usr/bin/env python3
"""Measures ringq's nsqlookupd against the original, in turns, and writes results/lookup.json.

    docs/measure/lookup.py --original NSQLOOKUPD [--ours target/release] [--rounds 3]

1,000 producers register 1,000 topics each, then 1,000 consumers poll /lookup for a while, then all producers close.
Needs `cargo build --release -p nsqlookupd --bins --examples`. The log, at the default level, goes to a file.
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
SIZES = ["1000", "1000", "1000", "30"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ours", type=Path, default=Path("target/release"))
    parser.add_argument("--original", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    programs = {"ringq": options.ours / "nsqlookupd", "original": options.original}
    load = options.ours / "examples" / "load"
    runs = {name: [] for name in programs}
    for number in range(options.rounds):
        order = list(programs) if number % 2 == 0 else list(reversed(programs))
        for name in order:
            run = measure(programs[name], load)
            print(name, json.dumps(run), flush=True)
            runs[name].append(run)
    RESULTS.write_text(json.dumps({
        "date": datetime.date.today().isoformat(),
        "cores": os.cpu_count(),
        "sizes": {"producers": 1000, "topics": 1000, "pollers": 1000, "poll_interval_s": 10},
        "median": {name: median(of_program) for name, of_program in runs.items()},
        "runs": runs,
    }, indent=1) + "\n")


def median(runs):
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def measure(program, load):
    with tempfile.TemporaryDirectory(prefix="ringq-") as folder:
        log = Path(folder) / "log"
        with log.open("wb") as target:
            daemon = subprocess.Popen(
                [program, "--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0", "--broadcast-address=lk"],
                stderr=target)
        try:
            tcp, http = addresses(log)
            output = subprocess.run([load, tcp, http, *SIZES], check=True, capture_output=True, text=True).stdout
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
