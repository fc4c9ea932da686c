//! The figures of topics, channels and clients: the answers of nsqds in, totals with their parts out.
//!
//! ```text
//!   NodeStats of each nsqd ──► parts (one nsqd each) ──► totals
//! ```
//!
//! Nothing here asks, waits or reads a clock. A total never replaces its parts: each part keeps the
//! figures of its nsqd.

mod channel;
mod client;
mod latency;
mod pause;
mod topic;

use crate::answer;

pub use channel::{ChannelFigures, channel_total};
pub use client::ClientFigures;
pub use latency::LatencyFigures;
pub use pause::{Pause, Undo};
pub use topic::{TopicFigures, topic_total, topic_totals, topics_of_node};

/// The name that a total has in place of a node.
pub const ALL_NODES: &str = "*";

/// An nsqd, as its clients know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeIdentity {
    /// `host:port` of the HTTP interface, where the host is the broadcast address.
    pub address: String,
    /// The name of the machine.
    pub hostname: String,
    /// The region, or an empty text.
    pub region: String,
    /// The zone, or an empty text.
    pub zone: String,
}

/// The answer of one nsqd.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeStats {
    /// The nsqd.
    pub node: NodeIdentity,
    /// Its topics.
    pub topics: Vec<answer::Topic>,
}

/// Sorts parts by hostname. Parts of one machine are sorted by address.
fn sort_parts<T>(parts: &mut [T], key: impl Fn(&T) -> (&str, &str)) {
    parts.sort_by(|a, b| key(a).cmp(&key(b)));
}

/// Adds counts. A sum beyond the range stays at its end.
fn add(total: &mut i64, part: i64) {
    *total = total.saturating_add(part);
}

#[cfg(test)]
mod tests;
