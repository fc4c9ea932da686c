//! [`Flow`]: the rates of a channel between two samples.

use std::time::Duration;

use crate::sample::{ChannelSample, NodeSample, sum};

/// The rates and levels of a channel. Rates are per second. A node that is in one sample only counts
/// for the levels and not for the rates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Flow {
    /// Messages that the channel got from its topic, per second.
    pub arrivals: f64,
    /// Messages that left the channel, per second: finished, or dropped by a user who emptied the
    /// channel.
    pub finishes: f64,
    /// Messages that consumers gave back, per second.
    pub requeues: f64,
    /// Messages that timed out, per second.
    pub timeouts: f64,
    /// The change of the depth, per second.
    pub growth: f64,
    /// Messages that wait for a consumer, in the second sample.
    pub depth: i64,
    /// Messages that are deferred, in the second sample.
    pub deferred: i64,
    /// Messages in flight, the mean of both samples.
    pub in_flight: f64,
    /// The sum of all RDYs, in the second sample.
    pub ready: i64,
    /// The connections of consumers.
    pub connections: usize,
    /// The consumers. Each consumer connects to every node, so this is the largest number of
    /// connections at one node.
    pub consumers: u64,
}

impl Flow {
    /// Returns the flow between two samples.
    pub fn between(before: &ChannelSample, after: &ChannelSample, elapsed: Duration) -> Flow {
        let seconds = elapsed.as_secs_f64();
        let mut flow = Flow::default();
        for (name, node) in &after.nodes {
            flow.depth = flow.depth.saturating_add(node.depth);
            flow.deferred = flow.deferred.saturating_add(node.deferred);
            flow.ready = flow.ready.saturating_add(sum(node.ready.iter().copied()));
            flow.connections += node.ready.len();
            flow.consumers = flow.consumers.max(node.ready.len() as u64);
            match before.nodes.get(name) {
                Some(earlier) if seconds > 0.0 => flow.add_rates(earlier, node, seconds),
                _ => flow.in_flight += node.in_flight as f64,
            }
        }
        flow
    }

    fn add_rates(&mut self, before: &NodeSample, after: &NodeSample, seconds: f64) {
        let has_restarted = after.message_count < before.message_count;
        let arrived = grown(before.message_count, after.message_count);
        let held = |sample: &NodeSample| sum([sample.depth, sample.in_flight, sample.deferred]);
        // The messages that a restarted nsqd has kept did not arrive in this time.
        let left = if has_restarted {
            0
        } else {
            let grown = held(after).saturating_sub(held(before));
            arrived.saturating_sub(grown).max(0)
        };
        self.arrivals += arrived as f64 / seconds;
        self.finishes += left as f64 / seconds;
        self.requeues += grown(before.requeue_count, after.requeue_count) as f64 / seconds;
        self.timeouts += grown(before.timeout_count, after.timeout_count) as f64 / seconds;
        self.growth += after.depth.saturating_sub(before.depth) as f64 / seconds;
        self.in_flight += before.in_flight.saturating_add(after.in_flight) as f64 / 2.0;
    }

    /// Returns the time that a message is in flight, in seconds, by Little's law. `None` if no
    /// message was finished.
    pub fn seconds_in_flight(&self) -> Option<f64> {
        (self.finishes > 0.0 && self.in_flight > 0.0).then(|| self.in_flight / self.finishes)
    }

    /// Returns the rate that all consumers together can reach with their RDY.
    pub fn capacity(&self) -> Option<f64> {
        Some(self.ready as f64 / self.seconds_in_flight()?)
    }

    /// Returns the mean number of messages that one consumer may have in flight, at least 1. `None`
    /// without consumers.
    pub fn ready_per_consumer(&self) -> Option<u64> {
        let ready = u64::try_from(self.ready).unwrap_or(0);
        let mean = ready.checked_div(self.consumers)?;
        Some(mean.max(1))
    }
}

/// Returns the growth of a counter. A counter of a restarted process began again at 0.
pub fn grown(before: i64, after: i64) -> i64 {
    if after < before {
        after
    } else {
        after.saturating_sub(before)
    }
}
