//! The value of `--duplicate-meter`.

use super::topic_pattern::{self, Topics};
use engine_core::{MeterRules, SampleRate};

/// The form of an entry, for errors.
const FORM: &str = "<topic pattern>[=<sample rate>]";

/// Reads rules of the form [`FORM`].
///
/// # Errors
/// Names the rule that is wrong or never counts, for the FATAL line.
pub(super) fn rules(entries: &[String]) -> Result<MeterRules, String> {
    let mut rules = MeterRules::default();
    for entry in entries {
        let refuse = |why: String| format!("--duplicate-meter: {entry:?} is not {FORM}: {why}");
        let (pattern, rate) = match entry.split_once('=') {
            None => (entry.trim(), SampleRate::DEFAULT),
            Some((pattern, rate)) => (pattern.trim(), sample_rate(rate.trim()).map_err(refuse)?),
        };
        topic_pattern::check(pattern, Topics::All).map_err(refuse)?;
        rules.add(pattern, rate);
    }
    let order = rules.check_order();
    order.map_err(|why| format!("--duplicate-meter: {why}"))?;
    Ok(rules)
}

fn sample_rate(text: &str) -> Result<SampleRate, String> {
    let rate = text.parse().ok().and_then(SampleRate::new);
    rate.ok_or_else(|| {
        format!("the sample rate {text:?} is not above 0 and at most 1, such as 0.01")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entries: &[&str]) -> Result<MeterRules, String> {
        let entries: Vec<String> = entries.iter().map(|&entry| entry.to_owned()).collect();
        rules(&entries)
    }

    #[test]
    fn entries_have_a_pattern_and_perhaps_a_rate() {
        let mut expected = MeterRules::default();
        expected.add("orders", SampleRate::DEFAULT);
        expected.add("a.*", SampleRate::new(0.5).expect("a rate"));
        expected.add("*", SampleRate::new(1.0).expect("a rate"));
        assert_eq!(read(&["orders", " a.* = 0.5 ", "*=1"]), Ok(expected));
        assert_eq!(read(&[]), Ok(MeterRules::default()));
    }

    #[test]
    fn a_rule_that_never_counts_is_an_error() {
        let why = "--duplicate-meter: there are two rules a, and only the first one counts; leave one of them out";
        assert_eq!(read(&["a=0.5", "b", "a"]), Err(why.to_owned()));
    }

    #[test]
    fn an_entry_that_is_wrong_is_named_with_its_form() {
        for (entry, why) in [
            ("", "the pattern is empty"),
            ("=0.1", "the pattern is empty"),
            ("a b", "' ' is in no name of a topic"),
            (
                "a=",
                "the sample rate \"\" is not above 0 and at most 1, such as 0.01",
            ),
            (
                "a=0",
                "the sample rate \"0\" is not above 0 and at most 1, such as 0.01",
            ),
            (
                "a=1.5",
                "the sample rate \"1.5\" is not above 0 and at most 1, such as 0.01",
            ),
            (
                "a=NaN",
                "the sample rate \"NaN\" is not above 0 and at most 1, such as 0.01",
            ),
            (
                "a=1%",
                "the sample rate \"1%\" is not above 0 and at most 1, such as 0.01",
            ),
        ] {
            let text = format!("--duplicate-meter: {entry:?} is not {FORM}: {why}");
            assert_eq!(read(&["fine", entry]), Err(text));
        }
    }
}
