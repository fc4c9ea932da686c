#!/usr/bin/env python3
"""Measures ringq's nsq_to_file against the original's, in turns, and writes results/nsq_to_file.json.

    docs/measure/nsq_to_file.py --original NSQ_TO_FILE [--ours target/dist] [--rounds 3] [--data DIR]

Each run has a fresh nsqd of ours, which has all messages before the tool starts: in memory, so that the tool has the disk
for itself, except in one case. The time ends when the channel has no message left; those that are in flight then do not
count. Afterwards each message must be in the files. CASES has the flags. Needs `cargo build --profile dist -p nsqd -p nsq-tools`. Both tools write to files below DIR (default /tmp).
"""

import gzip
import json
import random
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from hot_path import IN_MEMORY
from measuring import Broker
from tools import compare, publish

# The number of messages, the bytes of each, the flags of the tool, and those of nsqd.
CASES = {
    "plain": (500_000, 200, "-max-in-flight=200", IN_MEMORY),
    "plain, 2,500 in flight": (500_000, 200, "-max-in-flight=2500", IN_MEMORY),
    "gzip, 2,500 in flight": (500_000, 200, "-max-in-flight=2500 -gzip", IN_MEMORY),
    "plain, 2,500 in flight, 10 KB": (50_000, 10_000, "-max-in-flight=2500", IN_MEMORY),
    "plain, 2,500 in flight, 10 KB, nsqd reads from the same disk": (50_000, 10_000, "-max-in-flight=2500", ""),
}


def main():
    compare("nsq_to_file", CASES, measure)


def measure(runner, program, count, size, flags, nsqd_flags):
    with Broker(runner, nsqd_flags) as broker:
        broker.post(["/topic/create?topic=t", "/channel/create?topic=t&channel=c"])
        publish(broker, count, size, numbered(size))
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


def numbered(size):
    """Returns a function that makes a numbered message. gzip halves its size, because it has hexadecimal digits."""
    digits = random.Random(1).randbytes(1024 * 1024).hex()

    def message(number):
        start = number * 7919 % (len(digits) - size)
        return f"{number} {digits[start:start + size]}"[:size]

    return message


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
