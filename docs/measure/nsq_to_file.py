#!/usr/bin/env python3
"""Measures ringq's nsq_to_file against the original's, in turns, and writes results/nsq_to_file.json.

    docs/measure/nsq_to_file.py --original NSQ_TO_FILE [--ours target/release] [--rounds 3] [--data DIR]

Each run has a fresh nsqd of ours, which has all messages before the tool starts. The time ends when the channel has no
message left; those that are in flight then do not count. Afterwards each message must be in the files. CASES has the
flags. Needs `cargo build --release -p engine -p nsq-tools`. Both tools write to files below DIR (default /tmp).
"""

import argparse
import datetime
import gzip
import json
import os
import random
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from measuring import Broker, Runner

RESULTS = Path(__file__).resolve().parent / "results" / "nsq_to_file.json"
# The number of messages, the bytes of each, and the flags of the tool.
CASES = {
    "plain": (500_000, 200, "-max-in-flight=200"),
    "plain, 2,500 in flight": (500_000, 200, "-max-in-flight=2500"),
    "gzip, 2,500 in flight": (500_000, 200, "-max-in-flight=2500 -gzip"),
    "plain, 2,500 in flight, 10 KB": (50_000, 10_000, "-max-in-flight=2500"),
}
BATCH = 2 * 1024 * 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ours", type=Path, default=Path("target/release"))
    parser.add_argument("--original", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", default=None)
    parser.add_argument("--scale", type=float, default=1, help="a factor of the numbers of messages, to try the script")
    options = parser.parse_args()
    runner = Runner(options)
    programs = {"ringq": options.ours / "nsq_to_file", "original": options.original}
    cases = {}
    for case, (count, size, flags) in CASES.items():
        count = int(count * options.scale)
        runs = {name: [] for name in programs}
        for number in range(options.rounds):
            order = list(programs) if number % 2 == 0 else list(reversed(programs))
            for name in order:
                run = measure(runner, programs[name], count, size, flags)
                print(case, name, json.dumps(run), flush=True)
                runs[name].append(run)
        median = {name: {key: statistics.median(run[key] for run in of_program) for key in of_program[0]}
                  for name, of_program in runs.items()}
        ratio = median["ringq"]["messages_per_s"] / median["original"]["messages_per_s"]
        print(f"{case}: {ratio:.1f} times the original", flush=True)
        cases[case] = {"messages": count, "bytes": size, "flags": flags, "ratio": round(ratio, 2), "median": median,
                       "runs": runs}
    if options.scale != 1:
        return
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    RESULTS.write_text(json.dumps({
        "date": datetime.date.today().isoformat(),
        "commit": commit,
        "cores": os.cpu_count(),
        "cases": cases,
    }, indent=1) + "\n")


def measure(runner, program, count, size, flags):
    with Broker(runner) as broker:
        broker.post(["/topic/create?topic=t", "/channel/create?topic=t&channel=c"])
        publish(broker, count, size)
        # The channel gets the messages in turns.
        while broker.depth("t") < count:
            time.sleep(0.01)
        with tempfile.TemporaryDirectory(prefix="ringq-", dir=runner.options.data) as folder:
            command = [program, "-topic=t", "-channel=c", f"-nsqd-tcp-address={broker.tcp}", f"-output-dir={folder}",
                       "-sync-interval=1s", *flags.split()]
            runner.say(command)
            began = time.monotonic()
            tool = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            try:
                while (channel := figures(broker))["depth"] > 0:
                    time.sleep(0.01)
                    if tool.poll() is not None:
                        raise SystemExit(f"{program} ended with {tool.returncode}")
                seconds = time.monotonic() - began
                cpu_s = time.clock_gettime(~tool.pid << 3 | 2)
                tool.send_signal(signal.SIGTERM)
                if tool.wait(60) != 0:
                    raise SystemExit(f"{program} ended with {tool.returncode}")
            finally:
                if tool.poll() is None:
                    tool.kill()
                    tool.wait()
            check(Path(folder), count)
    return {
        "messages_per_s": round((count - channel["in_flight_count"]) / seconds),
        "tool_cpu_us_per_message": round(cpu_s * 1e6 / count, 2),
        "nsqd_requeues": channel["requeue_count"] + channel["timeout_count"],
    }


def publish(broker, count, size):
    """Publishes numbered messages in batches. gzip halves their size, because they are hexadecimal digits."""
    digits = random.Random(1).randbytes(1024 * 1024).hex()
    connection = broker.connection()

    def start(number):
        return number * 7919 % (len(digits) - size)

    for first in range(0, count, max(1, BATCH // size)):
        numbers = range(first, min(count, first + max(1, BATCH // size)))
        body = "\n".join(f"{number} {digits[start(number):start(number) + size]}"[:size] for number in numbers)
        connection.request("POST", "/mpub?topic=t", body)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"/mpub: {answer.status} {text}")
    connection.close()


def figures(broker):
    connection = broker.connection()
    connection.request("GET", "/stats?format=json&include_clients=false&topic=t&channel=c")
    stats = json.loads(connection.getresponse().read())
    connection.close()
    return stats["topics"][0]["channels"][0]


def check(folder, count):
    """Fails unless each message is in the files."""
    found = bytearray(count)
    for path in folder.iterdir():
        with (gzip.open(path) if path.suffix == ".gz" else path.open("rb")) as lines:
            for line in lines:
                found[int(line.split(None, 1)[0])] = 1
    if sum(found) != count:
        raise SystemExit(f"{count - sum(found)} of {count} messages are not in the files")


if __name__ == "__main__":
    main()
