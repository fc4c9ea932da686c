"""The parts that measurements share: a broker on free loopback ports, nsq-bench against it, a table of figures."""

import argparse
import http.client
import json
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import kernel

POSTERS = 32


class Table:
    """The figures of one row by variant, in the order in which they were first measured."""

    def __init__(self, row):
        self.row = row
        self.values = {}

    def add(self, variant, metric, value):
        if value is not None:
            self.values.setdefault(metric, {}).setdefault(variant, []).append(value)

    def show(self):
        for metric, variants in self.values.items():
            base = statistics.median(next(iter(variants.values())))
            for variant, values in variants.items():
                median = statistics.median(values)
                ratio = f"{median / base:.2f}" if base else ""
                print(f"| {self.row} | {variant} | {metric} | {number(median)} ({number(min(values))}-"
                      f"{number(max(values))}) | {ratio} |", flush=True)


def number(value):
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


class Runner:
    """Runs the two programs, and prints each command the first time."""

    def __init__(self, options):
        self.options = options
        self.seen = set()

    def say(self, command):
        # Ports, processes and folders differ from run to run.
        text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", " ".join(map(str, command)))
        text = re.sub(r"--pid \d+", "--pid PID", text)
        text = re.sub(r"[^ =]*/ringq-\S*", "DIR", text)
        if text not in self.seen:
            self.seen.add(text)
            print(f"    {text}", flush=True)

    def bench(self, broker, flags, is_punctual=False):
        """Starts nsq-bench. `result` waits for its end. A punctual nsq-bench runs at once when it wakes up."""
        folder = tempfile.TemporaryDirectory(prefix="ringq-")
        command = [self.options.ours / "nsq-bench", "run", "--tcp-address", broker.tcp, "--http-address",
                   broker.http, "--pid", str(broker.process.pid), *flags.split()]
        self.say(command)
        command += ["--out", Path(folder.name) / "result.json"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   preexec_fn=kernel.run_at_once if is_punctual else None)
        return Bench(process, folder)

    def run(self, broker, flags, leaves_some=False, is_punctual=False):
        with self.bench(broker, flags, is_punctual) as bench:
            return bench.result(leaves_some)


class Bench:
    """A running nsq-bench, which is killed at the end of its `with` statement."""

    def __init__(self, process, folder):
        self.process = process
        self.folder = folder

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        remove(self.folder)

    def result(self, leaves_some=False):
        """Returns the RunResult (bench/src/result.rs). Prints a flaw of the run, and does not stop for it. If consumers
        are not to take all messages, the messages that they leave count as lost."""
        text, _ = self.process.communicate()
        saved = Path(self.folder.name) / "result.json"
        if self.process.returncode != 0 and not leaves_some:
            print(text, file=sys.stderr, flush=True)
        if not saved.exists():
            raise SystemExit(f"nsq-bench ended with {self.process.returncode} and no result")
        result = json.loads(saved.read_text())["outcome"]
        for reason in result["self_check"]["reasons"]:
            print(f"note: {reason}", file=sys.stderr, flush=True)
        return result


class Broker:
    """A running nsqd: ours, or `program` if it is given. Its data path is removed at the end."""

    def __init__(self, runner, flags="", base=None, program=None):
        self.runner, self.flags = runner, flags
        self.program = program or runner.options.ours / "nsqd"
        self.folder = tempfile.TemporaryDirectory(prefix="ringq-", dir=base or runner.options.data)
        self.data = Path(self.folder.name) / "data"
        self.data.mkdir()
        self.log = Path(self.folder.name) / "log"
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        remove(self.folder)

    def start(self, tcp="127.0.0.1:0", http="127.0.0.1:0"):
        self.launch(tcp, http)
        self.tcp, self.http = self.port("TCP"), self.port("HTTP")

    def launch(self, tcp, http):
        """Starts the program and does not wait until it listens."""
        command = self.command(tcp, http)
        self.runner.say(command)
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def command(self, tcp, http):
        return [self.program, f"-tcp-address={tcp}", f"-http-address={http}", f"-data-path={self.data}",
                *self.flags.split()]

    def port(self, kind):
        for _ in range(60_000):
            match = re.search(kind + r": listening on (\S+)", self.log.read_text())
            if match:
                return match.group(1)
            if self.process.poll() is not None:
                break
            time.sleep(0.001)
        raise SystemExit(f"no {kind} listener: {self.log.read_text()}")

    def end(self, how):
        self.process.send_signal(how)
        self.process.wait(120)

    def cpu_s(self):
        # The clock of the whole process, from clock_getcpuclockid(3), includes threads that have ended.
        return time.clock_gettime(~self.process.pid << 3 | 2)

    def rss_bytes(self):
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * resource.getpagesize()

    def connection(self):
        return http.client.HTTPConnection(self.http, timeout=120)

    def depth(self, topic):
        connection = self.connection()
        connection.request("GET", f"/stats?format=json&include_clients=false&topic={topic}")
        stats = json.loads(connection.getresponse().read())
        connection.close()
        return sum(channel["depth"] for found in stats["topics"] for channel in found["channels"])

    def post(self, paths, body=b""):
        """Posts to all paths, over several connections, because the broker writes its metadata once for all posts that
        wait."""
        paths = list(paths)

        def some(first):
            connection = self.connection()
            for path in paths[first:first + 50]:
                connection.request("POST", path, body)
                answer = connection.getresponse()
                text = answer.read()
                if answer.status != 200:
                    raise SystemExit(f"{path}: {answer.status} {text}")
            connection.close()

        pool = ThreadPoolExecutor(POSTERS)
        try:
            list(pool.map(some, range(0, len(paths), 50)))
        finally:
            pool.shutdown(cancel_futures=True)


def remove(folder):
    """Removes the folder, even if a signal interrupts this: ten thousand topics take some time."""
    try:
        folder.cleanup()
    except KeyboardInterrupt:
        folder.cleanup()
        raise


def interrupt(*_):
    """Ends the measurement on the first signal, and ignores later ones, so that all programs end and all files are
    removed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def parse_comparison(doc, rows):
    """Returns the options of a script that compares ours with the original and with an older nsqd of ours, row by row."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--original", required=True, type=Path, help="the original's nsqd")
    parser.add_argument("--before", type=Path, help="an older nsqd of ours")
    parser.add_argument("--ours", type=Path, default=Path("target/dist"), help="folder of our programs")
    parser.add_argument("--rows", default=",".join(rows), help="names, separated by commas")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()), help="where data paths are made")
    return parser.parse_args()


def in_turns(row, programs, rounds, figures):
    """Runs each program once per round, in the other order than the round before, and prints the table of `figures(program)`,
    which returns a figure for each metric."""
    table = Table(row)
    for round_number in range(rounds):
        for variant in list(programs)[::-1 if round_number % 2 else 1]:
            with programs[variant]() as program:
                for metric, value in figures(program).items():
                    table.add(variant, metric, value)
    table.show()


def measure_rows(measure, options):
    """Measures each row that the options name, with the highest limit of descriptors that is allowed."""
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    runner = Runner(options)
    try:
        for name in options.rows.split(","):
            measure(name, runner, options)
    except KeyboardInterrupt:
        sys.exit(130)
