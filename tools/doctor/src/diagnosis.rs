//! [`Diagnosis`]: what the doctor says.

use std::collections::BTreeSet;

use crate::sample::{Pause, sum};

/// The diagnosis of a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    /// The limit of the channel. The text of the diagnosis is made from this limit.
    pub limit: Limit,
    /// The deliveries of the oldest message that have failed, if the message fails again and again. The limit then tells about
    /// the other messages.
    pub oldest_failed: Option<i64>,
    /// The number to change, if the samples say which.
    pub change: Option<Change>,
    /// The only node that has a backlog, if the channel is on several nodes.
    pub only_node: Option<String>,
    /// The nodes with messages and without consumers, if the limit concerns more messages than they have.
    pub unreached: Option<Unreached>,
    /// The pauses that the limit does not tell: those at other nodes than the limit's, and those of the topic beside those of
    /// the channel.
    pub paused: Vec<Paused>,
}

impl Diagnosis {
    /// Returns a diagnosis without a number to change.
    pub(crate) fn of(limit: Limit) -> Diagnosis {
        Diagnosis {
            limit,
            oldest_failed: None,
            change: None,
            only_node: None,
            unreached: None,
            paused: Vec::new(),
        }
    }

    /// Returns all pauses of the channel and of its topic.
    pub fn pauses(&self) -> impl Iterator<Item = &Paused> {
        let of_limit = match &self.limit {
            Limit::Paused(paused) => Some(paused),
            _ => None,
        };
        of_limit.into_iter().chain(&self.paused)
    }
}

/// Nodes with messages and without consumers, of a channel that has consumers at other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreached {
    /// The nodes.
    pub nodes: Vec<String>,
    /// The backlog of these nodes.
    pub depth: i64,
}

/// The pauses of a channel, or those of its topic, at all or at some of the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paused {
    /// True for the pauses of the topic.
    pub is_of_topic: bool,
    /// The number of nodes with a pause.
    pub nodes: usize,
    /// The number of nodes with the channel.
    pub all: usize,
    /// The messages that wait for the end of the pauses.
    pub waiting: i64,
    /// The terms of these pauses, the longest pause first. Pauses of several nodes with one name and note are one.
    pub terms: Vec<Pause>,
    /// The number of nodes whose pause has no terms.
    pub without_terms: usize,
}

impl Paused {
    /// Sums up the pauses that were found at some of `all` nodes, each with the messages that wait for its end there. `None` if
    /// there are none.
    pub fn new(is_of_topic: bool, found: Vec<(Pause, i64)>, all: usize) -> Option<Paused> {
        let nodes = found.len();
        let waiting = sum(found.iter().map(|(_, waiting)| *waiting));
        let has_terms = |pause: &Pause| *pause != Pause::default();
        let pauses = found.into_iter().map(|(pause, _)| pause);
        let mut terms: Vec<Pause> = pauses.filter(has_terms).collect();
        let without_terms = nodes - terms.len();
        terms.sort_by_key(|pause| std::cmp::Reverse(pause.lasts()));
        let mut known = BTreeSet::new();
        terms.retain(|pause| known.insert((pause.by.clone(), pause.note.clone())));
        (nodes > 0).then_some(Paused {
            is_of_topic,
            nodes,
            all,
            waiting,
            terms,
            without_terms,
        })
    }
}

/// A proposal: a number and its new value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The number.
    pub what: Setting,
    /// The present value.
    pub from: u64,
    /// The proposed value, for the present arrivals and a quarter more.
    pub to: u64,
}

/// A number that a user can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// The most messages that one consumer may have in flight, over all nodes: the sum of its RDYs.
    MaxInFlight,
    /// The number of consumers.
    Consumers,
}

/// The limit of a channel. Rates are per second.
#[derive(Clone, Debug, PartialEq)]
pub enum Limit {
    /// Nothing: no messages come and none wait for a consumer.
    Idle {
        /// The messages that are deferred. With some of them, a consumer is subscribed.
        deferred: i64,
        /// True if a consumer is subscribed.
        has_consumers: bool,
    },
    /// Nothing: consumers take what arrives.
    KeepsUp {
        /// The rate of arrivals.
        arrivals: f64,
        /// The rate that RDY and the time in flight allow, if messages were in flight.
        capacity: Option<f64>,
    },
    /// Nothing: the backlog becomes shorter.
    CatchesUp {
        /// The backlog.
        depth: i64,
        /// The seconds until the backlog is empty.
        seconds: f64,
    },
    /// The channel or its topic is paused.
    Paused(Paused),
    /// No consumer is subscribed.
    NoConsumers {
        /// The backlog.
        depth: i64,
        /// The messages that are deferred.
        deferred: i64,
        /// The rate of arrivals.
        arrivals: f64,
    },
    /// No consumer is subscribed, and the messages are the dead letters of another channel: they wait for a person.
    DeadLetters {
        /// The topic and channel that they come from.
        from: String,
        /// The dead letters that wait.
        depth: i64,
    },
    /// Consumers are subscribed at some nodes, but not at all nodes with messages.
    UnreachedNodes(Unreached),
    /// Consumers have set RDY to 0, which is what they do in backoff.
    Backoff {
        /// The connections with RDY 0.
        without_ready: usize,
        /// All connections.
        connections: usize,
    },
    /// Each consumer may have fewer messages in flight than there are nodes, so some of its
    /// connections have RDY 0.
    FewerInFlightThanNodes {
        /// The nodes with consumers.
        nodes: usize,
    },
    /// Messages time out before they are finished.
    TimesOut {
        /// The rate of timeouts.
        timeouts: f64,
    },
    /// Consumers give messages back.
    Fails {
        /// The rate of requeues.
        requeues: f64,
        /// The rate of finished messages.
        finishes: f64,
    },
    /// Consumers have as many messages as they may, and finish none.
    Stuck {
        /// The messages in flight.
        in_flight: i64,
    },
    /// The round trip limits the consumers, because RDY is low.
    ReadyTooLow(Saturation),
    /// The time of the handlers limits the consumers.
    HandlerTooSlow(Saturation),
    /// RDY would allow more messages in flight, and messages wait.
    ReadsSlowly {
        /// The messages in flight.
        in_flight: i64,
        /// The sum of all RDYs.
        ready: i64,
    },
}

/// The figures of consumers that have as many messages in flight as they may.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Saturation {
    /// The rate of arrivals.
    pub arrivals: f64,
    /// The rate of finished messages, which is all that these consumers can do.
    pub finishes: f64,
    /// The time that a message is in flight, in seconds.
    pub seconds_in_flight: f64,
    /// The consumers.
    pub consumers: u64,
}
