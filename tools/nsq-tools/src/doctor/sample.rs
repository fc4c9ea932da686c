//! [`ChannelSample`]: what the doctor looks at.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::cluster::{ChannelStats, ClientStats, NodeAddress};

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

impl<'a> ChannelSample<'a> {
    pub(super) fn clients(&self) -> impl Iterator<Item = &ClientStats> {
        self.nodes.values().flat_map(|node| &node.channel.clients)
    }

    pub(super) fn has_backlog_at(&self, node: &NodeAddress) -> bool {
        self.nodes
            .get(node)
            .is_some_and(|node| node.channel.depth > 0)
    }

    /// Returns the sample with some of the nodes.
    pub(super) fn only(&self, wanted: impl Fn(&NodeAddress) -> bool) -> ChannelSample<'a> {
        let nodes = self.nodes.iter().filter(|(name, _)| wanted(name));
        ChannelSample {
            nodes: nodes
                .map(|(name, node)| (name.clone(), node.clone()))
                .collect(),
        }
    }
}
