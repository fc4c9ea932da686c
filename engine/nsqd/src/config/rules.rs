//! The flags whose entries are rules: `--create`, `--dead-letter`, `--unclaimed-messages` and `--dedup`.

use super::Config;
use engine_rules::{
    ContentKey, ContentRule, DeadLetterRules, DedupRule, DedupRules, JsonPointer, KeyWindow,
    PublisherRule, Required, UnclaimedBounds, UnclaimedRules,
};
use program::go_value;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;
use wire::name::{ChannelName, TopicName};

/// The forms of entries, for errors.
const DEAD_LETTER: &str = "<topic>/<channel>,max-attempts=<n>,topic=<dead-letter topic>";
const UNCLAIMED: &str =
    "<topic pattern>=keep, drop, bytes:<n>, age:<duration>, or bytes:<n>+age:<duration>";
const DEDUP: &str = "<topic pattern>=<publisher, body or json:/pointer>[,window=<count or duration>][,memory=<bytes>]";

/// The values of the flags whose entries are rules, for all shards.
#[derive(Clone)]
pub struct Rules {
    /// `--create`
    pub required: Arc<Required>,
    /// `--dead-letter`
    pub dead_letters: Arc<DeadLetterRules>,
    /// `--unclaimed-messages`
    pub unclaimed: Arc<UnclaimedRules>,
    /// `--dedup`
    pub dedup: Arc<DedupRules>,
}

impl Rules {
    /// Reads the rules.
    ///
    /// # Errors
    /// Names the entry that is wrong or never counts, for the FATAL line.
    pub(super) fn of(config: &Config) -> Result<Rules, String> {
        Ok(Rules {
            required: required(&config.create)?.into(),
            dead_letters: dead_letters(&config.dead_letter)?.into(),
            unclaimed: unclaimed(&config.unclaimed_messages)?.into(),
            dedup: dedup(&config.dedup)?.into(),
        })
    }
}

/// Reads the entries of a flag. `add` adds one of them, and says why it is refused.
fn read<R: Default>(
    flag: &str,
    entries: &[String],
    add: impl Fn(&mut R, &str) -> Result<(), String>,
) -> Result<R, String> {
    let mut rules = R::default();
    for entry in entries {
        add(&mut rules, entry).map_err(|why| format!("{flag}: {entry:?} {why}"))?;
    }
    Ok(rules)
}

/// Reads the entries of a flag that have patterns and the form `form`. `check_order` finds an entry that never counts.
fn read_patterns<R: Default, E: Display>(
    (flag, form): (&str, &str),
    entries: &[String],
    add: fn(&mut R, &str) -> Result<(), String>,
    check_order: fn(&R) -> Result<(), E>,
) -> Result<R, String> {
    let rules: R = read(flag, entries, |rules, entry| {
        add(rules, entry).map_err(|why| format!("is not {form}: {why}"))
    })?;
    check_order(&rules).map_err(|why| format!("{flag}: {why}"))?;
    Ok(rules)
}

/// Reads entries of the form `topic` or `topic/channel`.
fn required(entries: &[String]) -> Result<Required, String> {
    read("--create", entries, add_required)
}

fn add_required(required: &mut Required, entry: &str) -> Result<(), String> {
    let (topic, channel) = match entry.split_once('/') {
        Some((topic, channel)) => (topic, Some(channel)),
        None => (entry, None),
    };
    let invalid =
        |name: &str| format!("is not topic or topic/channel: {name:?} is not a valid name");
    let name = TopicName::new(topic.as_bytes()).ok_or_else(|| invalid(topic))?;
    let channel = channel
        .map(|text| ChannelName::new(text.as_bytes()).ok_or_else(|| invalid(text)))
        .transpose()?;
    let added = required.add(name, channel);
    added.map_err(|name| {
        format!("cannot always exist: {name} is ephemeral, so it ends with its last consumer")
    })
}

/// Reads rules of the form [`DEAD_LETTER`]. The parts behind the channel have names, so their order does not matter.
fn dead_letters(entries: &[String]) -> Result<DeadLetterRules, String> {
    let rules: DeadLetterRules = read("--dead-letter", entries, add_dead_letter)?;
    let order = rules.check_order();
    order.map_err(|why| format!("--dead-letter: {why}"))?;
    Ok(rules)
}

fn add_dead_letter(rules: &mut DeadLetterRules, entry: &str) -> Result<(), String> {
    let mut parts = entry.split(',').map(str::trim);
    let place = parts.next().unwrap_or_default();
    let (topic, channel) = place
        .split_once('/')
        .ok_or_else(|| format!("begins with {place:?}, and must be {DEAD_LETTER}"))?;
    let (mut attempts, mut to) = (None, None);
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let slot = match name.trim() {
            "max-attempts" => &mut attempts,
            "topic" => &mut to,
            _ => return Err(format!("has {part:?}, and must be {DEAD_LETTER}")),
        };
        if slot.replace(value.trim()).is_some() {
            return Err(format!("has {} twice", name.trim()));
        }
    }
    let missing = |name: &str| format!("lacks {name}=, and must be {DEAD_LETTER}");
    let attempts = attempts.ok_or_else(|| missing("max-attempts"))?;
    let to = to.ok_or_else(|| missing("topic"))?;
    let attempts_max = attempts
        .parse::<u16>()
        .map_err(|_| format!("has max-attempts={attempts}, which is no number from 1 to 65535"))?;
    let added = rules.add(topic, channel, attempts_max, to);
    added.map_err(|why| why.to_string())
}

/// Reads entries such as `logs.*=bytes:1000000`.
fn unclaimed(entries: &[String]) -> Result<UnclaimedRules, String> {
    let flag = ("--unclaimed-messages", UNCLAIMED);
    read_patterns(flag, entries, add_unclaimed, UnclaimedRules::check_order)
}

fn add_unclaimed(rules: &mut UnclaimedRules, entry: &str) -> Result<(), String> {
    let (pattern, policy) = entry.split_once('=').ok_or("there is no =")?;
    check_pattern(pattern, "._-*")?;
    rules.add(pattern, unclaimed_bounds(policy)?);
    Ok(())
}

/// The error is the reason of the refusal.
fn unclaimed_bounds(policy: &str) -> Result<UnclaimedBounds, String> {
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
                bounds.age = go_value::duration(text)
                    .ok_or_else(|| format!("{text:?} is not a duration such as 10m"))?;
            }
            _ => return Err(format!("{part:?} is no policy")),
        }
    }
    Ok(bounds)
}

/// Reads rules of the form [`DEDUP`]. The parts behind the key have names, so their order does not matter.
fn dedup(entries: &[String]) -> Result<DedupRules, String> {
    let flag = ("--dedup", DEDUP);
    read_patterns(flag, entries, add_dedup, DedupRules::check_order)
}

fn add_dedup(rules: &mut DedupRules, entry: &str) -> Result<(), String> {
    let (pattern, value) = entry.split_once('=').ok_or("there is no =")?;
    let pattern = pattern.trim();
    check_pattern(pattern, "._-*#")?;
    let mut parts = value.split(',').map(str::trim);
    let key = content_key(parts.next().unwrap_or_default())?;
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
        Some(key) => DedupRule::Content(content_rule(key, window, memory)?),
        None => DedupRule::Publisher(PublisherRule {
            window: window.map_or(Ok(PublisherRule::WINDOW_DEFAULT), window_count)?,
            memory_bytes: memory.map_or(Ok(PublisherRule::MEMORY_DEFAULT), memory_bytes)?,
        }),
    };
    rules.add(pattern, rule);
    Ok(())
}

/// Returns the key of an entry. `None`: the publisher's number.
fn content_key(text: &str) -> Result<Option<ContentKey>, String> {
    match text {
        "publisher" => return Ok(None),
        "body" => return Ok(Some(ContentKey::Body)),
        _ => {}
    }
    let pointer = text.strip_prefix("json:");
    let pointer = pointer.ok_or_else(|| format!("{text:?} is no key"))?;
    match JsonPointer::parse(pointer) {
        Ok(parsed) => Ok(Some(ContentKey::Json(parsed))),
        Err(why) => Err(format!("the pointer {pointer:?} {why}")),
    }
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
    let time = go_value::duration(text).map(KeyWindow::Time);
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

/// Checks a pattern, which may have `others` beside letters and digits. The error is the reason of the refusal.
fn check_pattern(pattern: &str, others: &str) -> Result<(), String> {
    let is_wrong = |it: &char| !it.is_ascii_alphanumeric() && !others.contains(*it);
    if let Some(wrong) = pattern.chars().find(is_wrong) {
        return Err(format!("{wrong:?} is in no name of a topic"));
    }
    if pattern.is_empty() {
        Err("the pattern is empty".to_owned())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
