//! The takeover of the original nsqd's files that a start would do.

use std::path::Path;
use std::time::{Duration, Instant};

use diskq::{DiskError, OsFiles};
use diskq_import::{COMMITTED_TAKEOVER, DueContent, DueTakeover, Metadata};
use program::check::{Finding, bytes_text};
use serde_json::json;

use crate::disk;

/// The longest time for reading the queues. A check must end soon, also beside gigabytes of messages.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The time that a takeover takes for a gigabyte of files (docs/explain/takeover.md).
const SECONDS_PER_GB: f64 = 4.0;

/// The most faults of files that are shown.
const FAULTS_MAX: usize = 10;

/// Judges the takeover that a start would do. `None`: no files of the original are there, or nsqd.dat cannot be read, which
/// has a finding of its own. While the original `runs`, it changes the files.
pub fn check(path: &Path, message_bytes_max: u64, runs: bool) -> Option<Finding> {
    let topics = Metadata::load(path).ok()?.topics;
    let due = diskq_import::due_takeover(&OsFiles, path, &topics);
    let began = Instant::now();
    let goes_on = || began.elapsed() < READ_TIMEOUT;
    let content = diskq_import::read_due(&OsFiles, path, &topics, message_bytes_max, goes_on);
    if runs && (due.is_err() || content.is_err()) {
        let found = "the nsqd that runs changes its files, so they cannot be looked through";
        return Some(Finding::waiting(
            found,
            "check again when that nsqd has stopped",
        ));
    }
    let due = due.and_then(|due| Ok((due, content?)));
    let mut finding = judge(due, disk::free_bytes(path))?;
    if runs {
        finding.found += "; the nsqd that runs still changes these files";
    }
    Some(finding)
}

/// `free_bytes` is `None` if the file system does not say how much is free.
fn judge(
    due: Result<(DueTakeover, DueContent), DiskError>,
    free_bytes: Option<u64>,
) -> Option<Finding> {
    let (due, content) = match due {
        Ok(due) => due,
        Err(error) => {
            return Some(Finding::failure(
                format!("a start fails at the data files of the original nsqd: {error}"),
                "do what the text says, or mend the cause; a takeover needs all files",
            ));
        }
    };
    let found = found_text(&due, &content)?;
    let finding = finding(found, &due, content.notes.len(), free_bytes);
    let data = json!({
        "queues": due.queue_count, "bytes": due.bytes, "messages": content.message_count, "is_complete": content.is_complete,
        "unlisted": due.unlisted, "faults": content.notes,
    });
    let mut details = content.notes;
    let fault_count = details.len();
    if fault_count > FAULTS_MAX {
        details.truncate(FAULTS_MAX);
        details.push(format!("and {} faults more", fault_count - FAULTS_MAX));
    }
    Some(finding.with(details, data))
}

/// Says what a start does with the files. `None`: it does nothing.
fn found_text(due: &DueTakeover, content: &DueContent) -> Option<String> {
    let mut steps = Vec::new();
    if due.completes_earlier {
        steps.push(format!(
            "completes an earlier takeover, which counts already ({COMMITTED_TAKEOVER})"
        ));
    }
    if due.begins_anew {
        steps.push("removes what an earlier takeover left that does not count".to_owned());
    }
    let has_no_step = steps.is_empty();
    match due.queue_count {
        0 if has_no_step && due.unlisted.is_empty() => return None,
        0 if has_no_step => steps.push("takes over no queue of the original nsqd".to_owned()),
        0 => {}
        count => steps.push(format!(
            "takes over {} of the original nsqd ({}, {}{} messages) in about {}",
            if count == 1 {
                "1 queue".to_owned()
            } else {
                format!("{count} queues")
            },
            bytes_text(due.bytes),
            if content.is_complete {
                ""
            } else {
                "more than "
            },
            content.message_count,
            seconds_text(due.bytes)
        )),
    }
    let mut found = format!(
        "a start {} (docs/operate/upgrade.md)",
        steps.join(", then ")
    );
    if !due.unlisted.is_empty() {
        found += &format!(
            "; nsqd.dat does not list {}: their files are left alone",
            due.unlisted.join(", ")
        );
    }
    Some(found)
}

/// Returns the finding with the text `found` and with what there is to do.
fn finding(
    found: String,
    due: &DueTakeover,
    fault_count: usize,
    free_bytes: Option<u64>,
) -> Finding {
    // The new files are complete before the old ones are set aside. Beside its body, a message has 30 bytes in a file of
    // the original and 50 in a segment: 1.65 times as much for a body of one byte, and 1.1 times for 170 bytes.
    let needed_bytes = due.bytes.saturating_add(due.bytes / 100 * 65);
    // The takeover stores a message of several channels once, so the largest queue needs its room at least.
    let least_bytes = due.bytes / (due.queue_count as u64).max(1);
    match free_bytes {
        Some(free_bytes) if free_bytes < needed_bytes => {
            let found = format!(
                "{found}; that needs up to {}, and {} are free: without the room, the start fails and changes nothing",
                bytes_text(needed_bytes),
                bytes_text(free_bytes)
            );
            let advice = "make room on the file system of --data-path";
            if free_bytes < least_bytes {
                Finding::failure(found, advice)
            } else {
                Finding::warning(found, advice)
            }
        }
        _ if !due.unlisted.is_empty() => Finding::warning(
            found,
            "if their messages are wanted, bring back the nsqd.dat that lists them before the start",
        ),
        _ if fault_count > 0 => Finding::warning(
            format!("{found}, except for what cannot be read:"),
            "nothing, or repair the files first; the takeover keeps them as they are",
        ),
        _ => Finding::ok(found),
    }
}

/// Returns how long a takeover of so many bytes takes.
fn seconds_text(bytes: u64) -> String {
    let seconds = bytes as f64 / 1e9 * SECONDS_PER_GB;
    match seconds {
        _ if seconds < 1.0 => "a second".to_owned(),
        _ if seconds < 100.0 => format!("{seconds:.0} s"),
        _ => format!("{:.0} min", seconds / 60.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use program::check::State;

    fn content(notes: &[&str]) -> DueContent {
        DueContent {
            message_count: 7,
            notes: notes.iter().map(|note| (*note).to_owned()).collect(),
            is_complete: true,
        }
    }

    #[test]
    fn the_time_grows_with_the_files() {
        for (bytes, text) in [
            (0, "a second"),
            (10_000_000_000, "40 s"),
            (100_000_000_000, "7 min"),
        ] {
            assert_eq!(seconds_text(bytes), text);
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let due = || DueTakeover {
            completes_earlier: false,
            begins_anew: false,
            queue_count: 1,
            bytes: 1000,
            unlisted: Vec::new(),
        };
        let finding = judge(Ok((due(), content(&["a is damaged"]))), None).expect("files");
        assert_eq!(finding.state, State::Warning);
        assert_eq!(finding.details, ["a is damaged"]);
        let finding = judge(Ok((due(), content(&["damaged"; 12]))), None).expect("files");
        assert_eq!(finding.details.len(), 11);
        assert_eq!(finding.details[10], "and 2 faults more");
        let mut cut = content(&[]);
        cut.is_complete = false;
        let finding = judge(Ok((due(), cut)), None).expect("files");
        assert!(
            finding.found.contains("more than 7 messages"),
            "{finding:?}"
        );
    }

    #[test]
    fn a_takeover_is_announced_with_its_room() {
        let due = |queue_count, bytes, unlisted: &[&str]| {
            let due = DueTakeover {
                completes_earlier: false,
                begins_anew: false,
                queue_count,
                bytes,
                unlisted: unlisted.iter().map(|name| (*name).to_owned()).collect(),
            };
            Ok((due, content(&[])))
        };
        assert_eq!(judge(due(0, 0, &[]), Some(0)), None);
        let found = |due, free_bytes| {
            let finding = judge(due, free_bytes).expect("there are files");
            (finding.state, finding.found)
        };
        let (state, text) = found(due(3, 1000, &[]), Some(1650));
        assert_eq!(state, State::Ok);
        assert!(
            text.starts_with(
                "a start takes over 3 queues of the original nsqd (1000 bytes, 7 messages) in about a second"
            ),
            "{text}"
        );
        assert_eq!(found(due(3, 1000, &[]), None).0, State::Ok);
        let (state, text) = found(due(3, 1000, &[]), Some(1649));
        assert_eq!(state, State::Warning);
        assert!(
            text.contains("that needs up to 1.6 KiB, and 1.6 KiB are free"),
            "{text}"
        );
        assert_eq!(found(due(3, 1000, &[]), Some(333)).0, State::Warning);
        assert_eq!(found(due(3, 1000, &[]), Some(332)).0, State::Failure);
        let (state, text) = found(due(0, 0, &["orders", "orders:billing"]), Some(1 << 30));
        assert_eq!(state, State::Warning);
        assert!(
            text.ends_with("does not list orders, orders:billing: their files are left alone"),
            "{text}"
        );
        let (state, text) = found(Err(DiskError::Failed("no".to_owned())), None);
        assert_eq!(state, State::Failure);
        assert_eq!(
            text,
            "a start fails at the data files of the original nsqd: no"
        );
        let again = |completes_earlier, begins_anew, queue_count| {
            let due = DueTakeover {
                completes_earlier,
                begins_anew,
                queue_count,
                bytes: 1000,
                unlisted: Vec::new(),
            };
            let (state, text) = found(Ok((due, content(&[]))), None);
            assert_eq!(state, State::Ok, "{text}");
            text
        };
        assert_eq!(
            again(true, false, 0),
            "a start completes an earlier takeover, which counts already (import.done) (docs/operate/upgrade.md)"
        );
        assert_eq!(
            again(false, true, 2),
            "a start removes what an earlier takeover left that does not count, then takes over 2 queues of the \
             original nsqd (1000 bytes, 7 messages) in about a second (docs/operate/upgrade.md)"
        );
    }
}
