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
mod dedup;
mod latency;
mod pause;
mod topic;

pub use channel::{ChannelFigures, channel_total};
pub use client::ClientFigures;
pub use dedup::Dedup;
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

impl NodeIdentity {
    /// Returns a node of which only the address is known.
    pub fn at(address: &str) -> NodeIdentity {
        NodeIdentity {
            address: address.to_owned(),
            ..NodeIdentity::default()
        }
    }
}

/// The answer of one nsqd.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeStats {
    /// The nsqd.
    pub node: NodeIdentity,
    /// The time of the answer, and the process that gave it.
    pub answered: Answered,
    /// Its topics.
    pub topics: Vec<nsq_http::TopicStats>,
}

/// The time of an answer, and the process that gave it. Rates are differences of counts over the time between the answers
/// of one process: the answers of other nodes may come seconds earlier or later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// The time of the answer, in steady milliseconds.
    pub steady_millis: i64,
    /// The start of the process, in seconds since 1970.
    pub start_time: i64,
}

impl Answered {
    /// Returns the seconds since an earlier answer of the same process. `None` for the answer of another process, which
    /// counts from 0, or if no time has passed.
    #[allow(clippy::cast_precision_loss)] // Two answers are some minutes apart at most.
    pub fn seconds_since(&self, earlier: &Answered) -> Option<f64> {
        let millis = self.steady_millis.saturating_sub(earlier.steady_millis);
        let is_later = millis > 0 && self.start_time == earlier.start_time;
        is_later.then(|| millis as f64 / 1000.0)
    }
}

/// Adds counts. A sum beyond the range stays at its end.
fn add(total: &mut i64, part: i64) {
    *total = total.saturating_add(part);
}

#[cfg(test)]
mod tests;
