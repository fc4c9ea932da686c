//! [`Peer`]: a client that has identified itself, and its form in JSON.

use std::sync::Arc;

use wire::go_json::{self, JsonObject};

/// The facts that a client tells about itself in IDENTIFY.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerInfo {
    /// The address that consumers connect to.
    pub broadcast_address: String,
    /// The name of the client's machine.
    pub hostname: String,
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
#[derive(Debug, PartialEq, Eq)]
pub struct Peer {
    /// The address of the client's end of the connection, which is also the client's id.
    pub address: Arc<str>,
    /// The facts that the client told about itself.
    pub info: PeerInfo,
    /// The object of `/lookup`, without the braces: it is sent far more often than it changes,
    /// which is never.
    fields: String,
}

impl Peer {
    /// Returns the peer at an address.
    pub fn new(address: Arc<str>, info: PeerInfo) -> Peer {
        let mut json = String::new();
        let mut object = JsonObject::new(&mut json);
        object.text("remote_address", &address);
        object.text("hostname", &info.hostname);
        object.text("broadcast_address", &info.broadcast_address);
        object.number("tcp_port", info.tcp_port);
        object.number("http_port", info.http_port);
        object.text("version", &info.version);
        object.text("topology_zone", &info.topology_zone);
        object.text("topology_region", &info.topology_region);
        // The object has no closing brace yet.
        let fields = json.split_off(1);
        Peer {
            address,
            info,
            fields,
        }
    }

    /// Returns true for the peer that `/topic/tombstone` names `<broadcast address>:<HTTP port>`.
    pub fn is_node(&self, node: &str) -> bool {
        let port = node.strip_prefix(self.info.broadcast_address.as_str());
        let port = port.and_then(|rest| rest.strip_prefix(':'));
        port.is_some_and(|port| port == self.info.http_port.to_string())
    }

    /// Returns the object of `/lookup` without the braces.
    pub fn fields(&self) -> &str {
        &self.fields
    }
}
