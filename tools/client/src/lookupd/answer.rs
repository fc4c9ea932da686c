//! The answers of nsqlookupd.

use std::fmt;
use std::marker::PhantomData;

use reqwest::header::HeaderValue;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, IgnoredAny, SeqAccess, Visitor};

use super::{NAMES_MAX, NODES_MAX};
use crate::address::Address;

/// The answer to a lookup: the channels of a topic, and the nodes that have it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "LookupAnswer")]
#[non_exhaustive]
pub struct Lookup {
    /// The names of the topic's channels, at most 100,000.
    pub channels: Vec<String>,
    /// The nodes that have the topic, at most 10,000.
    pub producers: Vec<NodeInfo>,
    /// The number of further nodes and channels in the answer.
    pub ignored: usize,
}

/// The fields of the answer to a lookup.
#[derive(Default, Deserialize)]
#[serde(default)]
struct LookupAnswer {
    channels: Bounded<String, NAMES_MAX>,
    producers: Bounded<NodeInfo, NODES_MAX>,
}

impl From<LookupAnswer> for Lookup {
    fn from(answer: LookupAnswer) -> Lookup {
        let LookupAnswer {
            channels,
            producers,
        } = answer;
        Lookup {
            ignored: channels.ignored + producers.ignored,
            channels: channels.kept,
            producers: producers.kept,
        }
    }
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
    /// The names of the topics, at most 100,000. Only `/nodes` has it.
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

    /// Returns the address for clients, if it is one: an nsqd may register itself with any text.
    pub(crate) fn valid_address(&self) -> Option<Address> {
        let address = self.address();
        let parsed = address.to_string().parse::<Address>();
        (parsed.as_ref() == Ok(&address)).then_some(address)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Topics {
    pub(super) topics: Bounded<String, NAMES_MAX>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Nodes {
    pub(super) producers: Bounded<NodeInfo, NODES_MAX>,
}

/// The form of the answers of very old nsqlookupds.
#[derive(Deserialize)]
struct Wrapped<T> {
    data: Option<T>,
}

/// The first elements of a list, at most `MAX`. Go writes an empty list as `null`.
#[derive(Debug)]
pub(super) struct Bounded<T, const MAX: usize> {
    pub(super) kept: Vec<T>,
    /// The number of further elements.
    pub(super) ignored: usize,
}

impl<T, const MAX: usize> Default for Bounded<T, MAX> {
    fn default() -> Bounded<T, MAX> {
        Bounded {
            kept: Vec::new(),
            ignored: 0,
        }
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Bounded<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Bounded<T, MAX>, D::Error> {
        from.deserialize_any(BoundedVisitor(PhantomData))
    }
}

struct BoundedVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for BoundedVisitor<T, MAX> {
    type Value = Bounded<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list or null")
    }

    fn visit_unit<E>(self) -> Result<Bounded<T, MAX>, E> {
        Ok(Bounded::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Bounded<T, MAX>, A::Error> {
        let mut bounded = Bounded::default();
        while bounded.kept.len() < MAX {
            match list.next_element()? {
                Some(element) => bounded.kept.push(element),
                None => return Ok(bounded),
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {
            bounded.ignored += 1;
        }
        Ok(bounded)
    }
}

/// Reads a list of a node, whose further elements are dropped.
fn list<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Bounded::<T, NAMES_MAX>::deserialize(from).map(|list| list.kept)
}

/// Returns true if the header says that the answer is not wrapped.
pub(super) fn has_current_form(header: Option<&HeaderValue>) -> bool {
    header.is_some_and(|form| form == "nsq; version=1.0")
}

/// Parses the body of an answer. An empty body counts as `{}`.
pub(super) fn parse<T: DeserializeOwned>(
    body: &[u8],
    is_wrapped: bool,
) -> Result<T, serde_json::Error> {
    let body = match body.is_empty() {
        true => b"{}",
        false => body,
    };
    if !is_wrapped {
        return serde_json::from_slice(body);
    }
    let wrapped: Wrapped<T> = serde_json::from_slice(body)?;
    match wrapped.data {
        Some(data) => Ok(data),
        // An answer without `data` may have been stripped of its header by a proxy.
        None => serde_json::from_slice(body),
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
