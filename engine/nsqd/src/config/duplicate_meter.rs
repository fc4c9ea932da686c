//! The value of `--duplicate-meter`.

use super::content_key;
use super::topic_pattern::{self, Topics};
use engine_rules::{MeterRule, MeterRules, SampleRate};

/// The form of an entry, for errors. The key is `body` or `json:/pointer`.
const FORM: &str = "<topic pattern>[=<key, sample rate, or both>]";

/// Reads rules of the form [`FORM`].
///
/// # Errors
/// Names the rule that is wrong or never counts, for the FATAL line.
pub(super) fn rules(entries: &[String]) -> Result<MeterRules, String> {
    topic_pattern::check_count("--duplicate-meter", entries)?;
    let mut rules = MeterRules::default();
    for entry in entries {
        let refuse = |why: String| format!("--duplicate-meter: {entry:?} is not {FORM}: {why}");
        let (pattern, rule) = match entry.split_once('=') {
            None => (entry.trim(), MeterRule::default()),
            Some((pattern, value)) => (pattern.trim(), rule(value).map_err(refuse)?),
        };
        topic_pattern::check(pattern, Topics::All).map_err(refuse)?;
        rules.add(pattern, rule);
    }
    let order = rules.check_order();
    order.map_err(|why| format!("--duplicate-meter: {why}"))?;
    Ok(rules)
}

/// Reads the parts behind the pattern. Their order does not matter. The error is the reason of the refusal.
fn rule(value: &str) -> Result<MeterRule, String> {
    let (mut key, mut rate) = (None, None);
    for part in value.split(',').map(str::trim) {
        let is_twice = match content_key::parse(part) {
            Some(parsed) => key.replace(parsed?).is_some(),
            None => rate.replace(sample_rate(part)?).is_some(),
        };
        if is_twice {
            return Err(format!("{part:?} is the second of its kind"));
        }
    }
    let default = MeterRule::default();
    Ok(MeterRule {
        key: key.unwrap_or(default.key),
        rate: rate.unwrap_or(default.rate),
    })
}

fn sample_rate(text: &str) -> Result<SampleRate, String> {
    let rate = text.parse().ok().and_then(SampleRate::new);
    rate.ok_or_else(|| {
        format!(
            "{text:?} is neither body, nor json:/pointer, nor a sample rate above 0 and at most 1, such as 0.01"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine_rules::{ContentKey, JsonPointer};

    fn read(entries: &[&str]) -> Result<MeterRules, String> {
        let entries: Vec<String> = entries.iter().map(|&entry| entry.to_owned()).collect();
        rules(&entries)
    }

    #[test]
    fn entries_have_a_pattern_and_perhaps_a_key_and_a_rate() {
        let rule = |key: &ContentKey, rate| MeterRule {
            key: key.clone(),
            rate: SampleRate::new(rate).expect("a rate"),
        };
        let body = ContentKey::Body;
        let id = ContentKey::Json(JsonPointer::parse("/id").expect("a pointer"));
        let mut expected = MeterRules::default();
        expected.add("orders", rule(&body, 0.01));
        expected.add("a.*", rule(&body, 0.5));
        expected.add("b", rule(&id, 0.01));
        expected.add("c", rule(&id, 0.5));
        expected.add("d", rule(&id, 0.5));
        expected.add("e", rule(&body, 0.01));
        expected.add("*", rule(&body, 1.0));
        let entries = [
            "orders",
            " a.* = 0.5 ",
            "b=json:/id",
            "c=json:/id, 0.5",
            "d=0.5,json:/id",
            "e=body",
            "*=1",
        ];
        assert_eq!(read(&entries), Ok(expected));
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
                "\"\" is neither body, nor json:/pointer, nor a sample rate above 0 and at most 1, such as 0.01",
            ),
            (
                "a=0",
                "\"0\" is neither body, nor json:/pointer, nor a sample rate above 0 and at most 1, such as 0.01",
            ),
            (
                "a=1.5",
                "\"1.5\" is neither body, nor json:/pointer, nor a sample rate above 0 and at most 1, such as 0.01",
            ),
            (
                "a=NaN",
                "\"NaN\" is neither body, nor json:/pointer, nor a sample rate above 0 and at most 1, such as 0.01",
            ),
            (
                "a=1%",
                "\"1%\" is neither body, nor json:/pointer, nor a sample rate above 0 and at most 1, such as 0.01",
            ),
            ("a=0.5,0.5", "\"0.5\" is the second of its kind"),
            ("a=body,json:/id", "\"json:/id\" is the second of its kind"),
            (
                "a=json:id",
                "the pointer \"id\" must begin with a slash, as /id or /order/id",
            ),
        ] {
            let text = format!("--duplicate-meter: {entry:?} is not {FORM}: {why}");
            assert_eq!(read(&["fine", entry]), Err(text));
        }
    }
}
