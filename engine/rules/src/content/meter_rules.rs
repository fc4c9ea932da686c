//! [`MeterRules`]: which topics count the duplicates among their messages.

use crate::content::key::ContentKey;
use crate::content::meter::{BYTES_MAX, MeterRule};
use crate::rule_memory::RuleMemory;
use crate::rule_order::RuleOrderError;
use crate::topic_rules::TopicRules;

/// The meters of topics whose names match patterns. The first pattern that matches counts. A topic that matches
/// none has no meter.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MeterRules {
    rules: TopicRules<MeterRule>,
}

impl MeterRules {
    /// Adds a rule. In `pattern`, each `*` stands for any characters, or none. All other characters stand for
    /// themselves.
    pub fn add(&mut self, pattern: &str, rule: MeterRule) {
        self.rules.add(pattern, rule);
    }

    /// Checks that each rule can count.
    ///
    /// # Errors
    /// An earlier pattern matches all topics of a rule.
    pub fn check_order(&self) -> Result<(), RuleOrderError> {
        self.rules.check_order()
    }

    /// Returns the rule of a topic's meter. `None`: the topic has no meter.
    #[must_use]
    pub fn of(&self, topic: &str) -> Option<&MeterRule> {
        self.rules.of(topic)
    }

    /// Returns the memory of the topics of each rule, in the order of the rules.
    pub fn memory<'t>(&self, topics: impl Iterator<Item = &'t str>) -> Vec<RuleMemory<'_>> {
        let sample = |rule: &MeterRule| match &rule.key {
            ContentKey::Body => format!("a sample of {} of the bodies", rule.rate.get()),
            key => format!("a sample of {} of the keys {key}", rule.rate.get()),
        };
        self.rules.memory(|rule| (sample(rule), BYTES_MAX), topics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::meter::SampleRate;

    #[test]
    fn the_first_rule_that_matches_counts() {
        let half = MeterRule {
            rate: SampleRate::new(0.5).expect("a rate"),
            ..MeterRule::default()
        };
        let mut rules = MeterRules::default();
        rules.add("orders", half.clone());
        rules.add("o*", MeterRule::default());
        assert_eq!(rules.of("orders"), Some(&half));
        assert_eq!(rules.of("offers"), Some(&MeterRule::default()));
        assert_eq!(rules.of("clicks"), None);
    }
}
