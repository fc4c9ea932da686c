#!/usr/bin/env python3
"""Loads ringq and the original nsqd in turns, row by row, by `nsq-bench compare`.

    docs/measure/hot_path.py --original NSQD [--rounds 5] [--rows mpub,deliver] [--ours target/dist]

Prints each row's command, and a line of Markdown per metric: the original's median (range), ringq's, and the median
(range) of the rounds' ratios. The original keeps all messages in memory (-mem-queue-size=100000000) unless the row is
about its disk queue. ringq runs with its defaults unless the row says otherwise. all.py stores results.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from measuring import number

MPUB = "--via mpub --batch 200 --window 2000 --producers 2 --warm-up 1s"
# With a larger window, the consumers of one generator thread fall behind, and the run measures their backlog.
KEPT_UP = "--via mpub --batch 200 --window 1000 --producers 2 --warm-up 1s"
CLOSED = "--consumers 0 --channels 0"
# At 50,000/s each message is a separate write, and a single generator thread would be the limit.
OPEN = "--producers 4 --consumers 2 --via pub --rdy 2500 --output-buffer-timeout 25ms --duration 4s"
AFTER = "--via mpub --batch 200 --window 2000 --producers 2 --consumers 2 --rdy 2500 --consume after-publish --pause 3s --warm-up 0s"
FAN_OUT = "--consumers 1 --rdy 2500 --duration 60s"
IN_MEMORY = "-mem-queue-size=100000000"
SYNCED = "-mem-queue-size=0 -sync-every=1"

# name: (flags, arguments of the original, arguments of ours, metrics)
RATE_P, RATE_D, CPU = "published_per_s", "delivered_per_s", "cpu_us_per_message"
PUB99, DEL99 = "publish_p99_us", "delivery_p99_us"
PUBLISHED, DELIVERED = "cpu_us_per_published", "cpu_us_per_delivered"
ROWS = {
    "mpub": (f"{MPUB} {CLOSED} --duration 4s", IN_MEMORY, "", [RATE_P, CPU]),
    "deliver": (f"{AFTER} --messages 2000000 --duration 60s", IN_MEMORY, IN_MEMORY, [RATE_D, DELIVERED]),
    "both": (f"{KEPT_UP} --consumers 2 --rdy 2500 --duration 4s", IN_MEMORY, "", [RATE_D, CPU, DEL99]),
    "mpub-disk": (f"{MPUB} --consumers 0 --channels 1 --duration 4s", "", "", [RATE_P, CPU]),
    "deliver-disk": (f"{AFTER} --messages 2000000 --duration 60s", "", "", [RATE_D, DELIVERED]),
    "pub-50k": (f"{OPEN} --threads 2 --rate 50k", IN_MEMORY, "", [RATE_D, CPU, "delivery_p50_us", DEL99, "delivery_p999_us"]),
    "pub-200k": (f"{OPEN} --rate 200k", IN_MEMORY, "", [RATE_D, CPU, "delivery_p50_us", DEL99, "delivery_p999_us"]),
    "sync-1": (f"--producers 1 {CLOSED} --via pub --window 1 --duration 3s", IN_MEMORY, "", [RATE_P, CPU, PUB99]),
    "sync-32": (f"--producers 32 {CLOSED} --via pub --window 1 --duration 3s", IN_MEMORY, "", [RATE_P, CPU, PUB99]),
    "fan-out-1": (f"{MPUB} {FAN_OUT} --channels 1 --messages 4000000", IN_MEMORY, "", [RATE_D, CPU]),
    "fan-out-4": (f"{MPUB} {FAN_OUT} --channels 4 --messages 1000000", IN_MEMORY, "", [RATE_D, CPU]),
    "fan-out-16": (f"{MPUB} {FAN_OUT} --channels 16 --messages 250000", IN_MEMORY, "", [RATE_D, CPU]),
    "4k": ("--producers 2 --consumers 2 --via mpub --batch 40 --window 400 --size 4096 --rdy 500 --duration 4s",
           IN_MEMORY, "", [RATE_D, CPU]),
    "64k": ("--producers 2 --consumers 2 --via mpub --batch 4 --window 40 --size 65536 --rdy 50 --duration 4s",
            IN_MEMORY, "", [RATE_D, CPU]),
    "http-pub": (f"--producers 32 {CLOSED} --via http-pub --window 1 --duration 3s", IN_MEMORY, "", [RATE_P, CPU, PUB99]),
    "http-mpub": (f"--producers 32 {CLOSED} --via http-mpub --batch 100 --window 100 --duration 3s",
                  IN_MEMORY, "", [RATE_P, CPU, PUB99]),
    "memory": (f"{MPUB} --consumers 0 --channels 1 --duration 4s --interval 100ms", IN_MEMORY, IN_MEMORY,
               ["memory_bytes_per_queued"]),
    "group-commit-32": (f"--producers 32 {CLOSED} --via pub --window 1 --duration 3s", SYNCED, SYNCED, [RATE_P, CPU, PUB99]),
    "group-commit-256": (f"--producers 256 {CLOSED} --via pub --window 1 --duration 3s", SYNCED, SYNCED, [RATE_P, CPU, PUB99]),
}


def metrics_of(name):
    """Returns the metrics of a row: rate, CPU time, and the p99 of the delivery, or of the answer if nothing is
    consumed."""
    flags, _, _, wanted = ROWS[name]
    metrics = [metric for metric in wanted if metric.endswith("_per_s") or metric.startswith("cpu_us")]
    if metrics and "after-publish" not in flags:
        metrics.append(PUB99 if "--consumers 0" in flags else DEL99)
    return metrics


def run(name, options):
    """Returns the SavedResult (bench/src/result.rs) of a row. Prints a note if `nsq-bench compare` calls a run unclean,
    and keeps the run."""
    flags, theirs, ours, _ = ROWS[name]
    places = "-tcp-address={tcp} -http-address={http} -data-path={data}"
    command = [
        options.ours / "nsq-bench", "compare", "--rounds", str(options.rounds),
        "--name-a", "original", "--name-b", "ringq",
        "--a", f"{options.original} {places} {theirs}", "--b", f"{options.ours / 'nsqd'} {places} {ours}",
        *flags.split(),
    ]
    print(f"    {shlex.join(map(str, command))}", flush=True)
    with tempfile.TemporaryDirectory(prefix="ringq-") as folder:
        saved = Path(folder) / "row.json"
        command += ["--out", saved]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            print(done.stdout, file=sys.stderr, flush=True)
        if not saved.exists():
            raise SystemExit(f"{name}: nsq-bench ended with {done.returncode} and no result")
        return json.loads(saved.read_text())


def show(name, outcome):
    """Prints a line of Markdown for each metric of the row that both sides have."""
    def cell(record):
        return f"{number(record['median'])} ({number(record['min'])}-{number(record['max'])})"

    a, b = ({metric["name"]: metric for metric in outcome[side]["metrics"]} for side in "ab")
    ratios = {ratio["metric"]: ratio for ratio in outcome["ratios"]}
    for metric in ROWS[name][3]:
        found = [cell(records[metric]) if metric in records else "not measured" for records in (a, b, ratios)]
        print(f"| {name} | {metric} | {' | '.join(found)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--original", required=True, help="the original's nsqd")
    parser.add_argument("--ours", type=Path, default=Path("target/dist"), help="folder of our programs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", default=",".join(ROWS), help="names, separated by commas")
    options = parser.parse_args()
    for name in options.rows.split(","):
        show(name, run(name, options)["outcome"])


if __name__ == "__main__":
    main()
