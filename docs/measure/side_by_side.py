#!/usr/bin/env python3
"""Compares the CPU time per message of two nsqd binaries, side by side, under the original's own load tools.

    side_by_side.py --a target/dist/nsqd --b NSQD --b-args=--mem-queue-size=100000000 --tools DIR

DIR has the original's bench_writer and bench_reader. Each round runs A and then B, each on a fresh data path. The
channel is created. The writer publishes 200-byte messages in batches of 200 for some seconds. Then the reader takes and
finishes the messages. CPU is that of all threads of the daemon (its CPU clock). Counts are the daemon's own (/stats).
Prints a line per run, then medians and ratios, and the CPU of A's threads (threads with one name together).
"""
import argparse
import json
import mmap
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from measuring import Broker, Runner

TOPIC, CHANNEL = "sub_bench", "ch"
FIGURES = ("publish ns/msg", "publish msg/s", "deliver ns/msg", "deliver msg/s", "bytes/queued msg")


def topic(broker):
    connection = broker.connection()
    connection.request("GET", f"/stats?format=json&include_clients=false&topic={TOPIC}")
    stats = json.loads(connection.getresponse().read())
    connection.close()
    return stats["topics"][0]


def warm(gib):
    """Touches memory and frees it. If a hypervisor takes free pages away, the first touch of a page costs many times as
    much as on a physical machine."""
    if gib:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        mmap.mmap(-1, int(gib * (1 << 30)), flags=flags).close()


def cpu_by_thread(broker):
    """Returns the nanoseconds of CPU of the running threads, by thread name without number."""
    by_name = {}
    for task in Path(f"/proc/{broker.process.pid}/task").iterdir():
        name = (task / "comm").read_text().strip().rstrip("-0123456789")
        by_name[name] = by_name.get(name, 0) + int((task / "schedstat").read_text().split()[0])
    return by_name


def since(before, after, messages):
    """Returns the nanoseconds per message of the threads that did some work."""
    each = {name: (ns - before.get(name, 0)) / messages for name, ns in after.items()}
    return {name: ns for name, ns in each.items() if ns >= 1}


def run(runner, binary, extra, options):
    with Broker(runner, extra, program=binary) as broker:
        broker.post([f"/topic/create?topic={TOPIC}", f"/channel/create?topic={TOPIC}&channel={CHANNEL}"])
        base = broker.rss_bytes()
        warm(options.warm)

        def load(tool, *flags):
            """Loads the broker. Returns its CPU before the load, in seconds and by thread, and the time when the tool
            began."""
            before = broker.cpu_s(), cpu_by_thread(broker), time.monotonic()
            subprocess.run([f"{options.tools}/{tool}", f"-nsqd-tcp-address={broker.tcp}",
                            f"-runfor={options.seconds}s", *flags], check=True, capture_output=True)
            return before

        cpu, threads, began = load("bench_writer", "-batch-size=200", "-size=200")
        took = time.monotonic() - began
        # The work that follows publishing, above all syncs, counts as its cost.
        time.sleep(options.settle)
        published = topic(broker)["message_count"]
        publish = ((broker.cpu_s() - cpu) * 1e9 / published, published / took)
        publishing = since(threads, cpu_by_thread(broker), published)
        memory = (broker.rss_bytes() - base) / published
        before = topic(broker)["channels"][0]
        cpu, threads, began = load("bench_reader", "-rdy=2500")
        took = time.monotonic() - began
        after = topic(broker)["channels"][0]
        left = after["depth"] + after["in_flight_count"]
        finished = before["depth"] + before["in_flight_count"] - left
        deliver = ((broker.cpu_s() - cpu) * 1e9 / finished, finished / took)
        return {"publish ns/msg": publish[0], "publish msg/s": publish[1],
                "deliver ns/msg": deliver[0], "deliver msg/s": deliver[1],
                "bytes/queued msg": memory, "left": left,
                **{f"publish, {name}": ns for name, ns in publishing.items()},
                **{f"deliver, {name}": ns for name, ns in since(threads, cpu_by_thread(broker), finished).items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--a", required=True)
    parser.add_argument("--b", required=True)
    parser.add_argument("--a-args", default="")
    parser.add_argument("--b-args", default="")
    parser.add_argument("--tools", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--settle", type=float, default=3,
                        help="seconds between the two phases, which count for the first")
    parser.add_argument("--warm", type=float, default=0, metavar="GIB",
                        help="touch and free this much memory before each run")
    parser.add_argument("--data", default=tempfile.gettempdir(), help="where data paths are made")
    args = parser.parse_args()
    runs = rounds(args)
    for key in FIGURES:
        a, b = (statistics.median(r[key] for r in runs[n]) for n in "AB")
        print(f"{key:18} A {a:12.0f}  B {b:12.0f}  B/A {b / a:8.2f}")
    for key in sorted({key for result in runs["A"] for key in result if ", " in key}):
        ns = statistics.median(result.get(key, 0) for result in runs["A"])
        print(f"{key:18} A {ns:12.0f}  ns/msg")


def rounds(args):
    """Returns the figures of each round, by side."""
    runner = Runner(args)
    runs = {"A": [], "B": []}
    for round_number in range(args.rounds):
        for name, binary, extra in (("A", args.a, args.a_args), ("B", args.b, args.b_args)):
            result = run(runner, binary, extra, args)
            runs[name].append(result)
            print(round_number + 1, name, {k: round(v) for k, v in result.items()}, flush=True)
    return runs


if __name__ == "__main__":
    main()
