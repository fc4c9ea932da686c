//! The end of a turn: deliveries, jobs for the keeper, timers, and what is to be written.

use super::Broker;
use super::output::Output;
use crate::channel::dead_letters::LetterBudget;
use crate::channel::delivery::Delivery;
use crate::client::{ANSWER_BYTES_MAX, Blocked, Ending};
use crate::ids::ClientId;
use crate::now::Now;
use crate::outbound::Piece;
use crate::work::Work;
use std::io::IoSlice;
use std::time::Duration;

/// The state of a connection's output after a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// All output was sent.
    All,
    /// Some output is left. Write again when the socket can take it.
    More,
    /// The connection is over. Close it.
    Over,
}

impl Broker {
    /// Delivers what this turn made deliverable, and collects the jobs for the keeper. Call once
    /// after a batch of input; call again while [`Broker::is_turn_open`].
    pub fn end_turn(&mut self, now: Now, out: &mut Vec<Output>) {
        self.call(now, out, |broker| {
            let resident_bytes = broker.options.resident_bytes / broker.by_name.len().max(1) as u64;
            let (mut unfinished, mut unserved) = (Vec::new(), Vec::new());
            broker.announce_some();
            broker.deliver_own_forwards();
            let bytes_max = broker.options.dead_letter_bytes;
            let mut letter_budget = LetterBudget::new(broker.letter_bytes, bytes_max);
            for _ in 0..broker.topics_to_pump.len() {
                let topics = &mut broker.topics;
                let key = broker
                    .topics_to_pump
                    .pop_last(|key| Some(&mut topics.get_mut(key)?.in_to_pump));
                let Some(key) = key else {
                    break;
                };
                let Some(topic) = broker.topics.get_mut(key) else {
                    continue;
                };
                topic.limit_resident(resident_bytes);
                let mut delivery = Delivery {
                    clients: &mut broker.clients,
                    random: &mut broker.random,
                    topology: broker.options.topology.as_ref(),
                    now: now.mono,
                    letters: &mut letter_budget,
                    to_flush: &mut broker.clients_to_flush,
                };
                let is_served = delivery.letters.is_left();
                topic.pump(now, &mut broker.work, &mut delivery);
                let letters = std::mem::take(&mut topic.dead_letters);
                if topic.has_work_left() {
                    let next = if is_served {
                        &mut unfinished
                    } else {
                        &mut unserved
                    };
                    next.push(key);
                }
                if !topic.held_letters.is_empty() {
                    let listed = &mut topic.in_to_release;
                    broker.topics_to_release.insert(key, listed);
                }
                broker.out.extend(topic.news.drain(..).map(Output::warning));
                let is_awaited =
                    topic.started && topic.is_caught_up() && !topic.retriers.is_empty();
                while let Some(request) = topic.log.next_request() {
                    broker
                        .out
                        .push(Output::Keeper(key, topic.name.clone(), request));
                }
                if let Some(at) = topic.next_timeout() {
                    broker.arm_topic(key, at);
                }
                if is_awaited {
                    broker.wake_retriers(key);
                }
                if !letters.is_empty() {
                    broker.send_dead_letters(key, letters);
                }
            }
            broker.deliver_own_forwards();
            broker.release_letters();
            // The last one is the first of the next turn. So no topic waits for the dead letters of all others.
            for key in unfinished.into_iter().chain(unserved.into_iter().rev()) {
                broker.pump_later(key);
            }
            broker.work.begin_share();
            while let Some(discarded) = broker.discarded.last_mut()
                && discarded.release_slice(None, &mut broker.work)
            {
                broker.discarded.pop();
            }
            broker.entries_spent = broker.work.spent();
            broker.work = Work::new(broker.options.turn_entries);
        })
    }

    /// True while something is left for [`Broker::end_turn`].
    pub fn is_turn_open(&self) -> bool {
        !self.topics_to_pump.is_empty()
            || !self.discarded.is_empty()
            || !self.to_announce.is_empty()
    }

    /// Returns how many entries of long lists the last turn went through: see
    /// [`BrokerOptions::turn_entries`](super::BrokerOptions::turn_entries).
    pub fn entries_spent(&self) -> usize {
        self.entries_spent
    }

    /// Takes the list of connections with output to write, in `into`.
    pub fn take_clients_to_flush(&mut self, into: &mut Vec<ClientId>) {
        into.clear();
        let clients = &mut self.clients;
        while let Some(id) = self
            .clients_to_flush
            .pop_first(|id| Some(&mut clients.get_mut(id)?.output.in_to_flush))
        {
            into.push(id);
        }
    }

    /// The output of a connection, to be written at once: fills `slices` and returns how many.
    pub fn output<'a>(&'a self, id: ClientId, slices: &mut [IoSlice<'a>]) -> usize {
        let Some(client) = self.clients.get(id) else {
            return 0;
        };
        let subscription = client.consumer.subscription;
        let topic = subscription.map(|(key, _)| &self.topics[key]);
        let mut count = 0;
        for (slice, (piece, bytes)) in slices.iter_mut().zip(client.output.queue.pieces()) {
            *slice = IoSlice::new(match piece {
                Piece::Buffer(_) | Piece::Message(_) => bytes,
                Piece::Run(run) => topic
                    .expect("runs belong to the subscribed topic")
                    .log
                    .bytes(&run),
            });
            count += 1;
        }
        count
    }

    /// Notes that the first `bytes` bytes of a connection's output were written; 0 means that the socket took nothing.
    /// The queue of a connection that was cut off is empty, but TLS or compression may still report bytes that it had
    /// taken before.
    pub fn sent(&mut self, now: Now, id: ClientId, bytes: usize, out: &mut Vec<Output>) -> Sent {
        let Some(client) = self.clients.get_mut(id) else {
            return Sent::All;
        };
        if client.ending() == Ending::Now {
            return Sent::Over;
        }
        let subscription = client.consumer.subscription;
        client.output.queue.sent(bytes as u64, |run| {
            let (topic, _) = subscription.expect("runs belong to the subscribed topic");
            self.topics[topic].log.unpin(run.first);
        });
        if client.is_over() {
            return Sent::Over;
        }
        client.output.extend_deadline(now.mono, bytes as u64);
        if client.output.answer_bytes() < ANSWER_BYTES_MAX / 2 && client.unblock(Blocked::Output) {
            // The broker did not read the peer, so the peer does not count as silent.
            client.heard(now.mono);
            out.push(Output::Resume(id));
        }
        let left = if client.output.queue.is_empty() {
            Sent::All
        } else {
            Sent::More
        };
        if bytes > 0 && client.consumer.subscription.is_some() && !client.consumer.in_ready.is_set()
        {
            self.make_ready(id);
        }
        left
    }

    /// Ends a connection without ceremony: its socket failed.
    pub fn abandon(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(id) {
            client.end_now();
        }
    }

    /// Returns after a read how long the next answers of a consumer may gather. `None` if they may not, or
    /// there is output for the consumer.
    pub fn coalescing_delay(&mut self, id: ClientId) -> Option<Duration> {
        let client = self.clients.get_mut(id)?;
        let may_wait = client.output.is_empty();
        client
            .consumer
            .coalescing
            .next_delay(client.consumer.in_flight, may_wait)
    }

    /// True while commands of a connection are carried out as they come.
    pub fn is_reading(&self, id: ClientId) -> bool {
        self.clients
            .get(id)
            .is_some_and(|client| !client.is_stopped())
    }

    /// True when input of `bytes` bytes, which was offered already, has more to be carried out:
    /// [`Broker::receive`] stopped for the sake of other connections.
    pub fn has_more(&self, id: ClientId, bytes: usize) -> bool {
        self.clients
            .get(id)
            .is_some_and(|client| client.takes_input(bytes))
    }

    /// Returns how many bytes of input a connection's unfinished command needs. 0 if that is not known.
    pub fn needs(&self, id: ClientId) -> usize {
        self.clients
            .get(id)
            .map_or(0, |client| client.session.needs())
    }

    /// Returns when [`Broker::handle_timeout`] has something to do; may be early.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.timers.first().map(|timer| timer.0)
    }
}
