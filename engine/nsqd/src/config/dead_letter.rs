//! The value of `--dead-letter`.

use engine_rules::DeadLetterRules;

/// The form of an entry, for errors.
const FORM: &str = "<topic>/<channel>,max-attempts=<n>,topic=<dead-letter topic>";

/// Reads rules of the form [`FORM`]. The parts behind the channel have names, so their order does not matter.
///
/// # Errors
/// Names the rule that is wrong, or the rule that never counts and the earlier one that fits all its channels, for the
/// FATAL line.
pub(super) fn rules(entries: &[String]) -> Result<DeadLetterRules, String> {
    let mut rules = DeadLetterRules::default();
    for entry in entries {
        add(&mut rules, entry).map_err(|why| format!("--dead-letter: {entry:?} {why}"))?;
    }
    let order = rules.check_order();
    order.map_err(|why| format!("--dead-letter: {why}"))?;
    Ok(rules)
}

fn add(rules: &mut DeadLetterRules, entry: &str) -> Result<(), String> {
    let mut parts = entry.split(',').map(str::trim);
    let place = parts.next().unwrap_or_default();
    let (topic, channel) = place
        .split_once('/')
        .ok_or_else(|| format!("begins with {place:?}, and must be {FORM}"))?;
    let (mut attempts, mut to) = (None, None);
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let slot = match name.trim() {
            "max-attempts" => &mut attempts,
            "topic" => &mut to,
            _ => return Err(format!("has {part:?}, and must be {FORM}")),
        };
        if slot.replace(value.trim()).is_some() {
            return Err(format!("has {} twice", name.trim()));
        }
    }
    let missing = |name: &str| format!("lacks {name}=, and must be {FORM}");
    let attempts = attempts.ok_or_else(|| missing("max-attempts"))?;
    let to = to.ok_or_else(|| missing("topic"))?;
    let attempts_max = attempts
        .parse::<u16>()
        .map_err(|_| format!("has max-attempts={attempts}, which is no number from 1 to 65535"))?;
    let added = rules.add(topic, channel, attempts_max, to);
    added.map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entries: &[&str]) -> Result<DeadLetterRules, String> {
        let entries: Vec<String> = entries.iter().map(|&entry| entry.to_owned()).collect();
        rules(&entries)
    }

    #[test]
    fn rules_are_read() {
        let mut expected = DeadLetterRules::default();
        expected
            .add("orders", "billing", 5, "orders.dead")
            .expect("right");
        expected.add("*", "*", 65535, "dead").expect("right");
        for entries in [
            [
                "orders/billing,max-attempts=5,topic=orders.dead",
                "*/*,max-attempts=65535,topic=dead",
            ],
            [
                " orders/billing, topic=orders.dead, max-attempts=5 ",
                "*/*,topic = dead,max-attempts = 65535",
            ],
        ] {
            assert_eq!(read(&entries), Ok(expected.clone()));
        }
        assert!(read(&[]).expect("right").is_empty());
    }

    #[test]
    fn a_rule_that_never_counts_is_an_error() {
        let read = read(&[
            "*/*,max-attempts=5,topic=dead",
            "x/*,max-attempts=3,topic=x.dead",
        ]);
        let why = read.expect_err("the second rule has no effect");
        assert!(
            why.starts_with("--dead-letter: the rule x/* never counts, "),
            "{why}"
        );
        assert!(why.ends_with(" put x/* before */*"), "{why}");
    }

    #[test]
    fn wrong_rules_are_explained() {
        let form = "must be <topic>/<channel>,max-attempts=<n>,topic=<dead-letter topic>";
        for (entry, why) in [
            ("", format!("begins with \"\", and {form}")),
            (
                "orders,max-attempts=5,topic=d",
                format!("begins with \"orders\", and {form}"),
            ),
            ("o/c", format!("lacks max-attempts=, and {form}")),
            ("o/c,max-attempts=5", format!("lacks topic=, and {form}")),
            ("o/c,5,d", format!("has \"5\", and {form}")),
            (
                "o/c,max-attempts=5,topic=d,",
                format!("has \"\", and {form}"),
            ),
            (
                "o/c,attempts=5,topic=d",
                format!("has \"attempts=5\", and {form}"),
            ),
            (
                "o/c,max-attempts=5,max-attempts=5,topic=d",
                "has max-attempts twice".to_owned(),
            ),
            (
                "o/c,max-attempts=x,topic=d",
                "has max-attempts=x, which is no number from 1 to 65535".to_owned(),
            ),
            (
                "o/c,max-attempts=65536,topic=d",
                "has max-attempts=65536, which is no number from 1 to 65535".to_owned(),
            ),
            (
                "o/c,max-attempts=0,topic=d",
                "must allow 1 to 65535 attempts".to_owned(),
            ),
            (
                "o/c,max-attempts=1,topic=o",
                "makes a circle: dead letters would go from o to o and never end".to_owned(),
            ),
        ] {
            let fine = "fine/c,max-attempts=1,topic=d";
            let expected = format!("--dead-letter: {entry:?} {why}");
            assert_eq!(read(&[fine, entry]), Err(expected));
        }
    }
}
