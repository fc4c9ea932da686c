//! [`ShardFigures`]: the load of one shard of a node.

use std::collections::BTreeMap;
use std::time::Duration;

use nsq_doctor::grown;

use super::round::NodeRound;

/// The load of a shard between two rounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShardFigures {
    /// The part of a core that the shard uses. `None` without an earlier figure.
    pub load: Option<f64>,
    /// The topics.
    pub topic_count: usize,
    /// The connections.
    pub connections: f64,
    /// Messages per second that arrive in the topics.
    pub arrivals: f64,
    /// The topic with the most of them, and its messages per second.
    pub busiest: Option<(String, f64)>,
}

/// Returns the shards of a node.
#[allow(clippy::cast_precision_loss)] // A rate needs no more.
pub(super) fn figures(
    before: Option<&NodeRound>,
    after: &NodeRound,
    elapsed: Duration,
) -> BTreeMap<u64, ShardFigures> {
    let seconds = elapsed.as_secs_f64();
    let mut shards: BTreeMap<u64, ShardFigures> = BTreeMap::new();
    for (number, used) in after.metrics.iter().flat_map(|metrics| &metrics.shards) {
        let shard = shards.entry(*number).or_default();
        shard.connections = used.connections;
        let earlier = before.and_then(|node| node.metrics.as_ref()?.shards.get(number));
        // A node that has started anew counts from 0.
        let grown = earlier.map(|earlier| used.cpu_seconds - earlier.cpu_seconds);
        shard.load = grown
            .filter(|grown| seconds > 0.0 && *grown >= 0.0)
            .map(|grown| grown / seconds)
            .filter(|load| load.is_finite());
    }
    for (topic, (number, count)) in &after.shards {
        let shard = shards.entry(*number).or_default();
        shard.topic_count += 1;
        let Some(before) = before.filter(|_| seconds > 0.0) else {
            continue;
        };
        // All messages of a new topic belong to this time.
        let earlier = before.shards.get(topic).map_or(0, |(_, count)| *count);
        let rate = grown(earlier, *count) as f64 / seconds;
        shard.arrivals += rate;
        if rate > 0.0 && shard.busiest.as_ref().is_none_or(|(_, most)| rate > *most) {
            shard.busiest = Some((topic.clone(), rate));
        }
    }
    shards
}
