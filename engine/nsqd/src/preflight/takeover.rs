//! The takeover of the original nsqd's files that a start would do.

use std::path::Path;

use diskq::{DiskError, OsFiles};
use diskq_import::{COMMITTED_TAKEOVER, DueTakeover, Metadata};

use super::disk;
use super::finding::{Finding, bytes_text};

/// `None`: no files of the original are there, or nsqd.dat cannot be read, which has a finding of its own.
pub(super) fn check(path: &Path) -> Option<Finding> {
    let metadata = Metadata::load(path).ok()?;
    let due = diskq_import::due_takeover(&OsFiles, path, &metadata.topics);
    judge(due, disk::free_bytes(path))
}

/// `free_bytes` is `None` if the file system does not say how much is free.
fn judge(due: Result<DueTakeover, DiskError>, free_bytes: Option<u64>) -> Option<Finding> {
    let due = match due {
        Ok(due) => due,
        Err(error) => {
            return Some(Finding::failure(
                format!("a start fails at the data files of the original nsqd: {error}"),
                "do what the text says, or mend the cause; a takeover needs all files",
            ));
        }
    };
    let DueTakeover {
        completes_earlier,
        begins_anew,
        queue_count,
        bytes,
        unlisted,
    } = due;
    let mut steps = Vec::new();
    if completes_earlier {
        steps.push(format!(
            "completes an earlier takeover, which counts already ({COMMITTED_TAKEOVER})"
        ));
    }
    if begins_anew {
        steps.push("removes what an earlier takeover left that does not count".to_owned());
    }
    let has_no_step = steps.is_empty();
    match queue_count {
        0 if has_no_step && unlisted.is_empty() => return None,
        0 if has_no_step => steps.push("takes over no queue of the original nsqd".to_owned()),
        0 => {}
        1 => steps.push(format!(
            "takes over 1 queue ({}) of the original nsqd",
            bytes_text(bytes)
        )),
        count => steps.push(format!(
            "takes over {count} queues ({}) of the original nsqd",
            bytes_text(bytes)
        )),
    }
    let mut found = format!(
        "a start {} (docs/operate/upgrade.md)",
        steps.join(", then ")
    );
    if !unlisted.is_empty() {
        found += &format!(
            "; nsqd.dat does not list {}: their files are left alone",
            unlisted.join(", ")
        );
    }
    // The new files are complete before the old ones are set aside. Beside its body, a message has 30 bytes in a file of
    // the original and 50 in a segment: 1.65 times as much for a body of one byte, and 1.1 times for 170 bytes.
    let needed_bytes = bytes.saturating_add(bytes / 100 * 65);
    match free_bytes {
        Some(free_bytes) if free_bytes < needed_bytes => Some(Finding::warning(
            format!(
                "{found}; that needs up to {}, and {} are free: without the room, the start fails and changes nothing",
                bytes_text(needed_bytes),
                bytes_text(free_bytes)
            ),
            "make room on the file system of --data-path",
        )),
        _ if !unlisted.is_empty() => Some(Finding::warning(
            found,
            "if their messages are wanted, bring back the nsqd.dat that lists them before the start",
        )),
        _ => Some(Finding::ok(found)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::State;

    #[test]
    fn a_takeover_is_announced_with_its_room() {
        let due = |queue_count, bytes, unlisted: &[&str]| {
            Ok(DueTakeover {
                completes_earlier: false,
                begins_anew: false,
                queue_count,
                bytes,
                unlisted: unlisted.iter().map(|name| (*name).to_owned()).collect(),
            })
        };
        assert_eq!(judge(due(0, 0, &[]), Some(0)), None);
        let found = |due, free_bytes| {
            let finding = judge(due, free_bytes).expect("there are files");
            (finding.state, finding.found)
        };
        let (state, text) = found(due(3, 1000, &[]), Some(1650));
        assert_eq!(state, State::Ok);
        assert!(
            text.starts_with("a start takes over 3 queues (1000 bytes) of the original nsqd"),
            "{text}"
        );
        assert_eq!(found(due(3, 1000, &[]), None).0, State::Ok);
        let (state, text) = found(due(3, 1000, &[]), Some(1649));
        assert_eq!(state, State::Warning);
        assert!(
            text.contains("that needs up to 1.6 KiB, and 1.6 KiB are free"),
            "{text}"
        );
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
            let (state, text) = found(Ok(due), None);
            assert_eq!(state, State::Ok, "{text}");
            text
        };
        assert_eq!(
            again(true, false, 0),
            "a start completes an earlier takeover, which counts already (import.done) (docs/operate/upgrade.md)"
        );
        assert_eq!(
            again(false, true, 2),
            "a start removes what an earlier takeover left that does not count, then takes over 2 queues (1000 bytes) of \
             the original nsqd (docs/operate/upgrade.md)"
        );
    }
}
