//! [`ChannelSample`]: the figures that the doctor looks at.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::flow::sum;

/// One channel at one moment, on every node that has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChannelSample {
    /// The nodes by `host:port`, each with its figures.
    pub nodes: BTreeMap<String, NodeSample>,
}

/// One channel at one moment on one node. Counts begin with the process of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSample {
    /// The messages that wait in the topic, for all channels.
    pub topic_depth: i64,
    /// The pause of the topic, which then gives no messages to its channels.
    pub topic_pause: Option<Pause>,
    /// The pause of the channel, which then delivers no messages.
    pub pause: Option<Pause>,
    /// Messages that wait for a consumer.
    pub depth: i64,
    /// Messages that consumers have and have not finished.
    pub in_flight: i64,
    /// Messages that are not due yet.
    pub deferred: i64,
    /// Messages that the channel has got from its topic.
    pub message_count: i64,
    /// Messages that consumers gave back.
    pub requeue_count: i64,
    /// Messages whose time in flight ran out.
    pub timeout_count: i64,
    /// RDY of each connection of a consumer.
    pub ready: Vec<i64>,
}

/// The terms of a pause on one node. nsqd of NSQ tells none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    /// The time until the pause ends by itself. `None` is a pause without an end.
    pub left: Option<Duration>,
    /// The name of the one who has paused, or an empty text.
    pub by: String,
    /// The reason, or an empty text.
    pub note: String,
}

impl Pause {
    /// Returns the terms of a pause that ends at `until_ms`. Times are in milliseconds since 1970.
    pub fn until(until_ms: Option<i64>, now_ms: i64, by: &str, note: &str) -> Pause {
        let left = |until: i64| u64::try_from(until.saturating_sub(now_ms)).unwrap_or(0);
        Pause {
            left: until_ms.map(|until| Duration::from_millis(left(until))),
            by: by.to_owned(),
            note: note.to_owned(),
        }
    }

    /// Returns true if this pause lasts longer than another one.
    pub(crate) fn outlasts(&self, other: &Pause) -> bool {
        match (self.left, other.left) {
            (Some(own), Some(left)) => own > left,
            (own, left) => own.is_none() && left.is_some(),
        }
    }
}

impl NodeSample {
    /// Returns true if the node gives the consumers nothing new, because the channel or its topic is paused.
    pub(crate) fn is_stopped(&self) -> bool {
        self.pause.is_some() || self.topic_pause.is_some()
    }
}

impl ChannelSample {
    pub(crate) fn ready(&self) -> impl Iterator<Item = i64> {
        self.nodes.values().flat_map(|node| &node.ready).copied()
    }

    pub(crate) fn has_backlog_at(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(|node| node.depth > 0)
    }

    /// Returns the number of messages that wait or are in flight.
    pub(crate) fn taken_or_waiting(&self) -> i64 {
        let nodes = self.nodes.values();
        sum(nodes.flat_map(|node| [node.depth, node.in_flight]))
    }

    /// Returns true if a node is stopped.
    pub(crate) fn is_stopped_at(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(NodeSample::is_stopped)
    }

    /// Returns the sample with some of the nodes.
    pub(crate) fn only(&self, wanted: impl Fn(&str) -> bool) -> ChannelSample {
        let nodes = self.nodes.iter().filter(|(name, _)| wanted(name));
        ChannelSample {
            nodes: nodes
                .map(|(name, node)| (name.clone(), node.clone()))
                .collect(),
        }
    }
}
