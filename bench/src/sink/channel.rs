//! [`Store`]: the sink's topics and channels, and its faults.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;

use wire::frame::{self, HEADER_BYTES as FRAME_BYTES};
use wire::id::{MessageId, Seq};
use wire::limits::Limits;

use super::{Faults, Mode, SinkCounts};
use crate::scenario::header::{Filler, HEADER_BYTES, Header};

/// The producer that made-up messages name.
const MADE_UP: u32 = 0xffff_0000;

/// Largest ready count.
pub(super) const RDY_MAX: i64 = 1_000_000;

/// The sink's limits. Messages and bodies have none.
pub(super) fn limits() -> Limits {
    Limits {
        message_bytes_max: i32::MAX,
        body_bytes_max: i32::MAX,
        rdy_count_max: RDY_MAX,
        ..Limits::default()
    }
}

/// A message on its way through the sink.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    body: Rc<[u8]>,
    attempts: u16,
}

/// One channel.
#[derive(Debug, Default)]
pub(super) struct Channel {
    queue: VecDeque<Queued>,
    /// The messages in flight, each with the client that has it.
    in_flight: HashMap<MessageId, (usize, Queued)>,
    consumers: Vec<usize>,
}

#[derive(Debug, Default)]
struct Topic {
    channels: Vec<usize>,
    names: HashMap<String, usize>,
    /// Messages that were published before there was a channel.
    waiting: VecDeque<Queued>,
}

/// Everything the sink holds.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) mode: Mode,
    pub(super) counts: SinkCounts,
    faults: Faults,
    topics: HashMap<String, Topic>,
    channels: Vec<Channel>,
    /// Consumers that may have something to get.
    pub(super) woken: Vec<usize>,
    next_id: u64,
    filler_bytes: Vec<u8>,
    filler: Filler,
}

impl Store {
    pub(super) fn new(mode: Mode, faults: Faults, size: usize) -> Store {
        let filler_bytes = vec![b'x'; size.saturating_sub(HEADER_BYTES)];
        Store {
            mode,
            counts: SinkCounts::default(),
            faults,
            topics: HashMap::new(),
            channels: Vec::new(),
            woken: Vec::new(),
            next_id: 1,
            filler: Filler::new(&filler_bytes, filler_bytes.len()),
            filler_bytes,
        }
    }

    pub(super) fn publish(&mut self, topic: &str, body: &[u8]) {
        self.counts.published += 1;
        if self.mode == Mode::Null {
            return;
        }
        // Each fault has an offset of its own, so that two faults rarely hit the same message.
        let number = self.counts.published;
        let hits =
            |one_in: Option<u64>, shift: u64| one_in.is_some_and(|n| number % n == n / shift % n);
        let mut copies = 1;
        let mut body: Rc<[u8]> = body.into();
        if hits(self.faults.drop_one_in, 2) {
            self.counts.dropped += 1;
            return;
        } else if hits(self.faults.duplicate_one_in, 3) {
            self.counts.duplicated += 1;
            copies = 2;
        } else if hits(self.faults.alter_one_in, 5) {
            self.counts.altered += 1;
            if let Some(last) = Rc::make_mut(&mut body).last_mut() {
                *last ^= 1;
            }
        }
        let queued = Queued { body, attempts: 0 };
        let topic = match self.topics.get_mut(topic) {
            Some(topic) => topic,
            None => self.topics.entry(topic.into()).or_default(),
        };
        for _ in 0..copies {
            if topic.channels.is_empty() {
                topic.waiting.push_back(queued.clone());
            }
            for index in &topic.channels {
                let channel = &mut self.channels[*index];
                channel.queue.push_back(queued.clone());
                if channel.queue.len() == 1 {
                    self.woken.extend_from_slice(&channel.consumers);
                }
            }
        }
    }

    /// Finds a channel, or makes it. The first channel of a topic gets the messages that wait there.
    pub(super) fn channel(&mut self, topic: &str, channel: &str) -> usize {
        let topic = self.topics.entry(topic.into()).or_default();
        if let Some(index) = topic.names.get(channel) {
            return *index;
        }
        let index = self.channels.len();
        self.channels.push(Channel {
            queue: std::mem::take(&mut topic.waiting),
            ..Channel::default()
        });
        topic.names.insert(channel.into(), index);
        topic.channels.push(index);
        index
    }

    /// Lets a client consume from a channel.
    pub(super) fn enter(&mut self, client: usize, topic: &str, channel: &str) -> usize {
        let index = self.channel(topic, channel);
        self.channels[index].consumers.push(client);
        index
    }

    /// Takes back the messages of a connection that ends.
    pub(super) fn leave(&mut self, client: usize, channel: Option<usize>) {
        let Some(channel) = channel.and_then(|index| self.channels.get_mut(index)) else {
            return;
        };
        channel.consumers.retain(|consumer| *consumer != client);
        let held = (channel.in_flight).extract_if(|_, (holder, _)| *holder == client);
        let back: BTreeMap<MessageId, (usize, Queued)> = held.collect();
        let back = back.into_values().map(|(_, queued)| queued);
        channel.queue.extend(back);
        self.woken.extend_from_slice(&channel.consumers);
    }

    /// Tells whether there is a message for the channel.
    pub(super) fn has_message(&self, channel: usize) -> bool {
        self.mode == Mode::Null || !self.channels[channel].queue.is_empty()
    }

    /// Appends the next message of a channel for a consumer; false when there is none.
    pub(super) fn deliver(
        &mut self,
        channel: usize,
        client: usize,
        now_ns: u64,
        output: &mut Vec<u8>,
    ) -> bool {
        let id = MessageId::new(Seq(self.next_id), 0);
        let mut frame = |attempts: u16, body: [&[u8]; 2]| {
            let mut head = [0; FRAME_BYTES];
            let bytes = u32::try_from(body[0].len() + body[1].len()).unwrap_or(u32::MAX);
            frame::write_header(&mut head, bytes, now_ns.cast_signed(), attempts, &id);
            for part in [&head[..], body[0], body[1]] {
                output.extend_from_slice(part);
            }
        };
        if self.mode == Mode::Null {
            let header = Header {
                producer: MADE_UP,
                number: self.next_id - 1,
                intended_ns: now_ns,
            };
            frame(1, [&header.encode(&self.filler), &self.filler_bytes]);
        } else {
            let channel = &mut self.channels[channel];
            let Some(mut queued) = channel.queue.pop_front() else {
                return false;
            };
            queued.attempts = queued.attempts.saturating_add(1);
            frame(queued.attempts, [&queued.body, &[]]);
            channel.in_flight.insert(id, (client, queued));
        }
        self.next_id += 1;
        self.counts.delivered += 1;
        true
    }

    /// Finishes a message; false when it is not in flight.
    pub(super) fn finish(&mut self, channel: usize, id: &MessageId) -> bool {
        let known =
            self.mode == Mode::Null || self.channels[channel].in_flight.remove(id).is_some();
        self.counts.finished += u64::from(known);
        known
    }

    /// Requeues a message; false when it is not in flight.
    pub(super) fn requeue(&mut self, channel: usize, id: &MessageId) -> bool {
        if self.mode == Mode::Null {
            return true;
        }
        let channel = &mut self.channels[channel];
        let Some((_, queued)) = channel.in_flight.remove(id) else {
            return false;
        };
        channel.queue.push_back(queued);
        self.woken.extend_from_slice(&channel.consumers);
        true
    }

    /// The answer to `/stats?format=json`.
    pub(super) fn stats(&self) -> serde_json::Value {
        let channel = |(name, index): (&String, &usize)| {
            let channel = &self.channels[*index];
            serde_json::json!({
                "channel_name": name,
                "depth": channel.queue.len(),
                "in_flight_count": channel.in_flight.len(),
                "deferred_count": 0,
            })
        };
        let topics = self.topics.iter().map(|(name, topic)| {
            serde_json::json!({
                "topic_name": name,
                "depth": topic.waiting.len(),
                "channels": topic.names.iter().map(channel).collect::<Vec<_>>(),
            })
        });
        serde_json::json!({
            "health": "OK",
            "published": self.counts.published,
            "delivered": self.counts.delivered,
            "finished": self.counts.finished,
            "topics": topics.collect::<Vec<_>>(),
        })
    }
}
