//! [`ChannelFigures`]: a channel on one nsqd, or on all.

use serde::Serialize;
use wire::go_json::is_default;

use super::{ALL_NODES, ClientFigures, LatencyFigures, NodeIdentity, NodeStats, Pause, Undo, add};

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
    #[serde(skip_serializing_if = "is_default")]
    pub delivery_msg_count: i64,
    /// Messages to consumers in the nsqd's zone.
    #[serde(skip_serializing_if = "is_default")]
    pub zone_local_msg_count: i64,
    /// Messages to consumers in the nsqd's region, but in another zone.
    #[serde(skip_serializing_if = "is_default")]
    pub region_local_msg_count: i64,
    /// Messages to other consumers.
    #[serde(skip_serializing_if = "is_default")]
    pub global_msg_count: i64,
    /// The number of clients.
    pub client_count: i64,
    /// The parts of a total. `None` in a part.
    pub nodes: Option<Vec<ChannelFigures>>,
    /// The clients. `None` if the nsqd was not asked for them.
    pub clients: Option<Vec<ClientFigures>>,
    /// True if the channel is paused on any nsqd.
    #[serde(rename = "paused")]
    pub is_paused: bool,
    /// The terms of the pause. `None` if the channel is not paused.
    #[serde(flatten)]
    pub pause: Option<Pause>,
    /// Emptied messages that can come back.
    #[serde(flatten)]
    pub undo: Option<Undo>,
    /// The age of the oldest message that is owed, in milliseconds: the highest of all nsqds. `None` if
    /// no nsqd tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_unfinished_ms: Option<i64>,
    /// The latency.
    #[serde(rename = "e2e_processing_latency")]
    pub latency: LatencyFigures,
}

/// Returns the total of a channel over all nsqds that have it, or `None` if no nsqd has it.
/// `unix_seconds` is the present time.
pub fn channel_total(
    stats: &[NodeStats],
    topic: &str,
    channel: &str,
    unix_seconds: i64,
) -> Option<ChannelFigures> {
    let mut parts = Vec::new();
    for NodeStats { node, topics, .. } in stats {
        let of_topic = topics.iter().filter(|given| given.topic_name == topic);
        for given in of_topic.flat_map(|given| &given.channels) {
            if given.channel_name == channel {
                let part = ChannelFigures::of_node(node, topic, given, Some(unix_seconds));
                parts.push(part);
            }
        }
    }
    (!parts.is_empty()).then(|| ChannelFigures::total(topic, channel, parts))
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
            let mut clients: Vec<ClientFigures> = clients
                .map(|client| ClientFigures::of_node(node, client, now))
                .collect();
            ClientFigures::sort(&mut clients);
            clients
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
            zone_local_msg_count: given.zone_local_msg_count,
            region_local_msg_count: given.region_local_msg_count,
            global_msg_count: given.global_msg_count,
            client_count: given.count_clients(),
            clients,
            is_paused: given.paused,
            pause: Pause::of_channel(given),
            undo: Undo::of_channel(given),
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
        if let Some(clients) = &mut total.clients {
            ClientFigures::sort(clients);
        }
        total.nodes = Some(parts);
        total.completed()
    }

    fn add(&mut self, part: &ChannelFigures) {
        add(&mut self.depth, part.depth);
        add(&mut self.backend_depth, part.backend_depth);
        add(&mut self.in_flight_count, part.in_flight_count);
        add(&mut self.deferred_count, part.deferred_count);
        add(&mut self.requeue_count, part.requeue_count);
        add(&mut self.timeout_count, part.timeout_count);
        add(&mut self.message_count, part.message_count);
        add(&mut self.zone_local_msg_count, part.zone_local_msg_count);
        add(
            &mut self.region_local_msg_count,
            part.region_local_msg_count,
        );
        add(&mut self.global_msg_count, part.global_msg_count);
        add(&mut self.client_count, part.client_count);
        self.is_paused |= part.is_paused;
        Pause::add(&mut self.pause, part.pause.as_ref());
        Undo::add(&mut self.undo, part.undo);
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
        let local = self
            .zone_local_msg_count
            .saturating_add(self.region_local_msg_count);
        self.delivery_msg_count = local.saturating_add(self.global_msg_count);
        self
    }
}
