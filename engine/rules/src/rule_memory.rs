//! [`RuleMemory`]: the memory that the topics of a rule may take for what they remember.

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

#[cfg(test)]
mod tests {
    use crate::{ContentKey, ContentRule, DedupRules, KeyWindow, PublisherRule};

    #[test]
    fn each_topic_counts_for_its_first_rule() {
        let mut rules = DedupRules::default();
        let numbers = PublisherRule {
            window: PublisherRule::WINDOW_DEFAULT,
            memory_bytes: 1 << 20,
        };
        rules.add_publisher("orders.eu", numbers);
        let million = KeyWindow::Count(1_000_000);
        let million = ContentRule::new(ContentKey::Body, million, None).expect("it fits");
        rules.add_content("orders.*", million);
        let default = ContentRule::new(ContentKey::Body, ContentRule::WINDOW_DEFAULT, None);
        rules.add_content("none", default.expect("it fits"));
        let topics = ["orders.eu", "orders.us", "orders.de", "clicks"].into_iter();
        let memory = rules.memory(topics);
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
