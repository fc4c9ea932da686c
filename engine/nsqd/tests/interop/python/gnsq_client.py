"""The interop scenario with gnsq (gevent).

gnsq cannot ask for a message timeout in IDENTIFY. So this client relies on the broker's default, which the driver sets
with --msg-timeout to scenario.MSG_TIMEOUT. gnsq's consumers are upgraded, but its producers cannot be: they take the OK
of an upgrade for the answer to a publication, and fail.
"""

import itertools
import logging

import gevent
import gnsq

import scenario

PUBLICATIONS_IN_FLIGHT_MAX = 5  # Per producer connection.
# gnsq's read loop lets other greenlets run only when the socket is empty. A fast broker may keep the socket full for
# seconds. Then the other connection would not be read, and no touch would be sent.
DELIVERIES_PER_TURN = 10


def consume(args, ledger, control):
    def finish(message, n):
        message.finish()
        ledger.finish(n)

    def hold(message, n):
        held = 0.0
        while held < scenario.TOUCH_HOLD:
            gevent.sleep(scenario.TOUCH_EVERY)
            held += scenario.TOUCH_EVERY
            message.touch()
        finish(message, n)

    deliveries = itertools.count(1)

    def handle(consumer, message):
        message.enable_async()
        action, n, delay_ms = ledger.deliver(
            message.id, message.timestamp, message.attempts, message.body)
        if action == scenario.FIN:
            finish(message, n)
        elif action == scenario.REQ:
            # Without backoff=False, the consumer would stop for a while after each REQ. With max_backoff_duration=0, it
            # would stay at RDY 1 forever.
            message.requeue(delay_ms, backoff=False)
        elif action == scenario.TOUCH:
            gevent.spawn(hold, message, n)
        if next(deliveries) % DELIVERIES_PER_TURN == 0:
            gevent.sleep(0)

    def error(consumer, error):
        ledger.violation("error frame: %r" % (error,))

    # One consumer has one connection per nsqd, so two connections are two consumers.
    consumers = [
        gnsq.Consumer(args.topic, ledger.name, args.tcp, message_handler=handle,
                      max_in_flight=scenario.READY, max_tries=0, **scenario.upgrades(args))
        for _ in range(scenario.CONSUMERS_PER_CHANNEL)
    ]
    for consumer in consumers:
        consumer.on_error.connect(error)
        consumer.start(block=False)
    while control.poll():
        gevent.sleep(0.05)
    for consumer in consumers:
        consumer.close()


def produce(args, plan):
    producers = [gnsq.Producer(args.tcp) for _ in range(scenario.PRODUCERS)]
    for producer in producers:
        producer.start()
    # The deferred messages come first, while the queues are short. nsqd keeps a deferral only in memory, and may forget
    # it when the message overflows to disk.
    results = [
        producers[n % len(producers)].publish(args.topic, plan.body(n), defer=plan.defer_ms(n),
                                              raise_error=False)
        for n in range(plan.deferred)
    ]
    expect_ok(results)
    batches = plan.batches()

    def feed(index, producer):
        for n in range(plan.deferred + index, plan.big_end, len(producers)):
            expect_ok([producer.publish(args.topic, plan.body(n), raise_error=False)])
        results = []
        for bodies in batches:  # The producers share the batches: each takes the next one.
            if len(bodies) == 1:
                results.append(producer.publish(args.topic, bodies[0], raise_error=False))
            else:
                results.append(producer.multipublish(args.topic, bodies, raise_error=False))
            if len(results) >= PUBLICATIONS_IN_FLIGHT_MAX:
                expect_ok(results)
                results = []
        expect_ok(results)

    feeders = [gevent.spawn(feed, *pair) for pair in enumerate(producers)]
    gevent.joinall(feeders, timeout=scenario.DEADLINE, raise_error=True)
    if not all(feeder.ready() for feeder in feeders):
        raise scenario.Violation("publishing is not finished in time")
    for producer in producers:
        producer.close()


def expect_ok(results):
    for result in results:
        answer = result.get(timeout=scenario.DEADLINE)
        if answer != b"OK":
            raise scenario.Violation("a publication got %r" % (answer,))


def fetch_stats(args):
    """Returns /stats, requested with gnsq's own HTTP client."""
    host, port = args.http.split(":")
    return gnsq.NsqdHTTPClient(host, int(port)).stats(topic=args.topic)


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    scenario.run("gnsq %s" % gnsq.__version__, consume, produce, fetch_stats)
