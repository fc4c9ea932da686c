"""A consumer with pynsq or gnsq that finds nsqds by nsqlookupds. Prints the body of each message in a line of its own."""

import argparse
import sys


def consume_with_pynsq(args, take):
    import nsq

    def handle(message):
        take(message.body)
        return True

    nsq.Reader(args.topic, args.channel, message_handler=handle,
               lookupd_http_addresses=args.lookupd, lookupd_poll_interval=1, max_in_flight=10)
    nsq.run()


def consume_with_gnsq(args, take):
    import gnsq

    consumer = gnsq.Consumer(args.topic, args.channel, lookupd_http_addresses=args.lookupd,
                             lookupd_poll_interval=1, max_in_flight=10)
    consumer.on_message.connect(lambda _, message: take(message.body), weak=False)
    consumer.start()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", choices=["pynsq", "gnsq"], required=True)
    parser.add_argument("--lookupd", action="append", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--channel", required=True)
    args = parser.parse_args()

    def take(body):
        sys.stdout.write(body.decode() + "\n")
        sys.stdout.flush()

    consume = {"pynsq": consume_with_pynsq, "gnsq": consume_with_gnsq}[args.library]
    consume(args, take)


if __name__ == "__main__":
    main()
