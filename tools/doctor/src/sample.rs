//! [`ChannelSample`]: the figures that the doctor looks at.

use std::collections::BTreeMap;

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
    /// True if the topic gives no messages to its channels.
    pub is_topic_paused: bool,
    /// True if the channel delivers no messages.
    pub is_paused: bool,
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
