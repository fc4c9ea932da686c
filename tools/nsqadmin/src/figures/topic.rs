//! [`TopicFigures`]: a topic on one nsqd, or on all.

use std::collections::BTreeMap;

use serde::Serialize;
use wire::go_json::is_default;

use super::{
    ALL_NODES, ChannelFigures, Dedup, LatencyFigures, NodeIdentity, NodeStats, Pause, Undo, add,
};

/// The figures of a topic. The counts are sums in a total.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TopicFigures {
    /// `host:port` of the nsqd, or `*` in a total.
    pub node: String,
    /// The name of the nsqd's machine. Empty in a total.
    pub hostname: String,
    /// The topic.
    pub topic_name: String,
    /// Messages that no channel has yet.
    pub depth: i64,
    /// The part of the depth that is in memory.
    pub memory_depth: i64,
    /// The part of the depth that is on disk.
    pub backend_depth: i64,
    /// Messages since the start.
    pub message_count: i64,
    /// 0: nsqd counts deliveries for channels only.
    pub delivery_msg_count: i64,
    /// Bytes of messages since the start.
    #[serde(skip)]
    pub message_bytes: i64,
    /// The parts of a total. `None` in a part.
    pub nodes: Option<Vec<TopicFigures>>,
    /// The channels: totals in a total, parts in a part.
    pub channels: Vec<ChannelFigures>,
    /// True if the topic is paused on any nsqd.
    #[serde(rename = "paused")]
    pub is_paused: bool,
    /// The terms of the pause. `None` if the topic is not paused.
    #[serde(flatten)]
    pub pause: Option<Pause>,
    /// The messages that the topic itself was emptied of. `None`: none can come back.
    #[serde(flatten)]
    pub undo: Option<Undo>,
    /// The age of the oldest message that is owed, in milliseconds: the highest of all nsqds. `None` if
    /// no nsqd tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_unfinished_ms: Option<i64>,
    /// Messages that were refused since the start.
    #[serde(skip_serializing_if = "is_default")]
    pub refused_count: i64,
    /// The figures of rules of `--dedup`. Without such a rule, all of them are unknown.
    #[serde(flatten)]
    pub dedup: Dedup,
    /// The latency of all channels.
    #[serde(rename = "e2e_processing_latency")]
    pub latency: LatencyFigures,
}

/// Returns the total of a topic. A topic that no nsqd has is a total without parts.
pub fn topic_total(stats: &[NodeStats], topic: &str) -> TopicFigures {
    let mut parts = Vec::new();
    for NodeStats { node, topics, .. } in stats {
        // nsqds before 1.0 do not filter.
        let of_topic = topics.iter().filter(|given| given.topic_name == topic);
        parts.extend(of_topic.map(|given| TopicFigures::of_node(node, given, None)));
    }
    TopicFigures::total(topic, parts)
}

/// Returns the totals of all topics, sorted by name.
pub fn topic_totals(stats: &[NodeStats]) -> Vec<TopicFigures> {
    let mut parts: BTreeMap<&str, Vec<TopicFigures>> = BTreeMap::new();
    for NodeStats { node, topics, .. } in stats {
        for given in topics {
            let part = TopicFigures::of_node(node, given, None);
            parts.entry(&given.topic_name).or_default().push(part);
        }
    }
    let parts = parts.into_iter();
    parts
        .map(|(topic, parts)| TopicFigures::total(topic, parts))
        .collect()
}

/// Returns the topics of one nsqd, with the clients of their channels. `unix_seconds` is the present
/// time.
pub fn topics_of_node(stats: &NodeStats, unix_seconds: i64) -> Vec<TopicFigures> {
    let topics = stats.topics.iter();
    topics
        .map(|given| TopicFigures::of_node(&stats.node, given, Some(unix_seconds)))
        .collect()
}

impl TopicFigures {
    /// Returns the figures of one nsqd. `unix_seconds` is the present time, and `None` leaves the
    /// clients out.
    pub fn of_node(
        node: &NodeIdentity,
        given: &nsq_http::TopicStats,
        unix_seconds: Option<i64>,
    ) -> TopicFigures {
        let topic = &given.topic_name;
        let channels = given.channels.iter();
        TopicFigures {
            node: node.address.clone(),
            hostname: node.hostname.clone(),
            topic_name: topic.clone(),
            depth: given.depth,
            memory_depth: given.depth.saturating_sub(given.backend_depth),
            backend_depth: given.backend_depth,
            message_count: given.message_count,
            delivery_msg_count: 0,
            message_bytes: given.message_bytes,
            refused_count: given.refused_count,
            nodes: None,
            channels: channels
                .map(|channel| ChannelFigures::of_node(node, topic, channel, unix_seconds))
                .collect(),
            is_paused: given.paused,
            pause: Pause::of_topic(given),
            undo: Undo::of_topic(given),
            latency: LatencyFigures::of_node(&given.e2e_processing_latency),
            oldest_unfinished_ms: given.oldest_unfinished_ms,
            dedup: Dedup::of_topic(given),
        }
    }

    /// Returns the total of the parts, which it keeps.
    pub fn total(topic: &str, mut parts: Vec<TopicFigures>) -> TopicFigures {
        parts.sort_by(|a, b| (&a.hostname, &a.node).cmp(&(&b.hostname, &b.node)));
        let mut total = TopicFigures {
            node: ALL_NODES.to_owned(),
            topic_name: topic.to_owned(),
            latency: LatencyFigures::total(topic, ""),
            ..TopicFigures::default()
        };
        let mut channels: BTreeMap<&str, Vec<ChannelFigures>> = BTreeMap::new();
        for part in &parts {
            add(&mut total.depth, part.depth);
            add(&mut total.backend_depth, part.backend_depth);
            add(&mut total.message_count, part.message_count);
            add(&mut total.message_bytes, part.message_bytes);
            add(&mut total.refused_count, part.refused_count);
            total.is_paused |= part.is_paused;
            Pause::add(&mut total.pause, part.pause.as_ref());
            Undo::add(&mut total.undo, part.undo);
            total.oldest_unfinished_ms = total.oldest_unfinished_ms.max(part.oldest_unfinished_ms);
            total.latency.add(&part.latency);
            total.dedup.add(&part.dedup);
            for channel in &part.channels {
                let parts = channels.entry(&channel.channel_name).or_default();
                parts.push(channel.clone());
            }
        }
        total.memory_depth = total.depth.saturating_sub(total.backend_depth);
        let channels = channels.into_iter();
        total.channels = channels
            .map(|(channel, parts)| ChannelFigures::total(topic, channel, parts))
            .collect();
        total.nodes = Some(parts);
        total
    }
}
