//! The value of `--unclaimed-messages`.

use super::topic_pattern::{self, Topics};
use engine_rules::{UnclaimedBounds, UnclaimedRules};
use program::go_value;
use std::time::Duration;

/// The forms of an entry, for error messages.
const FORMS: &str =
    "<topic pattern>=keep, drop, bytes:<n>, age:<duration>, or bytes:<n>+age:<duration>";

/// Reads entries such as `logs.*=bytes:1000000`.
///
/// # Errors
/// Names the entry that is wrong or never counts, for the FATAL line.
pub(super) fn unclaimed(entries: &[String]) -> Result<UnclaimedRules, String> {
    topic_pattern::check_count("--unclaimed-messages", entries)?;
    let mut rules = UnclaimedRules::default();
    for entry in entries {
        let refuse = |why: String| format!("--unclaimed-messages: {entry:?} is not {FORMS}: {why}");
        let Some((pattern, policy)) = entry.split_once('=') else {
            return Err(refuse("there is no =".to_owned()));
        };
        topic_pattern::check(pattern, Topics::Lasting).map_err(refuse)?;
        rules.add(pattern, bounds(policy).map_err(refuse)?);
    }
    let order = rules.check_order();
    order.map_err(|why| format!("--unclaimed-messages: {why}"))?;
    Ok(rules)
}

/// The error is the reason of the refusal.
fn bounds(policy: &str) -> Result<UnclaimedBounds, String> {
    match policy {
        "keep" => return Ok(UnclaimedBounds::KEEP),
        "drop" => return Ok(UnclaimedBounds::DROP),
        _ => {}
    }
    let mut bounds = UnclaimedBounds::KEEP;
    for part in policy.split('+') {
        match part.split_once(':') {
            Some(("bytes", text)) => {
                bounds.bytes = text
                    .parse()
                    .map_err(|_| format!("{text:?} is not a number of bytes"))?;
            }
            Some(("age", text)) => {
                let nanos = go_value::parse_duration(text).ok();
                let nanos = nanos.and_then(|nanos| u64::try_from(nanos).ok());
                let nanos =
                    nanos.ok_or_else(|| format!("{text:?} is not a duration such as 10m"))?;
                bounds.age = Duration::from_nanos(nanos);
            }
            _ => return Err(format!("{part:?} is no policy")),
        }
    }
    Ok(bounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entries: &[&str]) -> Result<UnclaimedRules, String> {
        let entries: Vec<String> = entries.iter().map(|&entry| entry.to_owned()).collect();
        unclaimed(&entries)
    }

    #[test]
    fn entries_have_a_pattern_and_a_policy() {
        let mut expected = UnclaimedRules::default();
        let keep = UnclaimedBounds::KEEP;
        expected.add("orders", keep);
        expected.add(
            "logs.*",
            UnclaimedBounds {
                bytes: 1_000_000,
                ..keep
            },
        );
        let age = Duration::from_secs(90);
        expected.add("a_*-b", UnclaimedBounds { age, ..keep });
        expected.add("c", UnclaimedBounds { bytes: 5, age });
        expected.add("*", UnclaimedBounds::DROP);
        let entries = [
            "orders=keep",
            "logs.*=bytes:1000000",
            "a_*-b=age:1m30s",
            "c=age:90s+bytes:5",
            "*=drop",
        ];
        assert_eq!(read(&entries), Ok(expected));
    }

    #[test]
    fn an_entry_that_never_counts_is_an_error() {
        let why = "--unclaimed-messages: the rule logs.a never counts, because the first rule that fits counts, and logs.* \
                   fits all its topics; put logs.a before logs.*";
        assert_eq!(read(&["logs.*=drop", "logs.a=keep"]), Err(why.to_owned()));
    }

    #[test]
    fn an_entry_that_is_wrong_is_named_with_its_forms() {
        for (entry, why) in [
            ("orders", "there is no ="),
            ("=drop", "the pattern is empty"),
            ("or ders=drop", "' ' is in no name of a topic"),
            ("x#ephemeral=drop", "'#' is in no name of a topic"),
            ("x=lose", "\"lose\" is no policy"),
            ("x=", "\"\" is no policy"),
            ("x=bytes:1k", "\"1k\" is not a number of bytes"),
            ("x=bytes:-1", "\"-1\" is not a number of bytes"),
            ("x=age:10", "\"10\" is not a duration such as 10m"),
            ("x=age:-1s", "\"-1s\" is not a duration such as 10m"),
            ("x=bytes:1+", "\"\" is no policy"),
        ] {
            let text = format!("--unclaimed-messages: {entry:?} is not {FORMS}: {why}");
            assert_eq!(read(&["fine=drop", entry]), Err(text));
        }
    }
}
