//! The broker's shell without sockets: the bytes of connections go in and come out, a keeper does
//! the jobs, and a counter sees each call of the broker.

use diskq::Keeper;
use diskq_sim::SimFiles;
use engine_rules::{Broker, BrokerOptions, ClientId, Now, Output, Sent};
use std::io::IoSlice;
use std::path::Path;
use std::time::Duration;
use wire::encode::{FrameDecoded, decode_frame};
use wire::frame::{FrameType, Message};

const DATA_PATH: &str = "/data";

/// The purpose of a call of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The broker receives messages.
    Publish,
    /// The broker delivers messages and receives the answers.
    Deliver,
}

/// Runs the calls of the broker and counts their cost.
pub(crate) trait Counter {
    /// Runs `act`.
    fn count<R>(&mut self, part: Part, act: impl FnOnce() -> R) -> R;
}

/// A broker with the work of its shell: brings input, ends turns, writes output, and does the
/// keeper's jobs.
pub(crate) struct Shell<C> {
    /// The counter that sees every call of the broker.
    pub(crate) counter: C,
    /// The monotonic time.
    pub(crate) mono: Duration,
    broker: Broker,
    files: SimFiles,
    out: Vec<Output>,
}

/// Returns the options of a broker without rules.
pub(crate) fn options() -> BrokerOptions {
    let mut options = BrokerOptions::default();
    options.topic.log.node = 3;
    options
}

impl<C: Counter> Shell<C> {
    /// Returns a shell without topics and connections, for a broker with these options.
    pub(crate) fn new(counter: C, options: BrokerOptions) -> Shell<C> {
        Shell {
            counter,
            mono: Duration::ZERO,
            broker: Broker::new(options),
            files: SimFiles::new(),
            out: Vec::new(),
        }
    }

    /// Adds a connection.
    pub(crate) fn connect(&mut self) -> ClientId {
        let now = now(self.mono);
        self.broker.connect(now, "a:1".to_owned(), "a".to_owned())
    }

    /// Brings input, all of which the broker must take, if necessary after the keeper has made
    /// room. No turn follows unless the broker needs one.
    pub(crate) fn receive(&mut self, part: Part, id: ClientId, mut input: &[u8]) {
        for _ in 0..100 {
            let now = now(self.mono);
            let taken = self
                .counter
                .count(part, || self.broker.receive(now, id, input, &mut self.out));
            input = &input[taken..];
            if input.is_empty() {
                return;
            }
            self.end_turn();
        }
        panic!("the broker does not take the input");
    }

    /// Ends a turn: delivers messages and does the keeper's jobs.
    pub(crate) fn end_turn(&mut self) {
        loop {
            let now = now(self.mono);
            self.counter
                .count(Part::Deliver, || self.broker.end_turn(now, &mut self.out));
            let outputs: Vec<Output> = self.out.drain(..).collect();
            for output in outputs {
                if let Output::Keeper(key, topic, request) = output {
                    let mut logs = self.broker.logs();
                    if let Some((name, log)) = logs.find(|(name, _)| **name == *topic) {
                        self.files.observe(Path::new(DATA_PATH), name, log);
                    }
                    drop(logs);
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

    /// Moves the list of connections with output to `into`.
    pub(crate) fn take_clients_to_flush(&mut self, into: &mut Vec<ClientId>) {
        self.counter.count(Part::Deliver, || {
            self.broker.take_clients_to_flush(into);
        });
    }

    /// Appends all output for `id` to `received`, which must have room.
    pub(crate) fn take_output(&mut self, id: ClientId, received: &mut Vec<u8>) {
        loop {
            let now = now(self.mono);
            let broker = &mut self.broker;
            let mut slices = [IoSlice::new(&[]); 64];
            let count = self
                .counter
                .count(Part::Deliver, || broker.output(id, &mut slices));
            // This copy stands for the kernel's. The buffer has room already.
            for slice in &slices[..count] {
                assert!(received.len() + slice.len() <= received.capacity());
                received.extend_from_slice(slice);
            }
            let bytes: usize = slices[..count].iter().map(|slice| slice.len()).sum();
            let left = self
                .counter
                .count(Part::Deliver, || broker.sent(now, id, bytes, &mut self.out));
            if left != Sent::More {
                return;
            }
        }
    }
}

/// Returns the messages in a connection's output. Other frames are skipped.
pub(crate) fn messages(mut received: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        while let FrameDecoded::Frame {
            kind,
            data,
            consumed,
        } = decode_frame(received)
        {
            received = &received[consumed..];
            if kind == FrameType::Message {
                return Some(Message::parse(data).expect("a message of the broker's"));
            }
        }
        None
    })
}

fn now(mono: Duration) -> Now {
    Now {
        mono,
        wall_ns: 1_800_000_000_000_000_000 + mono.as_nanos() as u64,
    }
}
