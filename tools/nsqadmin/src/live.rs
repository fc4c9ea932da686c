//! [`Snapshot`]: the present figures of all topics, channels and nodes, with rates and differences.
//!
//! `figures` makes the answers of the original's API for one request, with clients and latencies. A snapshot is made
//! every `--live-interval` from the collector's last answers, whose clients it ignores, and from the snapshot before
//! it. So it has only what the list and the charts show. The page gets the topics and nodes that differ, so ten
//! thousand idle topics cost nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::checkup::keep_highest;
use crate::figures::{Answered, NodeStats, Now, Operated, add_counts, write_rounded};
use crate::history::{Key, Point};

mod json;

/// The time for which the last figures of a node that does not answer are kept, in milliseconds. A rate over a longer time
/// would say nothing about now.
const MISSING_MILLIS: i64 = 600_000;

/// The number of such nodes from which on those that are missing longest are forgotten. An nsqlookupd that names other nodes
/// each time must not fill the memory.
const MISSING_MAX: usize = 1000;

/// The present figures of a topic, a channel or a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Messages that wait: in a topic those that no channel has yet.
    pub depth: i64,
    /// Messages that wait in the channels of a topic or a node, each counted per channel.
    pub channel_depth: i64,
    /// Messages that consumers have and have not finished.
    pub in_flight: i64,
    /// Messages that are not due yet.
    pub deferred: i64,
    /// Messages since the start.
    pub message_count: i64,
    /// Messages per second since the last answer of the node. `None` without an earlier count.
    #[serde(serialize_with = "write_rounded")]
    pub rate: Option<f64>,
    /// Requeues since the start.
    pub requeue_count: i64,
    /// Timeouts since the start.
    pub timeout_count: i64,
    /// The number of clients.
    pub clients: i64,
    /// The age of the oldest message that is owed, in milliseconds: the highest of all nsqds.
    pub oldest_ms: i64,
    /// The pause, and the messages of an emptied channel that can come back. A topic and a node have no such messages here, and
    /// the pause of a node has no terms.
    #[serde(flatten)]
    pub operated: Operated,
}

/// The present figures of a topic or channel, in total and on each node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Total {
    /// The figures over all nodes.
    pub figures: Figures,
    /// The figures of each node.
    pub nodes: BTreeMap<String, Figures>,
}

/// A topic with its channels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveTopic {
    /// The topic itself.
    pub total: Total,
    /// The channels by name.
    pub channels: BTreeMap<String, Total>,
}

/// The present figures of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The time. 0 before the first answers.
    pub now: Now,
    /// The topics by name.
    pub topics: BTreeMap<String, LiveTopic>,
    /// The nodes by `host:port`.
    pub nodes: BTreeMap<String, Figures>,
    /// The answers of these nodes.
    pub answers: BTreeMap<String, Answered>,
    /// The figures of the last answer of nodes that did not answer this time, each as a snapshot of this node alone. They give
    /// the rate when the node answers again.
    pub missing: BTreeMap<String, Arc<Snapshot>>,
    /// The warnings, or the reason why there are no figures.
    pub message: String,
}

impl Figures {
    fn of_topic(topic: &nsq_http::TopicStats) -> Figures {
        let mut figures = Figures {
            depth: topic.depth,
            message_count: topic.message_count,
            oldest_ms: topic.oldest_unfinished_ms.unwrap_or(0),
            operated: Operated {
                undo: None,
                ..topic.into()
            },
            ..Figures::default()
        };
        for channel in &topic.channels {
            let channel = Figures::of_channel(channel);
            figures.channel_depth = figures.channel_depth.saturating_add(channel.depth);
            figures.add_shared(&channel);
        }
        figures
    }

    fn of_channel(channel: &nsq_http::ChannelStats) -> Figures {
        Figures {
            depth: channel.depth,
            channel_depth: 0,
            in_flight: channel.in_flight_count,
            deferred: channel.deferred_count,
            message_count: channel.message_count,
            rate: None,
            requeue_count: channel.requeue_count,
            timeout_count: channel.timeout_count,
            clients: channel.count_clients(),
            oldest_ms: channel.oldest_unfinished_ms.unwrap_or(0),
            operated: channel.into(),
        }
    }

    /// Adds the figures that a topic has from its channels.
    fn add_shared(&mut self, part: &Figures) {
        add_counts! { self += part: in_flight, deferred, requeue_count, timeout_count, clients }
        self.oldest_ms = self.oldest_ms.max(part.oldest_ms);
    }

    /// Adds the figures of another node or topic, except the rate.
    fn add(&mut self, part: &Figures) {
        self.add_shared(part);
        add_counts! { self += part: depth, channel_depth, message_count }
        self.operated.add(&part.operated);
    }

    /// Returns the point of the history.
    fn point(&self) -> Point {
        // A server may tell any number.
        let positive = |number: i64| u64::try_from(number).unwrap_or(0);
        Point {
            depth: positive(self.depth.saturating_add(self.channel_depth)),
            rate: self.rate,
            oldest_ms: positive(self.oldest_ms),
        }
    }
}

impl Total {
    /// Adds a node's figures, with the rate since its last answer, which was `seconds` ago. The rate of all nodes is
    /// unknown if that of one of them is.
    fn add(&mut self, node: &str, mut part: Figures, before: Option<&Total>, seconds: Option<f64>) {
        let before = before.and_then(|before| before.nodes.get(node));
        if let (Some(before), Some(seconds)) = (before, seconds) {
            // A topic that was created anew counts from 0.
            let difference = part.message_count.checked_sub(before.message_count);
            #[allow(clippy::cast_precision_loss)] // A rate needs no more.
            let difference = difference.filter(|count| *count >= 0).map(|it| it as f64);
            part.rate = difference.map(|difference| difference / seconds);
        }
        let others = if self.nodes.is_empty() {
            Some(0.0)
        } else {
            self.figures.rate
        };
        self.figures.rate = others.zip(part.rate).map(|(others, own)| others + own);
        self.figures.add(&part);
        self.nodes.insert(node.to_owned(), part);
    }
}

impl Snapshot {
    /// Returns the snapshot of the answers. `before` gives the rates. A node that has missed answers has the rate since its last
    /// one.
    pub fn next(before: &Snapshot, stats: &[NodeStats], now: Now, message: String) -> Snapshot {
        let unknown = Snapshot::default();
        let mut missing = before.missing_at(now.steady_millis);
        let mut snapshot = Snapshot {
            now,
            message,
            ..Snapshot::default()
        };
        for given in stats {
            let (node, answered) = (&given.node.address, &given.answered);
            let of_before = before.nodes.contains_key(node);
            let own = missing.remove(node);
            let last: &Snapshot = match (of_before, &own) {
                (true, _) => before,
                (false, Some(own)) => own,
                (false, None) => &unknown,
            };
            // If no node has answered for long, `before` itself is old, and has the reason.
            let earlier = last.answers.get(node).filter(|earlier| {
                let passed = answered.steady_millis.saturating_sub(earlier.steady_millis);
                before.message.is_empty() || passed < MISSING_MILLIS
            });
            let seconds = earlier.and_then(|earlier| answered.seconds_since(earlier));
            // A topic without an earlier count has none since then.
            let mut of_node = Figures {
                rate: seconds.map(|_| 0.0),
                ..Figures::default()
            };
            for given in &given.topics {
                let known = last.topics.get(&given.topic_name);
                let topic = snapshot.topics.entry(given.topic_name.clone()).or_default();
                let figures = Figures::of_topic(given);
                let total = &mut topic.total;
                total.add(node, figures, known.map(|known| &known.total), seconds);
                if let Some(figures) = total.nodes.get(node) {
                    of_node.add(figures);
                    let more = figures.rate.unwrap_or(0.0);
                    of_node.rate = of_node.rate.map(|rate| rate + more);
                }
                for channel in &given.channels {
                    let name = &channel.channel_name;
                    let known = known.and_then(|known| known.channels.get(name));
                    let total = topic.channels.entry(name.clone()).or_default();
                    total.add(node, Figures::of_channel(channel), known, seconds);
                }
            }
            // The pauses of a node's topics have nothing in common.
            of_node.operated.pause = None;
            snapshot.nodes.insert(node.clone(), of_node);
            snapshot.answers.insert(node.clone(), *answered);
        }
        let lost = before
            .nodes
            .keys()
            .filter(|node| !snapshot.nodes.contains_key(*node));
        missing.extend(lost.map(|node| (node.clone(), Arc::new(before.of_node(node)))));
        keep_highest(&mut missing, MISSING_MAX, |_, own| own.now.steady_millis);
        snapshot.missing = missing;
        snapshot
    }

    /// Returns the milliseconds from this snapshot to a later steady time.
    fn millis_until(&self, steady_millis: i64) -> i64 {
        steady_millis.saturating_sub(self.now.steady_millis)
    }

    /// Returns the nodes that are missing and not forgotten at this time.
    fn missing_at(&self, steady_millis: i64) -> BTreeMap<String, Arc<Snapshot>> {
        let mut missing = self.missing.clone();
        missing.retain(|_, own| own.millis_until(steady_millis) < MISSING_MILLIS);
        missing
    }

    /// Returns the part of the snapshot that one node has told.
    fn of_node(&self, node: &str) -> Snapshot {
        let part = |total: &Total| {
            let figures = total.nodes.get(node)?.clone();
            Some(Total {
                figures: Figures::default(),
                nodes: BTreeMap::from([(node.to_owned(), figures)]),
            })
        };
        let topics = self.topics.iter().filter_map(|(name, topic)| {
            let channels = topic.channels.iter();
            let own = LiveTopic {
                total: part(&topic.total)?,
                channels: channels
                    .filter_map(|(name, total)| Some((name.clone(), part(total)?)))
                    .collect(),
            };
            Some((name.clone(), own))
        });
        let answer = self.answers.get(node).copied();
        Snapshot {
            now: self.now,
            topics: topics.collect(),
            answers: answer.map(|it| (node.to_owned(), it)).into_iter().collect(),
            ..Snapshot::default()
        }
    }

    /// Returns what all channels have: topic, channel, depth and the age of the oldest message in milliseconds.
    pub fn ages(&self) -> impl Iterator<Item = (&str, &str, i64, i64)> {
        self.topics.iter().flat_map(|(topic, live)| {
            live.channels.iter().map(move |(channel, total)| {
                let figures = &total.figures;
                (&**topic, &**channel, figures.depth, figures.oldest_ms)
            })
        })
    }

    /// Returns the samples for the history: all topics together, then nodes, topics, and channels, in
    /// case there is not room for all.
    pub fn samples(&self) -> impl Iterator<Item = (Key, Point)> {
        let rates = self.nodes.values().map(|figures| figures.rate);
        let mut all = Figures {
            rate: rates.sum(),
            ..Figures::default()
        };
        for figures in self.nodes.values() {
            all.add(figures);
        }
        let nodes = self.nodes.iter();
        let nodes = nodes.map(|(node, figures)| (Key::Node(node.clone()), figures.point()));
        let topics = self.topics.iter();
        let topics = topics.map(|(topic, live)| {
            let key = Key::Topic(topic.clone());
            (key, live.total.figures.point())
        });
        let channels = self.topics.iter().flat_map(|(topic, live)| {
            live.channels.iter().map(|(channel, total)| {
                let key = Key::Channel(topic.clone(), channel.clone());
                (key, total.figures.point())
            })
        });
        let all = std::iter::once((Key::All, all.point()));
        all.chain(nodes).chain(topics).chain(channels)
    }
}

#[cfg(test)]
mod tests;
