"""The parts that the measurements of tools share: runs of ours and of the original in turns, and messages in batches."""

import argparse
import datetime
import json
import os
import statistics
import subprocess
from pathlib import Path

from measuring import Runner

BATCH = 2 * 1024 * 1024


def compare(tool, cases, measure):
    """Measures each case with ringq's tool and the original's, in turns, and writes results/TOOL.json.

    `measure(runner, program, count, size, flags, ...)` makes one run and returns its figures, with `messages_per_s`. A case
    may have further arguments of `measure`, which are strings.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--ours", type=Path, default=Path("target/dist"))
    parser.add_argument("--original", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", default=None)
    parser.add_argument("--scale", type=float, default=1, help="a factor of the numbers of messages, to try the script")
    options = parser.parse_args()
    runner = Runner(options)
    programs = {"ringq": options.ours / tool, "original": options.original}
    results = {}
    for case, (count, size, flags, *more) in cases.items():
        count = int(count * options.scale)
        runs = {name: [] for name in programs}
        for number in range(options.rounds):
            order = list(programs) if number % 2 == 0 else list(reversed(programs))
            for name in order:
                run = measure(runner, programs[name], count, size, flags, *more)
                print(case, name, json.dumps(run), flush=True)
                runs[name].append(run)
        median = {name: {key: statistics.median(run[key] for run in of_program) for key in of_program[0]}
                  for name, of_program in runs.items()}
        ratio = median["ringq"]["messages_per_s"] / median["original"]["messages_per_s"]
        print(f"{case}: {ratio:.1f} times the original", flush=True)
        results[case] = {"messages": count, "bytes": size, "flags": flags, "ratio": round(ratio, 2), "median": median,
                         "runs": runs}
    if options.scale == 1:
        save(tool, {"cases": results})


def save(name, figures):
    """Writes results/NAME.json: the figures, and of what and when they are."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    path = Path(__file__).resolve().parent / "results" / f"{name}.json"
    path.write_text(json.dumps({
        "date": datetime.date.today().isoformat(),
        "commit": commit,
        "cores": os.cpu_count(),
        "load": [round(load, 1) for load in os.getloadavg()],
        **figures,
    }, indent=1) + "\n")


def publish(broker, count, size, message):
    """Publishes `count` messages of `size` bytes in batches. `message(number)` makes one."""
    connection = broker.connection()
    for first in range(0, count, max(1, BATCH // size)):
        numbers = range(first, min(count, first + max(1, BATCH // size)))
        connection.request("POST", "/mpub?topic=t", "\n".join(message(number) for number in numbers))
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"/mpub: {answer.status} {text}")
    connection.close()
