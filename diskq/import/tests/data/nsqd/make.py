#!/usr/bin/env python3
"""Makes the data directories beside this file with the original nsqd: make.py /path/to/nsqd [name ...]"""
import json, os, shutil, signal, socket, struct, subprocess, sys, time, urllib.request

NSQD, HERE = sys.argv[1], os.path.dirname(os.path.abspath(__file__))


class Nsqd:
    def __init__(self, name, *flags):
        self.path = os.path.join(HERE, name)
        os.makedirs(self.path, exist_ok=True)
        self.tcp, self.http = free_port(), free_port()
        self.process = subprocess.Popen(
            [NSQD, "--node-id=1", f"--data-path={self.path}", f"--tcp-address=127.0.0.1:{self.tcp}",
             f"--http-address=127.0.0.1:{self.http}", *flags], stderr=subprocess.DEVNULL)
        for _ in range(200):
            try:
                return self.get("/ping") and None
            except OSError:
                time.sleep(0.05)

    def get(self, target):
        return urllib.request.urlopen(f"http://127.0.0.1:{self.http}{target}").read()

    def post(self, target, body=b""):
        urllib.request.urlopen(f"http://127.0.0.1:{self.http}{target}", data=body).read()

    def make(self, topic, *channels):
        self.post(f"/topic/create?topic={topic}".replace("#", "%23"))
        for channel in channels:
            self.post(f"/channel/create?topic={topic}&channel={channel}".replace("#", "%23"))

    def publish(self, topic, numbers, form="message {:04}"):
        for n in numbers:
            self.post(f"/pub?topic={topic}".replace("#", "%23"), form.format(n).encode())

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait()


class Consumer:
    def __init__(self, nsqd, topic, channel):
        self.socket = socket.create_connection(("127.0.0.1", nsqd.tcp))
        self.socket.settimeout(10)
        self.send(b"  V2SUB %s %s\n" % (topic.encode(), channel.encode()))
        assert self.frame()[1] == b"OK"

    def send(self, data):
        self.socket.sendall(data)

    def exactly(self, count):
        data = b""
        while len(data) < count:
            data += self.socket.recv(count - len(data)) or sys.exit("nsqd closed the connection")
        return data

    def frame(self):
        size, kind = struct.unpack(">ii", self.exactly(8))
        return kind, self.exactly(size - 4)

    def message_id(self):
        while True:
            kind, data = self.frame()
            if kind == 2:
                return data[10:26]

    def finish(self, count):
        self.send(b"RDY 1\n")
        for n in range(count):
            last = self.message_id()
            if n + 1 == count:
                self.send(b"RDY 0\n")
            self.send(b"FIN %s\n" % last)
        time.sleep(0.3)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def topic_only():
    nsqd = Nsqd("topic-only", "--mem-queue-size=0")
    nsqd.publish("orders", range(3))
    nsqd.stop()


def two_channels():
    nsqd = Nsqd("two-channels", "--mem-queue-size=0")
    nsqd.make("orders", "billing", "audit")
    nsqd.publish("orders", range(40))
    for channel, count in [("billing", 25), ("audit", 10)]:
        Consumer(nsqd, "orders", channel).finish(count)
    nsqd.stop()


def requeued():
    nsqd = Nsqd("requeued")
    nsqd.make("orders", "billing", "audit")
    consumer = Consumer(nsqd, "orders", "billing")
    nsqd.publish("orders", range(3))
    consumer.send(b"RDY 3\n")
    first, second, _third = [consumer.message_id() for _ in range(3)]
    consumer.send(b"REQ %s 0\n" % first)
    assert consumer.message_id() == first
    consumer.send(b"RDY 0\nREQ %s 60000\n" % second)
    time.sleep(0.3)
    nsqd.publish("orders", range(3, 6))
    nsqd.post("/pub?topic=orders&defer=60000", b"message 0006")
    time.sleep(0.3)
    nsqd.stop()


def paused():
    nsqd = Nsqd("paused")
    nsqd.make("orders", "billing", "audit")
    nsqd.publish("orders", range(3))
    time.sleep(0.3)
    nsqd.post("/channel/pause?topic=orders&channel=billing")
    nsqd.post("/topic/pause?topic=orders")
    nsqd.publish("orders", range(3, 5))
    nsqd.make("empty", "drained")
    nsqd.stop()


def rolled():
    nsqd = Nsqd("rolled", "--mem-queue-size=0", "--max-bytes-per-file=200")
    nsqd.make("orders", "billing", "audit")
    nsqd.publish("orders", range(30))
    time.sleep(0.5)
    Consumer(nsqd, "orders", "billing").finish(13)
    nsqd.stop()


def killed():
    nsqd = Nsqd("killed", "--mem-queue-size=0")
    nsqd.make("orders", "billing", "audit")
    nsqd.publish("orders", range(10))
    time.sleep(3)  # nsqd syncs every two seconds.
    nsqd.publish("orders", range(10, 14))
    time.sleep(0.3)
    nsqd.stop(signal.SIGKILL)


def bad():
    nsqd = Nsqd("bad", "--mem-queue-size=0", "--max-bytes-per-file=80")
    nsqd.make("orders", "billing")
    consumer = Consumer(nsqd, "orders", "billing")
    for n in range(7):
        nsqd.publish("orders", [n])
        time.sleep(0.1)
    consumer.finish(5)
    nsqd.publish("orders", range(7, 9))
    time.sleep(0.3)
    nsqd.stop()


def leftovers():
    nsqd = Nsqd("leftovers", "--mem-queue-size=0")
    nsqd.make("orders", "billing")
    nsqd.make("passing#ephemeral", "kept")
    nsqd.publish("orders", range(2))
    nsqd.publish("passing#ephemeral", range(2))
    time.sleep(0.5)
    nsqd.stop()
    # A crash while nsqd.dat is replaced leaves this file, and nsqd never removes it.
    with open(os.path.join(HERE, "leftovers", "nsqd.dat.5577006791947779410.tmp"), "w") as f:
        f.write("{")


for make in [topic_only, two_channels, requeued, paused, rolled, killed, bad, leftovers]:
    name = make.__name__.replace("_", "-")
    if name in sys.argv[2:] or not sys.argv[2:]:
        shutil.rmtree(os.path.join(HERE, name), ignore_errors=True)
        make()
