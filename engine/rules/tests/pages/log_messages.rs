//! docs/operate/log-messages.md has each line that nsqd can log as ERROR, WARNING or FATAL.

use super::rust_text::{arguments, fixed_part, literals, product};
use super::{root, texts_below};
use std::collections::BTreeSet;
use std::fs;

const SOURCES: [&str; 5] = [
    "engine/nsqd/src",
    "engine/rules/src",
    "engine/dedup/src",
    "engine/program/src",
    "diskq",
];

/// What writes a line of the log, or makes one for the shell to write.
const CALLS: [&str; 11] = [
    "log_warn!(",
    "log_error!(",
    "log_fatal!(",
    "log_at!(",
    "log_repeated!(",
    "Output::warning(",
    "Output::error(",
    "Output::Log(",
    "Output::Repeated {",
    "repeat_error(",
    "news.push(",
];

/// The page needs this much of a text: the end is often advice.
const SHOWN_BYTES: usize = 40;

/// A text of fewer bytes says nothing by itself, such as `TOPIC({name}): {text}`.
const FIXED_BYTES_MIN: usize = 12;

/// Calls whose texts are made elsewhere: the call's arguments, and parts of the texts. No parts: it has another level, or
/// passes on what another call in this table or in the source makes.
const MADE_ELSEWHERE: &[(&str, &[&str])] = &[
    (
        "{ignored}",
        &[
            "keys in the config file that mean nothing",
            "everything from a word on that is no flag",
        ],
    ),
    (
        "SIGHUP: {ignored}",
        &["keys in the config file that mean nothing"],
    ),
    (
        "{useless}",
        &[
            "lets no message pass",
            "is too small for the IDENTIFY of client libraries",
            "lets no RDY above 0 pass",
            "has no effect with --io=",
            "--broadcast-address is empty",
            "a variable was not replaced",
            "--lookupd-tcp-address=",
            "--auth-http-address=",
            "--statsd-address=",
        ],
    ),
    ("{warning}", &["the topics may take"]),
    (
        "{permissions}",
        &["other users of this machine can reach files of nsqd in"],
    ),
    ("{text}", &["can serve nobody any more, nsqd ends"]),
    (
        "{error}",
        &[
            "cannot install the reporter of SIGBUS",
            "cannot receive signals",
            "raise the limit on processes and threads",
            "failed to instantiate nsqd",
            "failed to load metadata",
            "failed to read data-path",
            "failed to take over the data files of nsqd",
            "failed to build TLS config",
            "failed to build client TLS config",
            "failed to build TLS config for nsqlookupd",
        ],
    ),
    ("fallback_text(", &["cannot be used"]),
    (
        "TAKEOVER: {note}",
        &[
            "may repeat messages",
            "is missing, with its messages",
            "its positions are damaged: it is read to the end of its files",
            "all of its files are read",
            "its positions contradict each other",
            "it has no positions",
            "its positions count",
            "but its first unread byte is",
            "zero bytes from byte",
            "messages above --max-msg-size",
            "cannot be read from byte",
            "damaged messages of its log are skipped",
            "files that nsqd does not read are also set aside",
        ],
    ),
    (
        "DRAIN: {line}",
        &[
            "no progress",
            "--drain-timeout is over, nsqd ends, and the messages stay on disk",
        ],
    ),
    ("{cause}", &["temporary Accept() failure"]),
    ("LOOKUPD({}): {command} - {cause}", &["LOOKUPD("]),
    (
        "PROTOCOL(V2): [{address}] AUTH failed {why}",
        &["AUTH failed"],
    ),
    ("[{address}] - {} - {why}", &["AUTH failed"]),
    ("[{}] - {}", &["E_..."]),
    ("[{}] - {} - {cause}", &["E_FIN_FAILED"]),
    ("[{}] - {text}", &["E_PUB_FAILED"]),
    ("[{address}] - {text}", &["E_PUB_FAILED"]),
    (
        "client({address}) - {reason}",
        &["messages on their way were lost to a failed sync"],
    ),
    (
        "TOPIC({name}): damaged on disk - {damage}",
        &[
            "slot or frame does not agree with its CRC",
            "no segment file holds what the checkpoint names",
            "no checkpoint is readable: everything found is delivered",
        ],
    ),
    ("dead_letter_line(", &["attempts and went to topic"]),
    // The line of an HTTP request has INFO or DEBUG.
    ("{} {} {} ({peer}) {}", &[]),
    ("{line}", &[]),
    // The shell passes on what the rules have made.
    ("level, line", &[]),
    ("level, cause, line", &[]),
    ("Level::Warning, line", &[]),
    ("Level::Error, line", &[]),
    ("{what}: {answer}", &[]),
];

/// Texts that no call has: an undo, and the memory of a rule of `--dedup`, return them to their topic.
const RETURNED: [&str; 4] = [
    "the disk has no room, so the",
    "the system refuses memory for the keys of --dedup, so the topic forgets keys early",
    "the system refuses memory for a save of the numbers of --dedup",
    "the saved numbers of messages are not those of publishers",
];

/// Returns the value of the nearest binding of a name before a place in the source.
fn bound<'s>(source: &'s str, at: usize, name: &str) -> &'s str {
    let head = format!("let {name} =");
    let begin = source[..at].rfind(&head).map(|begin| begin + head.len());
    begin.map_or("", |begin| {
        let end = source[begin..]
            .find(";\n")
            .map_or(source.len(), |it| begin + it);
        &source[begin..end]
    })
}

/// Returns the texts of a call: its own, and those of the names that it uses.
fn texts_of(source: &str, at: usize, call: &str) -> Vec<String> {
    let mut texts = literals(call);
    for name in ["line", "warning", "what"] {
        let is_word = |before: &str, after: &str| {
            let is_part = |character: char| character.is_alphanumeric() || character == '_';
            !before.ends_with(is_part) && !after.starts_with(is_part)
        };
        let mut places = call.match_indices(name);
        let is_used = places.any(|(place, _)| is_word(&call[..place], &call[place + name.len()..]));
        if is_used {
            texts.extend(literals(bound(source, at, name)));
        }
    }
    texts
}

/// Returns whether a line of the call can only have a lower level.
fn is_lower(call: &str) -> bool {
    let head = call.trim_start();
    let levels = ["Level::Debug", "Level::Info", "level: Level::Info"];
    levels.iter().any(|level| head.starts_with(level))
}

#[test]
fn each_line_of_the_log_that_needs_attention_has_a_row() {
    let page = fs::read_to_string(root().join("docs/operate/log-messages.md")).expect("a page");
    let sources = texts_below(&SOURCES, "rs").into_iter();
    let sources = sources.filter(|(name, _)| !name.contains("tests") && !name.contains("planted"));
    let sources: Vec<(String, String)> =
        sources.map(|(name, text)| (name, product(&text))).collect();
    let all: String = sources
        .iter()
        .flat_map(|(_, text)| literals(text))
        .collect();
    let (mut missing, mut met, mut count) = (Vec::new(), BTreeSet::new(), 0);
    for (name, source) in &sources {
        let calls = CALLS.iter().flat_map(|call| source.match_indices(call));
        for (place, head) in calls {
            let call = arguments(source, place + head.len());
            let is_declared = source[..place].ends_with("fn ");
            if is_declared || is_lower(call) || call.contains("$(") {
                continue;
            }
            count += 1;
            let texts = texts_of(source, place, call);
            // A name or a part of the source may be anywhere in the call, a text must be a whole one.
            let is_known = |known: &str| {
                let is_text = known.contains('{');
                !is_text && call.contains(known) || texts.iter().any(|text| text == known)
            };
            if let Some((known, _)) = MADE_ELSEWHERE.iter().find(|(known, _)| is_known(known)) {
                met.insert(*known);
                continue;
            }
            let fixed = texts.iter().map(|text| fixed_part(text, FIXED_BYTES_MIN));
            let mut told = fixed.filter(|part| part.len() >= FIXED_BYTES_MIN);
            let is_shown = told.any(|part| {
                let shown: String = part.chars().take(SHOWN_BYTES).collect();
                page.contains(&shown)
            });
            if !is_shown {
                missing.push(format!("{name}: {}", call.trim()));
            }
        }
    }
    for (known, _) in MADE_ELSEWHERE {
        assert!(met.contains(known), "no call has {known}");
    }
    let parts = MADE_ELSEWHERE.iter().flat_map(|(_, parts)| *parts);
    for part in parts.chain(&RETURNED) {
        if !page.contains(part) {
            missing.push(format!("the page: {part}"));
        }
        if !all.contains(part) && !part.starts_with("E_") {
            missing.push(format!("the source: {part}"));
        }
    }
    assert!(count > 60, "{count} calls");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
