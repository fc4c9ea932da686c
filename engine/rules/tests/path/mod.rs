//! The message path without sockets, for tests that count its cost: a broker with a producer and a
//! consumer, and their bytes.

pub(crate) mod shell;

use engine_rules::ClientId;
pub(crate) use shell::{Counter, Part};
use shell::{Shell, messages, options};
use std::time::Duration;
use wire::encode;
use wire::name::{ChannelName, TopicName};

/// Number of messages in a round. The first half is published one by one, the second in one batch.
pub(crate) const MESSAGES: usize = 200;

/// A broker with one producer and one consumer.
pub(crate) struct MessagePath<C> {
    /// Number of finished messages, and number of messages that were requeued first.
    pub(crate) finished: u64,
    pub(crate) requeued: u64,
    shell: Shell<C>,
    to_flush: Vec<ClientId>,
    producer: ClientId,
    consumer: ClientId,
    publishes: Vec<u8>,
    received: Vec<u8>,
    answers: Vec<u8>,
}

impl<C: Counter> MessagePath<C> {
    /// Returns a message path that is ready for the first round.
    pub(crate) fn new(counter: C) -> MessagePath<C> {
        let mut shell = Shell::new(counter, options());
        let (producer, consumer) = (shell.connect(), shell.connect());
        let topic = TopicName::new(b"orders").unwrap();
        let body = [7u8; 200];
        let mut publishes = Vec::new();
        for _ in 0..MESSAGES / 2 {
            encode::publish(&mut publishes, topic, &body);
        }
        encode::mpub(
            &mut publishes,
            topic,
            std::iter::repeat_n(&body, MESSAGES / 2),
        );
        let mut path = MessagePath {
            finished: 0,
            requeued: 0,
            shell,
            to_flush: Vec::new(),
            producer,
            consumer,
            publishes,
            received: Vec::with_capacity(1 << 20),
            answers: Vec::with_capacity(1 << 20),
        };
        let mut input = b"  V2".to_vec();
        path.send(Part::Publish, producer, &input);
        encode::sub(&mut input, topic, ChannelName::new(b"bill").unwrap());
        encode::rdy(&mut input, 1000);
        path.send(Part::Deliver, consumer, &input);
        path
    }

    /// Publishes and delivers [`MESSAGES`] messages. With `requeueing`, the consumer requeues one
    /// in sixteen and gets it again.
    pub(crate) fn round(&mut self, requeueing: bool) {
        self.shell.mono += Duration::from_millis(1);
        let publishes = std::mem::take(&mut self.publishes);
        self.send(Part::Publish, self.producer, &publishes);
        self.publishes = publishes;
        self.take_output(self.producer);
        for again in 0..=u32::from(requeueing) {
            self.take_output(self.consumer);
            let mut answers = std::mem::take(&mut self.answers);
            answers.clear();
            for message in messages(&self.received) {
                if requeueing && again == 0 && message.id.as_bytes()[15] == b'3' {
                    encode::req(&mut answers, &message.id, Duration::ZERO);
                    self.requeued += 1;
                } else {
                    encode::fin(&mut answers, &message.id);
                    self.finished += 1;
                }
            }
            self.send(Part::Deliver, self.consumer, &answers);
            self.answers = answers;
        }
    }

    fn send(&mut self, part: Part, id: ClientId, input: &[u8]) {
        self.shell.receive(part, id, input);
        self.shell.end_turn();
    }

    fn take_output(&mut self, id: ClientId) {
        self.received.clear();
        self.shell.take_clients_to_flush(&mut self.to_flush);
        self.shell.take_output(id, &mut self.received);
    }
}
