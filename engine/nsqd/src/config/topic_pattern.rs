//! The pattern for names of topics, with which an entry of `--dedup` or `--unclaimed-messages` begins.

/// The topics that a pattern may name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Topics {
    /// All topics.
    All,
    /// All topics, without a pattern for ephemeral ones alone.
    Lasting,
}

/// The most entries of one flag. Each entry is compared with the earlier ones, and each new topic with all.
pub(super) const ENTRIES_MAX: usize = 1024;

/// The longest pattern. A name has at most 64 characters.
const PATTERN_BYTES_MAX: usize = 128;

/// Checks the number of entries of a flag.
pub(super) fn check_count(flag: &str, entries: &[String]) -> Result<(), String> {
    if entries.len() <= ENTRIES_MAX {
        Ok(())
    } else {
        Err(format!(
            "{flag}: there are {} entries, and there may be {ENTRIES_MAX}; a * in a pattern can stand for several topics",
            entries.len()
        ))
    }
}

/// Checks a pattern. The error is the reason of the refusal.
pub(super) fn check(pattern: &str, topics: Topics) -> Result<(), String> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(format!(
            "the pattern has more than {PATTERN_BYTES_MAX} characters"
        ));
    }
    let is_of_pattern = |character: char| match character {
        '.' | '_' | '-' | '*' => true,
        '#' => topics == Topics::All,
        _ => character.is_ascii_alphanumeric(),
    };
    if let Some(wrong) = pattern.chars().find(|it| !is_of_pattern(*it)) {
        return Err(format!("{wrong:?} is in no name of a topic"));
    }
    if pattern.is_empty() {
        Err("the pattern is empty".to_owned())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{dedup, unclaimed};

    /// Thousands of patterns of a `PUT /config` were compared in pairs, for seconds.
    #[test]
    fn entries_and_their_patterns_have_bounds() {
        let check = |count: usize, length: usize| {
            let filling = "x".repeat(length - 4);
            let entries = |value: &str| -> Vec<String> {
                let numbers = 0..count;
                let entry = |number| format!("{number:04}{filling}{value}");
                numbers.map(entry).collect()
            };
            let results = [
                dedup::rules(&entries("=publisher")).map(drop),
                unclaimed::unclaimed(&entries("=drop")).map(drop),
            ];
            let whys = results.map(|result| result.err().unwrap_or_default());
            let [dedup, unclaimed] = whys;
            assert!(
                dedup.starts_with("--dedup: ") || dedup.is_empty(),
                "{dedup}"
            );
            assert_eq!(unclaimed.is_empty(), dedup.is_empty(), "{unclaimed}");
            dedup
        };
        assert_eq!(check(ENTRIES_MAX, 64), "");
        let why = check(ENTRIES_MAX + 1, 5);
        assert!(
            why.contains("there are 1025 entries, and there may be 1024"),
            "{why}"
        );
        assert_eq!(check(1, PATTERN_BYTES_MAX), "");
        let why = check(1, PATTERN_BYTES_MAX + 1);
        assert!(
            why.ends_with("the pattern has more than 128 characters"),
            "{why}"
        );
    }
}
