//! [`UnclaimedRules`]: which messages a topic keeps while it has no channel. Patterns for names of topics choose the
//! rule.

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
