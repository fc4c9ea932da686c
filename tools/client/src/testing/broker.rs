//! [`MockBroker`]: a small nsqd in memory.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::sleep;
use wire::encode;
use wire::id::MessageId;

use super::network::MockNetwork;
use super::received::Received;
use super::server::{MockConnection, Turn, id, message};
use super::stream::Cut;
use crate::address::Address;

/// A small nsqd. It stores messages in memory, delivers them to consumers as far as their RDY allows, requeues them, and
/// delivers what a lost consumer had. Messages never time out, and there are no heartbeats. With
/// [`take_numbers`](MockBroker::take_numbers), it recognises numbered messages that come again.
#[derive(Clone, Debug)]
pub struct MockBroker {
    network: MockNetwork,
    address: Address,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    topics: BTreeMap<String, Topic>,
    /// The consumers, by the number of their connection.
    consumers: HashMap<u64, Consumer>,
    next_connection: u64,
    next_message: u64,
    /// The errors that answer the next publishes.
    refusals: VecDeque<String>,
    /// True when IDENTIFY agrees on numbers.
    takes_numbers: bool,
    /// The publisher ids of the connections.
    publishers: HashMap<u64, String>,
    /// The publisher, the topic and the number of each message that was stored.
    origins: HashSet<(String, String, u64)>,
    /// The messages that came again and were not stored.
    duplicates: u64,
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
struct Stored {
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

impl MockBroker {
    pub(super) fn new(network: MockNetwork, address: Address) -> MockBroker {
        MockBroker {
            network,
            address,
            state: Arc::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the address of the broker.
    #[must_use]
    pub fn address(&self) -> Address {
        self.address.clone()
    }

    /// Returns the bodies of all messages of a topic, in the order in which they were stored.
    #[must_use]
    pub fn published(&self, topic: &str) -> Vec<Bytes> {
        let state = self.state();
        let topic = state.topics.get(topic);
        topic.map_or_else(Vec::new, |topic| topic.published.clone())
    }

    /// Stores a message, as a producer would.
    pub fn publish(&self, topic: &str, body: impl Into<Bytes>) {
        self.state().store(topic, body.into());
    }

    /// Returns the number of messages of a channel that wait, and of those in flight.
    #[must_use]
    pub fn depth(&self, topic: &str, channel: &str) -> (usize, usize) {
        let state = self.state();
        let waiting = state
            .topics
            .get(topic)
            .and_then(|topic| topic.channels.get(channel))
            .map_or(0, VecDeque::len);
        let in_flight = state
            .consumers
            .values()
            .filter(|consumer| consumer.topic == topic && consumer.channel == channel)
            .map(|consumer| consumer.in_flight.len())
            .sum();
        (waiting, in_flight)
    }

    /// Answers the next publish by an error, such as `E_PUB_FAILED PUB failed exiting`, and closes its connection. As with
    /// nsqd, the commands that the client has sent behind this publish are not carried out.
    pub fn refuse_publish(&self, error: &str) {
        self.state().refusals.push_back(error.to_owned());
    }

    /// Takes the numbers of messages on further connections, as an nsqd with a rule `--dedup=*=publisher` does, or
    /// does not. All numbers are remembered.
    pub fn take_numbers(&self, takes_numbers: bool) {
        self.state().takes_numbers = takes_numbers;
    }

    /// Returns the number of messages that came again and were not stored.
    #[must_use]
    pub fn duplicates(&self) -> u64 {
        self.state().duplicates
    }

    /// Refuses further connections, or accepts them again.
    pub fn refuse(&self, is_refusing: bool) {
        self.network.refuse(&self.address, is_refusing);
    }

    /// Breaks the next connection. Each call counts for one connection.
    pub fn cut_next(&self, cut: Cut) {
        self.network.cut_next(&self.address, cut);
    }

    /// Returns the number of connections that were made.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.network.connections(&self.address)
    }

    /// Serves one connection to its end.
    pub(super) async fn serve(self, mut connection: MockConnection) {
        let (frames, mut outgoing) = mpsc::unbounded_channel();
        let number = {
            let mut state = self.state();
            state.next_connection += 1;
            state.next_connection
        };
        while let Some(turn) = connection.command_or(&mut outgoing).await {
            match turn {
                Turn::Frame(frame) => connection.send(&frame).await,
                Turn::Command(command) => {
                    if let Received::Identify(body) = &command {
                        let answer = self.identify(number, body);
                        connection.agree(body, answer);
                        connection.respond(answer).await;
                    } else if self.handle(number, command, &frames).is_break() {
                        // Earlier answers and the error leave. The commands behind are lost, as in nsqd.
                        while let Ok(frame) = outgoing.try_recv() {
                            connection.send(&frame).await;
                        }
                        break;
                    }
                }
            }
        }
        self.state().disconnect(number);
    }

    /// Carries an IDENTIFY out. Returns the answer.
    fn identify(&self, number: u64, body: &serde_json::Value) -> &'static str {
        let mut state = self.state();
        match body["publisher_id"].as_str() {
            Some(id) if state.takes_numbers => {
                let id = id.to_owned();
                state.publishers.insert(number, id);
                r#"{"max_rdy_count":2500,"version":"1.3.0","max_msg_timeout":900000,"msg_timeout":60000,"publisher_id":true}"#
            }
            _ => {
                r#"{"max_rdy_count":2500,"version":"1.3.0","max_msg_timeout":900000,"msg_timeout":60000}"#
            }
        }
    }

    /// Carries a command out. The answers go to `frames`. `Break` means an error after which nsqd closes the connection.
    fn handle(
        &self,
        number: u64,
        command: Received,
        frames: &mpsc::UnboundedSender<Vec<u8>>,
    ) -> ControlFlow<()> {
        let send = |frame: Vec<u8>| {
            // The receiver lives in the task that calls this function.
            let _ = frames.send(frame);
        };
        let respond = |data: &[u8]| {
            let mut frame = Vec::new();
            encode::response(&mut frame, data);
            send(frame);
        };
        let mut state = self.state();
        match command {
            Received::Identify(_) => unreachable!("the caller answers it"),
            Received::Auth(_) => {
                respond(br#"{"identity":"","identity_url":"","permission_count":1}"#)
            }
            Received::Sub { topic, channel } => {
                state.subscribe(number, topic, channel, frames.clone());
                respond(b"OK");
            }
            Received::Pub { .. } | Received::Mpub { .. } | Received::Dpub { .. } => {
                if let Some(text) = state.refusals.pop_front() {
                    send(error(&text));
                    return ControlFlow::Break(());
                }
                self.store(&mut state, number, command);
                respond(b"OK");
            }
            Received::Rdy(count) => state.set_ready(number, count),
            Received::Fin(id) => {
                if !state.finish(number, &id) {
                    send(error("E_FIN_FAILED FIN failed ID not in flight"));
                }
            }
            Received::Req { id, delay } => match state.take_in_flight(number, &id) {
                Some((topic, channel, stored)) => self.later(delay, move |state| {
                    state.requeue(&topic, &channel, stored);
                }),
                None => send(error("E_REQ_FAILED REQ failed ID not in flight")),
            },
            Received::Touch(_) | Received::Nop => {}
            Received::Cls => {
                state.set_ready(number, 0);
                respond(b"CLOSE_WAIT");
            }
        }
        ControlFlow::Continue(())
    }

    /// Stores the messages of a publish, but for those that were stored before.
    fn store(&self, state: &mut State, number: u64, publish: Received) {
        match publish {
            Received::Pub {
                topic,
                number: of,
                body,
            } => {
                if state.is_fresh(number, &topic, of) {
                    state.store(&topic, body);
                }
            }
            Received::Mpub {
                topic,
                number: first,
                bodies,
            } => {
                for (index, body) in (0_u64..).zip(bodies) {
                    let of = first.map(|first| first + index);
                    if state.is_fresh(number, &topic, of) {
                        state.store(&topic, body);
                    }
                }
            }
            Received::Dpub {
                topic,
                delay,
                number: of,
                body,
            } => {
                if state.is_fresh(number, &topic, of) {
                    self.later(delay, move |state| state.store(&topic, body));
                }
            }
            _ => unreachable!("the command publishes"),
        }
    }

    /// Changes the state after `delay`.
    fn later(&self, delay: Duration, change: impl FnOnce(&mut State) + Send + 'static) {
        let broker = self.clone();
        tokio::spawn(async move {
            sleep(delay).await;
            change(&mut broker.state());
        });
    }
}

fn error(text: &str) -> Vec<u8> {
    let size = u32::try_from(text.len() + 4).expect("an error is short");
    let mut frame = size.to_be_bytes().to_vec();
    frame.extend_from_slice(&1_u32.to_be_bytes());
    frame.extend_from_slice(text.as_bytes());
    frame
}

impl State {
    /// Returns false for a message that was stored before, by its number. `connection` is that of the publisher.
    fn is_fresh(&mut self, connection: u64, topic: &str, number: Option<u64>) -> bool {
        let (Some(number), Some(publisher)) = (number, self.publishers.get(&connection)) else {
            return true;
        };
        let origin = (publisher.clone(), topic.to_owned(), number);
        let is_fresh = self.origins.insert(origin);
        self.duplicates += u64::from(!is_fresh);
        is_fresh
    }

    fn store(&mut self, name: &str, body: Bytes) {
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

    fn subscribe(
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

    fn set_ready(&mut self, number: u64, count: u32) {
        if let Some(consumer) = self.consumers.get_mut(&number) {
            consumer.ready = count;
            let topic = consumer.topic.clone();
            self.deliver(&topic);
        }
    }

    fn finish(&mut self, number: u64, id: &MessageId) -> bool {
        match self.take_in_flight(number, id) {
            Some((topic, ..)) => {
                self.deliver(&topic);
                true
            }
            None => false,
        }
    }

    fn take_in_flight(&mut self, number: u64, id: &MessageId) -> Option<(String, String, Stored)> {
        let consumer = self.consumers.get_mut(&number)?;
        let stored = consumer.in_flight.remove(id)?;
        Some((consumer.topic.clone(), consumer.channel.clone(), stored))
    }

    fn requeue(&mut self, topic: &str, channel: &str, stored: Stored) {
        let found = self.topics.get_mut(topic);
        if let Some(queue) = found.and_then(|topic| topic.channels.get_mut(channel)) {
            queue.push_back(stored);
        }
        self.deliver(topic);
    }

    fn disconnect(&mut self, number: u64) {
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

#[cfg(test)]
mod tests;
