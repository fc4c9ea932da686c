//! [`TopicRules`]: rules for topics whose names match patterns.

/// Rules, each with a pattern for names of topics. The first pattern that matches a topic counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicRules<R> {
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
    pub fn add(&mut self, pattern: &str, rule: R) {
        self.rules.push((pattern.into(), rule));
    }

    /// Checks that each rule can count. A rule never counts if an earlier pattern matches all its topics.
    ///
    /// # Errors
    /// A rule never counts.
    pub fn check_order(&self) -> Result<(), RuleOrderError> {
        for (index, (later, _)) in self.rules.iter().enumerate() {
            let mut earlier = self.rules[..index].iter();
            if let Some((earlier, _)) = earlier.find(|(pattern, _)| matches(pattern, later)) {
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
    #[must_use]
    pub fn of(&self, topic: &str) -> Option<&R> {
        Some(&self.rules[self.place(topic)?].1)
    }

    /// Returns the place of the rule of a topic.
    #[must_use]
    pub fn place(&self, topic: &str) -> Option<usize> {
        let mut rules = self.rules.iter();
        rules.position(|(pattern, _)| matches(pattern, topic))
    }

    /// Returns the rules in their order, each with its pattern.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &R)> {
        self.rules.iter().map(|(pattern, rule)| (&**pattern, rule))
    }
}

/// The reason why a rule never counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleOrderError {
    /// The rule that comes first.
    pub earlier: String,
    /// The rule that never counts.
    pub later: String,
    /// The plural of what rules are chosen for, such as "topics".
    pub chosen_for: &'static str,
}

impl std::fmt::Display for RuleOrderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RuleOrderError {
            earlier,
            later,
            chosen_for,
        } = self;
        if earlier == later {
            return write!(
                f,
                "there are two rules {later}, and only the first one counts; leave one of them out"
            );
        }
        write!(
            f,
            "the rule {later} never counts, because the first rule that fits counts, and {earlier} fits all its \
             {chosen_for}; put {later} before {earlier}"
        )
    }
}

impl std::error::Error for RuleOrderError {}

/// Returns whether a pattern matches a whole name. Each `*` in the pattern stands for any characters, or none. A pattern
/// that matches another pattern matches all names that the other one matches.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut name) = name.strip_prefix(start) else {
        return false;
    };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    // The first place of each part is the best one, because it leaves the most for the parts behind it.
    for part in middle.split('*') {
        match name.split_once(part) {
            Some((_, behind)) => name = behind,
            None if part.is_empty() => {}
            None => return false,
        }
    }
    name.ends_with(end)
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
        assert!(rules.iter().map(|(_, rule)| rule).eq(&[1, 2, 3]));
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
    fn a_star_stands_for_any_characters() {
        let check = |pattern: &str, names: &[&str], others: &[&str]| {
            for name in names {
                assert!(matches(pattern, name), "{pattern} {name}");
            }
            for name in others {
                assert!(!matches(pattern, name), "{pattern} {name}");
            }
        };
        check("orders", &["orders"], &["orders2", "order", ""]);
        check("*", &["orders", ""], &[]);
        check("logs.*", &["logs.", "logs.a.b"], &["logs", "xlogs.a"]);
        check("*.log", &["a.log", ".log"], &["log", "a.log2"]);
        check("a*a", &["aa", "aba"], &["a", "ab"]);
        check("a*b*c", &["abc", "aXbYc", "abcbc"], &["acb", "abcd", "ac"]);
        check("*a**b*", &["ab", "xaxbx"], &["ba", "a", "b"]);
        check("a*bc*c", &["abcc", "abcbc"], &["abc"]);
    }

    #[test]
    fn a_pattern_covers_those_whose_names_it_matches() {
        for (pattern, other) in [("*", "a*b"), ("a*", "ab*x"), ("a*", "a*"), ("x", "x")] {
            assert!(matches(pattern, other), "{pattern} {other}");
        }
        for (pattern, other) in [("a*b", "*"), ("ab*x", "a*"), ("ab", "a*"), ("x", "y")] {
            assert!(!matches(pattern, other), "{pattern} {other}");
        }
    }
}
