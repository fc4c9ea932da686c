"""Measures scrapes of /metrics, or peeks: how long they take, and whether they delay messages.

    python3 docs/measure/metrics.py --nsqd target/dist/nsqd [--topics 100] [--channels 100] [--latencies] [--peeks]
        [--consumers 0]

The script starts nsqd with one shard, and makes the channels. Then it publishes over HTTP, one message after the
other, for some seconds without and for some seconds with a scrape after the other. A publish is answered by the shard
that takes the snapshots, so its times show what a scrape does to messages. With --latencies, nsqd measures the time
from publish to FIN, and each channel finishes a message first, so a scrape has all histograms. With --peeks, a channel
has a backlog of 100,000 messages of 1,000 bytes, and peeks take the place of the scrapes: one for the newest messages,
and one that searches for a text that no message has. With --consumers, one channel has so many consumers, and the
scrapes and statistics have them all. Needs curl."""

import argparse
import http.client
import os
import re
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time


def start(nsqd, folder, flags):
    log = open(os.path.join(folder, "log"), "w+")
    process = subprocess.Popen([nsqd, "--shards=1", f"--data-path={folder}", "--tcp-address=127.0.0.1:0",
                                "--http-address=127.0.0.1:0", *flags], stderr=log)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with open(log.name) as text:
            lines = text.read()
        found = [re.search(kind + r": listening on (127\.0\.0\.1:\d+)", lines) for kind in ["HTTP", "TCP"]]
        if all(found):
            return process, found[0][1], found[1][1]
        time.sleep(0.05)
    process.kill()
    sys.exit("nsqd does not start")


def ask(connection, method, target, body=None):
    connection.request(method, target, body)
    response = connection.getresponse()
    content = response.read()
    assert response.status == 200, (target, response.status, content)
    return content


def make_channels(address, topics, channels):
    connection = http.client.HTTPConnection(address)
    for topic in range(topics):
        ask(connection, "POST", f"/topic/create?topic=topic-{topic:04}")
        for channel in range(channels):
            ask(connection, "POST", f"/channel/create?topic=topic-{topic:04}&channel=channel-{channel:04}")


def finish_everywhere(address, tcp_address, topics, channels):
    """Lets each channel finish a message."""
    connection = http.client.HTTPConnection(address)
    host, port = tcp_address.split(":")
    for topic in range(topics):
        ask(connection, "POST", f"/pub?topic=topic-{topic:04}", b"x")
        for channel in range(channels):
            with socket.create_connection((host, int(port))) as consumer:
                consumer.sendall(f"  V2SUB topic-{topic:04} channel-{channel:04}\nRDY 1\n".encode())
                stream = consumer.makefile("rb")
                kind = None
                while kind != 2:
                    size, kind = struct.unpack(">ii", stream.read(8))
                    content = stream.read(size - 4)
                consumer.sendall(b"FIN " + content[10:26] + b"\nCLS\n")
                # The answer to CLS comes after the FIN was carried out.
                stream.read(8)


def make_backlog(address):
    """Publishes 100,000 messages, and lets no consumer have them."""
    connection = http.client.HTTPConnection(address)
    ask(connection, "POST", "/topic/create?topic=looked")
    ask(connection, "POST", "/channel/create?topic=looked&channel=c")
    for _ in range(100):
        ask(connection, "POST", "/mpub?topic=looked", b"\n".join([b"x" * 1000] * 1000))


def connect_consumers(tcp_address, count):
    """Returns connections that consume the channel of a topic of their own."""
    host, port = tcp_address.split(":")
    consumers = [socket.create_connection((host, int(port))) for _ in range(count)]
    for consumer in consumers:
        # Heartbeats come later than the end of short measurements.
        body = b'{"heartbeat_interval":60000}'
        consumer.sendall(b"  V2IDENTIFY\n" + struct.pack(">i", len(body)) + body + b"SUB consumed c\n")
        stream = consumer.makefile("rb")
        for _ in range(2):
            size, kind = struct.unpack(">ii", stream.read(8))
            content = stream.read(size - 4)
            assert (kind, content) == (0, b"OK"), content
    return consumers


def publish(address, seconds):
    """Returns the times of the publishes in milliseconds, sorted."""
    connection = http.client.HTTPConnection(address)
    ask(connection, "POST", "/topic/create?topic=measured")
    times = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        ask(connection, "POST", "/pub?topic=measured", b"x" * 100)
        times.append((time.perf_counter() - began) * 1000)
        time.sleep(0.001)
    return sorted(times)


def scrape(address, target, stop, times):
    """Adds the time in milliseconds and the bytes of each answer. curl reads them: Python takes as long as nsqd."""
    command = ["curl", "--silent", "--fail", "--output", os.devnull, "--write-out", "%{time_total} %{size_download}"]
    while not stop.is_set():
        answer = subprocess.run([*command, f"http://{address}{target}"], check=True, capture_output=True, text=True)
        took, size = answer.stdout.split()
        times.append((float(took) * 1000, int(size)))
        stop.wait(0.2)


def show(what, times):
    def at(share):
        return times[min(len(times) - 1, int(len(times) * share))]
    print(f"| {what} | {len(times)} | {statistics.median(times):.2f} | {at(0.99):.2f} | {times[-1]:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nsqd", required=True)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--channels", type=int, default=100, help="channels of each topic")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--latencies", action="store_true", help="with --e2e-processing-latency-percentile")
    parser.add_argument("--consumers", type=int, default=0, help="consumers of one channel")
    parser.add_argument("--peeks", action="store_true", help="looks at messages instead of scraping")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ringq-") as folder:
        flags = ["--e2e-processing-latency-percentile=0.99,0.5"] if options.latencies else []
        process, address, tcp_address = start(options.nsqd, folder, flags)
        try:
            make_channels(address, options.topics, options.channels)
            if options.latencies:
                finish_everywhere(address, tcp_address, options.topics, options.channels)
            # They stay connected until the end.
            consumers = connect_consumers(tcp_address, options.consumers)
            print(f"{len(consumers)} consumers, {options.topics} topics with {options.channels} channels each, load of the machine before: "
                  f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
            print("| what | number | median ms | 99 % ms | longest ms |\n|---|---|---|---|---|")
            publish(address, 1)
            show("publishes without scrapes", publish(address, options.seconds))
            targets = ["/metrics", "/stats?format=json"]
            if options.consumers:
                # /stats has them anyway.
                targets[0] += "?include_clients=true"
            if options.peeks:
                make_backlog(address)
                peek = "/channel/peek?topic=looked&channel=c"
                targets = [f"{peek}&from=newest&limit=100", f"{peek}&contains=none"]
            for target in targets:
                stop, scrapes = threading.Event(), []
                thread = threading.Thread(target=scrape, args=(address, target, stop, scrapes))
                thread.start()
                times = publish(address, options.seconds)
                stop.set()
                thread.join()
                show(f"publishes beside {target}", times)
                show(f"answers of {target}, {scrapes[0][1] / 1e6:.1f} MB each", sorted(took for took, _ in scrapes))
            show("publishes without scrapes, again", publish(address, options.seconds))
        finally:
            process.terminate()
            process.wait()


main()
