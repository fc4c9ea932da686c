//! [`Node`]: an nsqd, as nsqlookupd or the nsqd itself describes it.

use std::fmt;

use serde::Deserialize;

use super::stats::null_as_default;

/// `host:port` of a node's HTTP interface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeAddress(String);

/// A node of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Node {
    /// The address that the node broadcasts: a name or an IP address.
    #[serde(deserialize_with = "null_as_default")]
    pub broadcast_address: String,
    /// The name of the node's machine.
    #[serde(deserialize_with = "null_as_default")]
    pub hostname: String,
    /// The port of protocol V2.
    pub tcp_port: u16,
    /// The port of the HTTP interface.
    pub http_port: u16,
    /// The version of nsqd.
    #[serde(deserialize_with = "null_as_default")]
    pub version: String,
}

impl Node {
    /// Returns the address of the node's HTTP interface.
    pub fn http_address(&self) -> NodeAddress {
        NodeAddress::new(&self.broadcast_address, self.http_port)
    }
}

impl NodeAddress {
    /// Returns the address of a host and a port. An IPv6 address gets brackets.
    pub fn new(host: &str, port: u16) -> NodeAddress {
        match host.contains(':') && !host.starts_with('[') {
            true => NodeAddress(format!("[{host}]:{port}")),
            false => NodeAddress(format!("{host}:{port}")),
        }
    }
}

impl From<&str> for NodeAddress {
    fn from(address: &str) -> NodeAddress {
        NodeAddress(address.to_owned())
    }
}

impl AsRef<str> for NodeAddress {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
