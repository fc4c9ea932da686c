//! [`UnclaimedRules`]: which messages a topic keeps while it has no channel. [`Unclaimed`]: the bounds of such a topic.
//!
//! A topic without channels keeps its messages for its first channel, and drops the oldest messages that are beyond its
//! bounds. A topic in grace keeps all of them. So does a topic that has not started, because its channels are not known
//! yet.

use super::kept::{Bounds, Kept, Pieces, Totals};
use crate::work::Work;
use diskq_log::{Log, Now};
use std::time::Duration;
use wire::topic_rules::{RuleOrderError, TopicRules};

/// The bounds of the messages that a topic without channels keeps. The topic drops its oldest messages until the others
/// are within the bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnclaimedBounds {
    /// Bytes of messages. Header and slot of a message count as 50 bytes. `u64::MAX`: no bound.
    pub bytes: u64,
    /// The age of a message. `Duration::MAX`: no bound.
    pub age: Duration,
}

impl UnclaimedBounds {
    /// All messages are kept.
    pub const KEEP: UnclaimedBounds = UnclaimedBounds {
        bytes: u64::MAX,
        age: Duration::MAX,
    };
    /// No message is kept.
    pub const DROP: UnclaimedBounds = UnclaimedBounds {
        bytes: 0,
        age: Duration::MAX,
    };
}

/// The bounds for topics whose names match patterns. The first pattern that matches counts. A topic that matches none
/// keeps all messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnclaimedRules {
    rules: TopicRules<UnclaimedBounds>,
}

impl UnclaimedRules {
    /// Adds a rule. In `pattern`, each `*` stands for any characters, or none. All other characters stand for themselves.
    pub fn add(&mut self, pattern: &str, bounds: UnclaimedBounds) {
        self.rules.add(pattern, bounds);
    }

    /// Checks that each rule can count.
    ///
    /// # Errors
    /// An earlier pattern matches all topics of a rule.
    pub fn check_order(&self) -> Result<(), RuleOrderError> {
        self.rules.check_order()
    }

    /// Returns the bounds of a topic. `None`: the topic keeps all messages.
    pub(crate) fn bounds(&self, topic: &str) -> Option<UnclaimedBounds> {
        let bounds = self.rules.of(topic).copied();
        bounds.filter(|bounds| *bounds != UnclaimedBounds::KEEP)
    }
}

/// The bounds of a topic, and the sizes and ages of the messages that the bounds limit.
#[derive(Debug)]
pub(super) struct Unclaimed {
    pub(super) bounds: Bounds,
    /// `None`: the messages have not been counted since the topic has had no channel.
    pub(super) pieces: Option<Pieces>,
    /// The messages that were dropped since the process started.
    pub(super) dropped_count: u64,
}

impl Unclaimed {
    pub(super) fn new(bounds: UnclaimedBounds) -> Unclaimed {
        let UnclaimedBounds { bytes, age } = bounds;
        Unclaimed {
            bounds: Bounds { bytes, age },
            pieces: None,
            dropped_count: 0,
        }
    }

    /// Drops the oldest messages if there are too many. Returns how many were dropped.
    pub(super) fn bound(
        &mut self,
        now: Now,
        kept: &mut Kept<u32>,
        totals: Totals,
        log: &mut Log,
        work: &mut Work,
    ) -> u64 {
        let Some(end) = kept.messages.end() else {
            return 0;
        };
        let pieces = self
            .pieces
            .get_or_insert_with(|| Pieces::of_log(log, kept.messages.iter(), totals, now));
        pieces.add(end, totals, now, self.bounds);
        let below = pieces.cut(now, self.bounds);
        let count = below.map_or(0, |below| kept.release_below(below, log, work));
        self.dropped_count += count;
        count
    }

    /// Returns the time at which the oldest message is too old.
    pub(super) fn timeout(&self) -> Option<Duration> {
        let since = self.pieces.as_ref()?.since()?;
        since.checked_add(self.bounds.age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_matches_counts() {
        let mut rules = UnclaimedRules::default();
        rules.add("metrics.keep", UnclaimedBounds::KEEP);
        rules.add("metrics.*", UnclaimedBounds::DROP);
        assert_eq!(rules.bounds("metrics.cpu"), Some(UnclaimedBounds::DROP));
        assert_eq!(rules.bounds("metrics.keep"), None);
        assert_eq!(rules.bounds("orders"), None);
    }
}
