//! [`DedupRules`]: which topics recognise messages that they have stored before, and by what.

use crate::content::content_rule::ContentRule;
use crate::publishers::places_max;
use crate::rule_memory::RuleMemory;
use crate::rule_order::RuleOrderError;
use crate::topic_rules::TopicRules;

/// The rule of a topic that recognises a message by its publisher and the number that the publisher gave the message.
/// See [`wire::origin`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublisherRule {
    /// The numbers that the topic remembers one by one, for each publisher: a multiple of 64.
    pub window: u32,
    /// The bytes of memory that the topic's table may take.
    pub memory_bytes: u64,
}

impl PublisherRule {
    /// The window of a rule that gives none.
    pub const WINDOW_DEFAULT: u32 = 1024;
    /// The smallest and the largest window.
    pub const WINDOW_BOUNDS: (u32, u32) = (64, 1 << 20);
    /// The memory of a rule that gives none, in bytes.
    pub const MEMORY_DEFAULT: u64 = 1 << 20;
    /// The smallest and the largest memory, in bytes.
    pub const MEMORY_BOUNDS: (u64, u64) = (64 << 10, 1 << 30);

    /// Returns the words for what a topic remembers.
    fn remembered(&self) -> String {
        format!(
            "the last {} numbers of each publisher, of at most {} publishers",
            self.window,
            places_max(self.window, self.memory_bytes)
        )
    }
}

/// A rule of either kind.
#[derive(Debug, Clone, PartialEq, Eq)]
enum DedupRule {
    Publisher(PublisherRule),
    Content(ContentRule),
}

/// The rules for topics whose names match patterns. The first pattern that matches counts. A topic that matches none
/// stores every message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DedupRules {
    rules: TopicRules<DedupRule>,
}

impl DedupRules {
    /// Adds a rule. In `pattern`, each `*` stands for any characters, or none. All other characters stand for
    /// themselves.
    pub fn add_publisher(&mut self, pattern: &str, rule: PublisherRule) {
        self.rules.add(pattern, DedupRule::Publisher(rule));
    }

    /// Adds a rule that compares contents. The pattern is one of [`DedupRules::add_publisher`].
    pub fn add_content(&mut self, pattern: &str, rule: ContentRule) {
        self.rules.add(pattern, DedupRule::Content(rule));
    }

    /// Checks that each rule can count.
    ///
    /// # Errors
    /// An earlier pattern matches all topics of a rule.
    pub fn check_order(&self) -> Result<(), RuleOrderError> {
        self.rules.check_order()
    }

    /// Returns the rule of a topic that recognises messages by their publishers. `None`: the topic has no such rule.
    pub fn publisher_of(&self, topic: &str) -> Option<&PublisherRule> {
        match self.rules.of(topic)? {
            DedupRule::Publisher(rule) => Some(rule),
            DedupRule::Content(_) => None,
        }
    }

    /// Returns the rule of a topic that recognises messages by their content. `None`: the topic has no such rule.
    pub fn content_of(&self, topic: &str) -> Option<&ContentRule> {
        match self.rules.of(topic)? {
            DedupRule::Publisher(_) => None,
            DedupRule::Content(rule) => Some(rule),
        }
    }

    /// Returns the memory of the topics of each rule, in the order of the rules.
    pub fn memory<'t>(&self, topics: impl Iterator<Item = &'t str>) -> Vec<RuleMemory<'_>> {
        let topic_memory = |rule: &DedupRule| match rule {
            DedupRule::Publisher(rule) => (rule.remembered(), rule.memory_bytes),
            DedupRule::Content(rule) => (rule.remembered(), rule.plan().memory()),
        };
        self.rules.memory(topic_memory, topics)
    }

    /// Returns whether some topic may recognise messages by their publishers.
    pub fn has_publishers(&self) -> bool {
        let mut rules = self.rules.iter();
        rules.any(|rule| matches!(rule, DedupRule::Publisher(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::key::ContentKey;

    #[test]
    fn the_first_rule_that_matches_counts() {
        let rule = |window| PublisherRule {
            window,
            memory_bytes: PublisherRule::MEMORY_DEFAULT,
        };
        let mut rules = DedupRules::default();
        assert!(!rules.has_publishers());
        rules.add_publisher("orders.eu", rule(64));
        rules.add_publisher("orders.*", rule(128));
        let window = |topic: &str| rules.publisher_of(topic).map(|rule| rule.window);
        assert_eq!(window("orders.eu"), Some(64));
        assert_eq!(window("orders.us"), Some(128));
        assert_eq!(window("clicks"), None);
        assert!(rules.has_publishers());
    }

    #[test]
    fn both_kinds_of_rules_are_one_list() {
        let content = ContentRule::new(ContentKey::Body, ContentRule::WINDOW_DEFAULT, None);
        let content = content.expect("the default");
        let mut rules = DedupRules::default();
        rules.add_content("orders.*", content.clone());
        assert!(!rules.has_publishers());
        rules.add_publisher(
            "orders*",
            PublisherRule {
                window: 64,
                memory_bytes: PublisherRule::MEMORY_DEFAULT,
            },
        );
        assert_eq!(rules.content_of("orders.eu"), Some(&content));
        assert_eq!(rules.publisher_of("orders.eu"), None);
        assert_eq!(rules.content_of("orders"), None);
        assert!(rules.publisher_of("orders").is_some());
        assert_eq!(rules.content_of("clicks"), None);
    }
}
