//! [`DeadLetterRules`]: which messages go to another topic when they have reached their attempts.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use wire::name::{ChannelName, TopicName};
use wire::topic_rules::{self, RuleOrderError};

/// The most rules. Each new rule is compared with the earlier ones, and each new channel with all.
const RULES_MAX: usize = 256;

/// One rule: the channels for which it holds, the number of attempts, and the dead-letter topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterRule {
    topic: Pattern,
    channel: Pattern,
    attempts_max: u16,
    to: Arc<str>,
}

/// The rules for dead letters. The first rule that fits a channel counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadLetterRules {
    rules: Vec<Arc<DeadLetterRule>>,
}

/// The reason why a rule cannot be added. Its text completes a sentence that begins with the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeadLetterError {
    /// The text is no name, and no name with `*` in it.
    BadPattern(String),
    /// The rule gives no delivery at all.
    NoAttempts,
    /// The dead-letter topic is not a valid name.
    BadTopic(String),
    /// The dead-letter topic is ephemeral. Such a topic ends with its last consumer, and its messages end with it.
    Ephemeral(String),
    /// There are too many rules.
    TooMany,
    /// Another rule has the same patterns.
    Twice,
    /// The dead letters of these topics would go round in a circle.
    Cycle(Vec<String>),
}

impl std::fmt::Display for DeadLetterError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DeadLetterError::BadPattern(text) => {
                write!(f, "has {text:?}, which is no name, and no name with * in it")
            }
            DeadLetterError::NoAttempts => f.write_str("must allow 1 to 65535 attempts"),
            DeadLetterError::BadTopic(text) => {
                write!(f, "has the topic {text:?}, which is not a valid name")
            }
            DeadLetterError::Ephemeral(text) => write!(
                f,
                "would lose messages: {text} is ephemeral, so it ends with its last consumer"
            ),
            DeadLetterError::TooMany => write!(
                f,
                "is one rule too many: there may be {RULES_MAX}; a * in a name can stand for several topics or channels"
            ),
            DeadLetterError::Twice => f.write_str(
                "never counts, because an earlier rule has the same topic and channel; leave one of them out",
            ),
            DeadLetterError::Cycle(topics) => write!(
                f,
                "makes a circle: dead letters would go from {} and never end",
                topics.join(" to ")
            ),
        }
    }
}

impl DeadLetterRule {
    /// The channels of the rule: `<topic>/<channel>`.
    fn place(&self) -> String {
        format!("{}/{}", self.topic.0, self.channel.0)
    }

    /// Deliveries that a message gets. After them, the message goes to the dead-letter topic.
    pub(crate) fn attempts_max(&self) -> u16 {
        self.attempts_max
    }

    /// The name of the dead-letter topic.
    pub(crate) fn to(&self) -> &Arc<str> {
        &self.to
    }
}

impl DeadLetterRules {
    /// Adds a rule for the channels that fit the patterns. In a pattern, `*` stands for any number of characters.
    /// `attempts_max` is the number of deliveries that a message gets, and `to` is the dead-letter topic.
    ///
    /// # Errors
    /// The rule is wrong or one too many, or makes a circle with the earlier ones.
    pub fn add(
        &mut self,
        topic: &str,
        channel: &str,
        attempts_max: u16,
        to: &str,
    ) -> Result<(), DeadLetterError> {
        let bad = |text: &str| DeadLetterError::BadPattern(text.to_owned());
        let (topic, channel) = (
            Pattern::of_topic(topic).ok_or_else(|| bad(topic))?,
            Pattern::of_channel(channel).ok_or_else(|| bad(channel))?,
        );
        if attempts_max == 0 {
            return Err(DeadLetterError::NoAttempts);
        }
        let name = TopicName::new(to.as_bytes())
            .ok_or_else(|| DeadLetterError::BadTopic(to.to_owned()))?;
        if name.is_ephemeral() {
            return Err(DeadLetterError::Ephemeral(to.to_owned()));
        }
        if self.rules.len() == RULES_MAX {
            return Err(DeadLetterError::TooMany);
        }
        let mut rules = self.rules.iter();
        if rules.any(|rule| (&rule.topic, &rule.channel) == (&topic, &channel)) {
            return Err(DeadLetterError::Twice);
        }
        let to = to.into();
        self.rules.push(Arc::new(DeadLetterRule {
            topic,
            channel,
            attempts_max,
            to,
        }));
        let cycle = self.cycle();
        if cycle.is_some() {
            self.rules.pop();
        }
        cycle.map_or(Ok(()), |topics| Err(DeadLetterError::Cycle(topics)))
    }

    /// Checks that each rule can count. A rule never counts if an earlier one fits all its channels. Call this when all
    /// rules are there: a `*` does not stand for dead-letter topics, and a later rule may make a topic one.
    ///
    /// # Errors
    /// A rule never counts.
    pub fn check_order(&self) -> Result<(), RuleOrderError> {
        for (index, later) in self.rules.iter().enumerate() {
            let covers = |earlier: &&Arc<DeadLetterRule>| {
                let topic = &*later.topic.0;
                let fits_topic = earlier.topic.covers(&later.topic)
                    && (earlier.topic.is_exact() || !self.is_dead_letter_topic(topic));
                fits_topic && earlier.channel.covers(&later.channel)
            };
            if let Some(earlier) = self.rules[..index].iter().find(covers) {
                return Err(RuleOrderError {
                    earlier: earlier.place(),
                    later: later.place(),
                    chosen_for: "channels",
                });
            }
        }
        Ok(())
    }

    /// Returns true if there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the rule of a channel.
    pub(crate) fn of(&self, topic: &str, channel: &str) -> Option<Arc<DeadLetterRule>> {
        let mut rules = self.rules.iter();
        let fits = |rule: &&Arc<DeadLetterRule>| {
            self.fits_topic(rule, topic) && rule.channel.fits(channel)
        };
        rules.find(fits).cloned()
    }

    /// Returns whether a pattern fits a topic. A pattern with `*` fits no dead-letter topic. Otherwise `*` could not be
    /// used at all, because it would fit the dead-letter topic of its own rule.
    fn fits_topic(&self, rule: &DeadLetterRule, topic: &str) -> bool {
        if rule.topic.is_exact() {
            rule.topic.0.as_ref() == topic
        } else {
            rule.topic.fits(topic) && !self.is_dead_letter_topic(topic)
        }
    }

    /// Returns true if a rule sends messages to the topic.
    pub(crate) fn is_dead_letter_topic(&self, topic: &str) -> bool {
        self.rules.iter().any(|rule| &*rule.to == topic)
    }

    /// Returns the circle of dead-letter topics that the newest rule closes. Only a rule whose topic has no `*` can
    /// close a circle.
    fn cycle(&self) -> Option<Vec<String>> {
        let newest = self.rules.last().filter(|rule| rule.topic.is_exact())?;
        let start = &*newest.topic.0;
        // Each topic that was reached, with the topic before it.
        let mut reached: BTreeMap<&str, &str> = BTreeMap::new();
        let mut next = vec![(&*newest.to, start)];
        while let Some((topic, mut before)) = next.pop() {
            if topic == start {
                let mut path = vec![topic.to_owned(), before.to_owned()];
                while before != start {
                    before = reached[before];
                    path.push(before.to_owned());
                }
                path.reverse();
                return Some(path);
            }
            if let Entry::Vacant(place) = reached.entry(topic) {
                place.insert(before);
                let rules = self.rules.iter().filter(|rule| &*rule.topic.0 == topic);
                next.extend(rules.map(|rule| (&*rule.to, topic)));
            }
        }
        None
    }
}

/// A name in which `*` stands for any number of characters.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern(Box<str>);

impl Pattern {
    fn of_topic(text: &str) -> Option<Pattern> {
        let example = text.replace('*', "x");
        TopicName::new(example.as_bytes()).map(|_| Pattern(text.into()))
    }

    fn of_channel(text: &str) -> Option<Pattern> {
        let example = text.replace('*', "x");
        ChannelName::new(example.as_bytes()).map(|_| Pattern(text.into()))
    }

    fn is_exact(&self) -> bool {
        !self.0.contains('*')
    }

    fn fits(&self, name: &str) -> bool {
        topic_rules::matches(&self.0, name)
    }

    fn covers(&self, other: &Pattern) -> bool {
        topic_rules::matches(&self.0, &other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(all: &[(&str, &str, &str)]) -> Result<DeadLetterRules, DeadLetterError> {
        let mut rules = DeadLetterRules::default();
        for (topic, channel, to) in all {
            rules.add(topic, channel, 5, to)?;
        }
        Ok(rules)
    }

    #[test]
    fn the_first_rule_that_fits_counts() {
        let rules = rules(&[
            ("orders", "audit", "a.dead"),
            ("orders*", "*", "b.dead"),
            ("b.dead", "*", "c.dead"),
        ]);
        let rules = rules.expect("they are right");
        let to = |topic: &str, channel: &str| {
            let rule = rules.of(topic, channel);
            rule.map(|rule| rule.to().to_string())
        };
        assert_eq!(to("orders", "audit").as_deref(), Some("a.dead"));
        assert_eq!(to("orders", "billing").as_deref(), Some("b.dead"));
        assert_eq!(to("orders.eu", "audit").as_deref(), Some("b.dead"));
        assert_eq!(to("clicks", "audit"), None);
        assert_eq!(to("b.dead", "retry").as_deref(), Some("c.dead"));
    }

    #[test]
    fn a_star_does_not_stand_for_dead_letter_topics() {
        let rules = rules(&[("*", "*", "dead"), ("orders", "*", "orders.dead")]);
        let rules = rules.expect("no circle");
        assert!(rules.of("orders", "a").is_some());
        assert_eq!(rules.of("dead", "a"), None);
        assert_eq!(rules.of("orders.dead", "a"), None);
    }

    /// A rule behind one that fits all its channels was accepted, and had no effect.
    #[test]
    fn a_rule_that_never_counts_is_found() {
        let check = |all: &[(&str, &str, &str)], expected: Option<(&str, &str)>| {
            let order = rules(all).expect("each rule is right").check_order();
            let found = order.err();
            let found = found.as_ref().map(|e| (&*e.earlier, &*e.later));
            assert_eq!(found, expected, "{all:?}");
        };
        check(&[("*", "*", "d"), ("x", "*", "e")], Some(("*/*", "x/*")));
        check(&[("x", "*", "e"), ("*", "*", "d")], None);
        check(
            &[("a*", "c", "d"), ("ab*x", "c", "d")],
            Some(("a*/c", "ab*x/c")),
        );
        check(&[("ab*x", "c", "d"), ("a*", "c", "d")], None);
        check(&[("a*", "c", "d"), ("ab", "*", "d")], None);
        check(&[("x", "*", "d"), ("x", "c", "e")], Some(("x/*", "x/c")));
        check(&[("x", "c", "d"), ("*", "c", "e")], None);
        // A * does not stand for a dead-letter topic, also not for that of a later rule.
        check(&[("*", "*", "d"), ("d", "*", "e")], None);
        check(
            &[("*", "*", "d"), ("e", "*", "f"), ("x.dead", "c", "e")],
            Some(("*/*", "x.dead/c")),
        );
        let why = rules(&[("*", "*", "d"), ("x", "*", "e")])
            .expect("right")
            .check_order();
        assert_eq!(
            why.expect_err("wrong").to_string(),
            "the rule x/* never counts, because the first rule that fits counts, and */* fits all its channels; \
             put x/* before */*"
        );
    }

    #[test]
    fn wrong_rules() {
        let refused = |all: &[(&str, &str, &str)]| rules(all).expect_err("wrong").to_string();
        for (topic, channel, to, why) in [
            (
                "a b",
                "c",
                "d",
                "has \"a b\", which is no name, and no name with * in it",
            ),
            (
                "a",
                "",
                "d",
                "has \"\", which is no name, and no name with * in it",
            ),
            (
                "a",
                "c",
                "d/e",
                "has the topic \"d/e\", which is not a valid name",
            ),
            (
                "a",
                "c",
                "*",
                "has the topic \"*\", which is not a valid name",
            ),
            (
                "a",
                "c",
                "d#ephemeral",
                "would lose messages: d#ephemeral is ephemeral, so it ends with its last consumer",
            ),
            (
                "a",
                "c",
                "a",
                "makes a circle: dead letters would go from a to a and never end",
            ),
        ] {
            assert_eq!(refused(&[(topic, channel, to)]), why);
        }
        assert_eq!(
            refused(&[("b", "*", "c"), ("a", "x", "b"), ("c", "*", "a")]),
            "makes a circle: dead letters would go from c to a to b to c and never end"
        );
        assert_eq!(
            refused(&[("*", "c", "d"), ("*", "c", "e")]),
            "never counts, because an earlier rule has the same topic and channel; leave one of them out"
        );
        let mut rules = DeadLetterRules::default();
        let added = rules.add("a", "b", 0, "c");
        assert_eq!(added, Err(DeadLetterError::NoAttempts));
        assert!(rules.is_empty());
    }

    /// Regression: a chain of two thousand rules in a PUT /config took its shard a minute.
    #[test]
    fn there_may_be_no_more_rules_than_can_be_checked_quickly() {
        let mut rules = DeadLetterRules::default();
        for number in 0..RULES_MAX {
            let (topic, to) = (format!("t{}", number + 1), format!("t{number}"));
            assert_eq!(rules.add(&topic, "*", 1, &to), Ok(()));
        }
        let why = rules.add("one-more", "*", 1, "t0");
        assert_eq!(why, Err(DeadLetterError::TooMany));
    }
}
