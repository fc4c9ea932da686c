//! [`TopicRules`]: rules for topics whose names match patterns.

use crate::glob;
use crate::rule_memory::RuleMemory;

/// Rules, each with a pattern for names of topics. The first pattern that matches a topic counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicRules<R> {
    rules: Vec<(Box<str>, R)>,
}

impl<R> Default for TopicRules<R> {
    fn default() -> TopicRules<R> {
        TopicRules { rules: Vec::new() }
    }
}

impl<R> TopicRules<R> {
    /// Adds a rule behind the others. In `pattern`, each `*` stands for any characters, or none. All other characters
    /// stand for themselves.
    pub(crate) fn add(&mut self, pattern: &str, rule: R) {
        self.rules.push((pattern.into(), rule));
    }

    /// Returns the rule of a topic.
    pub(crate) fn of(&self, topic: &str) -> Option<&R> {
        Some(&self.rules[self.place(topic)?].1)
    }

    /// Returns the place of the rule of a topic.
    fn place(&self, topic: &str) -> Option<usize> {
        let mut rules = self.rules.iter();
        rules.position(|(pattern, _)| glob::matches(pattern, topic))
    }

    /// Returns the rules in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &R> {
        self.rules.iter().map(|(_, rule)| rule)
    }

    /// Returns the memory of the topics of each rule, in the order of the rules. `topic_bytes` is the most that a topic of
    /// a rule takes.
    pub(crate) fn memory<'t>(
        &self,
        topic_bytes: impl Fn(&R) -> u64,
        topics: impl Iterator<Item = &'t str>,
    ) -> Vec<RuleMemory<'_>> {
        let rules = self.rules.iter().map(|(pattern, rule)| RuleMemory {
            pattern,
            topic_bytes: topic_bytes(rule),
            topics: 0,
        });
        let mut memory: Vec<RuleMemory<'_>> = rules.collect();
        for place in topics.filter_map(|topic| self.place(topic)) {
            memory[place].topics += 1;
        }
        memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_matches_counts() {
        let mut rules = TopicRules::default();
        rules.add("orders.eu", 1);
        rules.add("orders.*", 2);
        rules.add("orders.us", 3);
        assert_eq!(rules.of("orders.eu"), Some(&1));
        assert_eq!(rules.of("orders.us"), Some(&2));
        assert_eq!(rules.of("clicks"), None);
        assert!(rules.iter().eq(&[1, 2, 3]));
    }

    #[test]
    fn each_topic_counts_for_its_first_rule() {
        let mut rules = TopicRules::default();
        rules.add("orders.eu", 1000);
        rules.add("orders.*", 200);
        rules.add("none", 30);
        let topics = ["orders.eu", "orders.us", "orders.de", "clicks"].into_iter();
        let memory = rules.memory(|bytes| *bytes, topics);
        let found = memory
            .iter()
            .map(|it| (it.pattern, it.topic_bytes, it.topics, it.bytes()));
        let expected = [
            ("orders.eu", 1000, 1, 1000),
            ("orders.*", 200, 2, 400),
            ("none", 30, 0, 0),
        ];
        assert!(found.eq(expected), "{memory:?}");
    }
}
