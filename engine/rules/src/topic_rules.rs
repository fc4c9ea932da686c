//! [`TopicRules`]: rules for topics whose names match patterns.

use crate::glob;
use crate::rule_memory::RuleMemory;
use crate::rule_order::RuleOrderError;

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

    /// Checks that each rule can count. A rule never counts if an earlier pattern matches all its topics.
    ///
    /// # Errors
    /// A rule never counts.
    pub(crate) fn check_order(&self) -> Result<(), RuleOrderError> {
        for (index, (later, _)) in self.rules.iter().enumerate() {
            let mut earlier = self.rules[..index].iter();
            if let Some((earlier, _)) = earlier.find(|(pattern, _)| glob::covers(pattern, later)) {
                return Err(RuleOrderError {
                    earlier: earlier.to_string(),
                    later: later.to_string(),
                    chosen_for: "topics",
                });
            }
        }
        Ok(())
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

    /// Returns the memory of the topics of each rule, in the order of the rules. `topic_memory` says what a topic of a rule
    /// remembers, and the most bytes that the topic takes.
    pub(crate) fn memory<'t>(
        &self,
        topic_memory: impl Fn(&R) -> (String, u64),
        topics: impl Iterator<Item = &'t str>,
    ) -> Vec<RuleMemory<'_>> {
        let rules = self.rules.iter().map(|(pattern, rule)| {
            let (remembered, topic_bytes) = topic_memory(rule);
            RuleMemory {
                pattern,
                remembered,
                topic_bytes,
                topics: 0,
            }
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

    /// A rule behind one that matches all its topics was accepted, and had no effect.
    #[test]
    fn a_rule_that_never_counts_is_found() {
        let order = |patterns: &[&str]| {
            let mut rules = TopicRules::default();
            patterns.iter().for_each(|pattern| rules.add(pattern, ()));
            rules.check_order().map_err(|why| why.to_string())
        };
        assert_eq!(order(&["x", "a.b", "a*", "*"]), Ok(()));
        assert_eq!(
            order(&["y", "a*", "x", "ab*c"]),
            Err(
                "the rule ab*c never counts, because the first rule that fits counts, and a* fits all its topics; \
                 put ab*c before a*"
                    .to_owned()
            )
        );
        assert_eq!(
            order(&["a*", "x", "a*"]),
            Err(
                "there are two rules a*, and only the first one counts; leave one of them out"
                    .to_owned()
            )
        );
    }

    #[test]
    fn each_topic_counts_for_its_first_rule() {
        let mut rules = TopicRules::default();
        rules.add("orders.eu", 1000);
        rules.add("orders.*", 200);
        rules.add("none", 30);
        let topics = ["orders.eu", "orders.us", "orders.de", "clicks"].into_iter();
        let memory = rules.memory(|bytes| (String::new(), *bytes), topics);
        let found = memory
            .iter()
            .map(|it| (it.pattern, it.topic_bytes, it.topics));
        let expected = [
            ("orders.eu", 1000, 1),
            ("orders.*", 200, 2),
            ("none", 30, 0),
        ];
        assert!(found.eq(expected), "{memory:?}");
    }
}
