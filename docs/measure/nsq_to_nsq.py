#!/usr/bin/env python3
"""Measures ringq's nsq_to_nsq against the original's, in turns, and writes results/nsq_to_nsq.json.

    docs/measure/nsq_to_nsq.py --original NSQ_TO_NSQ [--ours target/release] [--rounds 3] [--data DIR]

Each run has two fresh nsqds of ours. The first one has all messages before the tool starts. The time begins with the
tool, and ends when the second nsqd has all messages and the first one waits for no answer. CASES has the flags. Needs
`cargo build --release -p engine -p nsq-tools`.
"""

import argparse
import datetime
import json
import os
import signal
import statistics
import subprocess
import time
from pathlib import Path

from measuring import Broker, Runner

RESULTS = Path(__file__).resolve().parent / "results" / "nsq_to_nsq.json"
# The number of messages, the bytes of each, and the flags of the tool.
CASES = {
    "default flags": (300_000, 200, ""),
    "2,500 in flight": (300_000, 200, "-max-in-flight=2500"),
    "one field of a JSON object": (300_000, 200, "-whitelist-json-field=id"),
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
    programs = {"ringq": options.ours / "nsq_to_nsq", "original": options.original}
    cases = {}
    for case, (count, size, flags) in CASES.items():
        count = int(count * options.scale)
        runs = {name: [] for name in programs}
        for number in range(options.rounds):
            order = list(programs) if number % 2 == 0 else list(reversed(programs))
            for name in order:
                run = measure(options, programs[name], count, size, flags)
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
        "load": [round(load, 1) for load in os.getloadavg()],
        "cases": cases,
    }, indent=1) + "\n")


def measure(options, program, count, size, flags):
    runner = Runner(options)
    with Broker(runner) as source, Broker(runner) as destination:
        source.post(["/topic/create?topic=t", "/channel/create?topic=t&channel=nsq_to_nsq"])
        destination.post(["/topic/create?topic=t", "/channel/create?topic=t&channel=c"])
        publish(source, count, size)
        # The channel gets the messages in turns.
        while source.depth("t") < count:
            time.sleep(0.01)
        command = [program, "-topic=t", f"-nsqd-tcp-address={source.tcp}",
                   f"-destination-nsqd-tcp-address={destination.tcp}", *flags.split()]
        runner.say(command)
        began = time.monotonic()
        tool = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            while not is_done(source, destination, count):
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
        copied, channel = topic(destination)["message_count"], topic(source)["channels"][0]
        if copied != count:
            raise SystemExit(f"{program} copied {copied} of {count} messages")
    return {
        "messages_per_s": round(count / seconds),
        "tool_cpu_us_per_message": round(cpu_s * 1e6 / count, 2),
        "nsqd_requeues": channel["requeue_count"] + channel["timeout_count"],
    }


def publish(broker, count, size):
    """Publishes JSON objects of `size` bytes in batches."""
    connection = broker.connection()
    for first in range(0, count, max(1, BATCH // size)):
        numbers = range(first, min(count, first + max(1, BATCH // size)))
        connection.request("POST", "/mpub?topic=t", "\n".join(message(number, size) for number in numbers))
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"/mpub: {answer.status} {text}")
    connection.close()


def message(number, size):
    start = f'{{"id":{number},"user":{{"id":{number % 1000},"tags":["a","b"]}},"text":"'
    return f'{start:x<{size - 2}}"}}'


def topic(broker):
    connection = broker.connection()
    connection.request("GET", "/stats?format=json&include_clients=false&topic=t")
    stats = json.loads(connection.getresponse().read())
    connection.close()
    return stats["topics"][0]


def is_done(source, destination, count):
    if topic(destination)["message_count"] < count:
        return False
    channel = topic(source)["channels"][0]
    return channel["depth"] == channel["in_flight_count"] == channel["deferred_count"] == 0


if __name__ == "__main__":
    main()
