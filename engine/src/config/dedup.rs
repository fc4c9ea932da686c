//! The value of `--dedup`.

use engine_core::{DedupKey, DedupRule, DedupRules};

/// The form of an entry, for errors.
const FORM: &str = "<topic pattern>=publisher[,window=<count>][,memory=<bytes>]";

/// Reads rules of the form [`FORM`]. The parts behind the key have names, so their order does not matter.
///
/// # Errors
/// Names the rule that is wrong, for the FATAL line.
pub(super) fn rules(entries: &[String]) -> Result<DedupRules, String> {
    let mut rules = DedupRules::default();
    for entry in entries {
        let (pattern, rule) =
            rule(entry).map_err(|why| format!("--dedup: {entry:?} is not {FORM}: {why}"))?;
        rules.add(pattern, rule);
    }
    Ok(rules)
}

/// The error is the reason of the refusal.
fn rule(entry: &str) -> Result<(&str, DedupRule), String> {
    let (pattern, value) = entry.split_once('=').ok_or("there is no =")?;
    let pattern = pattern.trim();
    if let Some(wrong) = pattern.chars().find(|it| !is_of_pattern(*it)) {
        return Err(format!("{wrong:?} is in no name of a topic"));
    }
    if pattern.is_empty() {
        return Err("the pattern is empty".to_owned());
    }
    let mut parts = value.split(',').map(str::trim);
    let key = match parts.next().unwrap_or_default() {
        "publisher" => DedupKey::Producer,
        other => return Err(format!("{other:?} is no key")),
    };
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
    let rule = DedupRule {
        key,
        window: window.map_or(Ok(DedupRule::WINDOW_DEFAULT), window_count)?,
        memory_bytes: memory.map_or(Ok(DedupRule::MEMORY_DEFAULT), memory_bytes)?,
    };
    Ok((pattern, rule))
}

fn is_of_pattern(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-' | '*' | '#')
}

fn window_count(text: &str) -> Result<u32, String> {
    let (least, most) = DedupRule::WINDOW_BOUNDS;
    let count = text.parse().ok();
    let count = count.filter(|count| (least..=most).contains(count) && count % 64 == 0);
    count.ok_or_else(|| {
        format!("the window {text:?} is not a multiple of 64 from {least} to {most}")
    })
}

fn memory_bytes(text: &str) -> Result<u64, String> {
    let (least, most) = DedupRule::MEMORY_BOUNDS;
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
        let rule = DedupRule {
            key: DedupKey::Producer,
            window: 1024,
            memory_bytes: 1_048_576,
        };
        let mut expected = DedupRules::default();
        expected.add("orders", rule.clone());
        let small = DedupRule {
            window: 64,
            memory_bytes: 65_536,
            ..rule.clone()
        };
        expected.add("a_*-b", small.clone());
        expected.add("x#ephemeral", small);
        let large = DedupRule {
            window: 1_048_576,
            memory_bytes: 1 << 30,
            ..rule
        };
        expected.add("*", large);
        let entries = [
            "orders=publisher",
            "a_*-b=publisher,window=64,memory=65536",
            " x#ephemeral = publisher , memory = 65536 , window = 64 ",
            "*=publisher,memory=1073741824,window=1048576",
        ];
        assert_eq!(read(&entries), Ok(expected));
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
        ] {
            let text = format!("--dedup: {entry:?} is not {FORM}: {why}");
            assert_eq!(read(&["fine=publisher", entry]), Err(text));
        }
    }
}
