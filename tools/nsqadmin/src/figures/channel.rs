//! [`ChannelFigures`]: a channel on one nsqd, or on all.

use wire::go_json::{JsonObject, push_array};

use super::{
    ALL_NODES, ClientFigures, LatencyFigures, NodeIdentity, NodeStats, Pause, Undo, add, sort_parts,
};
use crate::answer;

/// The figures of a channel. The counts are sums in a total.
#[derive(Clone, Debug, Default, PartialEq)]
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
    /// Messages to consumers in the nsqd's zone.
    pub zone_local_count: i64,
    /// Messages to consumers in the nsqd's region, but in another zone.
    pub region_local_count: i64,
    /// Messages to other consumers.
    pub global_count: i64,
    /// The number of clients.
    pub client_count: i64,
    /// The parts of a total. `None` in a part.
    pub nodes: Option<Vec<ChannelFigures>>,
    /// The clients. `None` if the nsqd was not asked for them.
    pub clients: Option<Vec<ClientFigures>>,
    /// True if the channel is paused on any nsqd.
    pub is_paused: bool,
    /// The terms of the pause. `None` if the channel is not paused.
    pub pause: Option<Pause>,
    /// Emptied messages that can come back.
    pub undo: Option<Undo>,
    /// The latency.
    pub latency: LatencyFigures,
    /// The age of the oldest message that is owed, in milliseconds: the highest of all nsqds. `None` if
    /// no nsqd tells it.
    pub oldest_unfinished_ms: Option<i64>,
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
        given: &answer::Channel,
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
        let listed = given.clients.as_ref().map_or(0, Vec::len);
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
            zone_local_count: given.zone_local_msg_count,
            region_local_count: given.region_local_msg_count,
            global_count: given.global_msg_count,
            client_count: given
                .client_count
                .unwrap_or_else(|| i64::try_from(listed).unwrap_or(i64::MAX)),
            nodes: None,
            clients,
            is_paused: given.paused,
            pause: Pause::of_channel(given),
            undo: Undo::of_channel(given),
            latency: LatencyFigures::of_node(&given.e2e_processing_latency),
            oldest_unfinished_ms: given.oldest_unfinished_ms,
        }
    }

    /// Returns the total of the parts, which it keeps.
    pub fn total(topic: &str, channel: &str, mut parts: Vec<ChannelFigures>) -> ChannelFigures {
        sort_parts(&mut parts, |part| (&part.hostname, &part.node));
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
        total
    }

    fn add(&mut self, part: &ChannelFigures) {
        add(&mut self.depth, part.depth);
        add(&mut self.backend_depth, part.backend_depth);
        add(&mut self.in_flight_count, part.in_flight_count);
        add(&mut self.deferred_count, part.deferred_count);
        add(&mut self.requeue_count, part.requeue_count);
        add(&mut self.timeout_count, part.timeout_count);
        add(&mut self.message_count, part.message_count);
        add(&mut self.zone_local_count, part.zone_local_count);
        add(&mut self.region_local_count, part.region_local_count);
        add(&mut self.global_count, part.global_count);
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

    /// Returns the part of the depth that is in memory.
    pub fn memory_depth(&self) -> i64 {
        self.depth.saturating_sub(self.backend_depth)
    }

    /// Returns the number of messages that were sent to consumers.
    pub fn delivery_count(&self) -> i64 {
        let local = self
            .zone_local_count
            .saturating_add(self.region_local_count);
        local.saturating_add(self.global_count)
    }

    /// Adds the fields to a JSON object.
    pub fn push_fields(&self, object: &mut JsonObject<'_>) {
        object.text("node", &self.node);
        object.text("hostname", &self.hostname);
        object.text("topic_name", &self.topic_name);
        object.text("channel_name", &self.channel_name);
        object.number("depth", self.depth);
        object.number("memory_depth", self.memory_depth());
        object.number("backend_depth", self.backend_depth);
        object.number("in_flight_count", self.in_flight_count);
        object.number("deferred_count", self.deferred_count);
        object.number("requeue_count", self.requeue_count);
        object.number("timeout_count", self.timeout_count);
        object.number("message_count", self.message_count);
        for (key, count) in [
            ("delivery_msg_count", self.delivery_count()),
            ("zone_local_msg_count", self.zone_local_count),
            ("region_local_msg_count", self.region_local_count),
            ("global_msg_count", self.global_count),
        ] {
            if count != 0 {
                object.number(key, count);
            }
        }
        object.number("client_count", self.client_count);
        match &self.nodes {
            None => object.key("nodes").push_str("null"),
            Some(parts) => push_array(object.key("nodes"), parts, |out, part| part.push_json(out)),
        }
        match &self.clients {
            None => object.key("clients").push_str("null"),
            Some(clients) => push_array(object.key("clients"), clients, |out, client| {
                client.push_json(out);
            }),
        }
        object.boolean("paused", self.is_paused);
        if let Some(pause) = &self.pause {
            pause.push_fields(object);
        }
        if let Some(undo) = self.undo {
            undo.push_fields(object);
        }
        if let Some(age) = self.oldest_unfinished_ms {
            object.number("oldest_unfinished_ms", age);
        }
        self.latency.push_json(object.key("e2e_processing_latency"));
    }

    /// Appends the channel as JSON.
    pub fn push_json(&self, out: &mut String) {
        let mut object = JsonObject::new(out);
        self.push_fields(&mut object);
        object.end();
    }
}
