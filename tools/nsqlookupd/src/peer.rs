//! [`Peer`]: a client that has identified itself, and its form in JSON.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use wire::go_json::{self, raw, to_string};
use wire::json_object;

/// The facts that a client tells about itself in IDENTIFY, in the order of `/lookup` and `/nodes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PeerInfo {
    /// The name of the client's machine.
    pub hostname: String,
    /// The address that consumers connect to.
    pub broadcast_address: String,
    /// The port of the client protocol. No range is checked.
    pub tcp_port: i64,
    /// The port of HTTP. No range is checked.
    pub http_port: i64,
    /// The version of the client.
    pub version: String,
    /// The client's zone.
    pub topology_zone: String,
    /// The client's region.
    pub topology_region: String,
}

impl PeerInfo {
    /// Decodes the body of an IDENTIFY with Go's leniency.
    ///
    /// # Errors
    /// The reason, for the log.
    pub fn decode(body: &[u8]) -> Result<PeerInfo, String> {
        let value = go_json::parse(body)?;
        let Some(fields) = go_json::object(&value, "PeerInfo")? else {
            return Ok(PeerInfo::default());
        };
        // The value is not used, but another type than a string is an error.
        go_json::string(fields, "remote_address")?;
        Ok(PeerInfo {
            broadcast_address: go_json::string(fields, "broadcast_address")?,
            hostname: go_json::string(fields, "hostname")?,
            tcp_port: go_json::integer(fields, "tcp_port")?,
            http_port: go_json::integer(fields, "http_port")?,
            version: go_json::string(fields, "version")?,
            topology_zone: go_json::string(fields, "topology_zone")?,
            topology_region: go_json::string(fields, "topology_region")?,
        })
    }

    /// Returns true if a field is missing that every client must send.
    pub fn lacks_fields(&self) -> bool {
        let has_ports = self.tcp_port != 0 && self.http_port != 0;
        self.broadcast_address.is_empty() || self.version.is_empty() || !has_ports
    }
}

/// A client that has identified itself.
#[derive(Debug)]
pub struct Peer {
    /// The address of the client's end of the connection, which is also the client's id.
    pub address: Arc<str>,
    /// The facts that the client told about itself.
    pub info: PeerInfo,
    /// The object of `/lookup`: it is sent far more often than it changes, which is never.
    json: Box<RawValue>,
}

impl Peer {
    /// Returns the peer at an address.
    pub fn new(address: Arc<str>, info: PeerInfo) -> Peer {
        let json = raw(to_string(&fields(&address, &info)));
        Peer {
            address,
            info,
            json,
        }
    }

    /// Returns true for the peer that `/topic/tombstone` names `<broadcast address>:<HTTP port>`.
    pub fn is_node(&self, node: &str) -> bool {
        let port = node.strip_prefix(self.info.broadcast_address.as_str());
        let port = port.and_then(|rest| rest.strip_prefix(':'));
        port.is_some_and(|port| port == self.info.http_port.to_string())
    }

    /// Returns the fields of `/lookup` and `/nodes`.
    pub fn fields(&self) -> impl Serialize {
        fields(&self.address, &self.info)
    }

    /// Returns the object of `/lookup`.
    pub fn json(&self) -> &RawValue {
        &self.json
    }
}

fn fields(address: &str, info: &PeerInfo) -> impl Serialize {
    json_object! { remote_address: address, #[serde(flatten)] info }
}
