"""The interop scenario, without a client library: the published messages, the answers of the consumers, and the final
checks. The Node and Go clients follow the same plan, number for number.

Message n (0 <= n < numbered) carries its number, a CRC-32 and padding. A few more bodies have one byte, which has no
room for a number. They are counted by value. On each channel, m = n + 250 * channel index decides what happens to the
first delivery of n:

    m % 500  == 7     REQ 0
    m % 500  == 107   REQ with a delay of 50..300 ms
    m % 5000 == 211   held for longer than the message timeout, touched, then FIN
    m % 5000 == 311   left alone until it times out
    otherwise         FIN

Later deliveries, if there are any, get FIN. The producer and the consumers of the two channels are three processes,
because a single Python process would be the slowest part by far.
"""

import argparse
import json
import multiprocessing
import random
import struct
import sys
import time
import traceback
import urllib.request
import zlib

CHANNELS = ("first", "second")
CONSUMERS_PER_CHANNEL = 2
PRODUCERS = 4
READY = 50  # Per consumer connection. The timeout of a message also runs while the message waits in the connection.
MSG_TIMEOUT = 30.0  # Seconds. The driver starts the broker with the same default. A busy machine takes some of it.
TOUCH_HOLD = MSG_TIMEOUT + 2
TOUCH_EVERY = 1.0
EARLY_TOLERANCE = 0.005  # The granularity of the clocks.
DEADLINE = 300.0  # For the whole scenario.
PATIENCE = 60.0  # For a single answer of the broker or of a process, on a busy machine.
BIG_BODIES = (1048576, 1048575, 1000000, 999999)
VIOLATIONS_MAX = 20

FIN, REQ, TOUCH, LEAVE = "FIN", "REQ", "TOUCH", "LEAVE"


class Violation(Exception):
    """The broker broke a promise, or did not keep a promise in time."""


class Plan:
    """The messages to publish: a pure function of their number."""

    def __init__(self, messages):
        self.messages = messages
        self.tiny = messages // 100
        self.numbered = messages - self.tiny
        self.deferred = min(300, messages // 100)
        self.big_end = self.deferred + len(BIG_BODIES)
        self.padding = random.Random(1).randbytes(max(BIG_BODIES) + 4096)

    def body(self, n):
        if self.deferred <= n < self.big_end:
            size = BIG_BODIES[n - self.deferred]
        elif n % 1000 == 3:
            size = 10000 + n % 97
        else:
            size = 12 + n % 377
        start = n * 7919 % 4096
        padding = self.padding[start:start + size - 12]
        number = struct.pack(">Q", n)
        return number + struct.pack(">I", zlib.crc32(padding, zlib.crc32(number))) + padding

    def defer_ms(self, n):
        """Returns the deferral of message n, 0 for none."""
        return 100 + n * 37 % 1901 if n < self.deferred else 0

    def tiny_body(self, i):
        return bytes((i % 256,))

    def batches(self):
        """Yields the publications after the deferred and big messages: lists of bodies. A list of one body is a PUB."""
        n, batch = self.big_end, 0
        while n < self.numbered:
            end = min(self.numbered, n + 50 + batch * 31 % 151)
            if batch % 10 == 0:
                for single in range(n, end):
                    yield [self.body(single)]
            else:
                yield [self.body(each) for each in range(n, end)]
            n, batch = end, batch + 1
        half = self.tiny // 2
        for i in range(half):
            yield [self.tiny_body(i)]
        if half < self.tiny:
            yield [self.tiny_body(i) for i in range(half, self.tiny)]


class Ledger:
    """The deliveries that the consumers of one channel got, and their answers."""

    def __init__(self, plan, index):
        self.plan = plan
        self.name = CHANNELS[index]
        self.shift = 250 * index
        self.deliveries = bytearray(plan.numbered)
        self.finished = bytearray(plan.numbered)
        self.finished_count = 0
        self.not_before = {}  # n -> time before which the next delivery of n would be early
        self.tiny_ids = set()
        self.tiny_values = [0] * 256
        self.requeued = self.touched = self.left = 0
        self.violations = []

    def violation(self, text):
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append("channel %s: %s" % (self.name, text))

    def deliver(self, message_id, timestamp_ns, attempts, body):
        """Checks a delivery. Returns (what to do, n, delay in ms)."""
        if len(body) == 1:
            if message_id in self.tiny_ids:
                self.violation("one-byte message %r came again after FIN" % message_id)
            else:
                self.tiny_ids.add(message_id)
                self.tiny_values[body[0]] += 1
            return FIN, None, 0
        n = self.number_in(body)
        if n is None:
            return FIN, None, 0
        if self.finished[n]:
            self.violation("message %d came again after FIN (attempts %d)" % (n, attempts))
            return FIN, None, 0
        self.deliveries[n] += 1
        delivery = self.deliveries[n]
        if attempts != delivery:
            self.violation("message %d: attempts %d at delivery %d" % (n, attempts, delivery))
        if delivery == 1:
            defer = self.plan.defer_ms(n) / 1000
            early = timestamp_ns / 1e9 + defer - time.time()
            if defer and early > EARLY_TOLERANCE:
                self.violation("deferred message %d came %.1f ms early" % (n, early * 1000))
            return self.first_action(n, timestamp_ns)
        if n not in self.not_before:
            self.violation("message %d came again without REQ or timeout" % n)
        early = self.not_before.get(n, 0) - time.monotonic()
        if early > EARLY_TOLERANCE:
            self.violation("message %d came again %.1f ms early" % (n, early * 1000))
        return FIN, n, 0

    def number_in(self, body):
        n = struct.unpack_from(">Q", body)[0] if len(body) >= 12 else self.plan.numbered
        if n >= self.plan.numbered:
            self.violation("a body of %d bytes without a known number" % len(body))
            return None
        crc = struct.unpack_from(">I", body, 8)[0]
        if crc != zlib.crc32(memoryview(body)[12:], zlib.crc32(body[:8])):
            self.violation("message %d is corrupt (%d bytes)" % (n, len(body)))
            return None
        return n

    def first_action(self, n, timestamp_ns):
        m = n + self.shift
        if m % 500 == 7:
            self.requeued += 1
            self.not_before[n] = 0
            return REQ, n, 0
        if m % 500 == 107:
            self.requeued += 1
            delay_ms = 50 + n * 13 % 251
            self.not_before[n] = time.monotonic() + delay_ms / 1000
            return REQ, n, delay_ms
        if m % 5000 == 211:
            self.touched += 1
            return TOUCH, n, 0
        if m % 5000 == 311:
            self.left += 1
            # The timeout began when the message left the broker, so not before it was published.
            age = time.time() - timestamp_ns / 1e9
            self.not_before[n] = time.monotonic() - age + MSG_TIMEOUT
            return LEAVE, n, 0
        return FIN, n, 0

    def finish(self, n):
        """Notes that FIN has been sent for n (None: for a body without a number)."""
        if n is not None:
            self.finished[n] = 1
            self.finished_count += 1

    def is_done(self):
        return (self.finished_count == self.plan.numbered
                and len(self.tiny_ids) == self.plan.tiny)

    def report(self):
        """Makes the final checks. Returns figures for the summary."""
        lost = [n for n in range(self.plan.numbered) if not self.finished[n]]
        verdict = []  # The limit of violations does not hold here.
        if lost:
            verdict.append("channel %s: %d messages not received and finished, first %s"
                           % (self.name, len(lost), lost[:10]))
        expected = [0] * 256
        for i in range(self.plan.tiny):
            expected[i % 256] += 1
        if self.tiny_values != expected:
            verdict.append("channel %s: one-byte messages: %d of %d, or wrong values"
                           % (self.name, len(self.tiny_ids), self.plan.tiny))
        return {"channel": self.name, "requeued": self.requeued, "touched": self.touched,
                "left": self.left, "violations": verdict + self.violations}


class Control:
    """The connection of a consumer process to its parent."""

    def __init__(self, pipe, ledger):
        self.pipe = pipe
        self.ledger = ledger
        self.told = False

    def poll(self):
        """Call this about every 50 ms. Returns False when it is time to disconnect."""
        if not self.told and self.ledger.is_done():
            self.told = True
            self.pipe.send("done")
        return not self.pipe.poll()


def consumer_process(consume, args, index, pipe):
    ledger = Ledger(Plan(args.messages), index)
    try:
        consume(args, ledger, Control(pipe, ledger))
    except Exception:
        ledger.violation(traceback.format_exc())
    pipe.send(ledger.report())


def http(args, method, target):
    request = urllib.request.Request("http://%s%s" % (args.http, target), method=method)
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        return response.read()


def fetch_stats(args):
    body = http(args, "GET", "/stats?format=json&topic=" + args.topic)
    return json.loads(body)


def wait_for(what, condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Violation("not within %d s: %s" % (seconds, what))
        time.sleep(0.05)


def check_stats(args, fetch, reports_requeued, reports_left):
    """Checks that the broker's counters are right and that no message is left. Waits, because a FIN may still be on its
    way."""
    problems = []

    def right():
        problems.clear()
        topic = fetch(args)["topics"][0]

        def expect(name, value, good):
            if not good:
                problems.append("%s is %r" % (name, value))

        expect("topic depth", topic["depth"], topic["depth"] == 0)
        expect("topic message_count", topic["message_count"],
               topic["message_count"] == args.messages)
        channels = {channel["channel_name"]: channel for channel in topic["channels"]}
        for name in CHANNELS:
            channel = channels[name]
            for key in ("depth", "in_flight_count", "deferred_count"):
                expect("%s %s" % (name, key), channel[key], channel[key] == 0)
            count = channel["message_count"]
            expect(name + " message_count", count, count == args.messages)
            count = channel["requeue_count"]
            expect(name + " requeue_count", count, count >= reports_requeued)
            count = channel["timeout_count"]
            expect(name + " timeout_count", count, count >= reports_left)
        return not problems

    try:
        wait_for("right figures in /stats", right, PATIENCE)
    except Violation:
        raise Violation("/stats: " + ", ".join(problems)) from None


def minimum_counts(plan):
    """Returns the numbers of REQs and timeouts that every channel certainly has."""
    requeued = left = plan.messages
    for index in range(len(CHANNELS)):
        shifted = [n + 250 * index for n in range(plan.numbered)]
        requeued = min(requeued, sum(m % 500 in (7, 107) for m in shifted))
        left = min(left, sum(m % 5000 == 311 for m in shifted))
    return requeued, left


def upgrades(args):
    """Returns the upgrades of connections, in the form that both libraries take."""
    options = {}
    if args.tls_ca:
        options.update(tls_v1=True, tls_options={"ca_certs": args.tls_ca})
    if args.compression:
        options[args.compression] = True
    return options


def run(library, consume, produce, fetch=fetch_stats):
    """Runs the scenario with one library's `consume(args, ledger, control)` and `produce(args, plan)`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tcp", required=True)
    parser.add_argument("--http", required=True)
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--tls-ca", help="authority of the broker's certificate [default: no TLS]")
    parser.add_argument("--compression", choices=("snappy", "deflate"))
    args = parser.parse_args()
    started = time.monotonic()
    http(args, "POST", "/topic/create?topic=" + args.topic)
    for name in CHANNELS:
        http(args, "POST", "/channel/create?topic=%s&channel=%s" % (args.topic, name))
    context = multiprocessing.get_context("fork")
    pipes, children = [], []
    for index in range(len(CHANNELS)):
        ours, theirs = context.Pipe()
        child = context.Process(target=consumer_process, args=(consume, args, index, theirs),
                                daemon=True)
        child.start()
        pipes.append(ours)
        children.append(child)
    problems = []
    produced = None
    try:
        def all_subscribed():
            channels = fetch_stats(args)["topics"][0]["channels"]
            counts = [channel["client_count"] for channel in channels]
            return counts == [CONSUMERS_PER_CHANNEL] * len(CHANNELS)

        wait_for("all consumers subscribed", all_subscribed, PATIENCE)
        plan = Plan(args.messages)
        produce(args, plan)
        produced = time.monotonic() - started
        for pipe, name in zip(pipes, CHANNELS):
            left = DEADLINE - (time.monotonic() - started)
            if not pipe.poll(max(0, left)):
                raise Violation("channel %s is not finished after %d s" % (name, DEADLINE))
            told = pipe.recv()
            if told != "done":
                problems += told["violations"]
                raise Violation("channel %s: the consumers ended early" % name)
        check_stats(args, fetch, *minimum_counts(plan))
        time.sleep(0.3)  # Any message that comes now is a violation.
    except Violation as violation:
        problems.append(str(violation))
    except Exception:
        problems.append(traceback.format_exc())
    reports = []
    for pipe, child in zip(pipes, children):
        try:
            pipe.send("quit")
            report = pipe.recv() if pipe.poll(PATIENCE) else None
            while report == "done":
                report = pipe.recv() if pipe.poll(PATIENCE) else None
        except (EOFError, OSError):
            report = None
        child.join(PATIENCE)
        if isinstance(report, dict):
            problems += [text for text in report.pop("violations") if text not in problems]
            reports.append(report)
        elif not problems:
            problems.append("a consumer process ended without a report")
    print(json.dumps({"library": library, "messages": args.messages, "ok": not problems,
                      "seconds_publishing": produced and round(produced, 1),
                      "seconds": round(time.monotonic() - started, 1), "channels": reports}))
    for text in problems:
        print("%s: %s" % (library, text), file=sys.stderr)
    sys.exit(1 if problems else 0)
