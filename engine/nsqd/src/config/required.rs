//! The value of `--create`.

use engine_rules::Required;
use wire::name::{ChannelName, TopicName};

/// Reads entries of the form `topic` or `topic/channel`.
///
/// # Errors
/// Names the entry that is wrong, for the FATAL line.
pub(super) fn required(entries: &[String]) -> Result<Required, String> {
    let mut required = Required::default();
    for entry in entries {
        let refuse = |why: String| format!("--create: {entry:?} {why}");
        let (topic, channel) = match entry.split_once('/') {
            Some((topic, channel)) => (topic, Some(channel)),
            None => (&**entry, None),
        };
        let invalid = |name: &str| {
            refuse(format!(
                "is not topic or topic/channel: {name:?} is not a valid name"
            ))
        };
        let name = TopicName::new(topic.as_bytes()).ok_or_else(|| invalid(topic))?;
        let channel = match channel {
            Some(text) => Some(ChannelName::new(text.as_bytes()).ok_or_else(|| invalid(text))?),
            None => None,
        };
        let added = required.add(name, channel);
        added.map_err(|name| {
            refuse(format!(
                "cannot always exist: {name} is ephemeral, so it ends with its last consumer"
            ))
        })?;
    }
    Ok(required)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_name_topics_and_channels() {
        let read = |entries: &[&str]| {
            let entries: Vec<String> = entries.iter().map(|&entry| entry.to_owned()).collect();
            required(&entries)
        };
        let mut expected = Required::default();
        let topic = TopicName::new(b"orders").expect("a name");
        let channel = ChannelName::new(b"billing").expect("a name");
        expected.add(topic, Some(channel)).expect("not ephemeral");
        assert_eq!(read(&["orders/billing"]), Ok(expected.clone()));
        assert_eq!(read(&["orders", "orders/billing", "orders"]), Ok(expected));
        assert_eq!(read(&[]), Ok(Required::default()));
        for (entry, why) in [
            (
                "",
                "\"\" is not topic or topic/channel: \"\" is not a valid name",
            ),
            (
                "a b",
                "\"a b\" is not topic or topic/channel: \"a b\" is not a valid name",
            ),
            (
                "a/",
                "\"a/\" is not topic or topic/channel: \"\" is not a valid name",
            ),
            (
                "a/b/c",
                "\"a/b/c\" is not topic or topic/channel: \"b/c\" is not a valid name",
            ),
            (
                "a#ephemeral",
                "\"a#ephemeral\" cannot always exist: a#ephemeral is ephemeral, so it ends with its last consumer",
            ),
            (
                "a/b#ephemeral",
                "\"a/b#ephemeral\" cannot always exist: b#ephemeral is ephemeral, so it ends with its last consumer",
            ),
        ] {
            assert_eq!(read(&["fine", entry]), Err(format!("--create: {why}")));
        }
    }
}
