//! The doctor: says what limits a channel, and which number to change to what.
//!
//! [`diagnose`] is a pure function of two samples of a channel over all nodes. The reasoning is
//! Little's law: if `W` messages are in flight and `X` are finished each second, a message is in
//! flight for `S = W / X` seconds. Consumers that may have `R` messages in flight together (the sum
//! of their RDY) therefore finish at most `R / S` messages each second. If more than that arrive, the
//! backlog grows until `R` is raised or `S` falls.
//!
//! ```text
//!   /stats ─► ChannelSample ─┐
//!   /stats ─► ChannelSample ─┴─► Flow (rates, S, R) ─► Limit ─► one sentence
//! ```

mod flow;
mod sentence;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

pub use flow::Flow;
pub(crate) use flow::grown;
pub use sentence::{duration, short};

use crate::cluster::{ChannelStats, NodeAddress};

/// The part by which a proposed number exceeds what the present arrivals need.
const HEADROOM: f64 = 1.25;

/// The time in flight up to which the round trip counts for more than the handler.
const ROUND_TRIP_SECONDS: f64 = 0.02;

/// The RDY of one consumer above which a higher RDY only makes messages wait in the consumer.
const READY_ENOUGH: f64 = 100.0;

/// The part of RDY that is in use when consumers take all that they may.
const SATURATED: f64 = 0.9;

/// A backlog that consumers take in this time counts for nothing.
const BACKLOG_SECONDS: f64 = 1.0;

/// The part of the arrivals by which the backlog may grow and still counts as stable: two samples
/// never match to the message.
const GROWTH: f64 = 0.05;

/// The part of the deliveries that may time out, or be requeued, before the doctor speaks of it.
const TIMEOUTS: f64 = 0.05;
const REQUEUES: f64 = 0.1;

/// One channel at one moment, on every node that has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChannelSample<'a> {
    /// The nodes, each with its figures.
    pub nodes: BTreeMap<NodeAddress, NodeSample<'a>>,
}

/// One channel at one moment on one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSample<'a> {
    /// The messages that wait in the topic, for all channels.
    pub topic_depth: i64,
    /// True if the topic gives no messages to its channels.
    pub is_topic_paused: bool,
    /// The channel, with its clients.
    pub channel: Cow<'a, ChannelStats>,
}

/// What the doctor says about a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    /// What limits the channel. The text of the diagnosis is made of it.
    pub limit: Limit,
    /// The number to change, if the samples say which.
    pub change: Option<Change>,
    /// The only node that has a backlog, if the channel is on several nodes.
    pub only_node: Option<NodeAddress>,
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

/// What limits a channel. Rates are per second.
#[derive(Clone, Debug, PartialEq)]
pub enum Limit {
    /// Nothing: no messages come and none wait.
    Idle {
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
    /// The channel is paused.
    Paused {
        /// The messages that wait.
        waiting: i64,
    },
    /// The topic is paused.
    TopicPaused {
        /// The messages that wait in the topic.
        waiting: i64,
    },
    /// No consumer is subscribed.
    NoConsumers {
        /// The backlog.
        depth: i64,
        /// The rate of arrivals.
        arrivals: f64,
    },
    /// Consumers are subscribed at some nodes, but not at all nodes with messages.
    UnreachedNodes {
        /// The nodes without consumers.
        nodes: Vec<NodeAddress>,
        /// The backlog of these nodes.
        depth: i64,
    },
    /// Consumers have set RDY to 0, which is what they do in back-off.
    BackOff {
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

/// Says what limits a channel. `before` and `after` are samples that were taken `elapsed` apart.
pub fn diagnose(
    before: &ChannelSample<'_>,
    after: &ChannelSample<'_>,
    elapsed: Duration,
) -> Diagnosis {
    let flow = Flow::between(before, after, elapsed);
    let plain = |limit| Diagnosis {
        limit,
        change: None,
        only_node: None,
    };
    if let Some(limit) = stopped(after, &flow) {
        return plain(limit);
    }
    if let Some(limit) = fails(&flow) {
        let change = match limit {
            Limit::TimesOut { .. } => fewer_in_flight(&flow),
            _ => None,
        };
        return Diagnosis {
            limit,
            change,
            only_node: None,
        };
    }
    if !has_backlog(&flow) {
        let is_idle = flow.arrivals == 0.0 && flow.finishes == 0.0 && flow.in_flight == 0.0;
        return plain(match is_idle && flow.depth == 0 {
            true => Limit::Idle {
                has_consumers: true,
            },
            false => Limit::KeepsUp {
                arrivals: flow.arrivals,
                capacity: flow.capacity(),
            },
        });
    }
    if let Some(diagnosis) = connections_without_ready(after, &flow) {
        return diagnosis;
    }
    let is_behind = |node: &NodeAddress| after.has_backlog_at(node);
    let part = Flow::between(&before.only(is_behind), &after.only(is_behind), elapsed);
    Diagnosis {
        only_node: only_node_behind(after),
        ..of_consumers(&part, &flow)
    }
}

/// Returns why no message can flow, if that is so.
fn stopped(after: &ChannelSample<'_>, flow: &Flow) -> Option<Limit> {
    let nodes = || after.nodes.values();
    if nodes().any(|node| node.channel.paused) {
        return Some(Limit::Paused {
            waiting: flow.depth,
        });
    }
    if nodes().any(|node| node.is_topic_paused) {
        let waiting = nodes().map(|node| node.topic_depth).sum();
        return Some(Limit::TopicPaused { waiting });
    }
    if flow.connections == 0 {
        let is_idle = flow.depth == 0 && flow.arrivals == 0.0;
        return Some(match is_idle {
            true => Limit::Idle {
                has_consumers: false,
            },
            false => Limit::NoConsumers {
                depth: flow.depth,
                arrivals: flow.arrivals,
            },
        });
    }
    let unreached: Vec<_> = after
        .nodes
        .iter()
        .filter(|(_, node)| node.channel.clients.is_empty() && node.channel.depth > 0)
        .collect();
    if !unreached.is_empty() {
        return Some(Limit::UnreachedNodes {
            depth: unreached.iter().map(|(_, node)| node.channel.depth).sum(),
            nodes: unreached
                .into_iter()
                .map(|(name, _)| name.clone())
                .collect(),
        });
    }
    if flow.ready == 0 {
        return Some(Limit::BackOff {
            without_ready: flow.connections,
            connections: flow.connections,
        });
    }
    None
}

/// Returns the way in which messages fail, if many do.
fn fails(flow: &Flow) -> Option<Limit> {
    let deliveries = flow.finishes + flow.requeues + flow.timeouts;
    if flow.timeouts > TIMEOUTS * deliveries {
        return Some(Limit::TimesOut {
            timeouts: flow.timeouts,
        });
    }
    (flow.requeues > REQUEUES * deliveries).then_some(Limit::Fails {
        requeues: flow.requeues,
        finishes: flow.finishes,
    })
}

/// Proposes a smaller number in flight: what is finished before it times out, with headroom. Messages
/// that wait inside a consumer age there.
fn fewer_in_flight(flow: &Flow) -> Option<Change> {
    let from = flow.ready_per_consumer()?;
    let part_in_time = flow.finishes / (flow.finishes + flow.timeouts);
    let to = (from as f64 * part_in_time / HEADROOM).floor().max(1.0) as u64;
    (to < from).then_some(Change {
        what: Setting::MaxInFlight,
        from,
        to,
    })
}

/// Returns true if more messages wait than consumers take within a moment.
fn has_backlog(flow: &Flow) -> bool {
    let is_long = flow.depth as f64 > flow.finishes * BACKLOG_SECONDS;
    let grows = flow.growth > flow.arrivals * GROWTH && flow.depth > flow.ready;
    flow.depth > 0 && (is_long || grows)
}

/// Returns the diagnosis for a backlog while some connections have RDY 0.
fn connections_without_ready(after: &ChannelSample<'_>, flow: &Flow) -> Option<Diagnosis> {
    let ready = || after.clients().map(|client| client.ready_count);
    let without_ready = ready().filter(|ready| *ready == 0).count();
    if without_ready == 0 {
        return None;
    }
    let nodes = after
        .nodes
        .values()
        .filter(|node| !node.channel.clients.is_empty());
    let nodes = nodes.count();
    let has_failed = flow.requeues > 0.0 || flow.timeouts > 0.0;
    let rotates = nodes > 1 && !has_failed && ready().all(|ready| ready <= 1);
    let (limit, change) = if rotates {
        let change = flow.ready_per_consumer().map(|from| Change {
            what: Setting::MaxInFlight,
            from,
            to: nodes as u64,
        });
        (Limit::FewerInFlightThanNodes { nodes }, change)
    } else {
        let limit = Limit::BackOff {
            without_ready,
            connections: flow.connections,
        };
        (limit, None)
    };
    Some(Diagnosis {
        limit,
        change,
        only_node: None,
    })
}

/// Returns the diagnosis for a backlog while all consumers take messages. `part` is the flow of the
/// nodes with a backlog.
fn of_consumers(part: &Flow, whole: &Flow) -> Diagnosis {
    let plain = |limit| Diagnosis {
        limit,
        change: None,
        only_node: None,
    };
    if part.finishes > part.arrivals * (1.0 + GROWTH) && part.growth < 0.0 {
        return plain(Limit::CatchesUp {
            depth: part.depth,
            seconds: part.depth as f64 / (part.finishes - part.arrivals),
        });
    }
    if part.in_flight < SATURATED * part.ready as f64 {
        return plain(Limit::ReadsSlowly {
            in_flight: part.in_flight.round() as i64,
            ready: part.ready,
        });
    }
    let (Some(seconds), Some(ready)) = (part.seconds_in_flight(), whole.ready_per_consumer())
    else {
        return plain(Limit::Stuck {
            in_flight: part.in_flight.round() as i64,
        });
    };
    let saturation = Saturation {
        arrivals: part.arrivals,
        finishes: part.finishes,
        seconds_in_flight: seconds,
        consumers: whole.consumers,
    };
    let factor = (part.arrivals / part.finishes).max(1.0) * HEADROOM;
    let raised = |from: u64| ((from as f64 * factor).ceil() as u64).max(from + 1);
    let is_low = seconds < ROUND_TRIP_SECONDS && (ready as f64) < READY_ENOUGH;
    let (limit, what, from) = match is_low {
        true => (Limit::ReadyTooLow(saturation), Setting::MaxInFlight, ready),
        false => (
            Limit::HandlerTooSlow(saturation),
            Setting::Consumers,
            whole.consumers,
        ),
    };
    Diagnosis {
        limit,
        change: Some(Change {
            what,
            from,
            to: raised(from),
        }),
        only_node: None,
    }
}

/// Returns the node with a backlog, if the channel is on several nodes and only one has a backlog.
fn only_node_behind(after: &ChannelSample<'_>) -> Option<NodeAddress> {
    let mut behind = after.nodes.keys().filter(|node| after.has_backlog_at(node));
    match (behind.next(), behind.next()) {
        (Some(node), None) if after.nodes.len() > 1 => Some(node.clone()),
        _ => None,
    }
}

impl<'a> ChannelSample<'a> {
    fn clients(&self) -> impl Iterator<Item = &crate::cluster::ClientStats> {
        self.nodes.values().flat_map(|node| &node.channel.clients)
    }

    fn has_backlog_at(&self, node: &NodeAddress) -> bool {
        self.nodes
            .get(node)
            .is_some_and(|node| node.channel.depth > 0)
    }

    /// Returns the sample with some of the nodes.
    fn only(&self, wanted: impl Fn(&NodeAddress) -> bool) -> ChannelSample<'a> {
        let nodes = self.nodes.iter().filter(|(name, _)| wanted(name));
        ChannelSample {
            nodes: nodes
                .map(|(name, node)| (name.clone(), node.clone()))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests;
