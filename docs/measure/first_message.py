#!/usr/bin/env python3
"""Measures how soon ringq and the original listen and deliver after a start with a large backlog.

    first_message.py --ours target/dist --original NSQD

Each broker gets a backlog of 1 KiB messages in one topic with one channel. A round publishes more messages, ends the
broker, starts the broker again on the same data, connects as soon as the broker listens, and subscribes with RDY 1. Two
times are measured from just before the program is executed: until the broker takes a connection, and until the first
message has arrived as a whole. The brokers take turns. SIGTERM or SIGKILL ends a broker. SIGKILL comes right after the
last publish, or when the messages are synced (`SIGKILL, synced`). The page cache is warm or was dropped, which needs
root. Prints a table of medians.
"""
import argparse
import gc
import os
import re
import signal
import socket
import struct
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from measuring import Broker, Runner, Table

TOPIC, CHANNEL = "first", "ch"
BODY = bytes(range(256)) * 4
BATCH = 1000
FRAME_MESSAGE = 2
# A time that is longer than --sync-timeout.
SETTLE_S = 3
DROP_CACHES = Path("/proc/sys/vm/drop_caches")
ENDS = {"SIGTERM": (signal.SIGTERM, False), "SIGKILL": (signal.SIGKILL, False),
        "SIGKILL, synced": (signal.SIGKILL, True)}


def address_of(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def free_address():
    """Returns an address with a free port, because the client must know the port before the broker listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % probe.getsockname()[1]


def frames(connection):
    """Yields the frames that the broker sends, as (type, body)."""
    held = b""
    while True:
        while len(held) >= 4 and len(held) >= 4 + struct.unpack_from(">I", held)[0]:
            size, kind = struct.unpack_from(">II", held)
            yield kind, held[8:4 + size]
            held = held[4 + size:]
        received = connection.recv(1 << 16)
        if not received:
            raise ConnectionResetError("the broker closed the connection")
        held += received


def publish(broker, count):
    """Publishes `count` messages, a batch at a time."""
    batch = (struct.pack(">I", len(BODY)) + BODY) * BATCH
    command = f"MPUB {TOPIC}\n".encode() + struct.pack(">II", 4 + len(batch), BATCH) + batch
    with socket.create_connection(address_of(broker.tcp)) as connection:
        connection.sendall(b"  V2")
        answers = frames(connection)
        for _ in range(0, count, BATCH):
            connection.sendall(command)
            _, answer = next(answers)
            if answer != b"OK":
                raise SystemExit(f"MPUB: {answer}")


def first_message(broker):
    """Starts the broker. Returns two times in ms: until it listened, and until the first message had arrived."""
    tcp, http = free_address(), free_address()
    gc.disable()
    began = time.perf_counter()
    broker.launch(tcp, http)
    while True:
        try:
            listening, arrived = subscribe(broker, address_of(tcp))
            break
        except ConnectionResetError:
            # The broker listens for a moment to check its addresses, before it reads its data.
            continue
    gc.enable()
    broker.tcp, broker.http = broker.port("TCP"), broker.port("HTTP")
    return (listening - began) * 1e3, (arrived - began) * 1e3


def subscribe(broker, address):
    """Takes one message. Returns when the broker took the connection, and when the message had arrived."""
    with connect(broker, address) as connection:
        listening = time.perf_counter()
        connection.sendall(f"  V2SUB {TOPIC} {CHANNEL}\nRDY 1\n".encode())
        kinds = (kind for kind, _ in frames(connection))
        while next(kinds) != FRAME_MESSAGE:
            pass
        return listening, time.perf_counter()


def connect(broker, address):
    while True:
        try:
            return socket.create_connection(address)
        except ConnectionRefusedError:
            if broker.process.poll() is not None:
                raise SystemExit(f"no listener: {broker.log.read_text()}") from None
            # The pause leaves the CPU to the broker.
            time.sleep(0.0001)


def round_of(broker, name, table, options, end, is_cold):
    publish(broker, options.more)
    how, is_synced = ENDS[end]
    if is_synced:
        time.sleep(SETTLE_S)
    broker.end(how)
    if is_cold:
        os.sync()
        DROP_CACHES.write_text("3")
    listening, arrived = first_message(broker)
    table.add(name, "listens, ms", listening)
    table.add(name, "first message, ms", arrived)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", type=Path, default=Path("target/dist"), help="the folder of ringq's nsqd")
    parser.add_argument("--original", type=Path, help="the original's nsqd")
    parser.add_argument("--messages", type=int, default=2_000_000, help="messages of 1 KiB in the backlog")
    parser.add_argument("--more", type=int, default=20_000, help="messages that are published before each end")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ends", default=list(ENDS), type=lambda text: re.split(r"/\s*", text),
                        help="of %s, with a slash between them" % "/".join(ENDS))
    parser.add_argument("--cache", choices=["warm", "cold", "both"], default="both")
    parser.add_argument("--data", help="where the data paths are made")
    return parser.parse_args()


def main():
    options = parse()
    caches = {"warm": [False], "cold": [True], "both": [False, True]}[options.cache]
    if True in caches and not os.access(DROP_CACHES, os.W_OK):
        print("note: the page cache cannot be dropped here: warm only", file=sys.stderr)
        caches = [False]
    runner = Runner(options)
    programs = {"ringq": None, "original": options.original}
    with ExitStack() as stack:
        brokers = {name: stack.enter_context(Broker(runner, program=program))
                   for name, program in programs.items() if program or name == "ringq"}
        for broker in brokers.values():
            broker.post([f"/topic/create?topic={TOPIC}", f"/channel/create?topic={TOPIC}&channel={CHANNEL}"])
            publish(broker, options.messages)
        for end in options.ends:
            tables = {is_cold: Table(f"{end}, {'cold' if is_cold else 'warm'}") for is_cold in caches}
            # Warm and cold starts do not alternate: if the cache is dropped for one broker, the other's next start is
            # not warm.
            for is_cold, table in tables.items():
                for _ in range(options.rounds):
                    for name, broker in brokers.items():
                        round_of(broker, name, table, options, end, is_cold)
            for table in tables.values():
                table.show()


if __name__ == "__main__":
    main()
