//! The answers of nsqlookupd.

use reqwest::header::HeaderValue;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer};

use crate::address::Address;

/// The answer to a lookup: the channels of a topic, and the nodes that have it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Lookup {
    /// The names of the topic's channels.
    #[serde(default, deserialize_with = "list")]
    pub channels: Vec<String>,
    /// The nodes that have the topic.
    #[serde(default, deserialize_with = "list")]
    pub producers: Vec<NodeInfo>,
}

/// One nsqd, as it has registered itself. A field that nsqlookupd does not send is empty or 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct NodeInfo {
    /// The address from which the nsqd connects to nsqlookupd.
    pub remote_address: String,
    /// The host name of the nsqd.
    pub hostname: String,
    /// The host at which clients reach the nsqd.
    pub broadcast_address: String,
    /// The port of protocol V2.
    pub tcp_port: u16,
    /// The port of HTTP.
    pub http_port: u16,
    /// The version of the nsqd.
    pub version: String,
    /// For each topic, true if the node is hidden from lookups of this topic. Only `/nodes` has it.
    #[serde(deserialize_with = "list")]
    pub tombstones: Vec<bool>,
    /// The names of the topics. Only `/nodes` has it.
    #[serde(deserialize_with = "list")]
    pub topics: Vec<String>,
}

impl NodeInfo {
    /// Returns the address for clients: `broadcast_address:tcp_port`.
    #[must_use]
    pub fn address(&self) -> Address {
        let host = &self.broadcast_address;
        Address::Tcp(match host.contains(':') && !host.starts_with('[') {
            true => format!("[{host}]:{}", self.tcp_port),
            false => format!("{host}:{}", self.tcp_port),
        })
    }
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Topics {
    #[serde(default, deserialize_with = "list")]
    pub(super) topics: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Nodes {
    #[serde(default, deserialize_with = "list")]
    pub(super) producers: Vec<NodeInfo>,
}

/// The form of the answers of very old nsqlookupds.
#[derive(Deserialize)]
struct Wrapped<T> {
    data: Option<T>,
}

/// Reads a list. Go writes an empty one as `null`.
fn list<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Returns true if the header says that the answer is not wrapped.
pub(super) fn has_current_form(header: Option<&HeaderValue>) -> bool {
    header.is_some_and(|form| form == "nsq; version=1.0")
}

/// Parses the body of an answer. An empty body counts as `{}`.
pub(super) fn parse<T: DeserializeOwned>(
    body: &[u8],
    is_wrapped: bool,
) -> Result<Option<T>, serde_json::Error> {
    let body = match body.is_empty() {
        true => b"{}",
        false => body,
    };
    if !is_wrapped {
        return serde_json::from_slice(body).map(Some);
    }
    let wrapped: Wrapped<T> = serde_json::from_slice(body)?;
    match wrapped.data {
        Some(data) => Ok(Some(data)),
        // An answer without `data` may have been stripped of its header by a proxy.
        None => serde_json::from_slice(body).map(Some),
    }
}

/// Returns the reason in the body of a refusal: the text of `message`, or the beginning of the body.
pub(super) fn message(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Refusal {
        message: String,
    }
    match serde_json::from_slice::<Refusal>(body) {
        Ok(refusal) => refusal.message,
        Err(_) => String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned(),
    }
}
