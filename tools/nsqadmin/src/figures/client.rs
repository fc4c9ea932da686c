//! [`ClientFigures`]: a client of a channel.

use wire::go_json::JsonObject;

use super::NodeIdentity;
use crate::answer;

/// Nanoseconds per second.
const NANOS: i64 = 1_000_000_000;

/// A client of a channel, with the nsqd that it is connected to.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientFigures {
    /// `host:port` of the nsqd.
    pub node: String,
    /// The region of the nsqd.
    pub node_region: String,
    /// The zone of the nsqd.
    pub node_zone: String,
    /// The time since the connection began, in whole seconds.
    pub connected_seconds: i64,
    /// The nsqd's figures.
    pub given: answer::Client,
}

impl ClientFigures {
    /// Returns a client of one nsqd. `unix_seconds` is the present time.
    pub fn of_node(
        node: &NodeIdentity,
        given: &answer::Client,
        unix_seconds: i64,
    ) -> ClientFigures {
        ClientFigures {
            node: node.address.clone(),
            node_region: node.region.clone(),
            node_zone: node.zone.clone(),
            connected_seconds: unix_seconds.saturating_sub(given.connect_ts),
            given: given.clone(),
        }
    }

    /// Sorts clients by hostname, node and address. If their node has a region or zone, they are sorted by node first,
    /// and then by nearness to it.
    pub fn sort(clients: &mut [ClientFigures]) {
        clients.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
    }

    fn sort_key(&self) -> (&str, bool, bool, [&str; 5]) {
        let given = &self.given;
        let has_topology = !(self.node_region.is_empty() && self.node_zone.is_empty());
        let is_in_region = given.topology_region == self.node_region;
        let is_in_zone = is_in_region && given.topology_zone == self.node_zone;
        (
            if has_topology { &self.node } else { "" },
            !is_in_zone,
            !is_in_region,
            [
                &given.topology_region,
                &given.topology_zone,
                &given.hostname,
                &self.node,
                &given.remote_address,
            ],
        )
    }

    /// Appends the client as JSON.
    pub fn push_json(&self, out: &mut String) {
        let given = &self.given;
        let mut object = JsonObject::new(out);
        object.text("node", &self.node);
        object.text("remote_address", &given.remote_address);
        object.text("version", &given.version);
        object.text("client_id", &given.client_id);
        object.text("hostname", &given.hostname);
        object.text("user_agent", &given.user_agent);
        object.number("connect_ts", given.connect_ts);
        object.number("connected", self.connected_seconds.saturating_mul(NANOS));
        object.number("in_flight_count", given.in_flight_count);
        object.number("ready_count", given.ready_count);
        object.number("finish_count", given.finish_count);
        object.number("requeue_count", given.requeue_count);
        object.number("message_count", given.message_count);
        object.number("sample_rate", given.sample_rate);
        object.boolean("deflate", given.deflate);
        object.boolean("snappy", given.snappy);
        object.boolean("authed", given.authed);
        object.text("auth_identity", &given.auth_identity);
        object.text("auth_identity_url", &given.auth_identity_url);
        object.text_unless_empty("node_topology_region", &self.node_region);
        object.text_unless_empty("node_topology_zone", &self.node_zone);
        object.text_unless_empty("topology_region", &given.topology_region);
        object.text_unless_empty("topology_zone", &given.topology_zone);
        object.boolean("tls", given.tls);
        object.text("tls_cipher_suite", &given.tls_cipher_suite);
        object.text("tls_version", &given.tls_version);
        object.text("tls_negotiated_protocol", &given.tls_negotiated_protocol);
        object.boolean(
            "tls_negotiated_protocol_is_mutual",
            given.tls_negotiated_protocol_is_mutual,
        );
        object.end();
    }
}
