//! The figures of topics, channels and clients: the answers of nsqds in, totals with their parts out.
//!
//! ```text
//!   NodeStats of each nsqd ──► parts (one nsqd each) ──► totals
//! ```
//!
//! No figure here asks or waits. A total never replaces its parts: each part keeps the figures of its nsqd.

mod client;
mod latency;
mod operated;
mod time;

use std::collections::BTreeMap;

use serde::Serialize;
use wire::go_json::is_default;

pub use client::ClientFigures;
pub use latency::LatencyFigures;
pub use operated::{Operated, Pause, Undo};
pub use time::{Answered, Now};
pub(crate) use time::{rounded, write_rounded};

/// The name that a total has in place of a node.
pub const ALL_NODES: &str = "*";

/// Adds these counts of a part to those of a total. A sum beyond the range stays at its end.
macro_rules! add_counts {
    ($total:ident += $part:ident: $($field:ident),*) => {
        $($total.$field = $total.$field.saturating_add($part.$field);)*
    };
}

pub(crate) use add_counts;

/// An nsqd, as its clients know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeIdentity {
    /// `host:port` of the HTTP interface, where the host is the broadcast address.
    pub address: String,
    /// The name of the machine.
    pub hostname: String,
    /// The region, or an empty text.
    pub region: String,
    /// The zone, or an empty text.
    pub zone: String,
}

impl NodeIdentity {
    /// Returns a node of which only the address is known.
    pub fn at(address: &str) -> NodeIdentity {
        NodeIdentity {
            address: address.to_owned(),
            ..NodeIdentity::default()
        }
    }

    /// Returns the node that a server describes.
    pub fn of(node: &nsq_http::NodeInfo) -> NodeIdentity {
        NodeIdentity {
            address: node.http_address(),
            hostname: node.hostname.clone(),
            region: node.topology_region.clone(),
            zone: node.topology_zone.clone(),
        }
    }
}

/// The answer of one nsqd.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeStats {
    /// The nsqd.
    pub node: NodeIdentity,
    /// The time of the answer, and the process that gave it.
    pub answered: Answered,
    /// Its topics.
    pub topics: Vec<nsq_http::TopicStats>,
}

impl NodeStats {
    /// Returns the topics of this name. nsqds before 1.0 answer with all topics.
    pub fn topics_named(&self, name: &str) -> impl Iterator<Item = &nsq_http::TopicStats> {
        self.topics.iter().filter(move |it| it.topic_name == name)
    }

    /// Returns the channels of this name of a topic.
    pub fn channels_named(
        &self,
        topic: &str,
        name: &str,
    ) -> impl Iterator<Item = &nsq_http::ChannelStats> {
        let channels = self.topics_named(topic).flat_map(|topic| &topic.channels);
        channels.filter(move |it| it.channel_name == name)
    }
}

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
    /// The parts of a total. `None` in a part.
    pub nodes: Option<Vec<TopicFigures>>,
    /// The channels: totals in a total, parts in a part.
    pub channels: Vec<ChannelFigures>,
    /// The pause, and the messages that the topic itself was emptied of.
    #[serde(flatten)]
    pub operated: Operated,
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

/// The figures of a channel. The counts are sums in a total.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ChannelFigures {
    /// `host:port` of the nsqd, or `*` in a total.
    pub node: String,
    /// The name of the nsqd's machine. Empty in a total.
    pub hostname: String,
    /// The topic.
    pub topic_name: String,
    /// The channel.
    pub channel_name: String,
    /// Messages that wait.
    pub depth: i64,
    /// The other part of the depth.
    pub memory_depth: i64,
    /// The part of the depth beyond nsqd's `--mem-queue-size`. The original nsqd has this part on disk.
    pub backend_depth: i64,
    /// Messages that consumers have and have not finished.
    pub in_flight_count: i64,
    /// Messages that are not due yet.
    pub deferred_count: i64,
    /// Requeues.
    pub requeue_count: i64,
    /// Timeouts.
    pub timeout_count: i64,
    /// Messages since the start.
    pub message_count: i64,
    /// Messages to consumers.
    #[serde(flatten)]
    pub deliveries: Deliveries,
    /// The number of clients.
    pub client_count: i64,
    /// The parts of a total. `None` in a part.
    pub nodes: Option<Vec<ChannelFigures>>,
    /// The clients. `None` if the nsqd was not asked for them.
    pub clients: Option<Vec<ClientFigures>>,
    /// The pause, and the messages that the channel was emptied of.
    #[serde(flatten)]
    pub operated: Operated,
    /// The age of the oldest message that is owed, in milliseconds: the highest of all nsqds. `None` if
    /// no nsqd tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_unfinished_ms: Option<i64>,
    /// The latency.
    #[serde(rename = "e2e_processing_latency")]
    pub latency: LatencyFigures,
}

/// Messages to consumers, by where these are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Deliveries {
    /// All of them.
    #[serde(rename = "delivery_msg_count", skip_serializing_if = "is_default")]
    pub all: i64,
    /// Those to consumers in the nsqd's zone.
    #[serde(rename = "zone_local_msg_count", skip_serializing_if = "is_default")]
    pub zone_local: i64,
    /// Those to consumers in the nsqd's region, but in another zone.
    #[serde(rename = "region_local_msg_count", skip_serializing_if = "is_default")]
    pub region_local: i64,
    /// Those to other consumers.
    #[serde(rename = "global_msg_count", skip_serializing_if = "is_default")]
    pub global: i64,
}

/// Returns the total of a topic. A topic that no nsqd has is a total without parts.
pub fn topic_total(stats: &[NodeStats], topic: &str) -> TopicFigures {
    let parts = stats.iter().flat_map(|stats| {
        let given = stats.topics_named(topic);
        given.map(|given| TopicFigures::of_node(&stats.node, given, None))
    });
    TopicFigures::total(topic, parts.collect())
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

/// Returns the total of a channel over all nsqds that have it, or `None` if no nsqd has it.
/// `unix_seconds` is the present time.
pub fn channel_total(
    stats: &[NodeStats],
    topic: &str,
    channel: &str,
    unix_seconds: i64,
) -> Option<ChannelFigures> {
    let parts = stats.iter().flat_map(|stats| {
        let given = stats.channels_named(topic, channel);
        given.map(|it| ChannelFigures::of_node(&stats.node, topic, it, Some(unix_seconds)))
    });
    let parts: Vec<_> = parts.collect();
    (!parts.is_empty()).then(|| ChannelFigures::total(topic, channel, parts))
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
            refused_count: given.refused_count,
            channels: channels
                .map(|channel| ChannelFigures::of_node(node, topic, channel, unix_seconds))
                .collect(),
            operated: given.into(),
            latency: LatencyFigures::of_node(&given.e2e_processing_latency),
            oldest_unfinished_ms: given.oldest_unfinished_ms,
            dedup: Dedup::of_topic(given),
            ..TopicFigures::default()
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
            add_counts! { total += part: depth, backend_depth, message_count, refused_count }
            total.operated.add(&part.operated);
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

impl ChannelFigures {
    /// Returns the figures of one nsqd. `unix_seconds` is the present time, and `None` leaves the
    /// clients out.
    pub fn of_node(
        node: &NodeIdentity,
        topic: &str,
        given: &nsq_http::ChannelStats,
        unix_seconds: Option<i64>,
    ) -> ChannelFigures {
        let clients = unix_seconds.map(|now| {
            let clients = given.clients.iter().flatten();
            let clients = clients.map(|client| ClientFigures::of_node(node, client, now));
            ClientFigures::sorted(clients.collect())
        });
        ChannelFigures {
            node: node.address.clone(),
            hostname: node.hostname.clone(),
            topic_name: topic.to_owned(),
            channel_name: given.channel_name.clone(),
            depth: given.depth,
            backend_depth: given.backend_depth,
            in_flight_count: given.in_flight_count,
            deferred_count: given.deferred_count,
            requeue_count: given.requeue_count,
            timeout_count: given.timeout_count,
            message_count: given.message_count,
            deliveries: Deliveries {
                all: 0,
                zone_local: given.zone_local_msg_count,
                region_local: given.region_local_msg_count,
                global: given.global_msg_count,
            },
            client_count: given.count_clients(),
            clients,
            operated: given.into(),
            latency: LatencyFigures::of_node(&given.e2e_processing_latency),
            oldest_unfinished_ms: given.oldest_unfinished_ms,
            ..ChannelFigures::default()
        }
        .completed()
    }

    /// Returns the total of the parts, which it keeps.
    pub fn total(topic: &str, channel: &str, mut parts: Vec<ChannelFigures>) -> ChannelFigures {
        parts.sort_by(|a, b| (&a.hostname, &a.node).cmp(&(&b.hostname, &b.node)));
        let mut total = ChannelFigures {
            node: ALL_NODES.to_owned(),
            topic_name: topic.to_owned(),
            channel_name: channel.to_owned(),
            latency: LatencyFigures::total(topic, channel),
            ..ChannelFigures::default()
        };
        for part in &parts {
            total.add(part);
        }
        total.clients = total.clients.map(ClientFigures::sorted);
        total.nodes = Some(parts);
        total.completed()
    }

    fn add(&mut self, part: &ChannelFigures) {
        add_counts! {
            self += part: depth, backend_depth, in_flight_count, deferred_count, requeue_count, timeout_count,
            message_count, client_count
        }
        let (own, others) = (&mut self.deliveries, &part.deliveries);
        add_counts! { own += others: zone_local, region_local, global }
        self.operated.add(&part.operated);
        self.oldest_unfinished_ms = self.oldest_unfinished_ms.max(part.oldest_unfinished_ms);
        self.latency.add(&part.latency);
        // A total without any client has no list in the original, either.
        if let Some(clients) = part.clients.as_ref().filter(|clients| !clients.is_empty()) {
            let own = self.clients.get_or_insert_default();
            own.extend(clients.iter().cloned());
        }
    }

    /// Fills in what follows from other figures.
    fn completed(mut self) -> ChannelFigures {
        self.memory_depth = self.depth.saturating_sub(self.backend_depth);
        let of = &mut self.deliveries;
        let local = of.zone_local.saturating_add(of.region_local);
        of.all = local.saturating_add(of.global);
        self
    }
}

/// Declares [`Dedup`], what topics with a rule of `--dedup` tell about duplicates, with nsqd's names. Only ringq's
/// nsqds have such rules. Behind each name is the function that adds the figure of another nsqd.
macro_rules! dedup {
    ($($field:ident: $add:ident,)*) => {
        /// The figures of a topic with a rule. Those that the rule does not have are `None`.
        #[derive(Clone, Debug, Default, PartialEq, Serialize)]
        pub struct Dedup {
            $(#[serde(skip_serializing_if = "Option::is_none")] $field: Option<i64>,)*
        }

        impl Dedup {
            /// Returns the figures of a topic on one nsqd.
            pub fn of_topic(given: &nsq_http::TopicStats) -> Dedup {
                Dedup { $($field: given.$field,)* }
            }

            /// Adds the figures of another nsqd.
            pub fn add(&mut self, part: &Dedup) {
                $($add(&mut self.$field, part.$field);)*
            }
        }
    };
}

dedup! {
    dedup_duplicate_count: sum,
    dedup_unchecked_count: sum,
    dedup_publisher_count: sum,
    dedup_publisher_count_max: sum,
    dedup_publisher_evicted_count: sum,
    dedup_unverified_count: sum,
    dedup_keyless_count: sum,
    dedup_unremembered_count: sum,
    dedup_key_count: sum,
    dedup_key_count_max: sum,
    dedup_memory_bytes: sum,
    dedup_memory_bytes_max: sum,
    dedup_memory_refused_count: sum,
    dedup_reach_ms: least,
}

/// Adds to a sum. A sum beyond the range stays at its end.
fn sum(total: &mut Option<i64>, part: Option<i64>) {
    if let Some(part) = part {
        *total = Some(total.unwrap_or(0).saturating_add(part));
    }
}

/// Keeps the smaller figure.
fn least(total: &mut Option<i64>, part: Option<i64>) {
    if let Some(part) = part {
        *total = Some(total.unwrap_or(part).min(part));
    }
}

#[cfg(test)]
mod tests;
