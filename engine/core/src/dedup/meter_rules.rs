//! [`MeterRules`]: which topics count the duplicates among their messages.

use crate::dedup::meter::{BYTES_MAX, SampleRate};
use crate::rule_memory::RuleMemory;
use crate::rule_order::RuleOrderError;
use crate::topic_rules::TopicRules;

/// The sample rates for topics whose names match patterns. The first pattern that matches counts. A topic that matches none
/// has no meter.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MeterRules {
    rules: TopicRules<SampleRate>,
}

impl MeterRules {
    /// Adds a rule. In `pattern`, each `*` stands for any characters, or none. All other characters stand for
    /// themselves.
    pub fn add(&mut self, pattern: &str, rate: SampleRate) {
        self.rules.add(pattern, rate);
    }

    /// Checks that each rule can count.
    ///
    /// # Errors
    /// An earlier pattern matches all topics of a rule.
    pub fn check_order(&self) -> Result<(), RuleOrderError> {
        self.rules.check_order()
    }

    /// Returns the sample rate of a topic. `None`: the topic has no meter.
    #[must_use]
    pub fn of(&self, topic: &str) -> Option<SampleRate> {
        self.rules.of(topic).copied()
    }

    /// Returns the memory of the topics of each rule, in the order of the rules.
    pub fn memory<'t>(&self, topics: impl Iterator<Item = &'t str>) -> Vec<RuleMemory<'_>> {
        self.rules.memory(|_| BYTES_MAX, topics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_matches_counts() {
        let half = SampleRate::new(0.5).expect("a rate");
        let mut rules = MeterRules::default();
        rules.add("orders", half);
        rules.add("o*", SampleRate::DEFAULT);
        assert_eq!(rules.of("orders"), Some(half));
        assert_eq!(rules.of("offers"), Some(SampleRate::DEFAULT));
        assert_eq!(rules.of("clicks"), None);
    }
}
