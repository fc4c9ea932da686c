//! The pattern for names of topics, with which an entry of `--dedup`, `--duplicate-meter` or `--unclaimed-messages` begins.

/// The topics that a pattern may name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Topics {
    /// All topics.
    All,
    /// All topics, without a pattern for ephemeral ones alone.
    Lasting,
}

/// Checks a pattern. The error is the reason of the refusal.
pub(super) fn check(pattern: &str, topics: Topics) -> Result<(), String> {
    let is_of_pattern = |character: char| match character {
        '.' | '_' | '-' | '*' => true,
        '#' => topics == Topics::All,
        _ => character.is_ascii_alphanumeric(),
    };
    if let Some(wrong) = pattern.chars().find(|it| !is_of_pattern(*it)) {
        return Err(format!("{wrong:?} is in no name of a topic"));
    }
    match pattern.is_empty() {
        true => Err("the pattern is empty".to_owned()),
        false => Ok(()),
    }
}
