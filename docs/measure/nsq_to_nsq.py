#!/usr/bin/env python3
"""Measures ringq's nsq_to_nsq against the original's, in turns, and writes results/nsq_to_nsq.json.

    docs/measure/nsq_to_nsq.py --original NSQ_TO_NSQ [--ours target/dist] [--rounds 3] [--data DIR]

Each run has two fresh nsqds of ours. The first one has all messages before the tool starts. The time begins with the
tool, and ends when the second nsqd has all messages and the first one waits for no answer. CASES has the flags. Needs
`cargo build --profile dist -p nsqd -p nsq-tools`.
"""

import json
import signal
import subprocess
import time

from measuring import Broker
from tools import compare, publish

# The number of messages, the bytes of each, and the flags of the tool.
CASES = {
    "default flags": (300_000, 200, ""),
    "2,500 in flight": (300_000, 200, "-max-in-flight=2500"),
    "one field of a JSON object": (300_000, 200, "-whitelist-json-field=id"),
}


def main():
    compare("nsq_to_nsq", CASES, measure)


def measure(runner, program, count, size, flags):
    with Broker(runner) as source, Broker(runner) as destination:
        source.post(["/topic/create?topic=t", "/channel/create?topic=t&channel=nsq_to_nsq"])
        destination.post(["/topic/create?topic=t", "/channel/create?topic=t&channel=c"])
        publish(source, count, size, lambda number: message(number, size))
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
