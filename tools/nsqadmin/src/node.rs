//! [`Node`]: an nsqd in the list of nodes, merged from the answers of several nsqlookupds.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use nsq_http::{NodeInfo, host_port};
use semver::Version;
use serde::{Serialize, Serializer};
use wire::go_json::is_default;
use wire::json_object;

use crate::figures::NodeIdentity;

/// An nsqd in the list of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Node {
    /// For each nsqlookupd that knows the node: the nsqlookupd, and the address from which the node
    /// has connected. `None` without nsqlookupds.
    pub remote_addresses: Option<Vec<String>>,
    /// The address from which the node has connected to the first of these nsqlookupds.
    pub remote_address: String,
    /// The name of the machine.
    pub hostname: String,
    /// The address that the nsqd tells to its clients.
    pub broadcast_address: String,
    /// The port of the protocol.
    pub tcp_port: i64,
    /// The port of HTTP.
    pub http_port: i64,
    /// The version of nsqd.
    pub version: String,
    /// The zone, or an empty text.
    #[serde(rename = "topology_zone", skip_serializing_if = "is_default")]
    pub zone: String,
    /// The region, or an empty text.
    #[serde(rename = "topology_region", skip_serializing_if = "is_default")]
    pub region: String,
    /// The topics by name. True means that the topic is tombstoned there.
    #[serde(serialize_with = "list")]
    pub topics: BTreeMap<String, bool>,
    /// True if another node has a higher version.
    #[serde(rename = "out_of_date")]
    pub is_out_of_date: bool,
}

/// Returns true for `host:port` that can stand in a URL: the host is a name or an IP address, and has no characters of another
/// part of a URL. Any client of nsqlookupd can register any text.
pub fn is_host_and_port(address: &str) -> bool {
    let Some((host, port)) = program::tcp_address::split_host_port(address) else {
        return false;
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_host = if host.contains(':') {
        host.parse::<Ipv6Addr>().is_ok()
    } else {
        !host.is_empty() && host.bytes().all(is_plain)
    };
    is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
}

impl Node {
    /// Returns a node that one server describes.
    pub fn of_producer(producer: &NodeInfo) -> Node {
        let flags = producer.tombstones.iter().copied();
        // A server may send fewer flags than topics.
        let flags = flags.chain(std::iter::repeat(false));
        Node {
            remote_addresses: None,
            remote_address: producer.remote_address.clone(),
            hostname: producer.hostname.clone(),
            broadcast_address: producer.broadcast_address.clone(),
            tcp_port: producer.tcp_port,
            http_port: producer.http_port,
            version: producer.version.clone(),
            zone: producer.topology_zone.clone(),
            region: producer.topology_region.clone(),
            topics: producer.topics.iter().cloned().zip(flags).collect(),
            is_out_of_date: false,
        }
    }

    /// Returns `host:port` of the HTTP interface.
    pub fn http_address(&self) -> String {
        host_port(&self.broadcast_address, self.http_port)
    }

    /// Returns the node as the figures know it.
    pub fn identity(&self) -> NodeIdentity {
        NodeIdentity {
            address: self.http_address(),
            hostname: self.hostname.clone(),
            region: self.region.clone(),
            zone: self.zone.clone(),
        }
    }
}

/// Writes the topics of a node as a list.
fn list<S: Serializer>(topics: &BTreeMap<String, bool>, to: S) -> Result<S::Ok, S::Error> {
    let topics = topics.iter();
    to.collect_seq(topics.map(|(topic, gone)| json_object! { topic, tombstoned: gone }))
}

/// Merges the answers of nsqlookupds, each with its address. The first nsqlookupd that knows a node
/// supplies the fields.
pub fn merge(answers: &[(String, Vec<NodeInfo>)]) -> Vec<Node> {
    let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
    for (lookupd, producers) in answers {
        for producer in producers {
            let key = producer.tcp_address();
            let node = nodes
                .entry(key)
                .or_insert_with(|| Node::of_producer(producer));
            let remote = match producer.remote_address.as_str() {
                "" => "N/A",
                remote => remote,
            };
            let known_by = node.remote_addresses.get_or_insert_default();
            known_by.push(format!("{lookupd}/{remote}"));
        }
    }
    let mut nodes: Vec<Node> = nodes.into_values().collect();
    set_out_of_date(&mut nodes);
    sort(&mut nodes);
    nodes
}

/// Sorts nodes by hostname. Nodes of one machine are sorted by address.
pub fn sort(nodes: &mut [Node]) {
    let key = |node: &Node| {
        (
            node.hostname.clone(),
            node.broadcast_address.clone(),
            node.http_port,
            node.tcp_port,
        )
    };
    nodes.sort_by_cached_key(key);
}

/// Marks the nodes whose version is below the highest one.
fn set_out_of_date(nodes: &mut [Node]) {
    let versions: Vec<Version> = nodes.iter().map(|node| version(&node.version)).collect();
    let highest = versions.iter().max().cloned();
    for (node, version) in nodes.iter_mut().zip(versions) {
        node.is_out_of_date = Some(version) < highest;
    }
}

/// Returns the semantic version without its build, which does not count. A text that is none counts as 0.0.0.
fn version(text: &str) -> Version {
    let without_build = text.split('+').next().unwrap_or_default();
    Version::parse(without_build).unwrap_or(Version::new(0, 0, 0))
}

#[cfg(test)]
mod tests;
