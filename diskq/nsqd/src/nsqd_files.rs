//! The files of the original nsqd: their names, what is in them, how they are read and written.
//!
//! ```text
//!   <data-path>/nsqd.dat                                which topics and channels there are
//!               <queue>.diskqueue.000000.dat            records, numbered on without end
//!               <queue>.diskqueue.meta.dat              how far they are read and written
//!               <queue>.diskqueue.000000.dat.bad        set aside after a read error, never read again
//!               <queue>.diskqueue.meta.dat.<n>.tmp      left by a crash, never read
//!
//!   queue:   <topic> for what the topic has given to no channel, <topic>:<channel>
//!   record:  | size[4] | timestamp[8] | attempts[2] | id[16] | body ... |     big endian
//! ```
//!
//! `nsqd.dat` is the one file both programs keep, in place and byte for byte alike.

mod metadata;
mod queue_reader;
mod queue_writer;

pub use metadata::{FILE_NAME, Metadata, MetadataError};
pub(crate) use queue_reader::{Queue, QueueReader, Record};
pub(crate) use queue_writer::QueueWriter;

use wire::limits::ID_BYTES;

/// A record's size field.
const SIZE_BYTES: usize = 4;
/// A record in front of its body, without the size field: the smallest size there is.
const HEADER_BYTES: usize = 26;
const _: () = assert!(HEADER_BYTES == 8 + 2 + ID_BYTES);

/// What a file of a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// Records, and the number of the file.
    Data(u64),
    /// Positions.
    Positions,
    /// Nobody reads it: set aside after a read error, or left over by a crash.
    Ignored,
}

/// The queue and kind of a file, by its name; `None`: it is no queue's.
pub(crate) fn parse_name(name: &str) -> Option<(&str, FileKind)> {
    // A topic's name may contain the infix, what is behind it may not.
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

/// Whether a crash while `file` was replaced left this name behind.
pub(crate) fn is_temporary(name: &str, file: &str) -> bool {
    let number = (name.strip_prefix(file))
        .and_then(|rest| rest.strip_prefix('.'))
        .and_then(|rest| rest.strip_suffix(".tmp"));
    number.is_some_and(|number| number.parse::<u64>().is_ok())
}

/// The queue of a topic, or of one of its channels.
pub(crate) fn queue_name(topic: &str, channel: Option<&str>) -> String {
    match channel {
        // No name contains a colon.
        Some(channel) => format!("{topic}:{channel}"),
        None => topic.to_owned(),
    }
}

fn data_file(queue: &str, number: u64) -> String {
    format!("{queue}{INFIX}{number:06}.dat")
}

fn positions_file(queue: &str) -> String {
    format!("{queue}{INFIX}{POSITIONS}")
}

const INFIX: &str = ".diskqueue.";
const POSITIONS: &str = "meta.dat";

#[cfg(test)]
mod tests;
