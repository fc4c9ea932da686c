#!/usr/bin/env python3
"""CPU time per message of two nsqd binaries, side by side, under the original's own load tools.

    side_by_side.py --a target/release/nsqd --b NSQD --b-args=--mem-queue-size=100000000 --tools DIR

DIR holds the original's bench_writer and bench_reader. Each round runs A then B, each on a fresh data
path: the channel is created, the writer publishes 200-byte messages in batches of 200 for some
seconds, then the reader takes and finishes what there is. CPU is that of all threads of the daemon
(its CPU clock), counts are the daemon's own (/stats). Prints a line per run, then medians
and ratios.
"""
import argparse
import json
import mmap
import os
import re
import statistics
import subprocess
import tempfile
import time
import urllib.request

TOPIC, CHANNEL = "sub_bench", "ch"


class Daemon:
    def __init__(self, binary, extra):
        self.dir = tempfile.TemporaryDirectory()
        self.log = open(os.path.join(self.dir.name, "log"), "w+")
        data = os.path.join(self.dir.name, "data")
        os.mkdir(data)
        args = [binary, "--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0",
                f"--data-path={data}", *extra]
        self.process = subprocess.Popen(args, stderr=self.log)
        self.tcp, self.http = self.port("TCP"), self.port("HTTP")

    def port(self, kind):
        for _ in range(200):
            with open(self.log.name) as log:
                match = re.search(kind + r": listening on (\S+)", log.read())
            if match:
                return match.group(1)
            time.sleep(0.05)
        raise SystemExit(f"no {kind} listener: {open(self.log.name).read()}")

    def call(self, path, method="POST"):
        request = urllib.request.Request(f"http://{self.http}{path}", method=method)
        return urllib.request.urlopen(request).read()

    def topic(self):
        path = f"/stats?format=json&include_clients=false&topic={TOPIC}"
        return json.loads(self.call(path, "GET"))["topics"][0]

    def cpu_ns(self):
        # The clock of the whole process, as clock_getcpuclockid(3) makes it: with threads that have ended.
        return time.clock_gettime_ns(~self.process.pid << 3 | 2)

    def rss_bytes(self):
        fields = open(f"/proc/{self.process.pid}/statm").read().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    def stop(self):
        self.process.terminate()
        self.process.wait(60)
        self.dir.cleanup()


def warm(gib):
    """Touches memory and gives it back: on a virtual machine whose hypervisor takes free pages away,
    the first touch of a page costs many times what it costs on a machine of its own."""
    if gib:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        mmap.mmap(-1, int(gib * (1 << 30)), flags=flags).close()


def run(binary, extra, tools, seconds, warm_gib, settle):
    daemon = Daemon(binary, extra)
    try:
        daemon.call(f"/topic/create?topic={TOPIC}")
        daemon.call(f"/channel/create?topic={TOPIC}&channel={CHANNEL}")
        base = daemon.rss_bytes()
        warm(warm_gib)
        cpu, began = daemon.cpu_ns(), time.monotonic()
        subprocess.run([f"{tools}/bench_writer", f"-nsqd-tcp-address={daemon.tcp}",
                        f"-runfor={seconds}s", "-batch-size=200", "-size=200"],
                       check=True, capture_output=True)
        took = time.monotonic() - began
        # What publishing leaves to be done, syncs above all, is part of its price.
        time.sleep(settle)
        published = daemon.topic()["message_count"]
        publish = ((daemon.cpu_ns() - cpu) / published, published / took)
        memory = (daemon.rss_bytes() - base) / published
        before = daemon.topic()["channels"][0]
        cpu, began = daemon.cpu_ns(), time.monotonic()
        subprocess.run([f"{tools}/bench_reader", f"-nsqd-tcp-address={daemon.tcp}",
                        f"-runfor={seconds}s", "-rdy=2500"],
                       check=True, capture_output=True)
        took = time.monotonic() - began
        after = daemon.topic()["channels"][0]
        left = after["depth"] + after["in_flight_count"]
        finished = before["depth"] + before["in_flight_count"] - left
        deliver = ((daemon.cpu_ns() - cpu) / finished, finished / took)
        return {"publish ns/msg": publish[0], "publish msg/s": publish[1],
                "deliver ns/msg": deliver[0], "deliver msg/s": deliver[1],
                "bytes/queued msg": memory, "left": left}
    finally:
        daemon.stop()


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
                        help="seconds between the two phases, counted to the first")
    parser.add_argument("--warm", type=float, default=0, metavar="GIB",
                        help="touch and free this much memory before each run")
    args = parser.parse_args()
    runs = {"A": [], "B": []}
    for round_number in range(args.rounds):
        for name, binary, extra in (("A", args.a, args.a_args), ("B", args.b, args.b_args)):
            result = run(binary, extra.split(), args.tools, args.seconds, args.warm, args.settle)
            runs[name].append(result)
            print(round_number + 1, name, {k: round(v) for k, v in result.items()}, flush=True)
    for key in ("publish ns/msg", "publish msg/s", "deliver ns/msg", "deliver msg/s",
                "bytes/queued msg"):
        a, b = (statistics.median(r[key] for r in runs[n]) for n in "AB")
        print(f"{key:18} A {a:12.0f}  B {b:12.0f}  B/A {b / a:8.2f}")


if __name__ == "__main__":
    main()
