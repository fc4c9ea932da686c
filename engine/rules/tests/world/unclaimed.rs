//! The bounds of topics without channels. The model owes a message only to channels that exist, so it tells if the broker
//! drops more than the messages that no channel owns.

use super::dead_letters::DEAD;
use super::grace::Graces;
use super::{Reached, place_of};
use engine_rules::stats::StatsSnapshot;
use engine_rules::{UnclaimedBounds, UnclaimedRules};
use std::sync::Arc;
use std::time::Duration;

/// The least bytes of a message: header, slot, and the number in its body.
const MESSAGE_BYTES_MIN: u64 = 50 + 8;

/// The bounds of all topics in a history. Most histories have none.
pub(crate) fn bounds(seed: u64) -> UnclaimedBounds {
    let keep = UnclaimedBounds::KEEP;
    match seed % 16 {
        0 | 1 => UnclaimedBounds {
            bytes: 2000,
            ..keep
        },
        2 | 3 => UnclaimedBounds {
            age: Duration::from_secs(2),
            ..keep
        },
        4 => UnclaimedBounds::DROP,
        5 => UnclaimedBounds {
            bytes: 10_000,
            age: Duration::from_secs(60),
        },
        _ => keep,
    }
}

/// The rules with the bounds of a history.
pub(crate) fn rules(bounds: UnclaimedBounds) -> Arc<UnclaimedRules> {
    let mut rules = UnclaimedRules::default();
    rules.add("*", bounds);
    rules.into()
}

/// Checks that topics without channels keep no more than their bounds. A topic in grace or before its start keeps all.
pub(crate) fn check(
    bounds: UnclaimedBounds,
    graces: &Graces,
    has_graces: bool,
    stats: &StatsSnapshot,
    reached: &mut Reached,
) {
    for topic in &stats.topics {
        if topic.unclaimed_dropped_count > 0 {
            reached.note("unclaimed messages dropped");
        }
        // A dead-letter topic keeps all messages.
        let is_exempt = place_of(&topic.topic_name) == DEAD;
        let is_ephemeral = topic.topic_name.ends_with("#ephemeral");
        let is_starting = graces.is_starting(place_of(&topic.topic_name));
        if has_graces || is_exempt || is_ephemeral || is_starting || !topic.channels.is_empty() {
            continue;
        }
        assert!(
            topic.depth <= bounds.bytes / MESSAGE_BYTES_MIN,
            "{}: {} messages, {bounds:?}",
            topic.topic_name,
            topic.depth
        );
        if topic.depth > 0 && topic.unclaimed_dropped_count > 0 {
            reached.note("unclaimed messages within bounds");
        }
    }
}
