"""Measures scrapes of /metrics: how long a scrape of many channels takes, and whether it delays messages.

    python3 docs/measure/metrics.py --nsqd target/release/nsqd [--topics 100] [--channels 100]

The script starts nsqd with one shard, and makes the channels. Then it publishes over HTTP, one message after the
other, for some seconds without and for some seconds with a scrape after the other. A publish is answered by the shard
that takes the snapshots, so its times show what a scrape does to messages."""

import argparse
import http.client
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time


def start(nsqd, folder):
    log = open(os.path.join(folder, "log"), "w+")
    process = subprocess.Popen([nsqd, "--shards=1", f"--data-path={folder}", "--tcp-address=127.0.0.1:0",
                                "--http-address=127.0.0.1:0"], stderr=log)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with open(log.name) as text:
            found = re.search(r"HTTP: listening on (127\.0\.0\.1:\d+)", text.read())
        if found:
            return process, found[1]
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
    connection = http.client.HTTPConnection(address)
    while not stop.is_set():
        began = time.perf_counter()
        content = ask(connection, "GET", target)
        times.append(((time.perf_counter() - began) * 1000, len(content)))
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
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ringq-") as folder:
        process, address = start(options.nsqd, folder)
        try:
            make_channels(address, options.topics, options.channels)
            print(f"{options.topics} topics with {options.channels} channels each, load of the machine before: "
                  f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
            print("| what | number | median ms | 99 % ms | longest ms |\n|---|---|---|---|---|")
            publish(address, 1)
            show("publishes without scrapes", publish(address, options.seconds))
            for target in ["/metrics", "/stats?format=json"]:
                stop, scrapes = threading.Event(), []
                thread = threading.Thread(target=scrape, args=(address, target, stop, scrapes))
                thread.start()
                times = publish(address, options.seconds)
                stop.set()
                thread.join()
                show(f"publishes beside {target}", times)
                show(f"scrapes of {target}, {scrapes[0][1] / 1e6:.1f} MB each", sorted(took for took, _ in scrapes))
            show("publishes without scrapes, again", publish(address, options.seconds))
        finally:
            process.terminate()
            process.wait()


main()
