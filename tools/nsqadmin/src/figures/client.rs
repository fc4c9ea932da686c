//! [`ClientFigures`]: a client of a channel.

use serde::{Serialize, Serializer};
use wire::json_object;

use super::NodeIdentity;

/// Nanoseconds per second.
const NANOS: i64 = 1_000_000_000;

/// A client of a channel, with the nsqd that it is connected to.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientFigures {
    /// The nsqd.
    pub node: NodeIdentity,
    /// The time since the connection began, in whole seconds.
    pub connected_seconds: i64,
    /// The nsqd's figures.
    pub given: nsq_http::ClientStats,
}

impl ClientFigures {
    /// Returns a client of one nsqd. `unix_seconds` is the present time.
    pub fn of_node(
        node: &NodeIdentity,
        given: &nsq_http::ClientStats,
        unix_seconds: i64,
    ) -> ClientFigures {
        ClientFigures {
            node: node.clone(),
            connected_seconds: unix_seconds.saturating_sub(given.connect_ts),
            given: given.clone(),
        }
    }

    /// Sorts clients by hostname, node and address. If their node has a region or zone, they are sorted by node first,
    /// and then by nearness to it.
    pub fn sorted(mut clients: Vec<ClientFigures>) -> Vec<ClientFigures> {
        clients.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
        clients
    }

    fn sort_key(&self) -> (&str, bool, bool, [&str; 5]) {
        let (given, node) = (&self.given, &self.node);
        let has_topology = !(node.region.is_empty() && node.zone.is_empty());
        let is_in_region = given.topology_region == node.region;
        let is_in_zone = is_in_region && given.topology_zone == node.zone;
        (
            if has_topology { &node.address } else { "" },
            !is_in_zone,
            !is_in_region,
            [
                &given.topology_region,
                &given.topology_zone,
                &given.hostname,
                &node.address,
                &given.remote_address,
            ],
        )
    }
}

impl Serialize for ClientFigures {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let given = &self.given;
        let node_region = known(&self.node.region);
        let node_zone = known(&self.node.zone);
        let region = known(&given.topology_region);
        let zone = known(&given.topology_zone);
        let client = json_object! {
            node: &self.node.address,
            remote_address: &given.remote_address,
            version: &given.version,
            client_id: &given.client_id,
            hostname: &given.hostname,
            user_agent: &given.user_agent,
            connect_ts: given.connect_ts,
            connected: self.connected_seconds.saturating_mul(NANOS),
            in_flight_count: given.in_flight_count,
            ready_count: given.ready_count,
            finish_count: given.finish_count,
            requeue_count: given.requeue_count,
            message_count: given.message_count,
            sample_rate: given.sample_rate,
            deflate: given.deflate,
            snappy: given.snappy,
            authed: given.authed,
            auth_identity: &given.auth_identity,
            auth_identity_url: &given.auth_identity_url,
            #[serde(flatten)]
            node_region: node_region.map(|it| json_object! { node_topology_region: it }),
            #[serde(flatten)]
            node_zone: node_zone.map(|it| json_object! { node_topology_zone: it }),
            #[serde(flatten)]
            region: region.map(|it| json_object! { topology_region: it }),
            #[serde(flatten)]
            zone: zone.map(|it| json_object! { topology_zone: it }),
            tls: given.tls,
            tls_cipher_suite: &given.tls_cipher_suite,
            tls_version: &given.tls_version,
            tls_negotiated_protocol: &given.tls_negotiated_protocol,
            tls_negotiated_protocol_is_mutual: given.tls_negotiated_protocol_is_mutual,
        };
        client.serialize(to)
    }
}

fn known(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}
