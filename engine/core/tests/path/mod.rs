//! The message path without sockets, for those who count what it costs: a broker with a producer and
//! a consumer, their bytes, and the keeper at hand.

use diskq::{Keeper, LogOptions, SimFiles};
use engine_core::{Broker, BrokerOptions, ClientId, Now, Output, Sent, ShardId, TopicOptions};
use std::io::IoSlice;
use std::path::Path;
use std::time::Duration;
use wire::encode::{self, FrameDecoded, decode_frame};
use wire::frame::{FrameType, Message};
use wire::identify::ServerSettings;
use wire::limits::Limits;
use wire::name::{ChannelName, TopicName};

/// The messages of a round: the first half is published one by one, the second in one batch.
pub(crate) const MESSAGES: usize = 200;

const DATA_PATH: &str = "/data";

/// What the broker does something for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Taking messages in.
    Publish,
    /// Giving them out, and taking the answers.
    Deliver,
}

/// Runs what the broker does, and counts of it what it likes.
pub(crate) trait Counter {
    /// Runs `act`.
    fn count<R>(&mut self, part: Part, act: impl FnOnce() -> R) -> R;
}

/// A broker with one producer and one consumer.
pub(crate) struct MessagePath<C> {
    /// Sees everything the broker does.
    pub(crate) counter: C,
    /// Messages that were finished, and that were requeued first.
    pub(crate) finished: u64,
    pub(crate) requeued: u64,
    broker: Broker,
    files: SimFiles,
    out: Vec<Output>,
    to_flush: Vec<ClientId>,
    mono: Duration,
    producer: ClientId,
    consumer: ClientId,
    publishes: Vec<u8>,
    received: Vec<u8>,
    answers: Vec<u8>,
}

impl<C: Counter> MessagePath<C> {
    /// Ready for the first round.
    pub(crate) fn new(counter: C) -> MessagePath<C> {
        let mut broker = Broker::new(BrokerOptions {
            shard: ShardId(0),
            shards: 1,
            limits: Limits::default(),
            server: ServerSettings::default(),
            topic: TopicOptions {
                log: LogOptions {
                    node: 3,
                    ..LogOptions::default()
                },
                mem_queue_size: 10_000,
                group_commit: false,
            },
            resident_bytes: 1 << 20,
            channel_consumers_max: 0,
            seed: 1,
        });
        let mut connect = || broker.connect(now(Duration::ZERO), "a:1".to_owned(), "a".to_owned());
        let (producer, consumer) = (connect(), connect());
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
            counter,
            finished: 0,
            requeued: 0,
            broker,
            files: SimFiles::new(),
            out: Vec::new(),
            to_flush: Vec::new(),
            mono: Duration::ZERO,
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

    /// Publishes and delivers [`MESSAGES`] messages. With `requeueing`, one in sixteen is given back
    /// and delivered again.
    pub(crate) fn round(&mut self, requeueing: bool) {
        self.mono += Duration::from_millis(1);
        let publishes = std::mem::take(&mut self.publishes);
        self.send(Part::Publish, self.producer, &publishes);
        self.publishes = publishes;
        self.take_output(self.producer);
        for again in 0..=u32::from(requeueing) {
            self.take_output(self.consumer);
            let mut answers = std::mem::take(&mut self.answers);
            answers.clear();
            let mut at = 0;
            while let FrameDecoded::Frame {
                kind,
                data,
                consumed,
            } = decode_frame(&self.received[at..])
            {
                at += consumed;
                if kind != FrameType::Message {
                    continue;
                }
                let message = Message::parse(data).unwrap();
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

    /// Input that the broker must take whole, perhaps after the keeper made room.
    fn send(&mut self, part: Part, id: ClientId, mut input: &[u8]) {
        for _ in 0..100 {
            let now = now(self.mono);
            let taken = self
                .counter
                .count(part, || self.broker.receive(now, id, input, &mut self.out));
            input = &input[taken..];
            self.turn();
            if input.is_empty() {
                return;
            }
        }
        panic!("the broker does not take the input");
    }

    fn turn(&mut self) {
        loop {
            let now = now(self.mono);
            self.counter
                .count(Part::Deliver, || self.broker.end_turn(now, &mut self.out));
            let outputs: Vec<Output> = self.out.drain(..).collect();
            for output in outputs {
                if let Output::Keeper(key, topic, request) = output {
                    for (name, log) in self.broker.logs() {
                        self.files.observe(Path::new(DATA_PATH), name, log);
                    }
                    let keeper = Keeper::new(self.files.clone(), DATA_PATH);
                    if let Some(reply) = keeper.handle(&topic, request) {
                        self.broker.handle_reply(now, key, reply, &mut self.out);
                    }
                }
            }
            if self.out.is_empty() && !self.broker.is_turn_open() {
                return;
            }
        }
    }

    /// Takes everything that is to be sent to `id`.
    fn take_output(&mut self, id: ClientId) {
        self.received.clear();
        loop {
            let now = now(self.mono);
            let broker = &mut self.broker;
            self.counter.count(Part::Deliver, || {
                broker.take_clients_to_flush(&mut self.to_flush)
            });
            let mut slices = [IoSlice::new(&[]); 64];
            let count = self
                .counter
                .count(Part::Deliver, || broker.output(id, &mut slices));
            // The kernel's part: a buffer that has room already.
            for slice in &slices[..count] {
                assert!(self.received.len() + slice.len() <= self.received.capacity());
                self.received.extend_from_slice(slice);
            }
            let bytes: usize = slices[..count].iter().map(|slice| slice.len()).sum();
            let left = self
                .counter
                .count(Part::Deliver, || broker.sent(now, id, bytes));
            if left != Sent::More {
                return;
            }
        }
    }
}

fn now(mono: Duration) -> Now {
    Now {
        mono,
        wall_ns: 1_800_000_000_000_000_000 + mono.as_nanos() as u64,
    }
}
