"""Publishes messages with pynsq, as an application does that waits for each answer. Prints the rate and the latencies as
JSON, as main.go does."""

import argparse
import json
import time

import nsq
import tornado.ioloop

WARM_UP_S, DURATION_S = 0.5, 2


class Caller:
    """Publishes a message when the one before is answered."""

    def __init__(self, writer, latencies):
        self.writer, self.latencies = writer, latencies
        self.body = bytes(200)

    def publish(self):
        self.began = time.perf_counter()
        self.writer.pub("callers", self.body, callback=self.answered)

    def answered(self, _connection, answer):
        if isinstance(answer, nsq.Error):
            raise SystemExit(f"PUB: {answer}")
        self.latencies.append((self.began, time.perf_counter() - self.began))
        self.publish()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", default="127.0.0.1:4150", help="TCP address of nsqd")
    parser.add_argument("--callers", type=int, default=1, help="callers, each of which waits for each answer")
    parser.add_argument("--connections", type=int, default=1, help="connections that they share")
    options = parser.parse_args()
    loop = tornado.ioloop.IOLoop.current()
    latencies = []
    writers = [nsq.Writer([options.address]) for _ in range(options.connections)]

    def begin():
        if not all(writer.conns for writer in writers):
            loop.call_later(0.01, begin)
            return
        for caller in range(options.callers):
            Caller(writers[caller % len(writers)], latencies).publish()
        loop.call_later(WARM_UP_S + DURATION_S, loop.stop)

    loop.add_callback(begin)
    loop.start()
    measured_from = latencies[0][0] + WARM_UP_S
    measured = sorted(latency for began, latency in latencies if began >= measured_from)

    def at(share):
        return measured[int(share * (len(measured) - 1))] * 1e6

    print(json.dumps({"messages_per_s": len(measured) / DURATION_S, "p50_us": at(0.5), "p99_us": at(0.99)}))


if __name__ == "__main__":
    main()
