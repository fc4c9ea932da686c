//! [`DedupRules`]: which topics recognise messages that they have stored before, and by what.

use crate::content_key::ContentKey;
use crate::plan::{KeyWindow, MEMORY_MAX, Plan};
use crate::publishers::places_max;
use std::time::Duration;
use wire::go_value::duration_text;
use wire::topic_rules::TopicRules;

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

/// The rule of a topic that recognises messages by their content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentRule {
    key: ContentKey,
    window: KeyWindow,
    plan: Plan,
}

impl ContentRule {
    /// The window of a rule that gives none.
    pub const WINDOW_DEFAULT: KeyWindow = KeyWindow::Time(Duration::from_secs(120));

    /// The most memory of a topic's keys, in bytes.
    pub const MEMORY_MAX: u64 = MEMORY_MAX;

    /// Makes a rule. `memory` is the number of bytes that the keys may take. `None`: as many as a window of messages
    /// needs, or 16 MiB for a window of time.
    ///
    /// # Errors
    /// The memory is too small for the window, or too large. The error is the number of bytes that would do.
    pub fn new(
        key: ContentKey,
        window: KeyWindow,
        memory: Option<u64>,
    ) -> Result<ContentRule, u64> {
        let plan = Plan::new(window, memory)?;
        Ok(ContentRule { key, window, plan })
    }

    /// Returns the words for what a topic remembers.
    pub(crate) fn remembered(&self) -> String {
        let keys = match &self.key {
            ContentKey::Body => "bodies".to_owned(),
            ContentKey::Json(pointer) => format!("values at {pointer}"),
        };
        match self.window {
            KeyWindow::Count(1) => format!("the {keys} of its last message"),
            KeyWindow::Count(count) => format!("the {keys} of its last {count} messages"),
            KeyWindow::Time(time) => format!(
                "the {keys} of the last {}, if these are at most {} messages",
                duration_text(time),
                self.plan.keys_covered()
            ),
        }
    }

    /// The part of a message by which two messages are equal.
    pub(crate) fn key(&self) -> &ContentKey {
        &self.key
    }

    /// The sizes of the tables of keys.
    pub(crate) fn plan(&self) -> Plan {
        self.plan
    }
}

/// A rule of either kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DedupRule {
    /// The topic recognises messages by their publishers.
    Publisher(PublisherRule),
    /// The topic recognises messages by their content.
    Content(ContentRule),
}

/// The memory that the topics of a rule may take. The rule is one of a list, in which the first pattern that matches a
/// topic counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleMemory<'r> {
    /// The pattern of the rule.
    pub pattern: &'r str,
    /// The words for what a topic of the rule remembers.
    pub remembered: String,
    /// The most bytes that one topic takes.
    pub topic_bytes: u64,
    /// The topics whose rule this is.
    pub topics: u64,
}

/// The rules for topics whose names match patterns. A topic that matches none stores every message.
pub type DedupRules = TopicRules<DedupRule>;

/// Returns the memory of the topics of each rule, in the order of the rules.
#[must_use]
pub fn rule_memory<'r, 't>(
    rules: &'r DedupRules,
    topics: impl Iterator<Item = &'t str>,
) -> Vec<RuleMemory<'r>> {
    let memory = rules.iter().map(|(pattern, rule)| {
        let (remembered, topic_bytes) = match rule {
            DedupRule::Publisher(rule) => (rule.remembered(), rule.memory_bytes),
            DedupRule::Content(rule) => (rule.remembered(), rule.plan().memory()),
        };
        RuleMemory {
            pattern,
            remembered,
            topic_bytes,
            topics: 0,
        }
    });
    let mut memory: Vec<RuleMemory<'_>> = memory.collect();
    for place in topics.filter_map(|topic| rules.place(topic)) {
        memory[place].topics += 1;
    }
    memory
}

/// Returns whether some topic may recognise messages by their publishers.
#[must_use]
pub fn has_publishers(rules: &DedupRules) -> bool {
    let mut rules = rules.iter();
    rules.any(|(_, rule)| matches!(rule, DedupRule::Publisher(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(window: u32) -> DedupRule {
        DedupRule::Publisher(PublisherRule {
            window,
            memory_bytes: PublisherRule::MEMORY_DEFAULT,
        })
    }

    fn bodies(window: KeyWindow) -> DedupRule {
        let rule = ContentRule::new(ContentKey::Body, window, None);
        DedupRule::Content(rule.expect("it fits"))
    }

    #[test]
    fn the_first_rule_that_matches_counts() {
        let content = bodies(ContentRule::WINDOW_DEFAULT);
        let mut rules = DedupRules::default();
        rules.add("orders.eu", content.clone());
        assert!(!has_publishers(&rules));
        rules.add("orders.*", numbers(64));
        rules.add("orders*", numbers(128));
        assert!(has_publishers(&rules));
        assert_eq!(rules.of("orders.eu"), Some(&content));
        assert_eq!(rules.of("orders.us"), Some(&numbers(64)));
        assert_eq!(rules.of("orders"), Some(&numbers(128)));
        assert_eq!(rules.of("clicks"), None);
    }

    #[test]
    fn each_topic_counts_for_its_first_rule() {
        let mut rules = DedupRules::default();
        rules.add("orders.eu", numbers(PublisherRule::WINDOW_DEFAULT));
        rules.add("orders.*", bodies(KeyWindow::Count(1_000_000)));
        rules.add("none", bodies(ContentRule::WINDOW_DEFAULT));
        let topics = ["orders.eu", "orders.us", "orders.de", "clicks"].into_iter();
        let memory = rule_memory(&rules, topics);
        let remembered: Vec<&str> = memory.iter().map(|it| &*it.remembered).collect();
        assert_eq!(
            remembered,
            [
                "the last 1024 numbers of each publisher, of at most 2978 publishers",
                "the bodies of its last 1000000 messages",
                "the bodies of the last 2m0s, if these are at most 733999 messages",
            ]
        );
        let found: Vec<_> = memory.iter().map(|it| (it.pattern, it.topics)).collect();
        assert_eq!(found, [("orders.eu", 1), ("orders.*", 2), ("none", 0)]);
        let bytes: Vec<u64> = memory.iter().map(|it| it.topic_bytes).collect();
        assert_eq!(bytes, [1 << 20, 22_857_344, 16 << 20]);
    }
}
