//! What a topic keeps beside the log: [`SavedState`], which it remembers of messages that the log need not have any more,
//! and [`TopicFile`], which belongs to the topic alone.
//!
//! A topic that recognises messages saves the numbers of all messages below a seq. The messages at or above this seq
//! have their numbers in their slots, and stay in the log until a later state is saved. So a start knows all numbers.
//!
//! The state has two files, which are written in turns. The last durable one is never overwritten.
//! docs/reference/format.md draws the bytes. The body belongs to the topic.

use std::fmt::Debug;
use std::io;

use wire::id::Seq;

use crate::crc::crc32c;

/// The two files of a log.
pub const STATE_FILES: [&str; 2] = ["dedup.a", "dedup.b"];
/// The bytes before the body.
pub const STATE_HEAD_BYTES: usize = 36;

const MAGIC: [u8; 4] = *b"RQDS";
const VERSION: u16 = 1;
/// No log comes near this number, and its successor still fits 64 bits.
const NUMBER_MAX: u64 = 1 << 62;

/// The state that a topic has saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedState {
    /// Newer states have higher numbers.
    pub number: u64,
    /// The state knows all messages below this seq, and no other message. All of them were synced or finished when the
    /// state was written.
    pub boundary: Seq,
    /// The bytes of the topic.
    pub body: Vec<u8>,
}

/// The content of a state file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateContent {
    /// Nothing was ever written.
    Empty,
    /// A whole state.
    State(SavedState),
    /// Written by a version that this code does not know.
    Newer(u16),
    /// Torn or damaged.
    Bad,
}

/// Returns the bytes before the body of a state file.
#[must_use]
pub fn encode_state_head(number: u64, boundary: Seq, body: &[u8]) -> [u8; STATE_HEAD_BYTES] {
    let mut head = [0; STATE_HEAD_BYTES];
    head[0..4].copy_from_slice(&MAGIC);
    head[4..6].copy_from_slice(&VERSION.to_le_bytes());
    head[8..16].copy_from_slice(&number.to_le_bytes());
    head[16..24].copy_from_slice(&boundary.0.to_le_bytes());
    head[24..32].copy_from_slice(&(body.len() as u64).to_le_bytes());
    let crc = crc32c(crc32c(0, &head[..32]), body);
    head[32..36].copy_from_slice(&crc.to_le_bytes());
    head
}

/// Reads a state file. Bytes behind the body are left over from earlier, longer states, and are ignored.
#[must_use]
pub fn decode_state(bytes: &[u8]) -> StateContent {
    let Some((head, rest)) = bytes.split_first_chunk::<STATE_HEAD_BYTES>() else {
        return match bytes {
            [] => StateContent::Empty,
            [..] => StateContent::Bad,
        };
    };
    if head.iter().all(|&byte| byte == 0) {
        return StateContent::Empty;
    }
    let u64_at = |at: usize| {
        let field = head[at..].first_chunk().copied();
        u64::from_le_bytes(field.unwrap_or_default())
    };
    let crc = (u64_at(28) >> 32) as u32;
    let body = usize::try_from(u64_at(24)).ok();
    let Some(body) = body.and_then(|bytes| rest.get(..bytes)) else {
        return StateContent::Bad;
    };
    let is_whole = crc32c(crc32c(0, &head[..32]), body) == crc;
    plant!(StateCrcLeftOut, let is_whole = true);
    let (number, boundary) = (u64_at(8), Seq(u64_at(16)));
    if head[..4] != MAGIC || !is_whole || !(1..=NUMBER_MAX).contains(&number) {
        return StateContent::Bad;
    }
    match u16::from_le_bytes([head[4], head[5]]) {
        VERSION => StateContent::State(SavedState {
            number,
            boundary,
            body: body.to_vec(),
        }),
        other => StateContent::Newer(other),
    }
}

/// The name of the file in the directory of the log.
pub const TOPIC_FILE: &str = "keys";

/// Stands between the name of the file and a number, in the name of a file that is being written.
const UNFINISHED_INFIX: &str = ".new-";

/// The contents of a topic's file.
///
/// The keeper writes a new file, and syncs it. The log then has the new file renamed to [`TOPIC_FILE`]. So a crash leaves
/// the old file or the new one.
pub trait TopicFile: Debug + Send {
    /// Writes the contents in pieces. Blocks as long as `out` does.
    ///
    /// # Errors
    /// The error is that of `out`.
    fn write(&self, out: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()>;
}

/// Names an unfinished file. No other log has the number, so a log never renames the file of an earlier topic of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnfinishedFile(pub u64);

impl UnfinishedFile {
    /// The name of the file in the directory of the log.
    #[must_use]
    pub fn name(self) -> String {
        format!("{TOPIC_FILE}{UNFINISHED_INFIX}{:016x}", self.0)
    }
}

/// Returns whether this is an unfinished file. A crash leaves it, and the next start removes it.
#[must_use]
pub fn is_unfinished_file(name: &str) -> bool {
    let rest = name.strip_prefix(TOPIC_FILE);
    rest.is_some_and(|rest| rest.starts_with(UNFINISHED_INFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Vec<u8> {
        let body = b"what the topic knows";
        let mut bytes = encode_state_head(7, Seq(1000), body).to_vec();
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn a_state_comes_back_whatever_is_behind_it() {
        let mut bytes = file();
        let expected = StateContent::State(SavedState {
            number: 7,
            boundary: Seq(1000),
            body: b"what the topic knows".to_vec(),
        });
        assert_eq!(decode_state(&bytes), expected);
        bytes.extend_from_slice(b"an earlier, longer state");
        assert_eq!(decode_state(&bytes), expected);
    }

    #[test]
    fn a_state_that_is_cut_or_changed_is_bad() {
        assert_eq!(decode_state(&[]), StateContent::Empty);
        assert_eq!(decode_state(&[0; 100]), StateContent::Empty);
        let bytes = file();
        for length in 1..bytes.len() {
            assert_eq!(decode_state(&bytes[..length]), StateContent::Bad);
        }
        for bit in 0..bytes.len() * 8 {
            let mut bytes = file();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_state(&bytes), StateContent::Bad, "bit {bit}");
        }
    }

    #[test]
    fn a_newer_version_is_named() {
        let mut bytes = file();
        bytes[4] = 9;
        let crc = crc32c(crc32c(0, &bytes[..32]), &bytes[STATE_HEAD_BYTES..]);
        bytes[32..36].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(decode_state(&bytes), StateContent::Newer(9));
    }
}
