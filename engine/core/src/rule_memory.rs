//! [`RuleMemory`]: the memory that the topics of a rule may take for what they remember.

/// The memory that the topics of a rule may take. The rule is one of a list, in which the first pattern that matches a
/// topic counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleMemory<'r> {
    /// The pattern of the rule.
    pub pattern: &'r str,
    /// The most bytes that one topic takes.
    pub topic_bytes: u64,
    /// The topics whose rule this is.
    pub topics: u64,
}

impl RuleMemory<'_> {
    /// The most bytes that all topics of the rule take together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.topic_bytes.saturating_mul(self.topics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ContentKey, ContentRule, DedupRule, DedupRules, KeyWindow, MeterRules, SampleRate,
    };

    #[test]
    fn each_topic_counts_for_its_first_rule() {
        let mut rules = DedupRules::default();
        let numbers = DedupRule {
            window: DedupRule::WINDOW_DEFAULT,
            memory_bytes: 1 << 20,
        };
        rules.add("orders.eu", numbers);
        let million = KeyWindow::Count(1_000_000);
        let million = ContentRule::new(ContentKey::Body, million, None).expect("it fits");
        rules.add_content("orders.*", million);
        let default = ContentRule::new(ContentKey::Body, ContentRule::WINDOW_DEFAULT, None);
        rules.add_content("none", default.expect("it fits"));
        let mut meters = MeterRules::default();
        meters.add("*", SampleRate::DEFAULT);
        let topics = ["orders.eu", "orders.us", "orders.de", "clicks"].into_iter();
        let memory = rules.memory(topics.clone());
        let found: Vec<_> = memory.iter().map(|it| (it.pattern, it.topics)).collect();
        assert_eq!(found, [("orders.eu", 1), ("orders.*", 2), ("none", 0)]);
        let bytes: Vec<u64> = memory.iter().map(RuleMemory::bytes).collect();
        assert_eq!(bytes, [1 << 20, 2 * 22_857_344, 0]);
        assert_eq!(memory[2].topic_bytes, 16 << 20);
        let meters = meters.memory(topics);
        assert_eq!(
            (meters[0].topics, meters[0].topic_bytes, meters[0].bytes()),
            (4, 7 << 19, 4 * (7 << 19))
        );
    }
}
