//! [`BrokerState`]: the messages of a [`MockBroker`](super::network::MockBroker), and who gets them.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use bytes::Bytes;
use tokio::sync::mpsc;
use wire::id::MessageId;

use super::connection::{id, message};

/// The messages, channels and consumers of a broker.
#[derive(Debug, Default)]
pub(super) struct BrokerState {
    topics: BTreeMap<String, Topic>,
    /// The consumers, by the number of their connection.
    consumers: HashMap<u64, Consumer>,
    pub(super) next_connection: u64,
    next_message: u64,
    /// The errors that answer the next publishes.
    pub(super) refusals: VecDeque<String>,
    /// True when IDENTIFY agrees on numbers.
    pub(super) takes_numbers: bool,
    /// The publisher ids of the connections.
    pub(super) publishers: HashMap<u64, String>,
    /// The publisher, the topic and the number of each message that was stored.
    origins: HashSet<(String, String, u64)>,
    /// The messages that came again and were not stored.
    pub(super) duplicates: u64,
}

#[derive(Debug, Default)]
struct Topic {
    /// All bodies in the order in which they were stored.
    published: Vec<Bytes>,
    /// The messages that wait for the first channel.
    waiting: Vec<Stored>,
    channels: BTreeMap<String, VecDeque<Stored>>,
}

#[derive(Clone, Debug)]
pub(super) struct Stored {
    id: MessageId,
    attempts: u16,
    body: Bytes,
}

#[derive(Debug)]
struct Consumer {
    topic: String,
    channel: String,
    ready: u32,
    in_flight: HashMap<MessageId, Stored>,
    frames: mpsc::UnboundedSender<Vec<u8>>,
}

impl BrokerState {
    /// Returns false for a message that was stored before, by its number. `connection` is that of the publisher.
    pub(super) fn is_fresh(&mut self, connection: u64, topic: &str, number: Option<u64>) -> bool {
        let (Some(number), Some(publisher)) = (number, self.publishers.get(&connection)) else {
            return true;
        };
        let origin = (publisher.clone(), topic.to_owned(), number);
        let is_fresh = self.origins.insert(origin);
        self.duplicates += u64::from(!is_fresh);
        is_fresh
    }

    /// Returns the bodies of all messages of a topic, in the order in which they were stored.
    pub(super) fn published(&self, topic: &str) -> Vec<Bytes> {
        let topic = self.topics.get(topic);
        topic.map_or_else(Vec::new, |topic| topic.published.clone())
    }

    /// Returns the number of messages of a channel that wait, and of those in flight.
    pub(super) fn depth(&self, topic: &str, channel: &str) -> (usize, usize) {
        let waiting = self
            .topics
            .get(topic)
            .and_then(|topic| topic.channels.get(channel))
            .map_or(0, VecDeque::len);
        let in_flight = self
            .consumers
            .values()
            .filter(|consumer| consumer.topic == topic && consumer.channel == channel)
            .map(|consumer| consumer.in_flight.len())
            .sum();
        (waiting, in_flight)
    }

    pub(super) fn store(&mut self, name: &str, body: Bytes) {
        self.next_message += 1;
        let stored = Stored {
            id: id(self.next_message),
            attempts: 0,
            body: body.clone(),
        };
        let topic = self.topics.entry(name.to_owned()).or_default();
        topic.published.push(body);
        if topic.channels.is_empty() {
            topic.waiting.push(stored);
        } else {
            for queue in topic.channels.values_mut() {
                queue.push_back(stored.clone());
            }
        }
        self.deliver(name);
    }

    pub(super) fn subscribe(
        &mut self,
        number: u64,
        topic: String,
        channel: String,
        frames: mpsc::UnboundedSender<Vec<u8>>,
    ) {
        let found = self.topics.entry(topic.clone()).or_default();
        if !found.channels.contains_key(&channel) {
            let waiting = std::mem::take(&mut found.waiting);
            found.channels.insert(channel.clone(), waiting.into());
        }
        let consumer = Consumer {
            topic,
            channel,
            ready: 0,
            in_flight: HashMap::new(),
            frames,
        };
        self.consumers.insert(number, consumer);
    }

    pub(super) fn set_ready(&mut self, number: u64, count: u32) {
        if let Some(consumer) = self.consumers.get_mut(&number) {
            consumer.ready = count;
            let topic = consumer.topic.clone();
            self.deliver(&topic);
        }
    }

    pub(super) fn finish(&mut self, number: u64, id: &MessageId) -> bool {
        match self.take_in_flight(number, id) {
            Some((topic, ..)) => {
                self.deliver(&topic);
                true
            }
            None => false,
        }
    }

    pub(super) fn take_in_flight(
        &mut self,
        number: u64,
        id: &MessageId,
    ) -> Option<(String, String, Stored)> {
        let consumer = self.consumers.get_mut(&number)?;
        let stored = consumer.in_flight.remove(id)?;
        Some((consumer.topic.clone(), consumer.channel.clone(), stored))
    }

    pub(super) fn requeue(&mut self, topic: &str, channel: &str, stored: Stored) {
        let found = self.topics.get_mut(topic);
        if let Some(queue) = found.and_then(|topic| topic.channels.get_mut(channel)) {
            queue.push_back(stored);
        }
        self.deliver(topic);
    }

    pub(super) fn disconnect(&mut self, number: u64) {
        self.publishers.remove(&number);
        let Some(consumer) = self.consumers.remove(&number) else {
            return;
        };
        let mut left: Vec<Stored> = consumer.in_flight.into_values().collect();
        left.sort_by_key(|stored| *stored.id.as_bytes());
        for stored in left {
            self.requeue(&consumer.topic, &consumer.channel, stored);
        }
    }

    /// Sends the messages of a topic to consumers that are ready.
    fn deliver(&mut self, topic: &str) {
        let Some(found) = self.topics.get_mut(topic) else {
            return;
        };
        let mut numbers: Vec<u64> = self.consumers.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            let consumer = self.consumers.get_mut(&number).expect("it is a key");
            if consumer.topic != topic {
                continue;
            }
            let Some(queue) = found.channels.get_mut(&consumer.channel) else {
                continue;
            };
            while consumer.in_flight.len() < consumer.ready as usize
                && let Some(mut stored) = queue.pop_front()
            {
                stored.attempts += 1;
                // A connection that is gone is disconnected next, which requeues the message.
                let frame = message(&stored.id, stored.attempts, &stored.body);
                let _ = consumer.frames.send(frame);
                consumer.in_flight.insert(stored.id, stored);
            }
        }
    }
}
