//! Patterns with `*`.

/// Returns whether a pattern matches a whole name. Each `*` in the pattern stands for any characters, or none.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
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

/// Returns true if a pattern surely matches every name that another pattern matches: it matches the text of the other one,
/// and only its own `*` can stand for those of the other one.
pub(crate) fn covers(pattern: &str, other: &str) -> bool {
    matches(pattern, other)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert!(covers(pattern, other), "{pattern} {other}");
        }
        for (pattern, other) in [("a*b", "*"), ("ab*x", "a*"), ("ab", "a*"), ("x", "y")] {
            assert!(!covers(pattern, other), "{pattern} {other}");
        }
    }
}
