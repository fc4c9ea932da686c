//! The value of `--dedup`.

use super::topic_pattern::{self, Topics};
use engine_rules::{
    ContentKey, ContentRule, DedupRule, DedupRules, JsonPointer, KeyWindow, PublisherRule,
};
use program::go_value;
use std::time::Duration;

/// The form of an entry, for errors.
const FORM: &str = "<topic pattern>=<publisher, body or json:/pointer>[,window=<count or duration>][,memory=<bytes>]";

/// Reads rules of the form [`FORM`]. The parts behind the key have names, so their order does not matter.
///
/// # Errors
/// Names the rule that is wrong or never counts, for the FATAL line.
pub(super) fn rules(entries: &[String]) -> Result<DedupRules, String> {
    topic_pattern::check_count("--dedup", entries)?;
    let mut rules = DedupRules::default();
    for entry in entries {
        let (pattern, rule) =
            rule(entry).map_err(|why| format!("--dedup: {entry:?} is not {FORM}: {why}"))?;
        rules.add(pattern, rule);
    }
    let order = rules.check_order();
    order.map_err(|why| format!("--dedup: {why}"))?;
    Ok(rules)
}

/// Reads the key of an entry. `None`: the topic recognises messages by their publishers.
fn key(text: &str) -> Result<Option<ContentKey>, String> {
    match text {
        "publisher" => return Ok(None),
        "body" => return Ok(Some(ContentKey::Body)),
        _ => {}
    }
    let pointer = text.strip_prefix("json:");
    let pointer = pointer.ok_or_else(|| format!("{text:?} is no key"))?;
    let parsed = JsonPointer::parse(pointer);
    let parsed = parsed.map_err(|why| format!("the pointer {pointer:?} {why}"))?;
    Ok(Some(ContentKey::Json(parsed)))
}

/// The error is the reason of the refusal.
fn rule(entry: &str) -> Result<(&str, DedupRule), String> {
    let (pattern, value) = entry.split_once('=').ok_or("there is no =")?;
    let pattern = pattern.trim();
    topic_pattern::check(pattern, Topics::All)?;
    let mut parts = value.split(',').map(str::trim);
    let key = key(parts.next().unwrap_or_default())?;
    let (mut window, mut memory) = (None, None);
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let (name, value) = (name.trim(), value.trim());
        let slot = match name {
            "window" => &mut window,
            "memory" => &mut memory,
            _ => return Err(format!("{part:?} is neither window=... nor memory=...")),
        };
        if slot.replace(value).is_some() {
            return Err(format!("{name} is given twice"));
        }
    }
    let rule = match key {
        None => DedupRule::Publisher(PublisherRule {
            window: window.map_or(Ok(PublisherRule::WINDOW_DEFAULT), window_count)?,
            memory_bytes: memory.map_or(Ok(PublisherRule::MEMORY_DEFAULT), memory_bytes)?,
        }),
        Some(key) => DedupRule::Content(content_rule(key, window, memory)?),
    };
    Ok((pattern, rule))
}

fn content_rule(
    key: ContentKey,
    window: Option<&str>,
    memory: Option<&str>,
) -> Result<ContentRule, String> {
    let window = window.map_or(Ok(ContentRule::WINDOW_DEFAULT), content_window)?;
    let bytes = |text: &str| {
        text.parse()
            .map_err(|_| format!("the memory {text:?} is not a number of bytes"))
    };
    let memory = memory.map(bytes).transpose()?;
    ContentRule::new(key, window, memory).map_err(|needed| match memory {
        Some(memory) => format!("the memory {memory} does not fit the window, {needed} would"),
        None => format!(
            "the window needs {needed} bytes of memory, and at most {} are possible",
            ContentRule::MEMORY_MAX
        ),
    })
}

/// A number is a count of messages. A duration has a unit.
fn content_window(text: &str) -> Result<KeyWindow, String> {
    let count = text.parse().ok().map(KeyWindow::Count);
    let nanos = go_value::parse_duration(text).ok();
    let nanos = nanos.and_then(|nanos| u64::try_from(nanos).ok());
    let time = nanos.map(|nanos| KeyWindow::Time(Duration::from_nanos(nanos)));
    let window = count.or(time).filter(|window| match window {
        KeyWindow::Count(count) => *count > 0,
        KeyWindow::Time(time) => *time >= Duration::from_millis(1),
    });
    window.ok_or_else(|| {
        format!("the window {text:?} is neither a number of messages nor a duration such as 2m")
    })
}

fn window_count(text: &str) -> Result<u32, String> {
    let (least, most) = PublisherRule::WINDOW_BOUNDS;
    let count = text.parse().ok();
    let count = count.filter(|count| (least..=most).contains(count) && count % 64 == 0);
    count.ok_or_else(|| {
        format!("the window {text:?} is not a multiple of 64 from {least} to {most}")
    })
}

fn memory_bytes(text: &str) -> Result<u64, String> {
    let (least, most) = PublisherRule::MEMORY_BOUNDS;
    let bytes = text.parse().ok();
    let bytes = bytes.filter(|bytes| (least..=most).contains(bytes));
    bytes.ok_or_else(|| {
        format!("the memory {text:?} is not a number of bytes from {least} to {most}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entries: &[&str]) -> Result<DedupRules, String> {
        let entries: Vec<String> = entries.iter().map(|&entry| entry.to_owned()).collect();
        rules(&entries)
    }

    #[test]
    fn entries_have_a_pattern_and_a_key() {
        let mut expected = DedupRules::default();
        for (pattern, window, memory_bytes) in [
            ("orders", 1024, 1_048_576),
            ("a_*-b", 64, 65_536),
            ("x#ephemeral", 64, 65_536),
            ("*", 1_048_576, 1 << 30),
        ] {
            let rule = PublisherRule {
                window,
                memory_bytes,
            };
            expected.add(pattern, DedupRule::Publisher(rule));
        }
        let entries = [
            "orders=publisher",
            "a_*-b=publisher,window=64,memory=65536",
            " x#ephemeral = publisher , memory = 65536 , window = 64 ",
            "*=publisher,memory=1073741824,window=1048576",
        ];
        assert_eq!(read(&entries), Ok(expected));
    }

    #[test]
    fn keys_in_the_content() {
        let pointer = JsonPointer::parse("/order/id").expect("a pointer");
        let rule = |key, window, memory| {
            let rule = ContentRule::new(key, window, memory);
            DedupRule::Content(rule.expect("it fits"))
        };
        let mut expected = DedupRules::default();
        let default = ContentRule::WINDOW_DEFAULT;
        expected.add("a", rule(ContentKey::Body, default, None));
        let count = KeyWindow::Count(50_000);
        expected.add("b.*", rule(ContentKey::Json(pointer), count, None));
        let hour = KeyWindow::Time(Duration::from_secs(3600));
        expected.add("*", rule(ContentKey::Body, hour, Some(1 << 20)));
        let entries = [
            "a=body",
            "b.*=json:/order/id,window=50000",
            "* = body , memory = 1048576 , window = 1h",
        ];
        assert_eq!(read(&entries), Ok(expected));
    }

    #[test]
    fn a_rule_that_never_counts_is_an_error() {
        let why = "--dedup: the rule x never counts, because the first rule that fits counts, and * fits all its topics; put \
                   x before *";
        assert_eq!(read(&["*=publisher", "x=body"]), Err(why.to_owned()));
    }

    #[test]
    fn an_entry_that_is_wrong_is_named_with_its_form() {
        for (entry, why) in [
            ("orders", "there is no ="),
            ("=publisher", "the pattern is empty"),
            ("or ders=publisher", "' ' is in no name of a topic"),
            ("x=", "\"\" is no key"),
            ("x=sender", "\"sender\" is no key"),
            ("x=publisher,", "\"\" is neither window=... nor memory=..."),
            (
                "x=publisher,size=4",
                "\"size=4\" is neither window=... nor memory=...",
            ),
            ("x=publisher,window=64,window=64", "window is given twice"),
            (
                "x=publisher,window",
                "the window \"\" is not a multiple of 64 from 64 to 1048576",
            ),
            (
                "x=publisher,window=65",
                "the window \"65\" is not a multiple of 64 from 64 to 1048576",
            ),
            (
                "x=publisher,window=0",
                "the window \"0\" is not a multiple of 64 from 64 to 1048576",
            ),
            (
                "x=publisher,window=1048640",
                "the window \"1048640\" is not a multiple of 64 from 64 to 1048576",
            ),
            (
                "x=publisher,memory=1k",
                "the memory \"1k\" is not a number of bytes from 65536 to 1073741824",
            ),
            (
                "x=publisher,memory=65535",
                "the memory \"65535\" is not a number of bytes from 65536 to 1073741824",
            ),
            ("x=json", "\"json\" is no key"),
            (
                "x=json:",
                "the pointer \"\" is empty; for the whole body, write body",
            ),
            (
                "x=json:id",
                "the pointer \"id\" must begin with a slash, as /id or /order/id",
            ),
            (
                "x=json:/a~2",
                "the pointer \"/a~2\" has a ~ that is not ~0, which stands for ~, or ~1, which stands for /",
            ),
            (
                "x=body,window=0",
                "the window \"0\" is neither a number of messages nor a duration such as 2m",
            ),
            (
                "x=body,window=-2m",
                "the window \"-2m\" is neither a number of messages nor a duration such as 2m",
            ),
            (
                "x=body,window=1000000,memory=1000000",
                "the memory 1000000 does not fit the window, 22857344 would",
            ),
            (
                "x=body,memory=5",
                "the memory 5 does not fit the window, 8192 would",
            ),
            (
                "x=body,memory=x",
                "the memory \"x\" is not a number of bytes",
            ),
            (
                "x=body,window=18446744073709551615",
                "the window needs 18446744073709551615 bytes of memory, and at most 68719476736 are possible",
            ),
        ] {
            let text = format!("--dedup: {entry:?} is not {FORM}: {why}");
            assert_eq!(read(&["fine=publisher", entry]), Err(text));
        }
    }
}
