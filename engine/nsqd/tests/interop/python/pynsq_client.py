"""The interop scenario with pynsq (Tornado)."""

import logging

import nsq
import tornado.ioloop

import scenario

# A writer does not limit the number of publications that wait for an answer.
PUBLICATIONS_IN_FLIGHT_MAX = 20


class LogToLedger(logging.Handler):
    """Counts each error frame as a violation. pynsq itself only logs error frames."""

    def __init__(self, ledger):
        super().__init__(logging.ERROR)
        self.ledger = ledger

    def emit(self, record):
        self.ledger.violation("pynsq logs: " + record.getMessage())


def consume(args, ledger, control):
    logging.getLogger().handlers = [LogToLedger(ledger)]
    loop = tornado.ioloop.IOLoop.current()

    def finish(message, n):
        message.finish()
        ledger.finish(n)

    def hold(message, n, until):
        if loop.time() < until:
            message.touch()
            loop.call_later(scenario.TOUCH_EVERY, hold, message, n, until)
        else:
            finish(message, n)

    def handle(message):
        message.enable_async()
        action, n, delay_ms = ledger.deliver(
            message.id, message.timestamp, message.attempts, message.body)
        if action == scenario.FIN:
            finish(message, n)
        elif action == scenario.REQ:
            # Without backoff=False, the reader would stop for a while after each REQ.
            message.requeue(backoff=False, time_ms=delay_ms)
        elif action == scenario.TOUCH:
            loop.call_later(scenario.TOUCH_EVERY, hold, message, n,
                            loop.time() + scenario.TOUCH_HOLD)

    # One reader has one connection per nsqd, so two connections are two readers.
    readers = [
        nsq.Reader(args.topic, ledger.name, message_handler=handle,
                   nsqd_tcp_addresses=[args.tcp], max_in_flight=scenario.READY, max_tries=0,
                   msg_timeout=scenario.MSG_TIMEOUT, **scenario.upgrades(args))
        for _ in range(scenario.CONSUMERS_PER_CHANNEL)
    ]

    def poll():
        if not control.poll():
            for reader in readers:
                reader.close()
            loop.stop()

    tornado.ioloop.PeriodicCallback(poll, 50).start()
    loop.start()


def produce(args, plan):
    loop = tornado.ioloop.IOLoop.current()
    writers = [nsq.Writer([args.tcp], **scenario.upgrades(args)) for _ in range(scenario.PRODUCERS)]
    state = {"in_flight": 0, "error": None}
    # The deferred messages come first, while the queues are short. nsqd keeps a deferral only in memory, and may forget
    # it when the message overflows to disk.
    work = publications(plan)
    turn = [0]

    def answered(conn, data):
        state["in_flight"] -= 1
        if data != b"OK":
            state["error"] = "a publication got %r" % (data,)
        feed()

    def feed():
        while state["in_flight"] < PUBLICATIONS_IN_FLIGHT_MAX and not state["error"]:
            bodies, defer_ms = next(work, (None, 0))
            if bodies is None:
                break
            writer = writers[turn[0] % len(writers)]
            turn[0] += 1
            state["in_flight"] += 1
            if defer_ms:
                writer.dpub(args.topic, defer_ms, bodies[0], callback=answered)
            elif len(bodies) == 1:
                writer.pub(args.topic, bodies[0], callback=answered)
            else:
                writer.mpub(args.topic, bodies, callback=answered)
        if state["in_flight"] == 0 or state["error"]:
            loop.stop()

    def start_when_connected():
        # A writer connects when the loop runs, and refuses to publish before that.
        if all(writer.conns for writer in writers):
            feed()
        else:
            loop.call_later(0.02, start_when_connected)

    loop.add_callback(start_when_connected)
    loop.call_later(scenario.DEADLINE, loop.stop)
    loop.start()
    if state["error"] or next(work, None) is not None:
        raise scenario.Violation(state["error"] or "publishing is not finished in time")


def publications(plan):
    for n in range(plan.deferred):
        yield [plan.body(n)], plan.defer_ms(n)
    for n in range(plan.deferred, plan.big_end):
        yield [plan.body(n)], 0
    for bodies in plan.batches():
        yield bodies, 0


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    scenario.run("pynsq %s" % nsq.__version__, consume, produce)
