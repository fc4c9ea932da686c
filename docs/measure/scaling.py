#!/usr/bin/env python3
"""Measures how our nsqd scales: channels, topics, connections, backlogs, neighbours, idle peers.

    docs/measure/scaling.py [--ours target/dist] [--rows fan-out,topics] [--rounds 5] [--sizes 1,100]

| row         | sizes, the first is the base of the ratios                | disk, GB |
| fan-out     | channels; at full speed                                   | 5        |
| fan-out-10k | channels; bench/scenarios/fan-out-*.toml, 10,000 a second | 1        |
| topics      | topics that exist and are in use                          | 20       |
| idle-peers  | connections that do nothing, beside four at full speed    | 5        |
| peers       | connections that are all in use, PUB                      | 5        |
| backlog     | messages that wait while others come and go               | 30       |
| idle        | topics or connections that do nothing                     | 12       |
| start       | messages that wait, 40 M are 10 GB                        | 12       |
| tmpfs       | data path on disk and on a tmpfs (--tmpfs), 500,000/s     | 2        |
| neighbour   | a flow beside a flood on the same shard                   | 20       |
| disk        | a growing backlog, and the disk alone                     | 20       |

Each row starts its own brokers on free loopback ports, with fresh data paths in --data, and loads them with nsq-bench.
Variants alternate, round by round. Prints a line of Markdown per figure: the median (range) and the ratio to the first
variant. Prints each command the first time it runs. Root can also drop the page cache (start) and have a slow disk
(neighbour).
"""

import argparse
import contextlib
import json
import mmap
import os
import resource
import select
import shutil
import signal
import socket
import statistics
import struct
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kernel import SlowDisk
from measuring import Broker, Runner, Table, interrupt

SCENARIOS = Path(__file__).resolve().parents[2] / "bench" / "scenarios"
MPUB = "--via mpub --batch 200 --producers 2"
FULL_SPEED = f"{MPUB} --window 2000"
# With a larger window, the consumers of one generator thread fall behind, and the run measures their backlog.
KEPT_UP = f"{MPUB} --window 1000"
DESCRIPTORS = 12_000
# The default rate of a cloud volume, for instance gp3.
SLOW_DISK_BYTES_PER_S = 125_000_000
# A run counts if the host took at most this share of the processors. Otherwise it is repeated, up to TRIES times in
# all.
STOLEN_PERCENT_MAX = 0.5
TRIES = 6


def identify(broker, heartbeat_ms=60_000):
    """A connection that has sent IDENTIFY and got its OK."""
    host, port = broker.tcp.split(":")
    peer = socket.create_connection((host, int(port)), timeout=60)
    try:
        body = json.dumps({"client_id": "scaling", "heartbeat_interval": heartbeat_ms}).encode()
        peer.sendall(b"  V2IDENTIFY\n" + struct.pack(">I", len(body)) + body)
        expect_ok(peer)
    except BaseException:
        peer.close()
        raise
    return peer


def expect_ok(peer):
    size, kind = struct.unpack(">II", take(peer, 8))
    answer = take(peer, size - 4)
    if (kind, answer) != (0, b"OK"):
        raise SystemExit(f"the broker answered {answer}")


def take(peer, count):
    taken = b""
    while len(taken) < count:
        more = peer.recv(count - len(taken))
        if not more:
            raise SystemExit(f"the broker closed a connection behind {taken}")
        taken += more
    return taken


@contextlib.contextmanager
def idle_peers(broker, count, heartbeat_ms=60_000):
    """Opens connections that consume, with RDY 1, from a channel without messages."""
    peers = []
    try:
        for _ in range(count):
            peers.append(identify(broker, heartbeat_ms))
            peers[-1].sendall(b"SUB nobody sleeps\nRDY 1\n")
        for peer in peers:
            expect_ok(peer)
        yield peers
    finally:
        for peer in peers:
            peer.close()


def answer_heartbeats(peers, seconds):
    """Waits. Meanwhile the peers answer heartbeats as a client library does."""
    poll = select.epoll()
    by_descriptor = {peer.fileno(): peer for peer in peers}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.EPOLLIN)
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        for descriptor, _ in poll.poll(left):
            if not by_descriptor[descriptor].recv(4096):
                raise SystemExit("the broker closed an idle connection")
            by_descriptor[descriptor].sendall(b"NOP\n")
    poll.close()


def cpu_us_per_delivered(result):
    delivered = result["totals"]["delivered"]
    return result["resources"]["cpu_s"] * 1e6 / delivered if delivered else None


def fan_out(runner, sizes, table):
    """Publishes a number of messages per variant, and ends when the last one is delivered."""
    for channels in sizes:
        messages = max(8_000_000 // channels, 1_000_000)
        with Broker(runner) as broker:
            result = runner.run(broker, f"{KEPT_UP} --channels {channels} --consumers 2 --rdy 2500 "
                                        f"--messages {messages} --duration 60s")
        table.add(f"{channels} channels", "CPU us per delivered", cpu_us_per_delivered(result))
        table.add(f"{channels} channels", "delivered/s", result["totals"]["delivered_per_s"])


def fan_out_10k(runner, sizes, table):
    for channels in sizes:
        with Broker(runner) as broker:
            result = runner.run(broker, f"--scenario {SCENARIOS}/fan-out-{channels}.toml")
        table.add(f"{channels} channels", "CPU us per delivered", cpu_us_per_delivered(result))


def topics(runner, sizes, table):
    """Measures topics in use. One run makes the topics and their files, with three batches each. The next two runs use
    them. Each topic has a consumer, so many topics also mean many connections."""
    seconds = runner.options.seconds
    for count in sizes:
        variant = f"{count} topics"
        load = f"--topic many --topics {count} --producers 2"
        with Broker(runner) as broker:
            load += " --via mpub --batch 200 --window 2000"
            runner.run(broker, f"{load} --consumers 1 --rdy 2500 --messages {600 * max(count, 2)} --duration 300s")
            load += " --warm-up 4s"
            both = runner.run(broker, f"{load} --consumers 1 --rdy 2500 --duration {seconds}s")
            table.add(variant, "published and delivered/s", both["totals"]["delivered_per_s"])
            table.add(variant, "CPU us per message, both", both["resources"]["cpu_us_per_message"])
            only = runner.run(broker, f"{load} --consumers 0 --channels 0 --duration {seconds}s")
            table.add(variant, "published/s", only["totals"]["acknowledged_per_s"])
            table.add(variant, "CPU us per published", only["resources"]["cpu_us_per_message"])
            table.add(variant, "memory, MB", only["resources"]["rss_max_bytes"] / 1e6)


def with_idle_peers(runner, sizes, table):
    for count in sizes:
        with Broker(runner) as broker, idle_peers(broker, count):
            result = runner.run(broker, f"{FULL_SPEED} --consumers 2 --rdy 2500 --duration {runner.options.seconds}s")
        table.add(f"{count} idle", "delivered/s", result["totals"]["delivered_per_s"])
        table.add(f"{count} idle", "CPU us per message", result["resources"]["cpu_us_per_message"])


def peers(runner, sizes, table):
    """Measures connections in use. Half of the connections publish, half consume. Either a producer waits for each
    answer, or all producers together may have 10,000 unanswered messages. So the more connections there are, the fewer
    messages share a system call."""
    for count in sizes:
        half = max(count // 2, 1)
        shared = max(10_000 // half, 1)
        for how, window, rdy in (("one message each", 1, 10), ("10,000 messages", shared, min(max(shared, 10), 2500))):
            with Broker(runner) as broker:
                result = runner.run(broker, f"--threads 2 --producers {half} --consumers {half} --via pub --rdy {rdy} "
                                            f"--window {window} --duration {runner.options.seconds}s")
            variant = f"{count} in use, {how}"
            table.add(variant, "delivered/s", result["totals"]["delivered_per_s"])
            table.add(variant, "CPU us per message", result["resources"]["cpu_us_per_message"])


def backlog(runner, sizes, table, rounds):
    """Measures backlogs. Each backlog has a broker, and all brokers run at once. A round publishes 4 M messages on top
    of the backlog, and takes messages for a second. Without a backlog, it takes messages from these 4 M, and then
    removes the rest."""
    load = f"{FULL_SPEED} --topic deep --allow-messages --channels 1 --consumers 0 --duration 600s"
    on_top = 4_000_000
    with contextlib.ExitStack() as stack:
        brokers = {count: stack.enter_context(Broker(runner)) for count in sizes}
        for count, broker in brokers.items():
            runner.run(broker, f"{load} --messages {count or on_top}")
        for _ in range(rounds):
            for count, broker in brokers.items():
                if not count:
                    broker.post(["/channel/empty?topic=deep&channel=ch"])
                variant = f"{count:,} waiting"
                result = runner.run(broker, f"{load} --messages {on_top}")
                table.add(variant, "published/s", result["totals"]["acknowledged_per_s"])
                table.add(variant, "CPU us per published", result["resources"]["cpu_us_per_message"])
                result = runner.run(broker, "--topic deep --allow-messages --producers 0 --consumers 2 --rdy 2500 --warm-up 100ms "
                                            "--duration 1s", leaves_some=True)
                table.add(variant, "delivered/s", result["totals"]["delivered_per_s"])
                table.add(variant, "CPU us per delivered", cpu_us_per_delivered(result))
                table.add(variant, "memory, MB", broker.rss_bytes() / 1e6)


def idle(runner, sizes, table):
    for count in sizes:
        names = [f"idle-{n}" for n in range(count)]
        for what in ("empty topics", "topics with a message"):
            with Broker(runner) as broker:
                broker.post(f"/topic/create?topic={name}" for name in names)
                broker.post(f"/channel/create?topic={name}&channel=ch" for name in names)
                if what != "empty topics":
                    broker.post((f"/pub?topic={name}" for name in names), b"one message")
                percent = cpu_percent(broker, time.sleep)
                table.add(f"{count} {what}", "CPU, % of a core", percent)
                table.add(f"{count} {what}", "memory, MB", broker.rss_bytes() / 1e6)
        for what, heartbeat_ms in (("connections", 60_000), ("connections with heartbeats of 30 s", 30_000)):
            with Broker(runner) as broker:
                with idle_peers(broker, 10):
                    before = broker.rss_bytes()
                    with idle_peers(broker, count, heartbeat_ms) as others:
                        percent = cpu_percent(broker, lambda seconds: answer_heartbeats(others, seconds), 30)
                        table.add(f"{count} {what}", "CPU, % of a core", percent)
                        each = (broker.rss_bytes() - before) / count
                        table.add(f"{count} {what}", "bytes of memory for each, without the kernel's", each)


def cpu_percent(broker, wait, seconds=10):
    """Returns the share of a core that an idle broker takes, when the work that follows the creation is done."""
    wait(5)
    before = broker.cpu_s()
    wait(seconds)
    return 100 * (broker.cpu_s() - before) / seconds


def start(runner, sizes, table, rounds):
    for count in sizes:
        with Broker(runner) as broker:
            runner.run(broker, f"{FULL_SPEED} --topic deep --channels 1 --consumers 0 --messages {count} "
                               "--duration 600s")
            waiting = broker.depth("deep")
            for _ in range(rounds):
                for how, name in ((signal.SIGTERM, "clean stop"), (signal.SIGKILL, "kill -9")):
                    began = time.monotonic()
                    broker.end(how)
                    table.add(f"{count:,} waiting, {name}", "stop, ms", 1e3 * (time.monotonic() - began))
                    cache = drop_caches()
                    seconds = time_to_answer(broker)
                    table.add(f"{count:,} waiting, {name}, {cache}", "start, ms", 1e3 * seconds)
                    table.add(f"{count:,} waiting, {name}", "memory, MB", broker.rss_bytes() / 1e6)
                    if broker.depth("deep") != waiting:
                        print(f"note: {waiting} were waiting, {broker.depth('deep')} are", file=sys.stderr, flush=True)


def drop_caches():
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    except OSError:
        return "warm page cache"
    return "cold page cache"


def time_to_answer(broker):
    """Returns the time from exec until both ports, which are those of the last start, have answered."""
    tcp, http_address = broker.tcp, broker.http
    began = time.monotonic()
    broker.start(tcp, http_address)
    connection = broker.connection()
    connection.request("GET", "/ping")
    assert connection.getresponse().read() == b"OK"
    connection.close()
    identify(broker).close()
    return time.monotonic() - began


def tmpfs(runner, _, table):
    for name, base in (("disk", runner.options.data), ("tmpfs", runner.options.tmpfs)):
        with Broker(runner, base=base) as broker:
            result = runner.run(broker, f"{MPUB} --consumers 2 --rdy 2500 --rate 500k "
                                        f"--duration {runner.options.seconds}s")
        table.add(name, "CPU us per message", result["resources"]["cpu_us_per_message"])
        table.add(name, "delivered/s", result["totals"]["delivered_per_s"])
        table.add(name, "deepest backlog, messages", max(row["depth"] or 0 for row in result["series"]))


def neighbour(runner, _, table):
    """Measures a light flow beside a flood. For comparison, the same flood goes to another broker: it takes as much of
    the processor and the disk, but nothing of the shard. A slow disk slows the flood down, so the light flow does not
    wait for the processor. The wide flood has more bytes on their way than a socket holds, so the shard always finds a
    full buffer to read. A run in which the host took more than STOLEN_PERCENT_MAX of the processors shows the host's
    p99. Such a run is repeated, up to TRIES times in all."""
    light = (f"--topic light --via pub --rate 2k --consumers 1 --rdy 100 --output-buffer-timeout 25ms --warm-up 1s "
             f"--duration {runner.options.seconds}s")
    slow = f"disk of {SLOW_DISK_BYTES_PER_S // 1_000_000} MB/s"
    for flooded, window, is_slow in (
            (None, 0, False), ("another broker", 2_000, True), ("the same shard", 2_000, True),
            ("another broker", 2_000, False), ("the same shard", 2_000, False),
            ("another broker", 40_000, False), ("the same shard", 40_000, False)):
        variant = f"flood of {flooded}" if flooded else "alone"
        variant += f", {slow}" if is_slow else ", wide" if window > 2_000 else ""
        for repeated in range(TRIES):
            result, flood = beside_flood(runner, light, flooded, window, slow if is_slow else None)
            stolen = result and result["self_check"]["stolen_percent"]
            if not stolen or stolen <= STOLEN_PERCENT_MAX:
                break
        if not result:
            continue
        for histogram in result["histograms"]:
            if histogram["kind"] in ("delivery", "publish"):
                for point in ("p50_us", "p99_us", "p999_us", "max_us"):
                    table.add(variant, f"{histogram['kind']} {point}", histogram[point])
        if flood:
            table.add(variant, "flood, messages/s", flood["totals"]["acknowledged_per_s"])
        table.add(variant, "stolen by the host, %", stolen)
        table.add(variant, "runs done again", repeated)


def beside_flood(runner, light, flooded, window, slow):
    """Returns a run of the light flow, and the run of the flood, if there is one. Returns neither if the disk must be
    slow and that is not possible."""
    # The disk needs some time to remove the files of the last flood.
    time.sleep(5)
    with contextlib.ExitStack() as stack:
        try:
            disk = stack.enter_context(SlowDisk(runner.options.data, SLOW_DISK_BYTES_PER_S)) if slow else None
        except OSError as error:
            print(f"note: no {slow}: {error}; it needs root", file=sys.stderr, flush=True)
            return None, None
        broker = stack.enter_context(Broker(runner, "-shards=1"))
        if not flooded:
            return runner.run(broker, light, is_punctual=True), None
        other = broker if "same" in flooded else stack.enter_context(Broker(runner, "-shards=1"))
        if disk:
            disk.take(other.process.pid)
        flood = stack.enter_context(runner.bench(
            other, f"{MPUB} --topic flood --channels 1 --consumers 0 --warm-up 0s "
                   f"--duration {runner.options.seconds + 3}s --window {window}"))
        time.sleep(1)
        return runner.run(broker, light, is_punctual=True), flood.result()


def disk(runner, _, table):
    """Measures how fast the disk writes new files alone, and how fast a broker with a growing backlog writes."""
    seconds = runner.options.seconds
    written = write_files(runner.options.data, seconds)
    table.add("two threads that write new files", "GB/s", written / seconds / 1e9)
    with Broker(runner) as broker:
        result = runner.run(broker, f"{FULL_SPEED} --consumers 0 --channels 0 --duration {seconds}s")
    table.add("broker", "GB/s", result["resources"]["disk_written_bytes"] / seconds / 1e9)
    table.add("broker", "published/s", result["totals"]["acknowledged_per_s"])


def write_files(folder, seconds, threads=2, size=16 << 20):
    """Writes like a broker that spills: new files, with direct I/O, from memory in huge pages. Returns the number of
    bytes."""
    with tempfile.TemporaryDirectory(prefix="ringq-", dir=folder) as path:
        until = time.monotonic() + seconds

        def write(thread):
            memory = mmap.mmap(-1, size)
            memory.madvise(mmap.MADV_HUGEPAGE)
            memory.write(os.urandom(size))
            count = 0
            while time.monotonic() < until:
                name = f"{path}/{thread}-{count}"
                file = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_DIRECT, 0o600)
                if os.pwrite(file, memory, 0) != size:
                    raise SystemExit(f"{name}: only a part was written")
                os.close(file)
                count += 1
            return count

        with ThreadPoolExecutor(threads) as pool:
            return size * sum(pool.map(write, range(threads)))


# name: (the function that measures a round, or all rounds if it is in ALL_ROUNDS; sizes; GB of disk)
ROWS = {
    "fan-out": (fan_out, [1, 4, 16], 5),
    "fan-out-10k": (fan_out_10k, [1, 4, 16], 1),
    "topics": (topics, [1, 100, 1_000, 10_000], 20),
    "idle-peers": (with_idle_peers, [1, 100, 1_000, 10_000], 5),
    "peers": (peers, [2, 100, 1_000, 10_000], 5),
    "backlog": (backlog, [0, 1_000_000, 10_000_000, 50_000_000], 30),
    "idle": (idle, [10_000], 12),
    "start": (start, [40_000_000], 12),
    "tmpfs": (tmpfs, [0], 2),
    "neighbour": (neighbour, [0], 20),
    "disk": (disk, [0], 20),
}
ALL_ROUNDS = (backlog, start)


def measure(name, runner):
    act, sizes, disk_gb = ROWS[name]
    options = runner.options
    sizes = options.sizes or sizes
    free_gb = shutil.disk_usage(options.data).free / 1e9
    if free_gb < disk_gb:
        print(f"note: {name} may need {disk_gb} GB of disk, {options.data} has {free_gb:.0f}: it may fail",
              file=sys.stderr, flush=True)
    table = Table(name)
    try:
        if act in ALL_ROUNDS:
            act(runner, sizes, table, options.rounds)
        else:
            for _ in range(options.rounds):
                act(runner, sizes, table)
    finally:
        table.show()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", type=Path, default=Path("target/dist"), help="folder of our programs")
    parser.add_argument("--rows", default=",".join(ROWS), help="names, separated by commas")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4, help="measured time of a run without a fixed number of messages")
    parser.add_argument("--sizes", type=lambda text: [int(size) for size in text.split(",")], help="other sizes")
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()), help="where data paths are made")
    parser.add_argument("--tmpfs", type=Path, default=Path("/dev/shm"), help="where data paths in memory are made")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS:
        print(f"note: {hard} open files are allowed, 10,000 connections need {DESCRIPTORS}", file=sys.stderr)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, DESCRIPTORS)) if hard >= 0 else DESCRIPTORS, hard))
    runner = Runner(options)
    try:
        for name in options.rows.split(","):
            measure(name, runner)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
