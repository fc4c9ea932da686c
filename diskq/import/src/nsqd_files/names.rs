//! The names of the files of queues, and the sizes of the fields of a record.

use wire::limits::ID_BYTES;

/// Bytes of a record's size field.
pub(super) const SIZE_BYTES: usize = 4;
/// Bytes of a record in front of its body, without the size field. This is the smallest size of a
/// record.
pub(super) const HEADER_BYTES: usize = 26;
const _: () = assert!(HEADER_BYTES == 8 + 2 + ID_BYTES);

/// The kind of a queue's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// Records. The number is that of the file.
    Data(u64),
    /// Positions.
    Positions,
    /// A file that no program reads: set aside after a read error, or left over by a crash.
    Ignored,
}

/// Returns the queue and kind of a file with this name, or `None` if it belongs to no queue.
pub(crate) fn parse_name(name: &str) -> Option<(&str, FileKind)> {
    // A topic's name may contain the infix. The part behind the infix may not.
    let (queue, rest) = name.rsplit_once(INFIX)?;
    let number = |rest: &str| {
        let digits = rest.strip_suffix(".dat")?;
        let is_number = digits.len() >= 6 && digits.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { digits.parse().ok() } else { None }
    };
    let kind = if rest == POSITIONS {
        FileKind::Positions
    } else if let Some(number) = number(rest) {
        FileKind::Data(number)
    } else if rest.strip_suffix(".bad").and_then(number).is_some() || is_temporary(rest, POSITIONS)
    {
        FileKind::Ignored
    } else {
        return None;
    };
    (!queue.is_empty()).then_some((queue, kind))
}

/// Returns true when a crash during the replacement of `file` can have left this name behind.
pub(crate) fn is_temporary(name: &str, file: &str) -> bool {
    let number = (name.strip_prefix(file))
        .and_then(|rest| rest.strip_prefix('.'))
        .and_then(|rest| rest.strip_suffix(".tmp"));
    number.is_some_and(|number| number.parse::<u64>().is_ok())
}

/// Returns the name of the queue of a topic or of one of its channels.
pub(crate) fn queue_name(topic: &str, channel: Option<&str>) -> String {
    match channel {
        // No name contains a colon.
        Some(channel) => format!("{topic}:{channel}"),
        None => topic.to_owned(),
    }
}

pub(super) fn data_file(queue: &str, number: u64) -> String {
    format!("{queue}{INFIX}{number:06}.dat")
}

pub(super) fn positions_file(queue: &str) -> String {
    format!("{queue}{INFIX}{POSITIONS}")
}

const INFIX: &str = ".diskqueue.";
const POSITIONS: &str = "meta.dat";
