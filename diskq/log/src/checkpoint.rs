//! [`Checkpoint`]: the messages that a topic and its channels still owe, and the file that keeps this record.
//!
//! The file has three slots, and the newest readable slot counts. Two slots are never overwritten: the last durable one
//! (power may fail), and the last written one (the process may be killed while it writes the next). All slots are in
//! one file, because making a file is the most expensive step of a new topic. docs/format.md draws the bytes.

mod additions;
mod content;
mod draft;
mod encoding;
mod reader;
mod runs;

use std::collections::TryReserveError;
use std::iter;
use std::ops::Range;

use wire::id::{SEQ_MAX, Seq};
use wire::name::ChannelName;

use crate::pause_terms::PauseTerms;
use crate::range::SeqRange;

use encoding::{ADDITIONS_VERSION, GRACE_VERSION, HEAD_BYTES, LENGTH_VERSION, MAGIC, VERSION, crc};

pub use content::{
    ChannelCheckpoint, Checkpoint, CheckpointRun, GraceCheckpoint, Stamp, UndoCheckpoint,
};
pub use draft::{ChannelDraft, CheckpointDraft, GraceDraft, UndoDraft};
pub use reader::reserved;
use reader::{Reader, Unread};
pub use runs::Runs;

/// The file of all slots.
pub const CHECKPOINT_FILE: &str = "checkpoint";
/// The number of slots in the file.
pub const SLOTS: usize = 3;
/// The least room of a slot: a block of the disk. No two slots share a block, so a write to one slot does not touch
/// another slot.
const SLOT_ROOM_MIN: u64 = 4096;

/// The length with which the file is made: room for the first checkpoint, and for one twice as long.
pub const FILE_BYTES_MIN: u64 = 2 * SLOT_ROOM_MIN * SLOTS as u64;

/// The room a slot needs for `bytes` bytes.
pub fn slot_room(bytes: usize) -> u64 {
    (bytes as u64).next_power_of_two().max(SLOT_ROOM_MIN)
}

/// The length of a file with so much room in each slot.
pub fn file_bytes(slot_room: u64) -> u64 {
    slot_room * SLOTS as u64
}

/// Returns whether a checkpoint file is made with this length, or grows to it.
pub fn is_file_length(bytes: u64) -> bool {
    let room = bytes / SLOTS as u64;
    bytes >= FILE_BYTES_MIN && bytes == file_bytes(room) && room.is_power_of_two()
}

/// Returns the pieces that hold the first `bytes` bytes of a slot: the bytes of the slot, and the place in the file.
///
/// ```text
///   room 4096       | a | b | c |
///   room 8192       | a | b | c | a | b | c |
///   room 16384      | a | b | c | a | b | c | a     | b     | c     |
/// ```
///
/// So a slot grows by a new piece at the end of the file, and its earlier pieces never move.
pub fn pieces(slot: usize, bytes: u64) -> impl Iterator<Item = (Range<u64>, u64)> {
    let slot = slot as u64;
    let first = (0..SLOT_ROOM_MIN, slot * SLOT_ROOM_MIN);
    let rooms = iter::successors(Some(SLOT_ROOM_MIN), |room| room.checked_mul(2));
    let others = rooms.map(move |room| (room..room * 2, file_bytes(room) + slot * room));
    iter::once(first)
        .chain(others)
        .take_while(move |(piece, _)| piece.start < bytes)
        .map(move |(piece, at)| (piece.start..piece.end.min(bytes), at))
}

/// The part of a checkpoint that is not about messages: the channels, what is paused, and the end of the topic's
/// grace. An answered change of an operator changes this part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roster {
    paused: bool,
    terms: PauseTerms,
    /// The end of the topic's undo, in Unix nanoseconds. `None`: no undo is possible.
    undo_until_ns: Option<u64>,
    channels: Vec<ChannelEntry>,
    /// The end of the topic's grace, in Unix nanoseconds. `None`: the topic is not in grace.
    grace_until_ns: Option<u64>,
}

/// A channel of a [`Roster`].
#[derive(Clone, Debug, PartialEq, Eq)]
struct ChannelEntry {
    name: String,
    paused: bool,
    terms: PauseTerms,
    /// The end of the undo, in Unix nanoseconds. `None`: no undo is possible.
    undo_until_ns: Option<u64>,
}

impl Roster {
    /// Returns whether the roster has this channel.
    #[must_use]
    pub fn names(&self, channel: &str) -> bool {
        self.channels.iter().any(|entry| entry.name == channel)
    }
}

impl From<&Checkpoint> for Roster {
    fn from(checkpoint: &Checkpoint) -> Roster {
        let channels = checkpoint.channels.iter();
        Roster {
            paused: checkpoint.paused,
            terms: checkpoint.terms.clone(),
            undo_until_ns: checkpoint.undo.as_ref().map(|undo| undo.until_ns),
            channels: channels
                .map(|it| ChannelEntry {
                    name: it.name.clone(),
                    paused: it.paused,
                    terms: it.terms.clone(),
                    undo_until_ns: it.undo.as_ref().map(|undo| undo.until_ns),
                })
                .collect(),
            grace_until_ns: checkpoint.grace.as_ref().map(|grace| grace.until_ns),
        }
    }
}

impl From<&CheckpointDraft> for Roster {
    fn from(draft: &CheckpointDraft) -> Roster {
        let channels = draft.channels.iter();
        Roster {
            paused: draft.paused,
            terms: draft.terms.clone(),
            undo_until_ns: draft.undo.as_ref().map(|undo| undo.until_ns),
            channels: channels
                .map(|it| ChannelEntry {
                    name: it.name.clone(),
                    paused: it.paused,
                    terms: it.terms.clone(),
                    undo_until_ns: it.undo.as_ref().map(|undo| undo.until_ns),
                })
                .collect(),
            grace_until_ns: draft.grace.as_ref().map(|grace| grace.until_ns),
        }
    }
}

/// The highest checkpoint number that is accepted. No log comes near this number, and its successor still fits 64 bits.
pub const NUMBER_MAX: u64 = 1 << 62;

/// The content of one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotContent {
    /// Nothing was ever written.
    Empty,
    /// A whole checkpoint, and whether its writer asked for a sync.
    Checkpoint(Box<Checkpoint>, bool),
    /// A whole checkpoint of a version that this code does not know.
    Newer {
        /// The version.
        version: u16,
        /// The number of the checkpoint: all versions have it at the same place.
        number: u64,
    },
    /// Torn or damaged.
    Bad,
    /// The CRC is right, but no log can have written this content.
    Inconsistent,
}

/// The length of the checkpoint that begins with these bytes; 0 if none does.
pub fn encoded_bytes(bytes: &[u8]) -> u64 {
    let body = bytes.get(16..20).and_then(|field| field.first_chunk());
    match body {
        Some(body) if bytes[..4] == MAGIC => {
            HEAD_BYTES as u64 + u64::from(u32::from_le_bytes(*body))
        }
        _ => 0,
    }
}

/// Reads a slot. Bytes behind the checkpoint are left over from earlier, longer checkpoints, and are ignored.
///
/// # Errors
/// There is not enough memory for the decoded checkpoint.
pub fn decode(bytes: &[u8]) -> Result<SlotContent, TryReserveError> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
        return Ok(if bytes.is_empty() {
            SlotContent::Empty
        } else {
            SlotContent::Bad
        });
    };
    if head.iter().all(|&byte| byte == 0) {
        return Ok(SlotContent::Empty);
    }
    let mut fields = Reader(&head[4..]);
    let parsed = (|| {
        Ok::<_, Unread>((
            fields.u16()?,
            fields.u16()?,
            fields.u64()?,
            fields.u32()?,
            fields.u32()?,
        ))
    })();
    let Ok((version, flags, number, body_bytes, stored_crc)) = parsed else {
        return Ok(SlotContent::Bad);
    };
    let Some(body) = rest.get(..body_bytes as usize) else {
        return Ok(SlotContent::Bad);
    };
    let is_whole = crc(&head[..20], body) == stored_crc;
    plant!(CheckpointCrcLeftOut, let is_whole = true);
    if head[..4] != MAGIC || !is_whole {
        return Ok(SlotContent::Bad);
    }
    if !(VERSION..=LENGTH_VERSION).contains(&version) {
        return Ok(SlotContent::Newer { version, number });
    }
    match decode_body(number, version, body) {
        Ok(checkpoint) if is_consistent(&checkpoint)? => {
            Ok(SlotContent::Checkpoint(checkpoint.into(), flags & 1 == 1))
        }
        Ok(_) | Err(Unread::Malformed) => Ok(SlotContent::Inconsistent),
        Err(Unread::NoMemory(error)) => Err(error),
    }
}

/// Makes the CRC of a changed checkpoint right.
#[cfg(any(test, feature = "sim"))]
pub fn reseal(bytes: &mut [u8]) {
    let crc = crc(&bytes[..20], &bytes[HEAD_BYTES..]);
    bytes[20..24].copy_from_slice(&crc.to_le_bytes());
}

fn decode_body(number: u64, version: u16, body: &[u8]) -> Result<Checkpoint, Unread> {
    let mut reader = Reader(body);
    let mut checkpoint = Checkpoint {
        number,
        synced: Seq(reader.u64()?),
        next: Seq(reader.u64()?),
        paused: reader.u8()? != 0,
        ..Checkpoint::default()
    };
    checkpoint.undistributed = reader.runs()?;
    for _ in 0..reader.u32()? {
        let name_bytes = usize::from(reader.u8()?);
        let name = str::from_utf8(reader.take(name_bytes)?).map_err(|_| Unread::Malformed)?;
        let name = name.to_owned();
        let paused = reader.u8()? != 0;
        let runs = reader.runs()?;
        checkpoint.channels.push(ChannelCheckpoint {
            name,
            paused,
            runs,
            ..ChannelCheckpoint::default()
        });
    }
    let has_grace = match version {
        ADDITIONS_VERSION | LENGTH_VERSION => match reader.u8()? {
            bit @ 0..=1 => bit == 1,
            _ => return Err(Unread::Malformed),
        },
        _ => version == GRACE_VERSION,
    };
    if has_grace {
        checkpoint.grace = Some(GraceCheckpoint {
            until_ns: reader.u64()?,
            runs: reader.runs()?,
        });
    }
    if version >= ADDITIONS_VERSION {
        additions::read(&mut reader, version, &mut checkpoint)?;
    }
    match reader.0 {
        [] => Ok(checkpoint),
        [..] => Err(Unread::Malformed),
    }
}

/// Returns whether a log of ours can have written this checkpoint. Its readers rely on that.
///
/// All seqs are below `next`, a channel owes each of them once, and the topic has given its channels
/// everything below what it has not distributed. The messages of its grace are among those that it has distributed. The
/// messages that a channel was emptied of lie below all messages that it has got since. The messages that the topic was
/// emptied of lie below all that it has not distributed, and no channel has them.
fn is_consistent(checkpoint: &Checkpoint) -> Result<bool, TryReserveError> {
    let Checkpoint {
        synced,
        next,
        number,
        ..
    } = *checkpoint;
    let is_numbered = (1..=NUMBER_MAX).contains(&number);
    let has_seqs = synced <= next && next.0 <= SEQ_MAX + 1;
    let mut names: Vec<&str> = Vec::new();
    let mut given = Seq(0);
    let mut dropped = reserved(checkpoint.undo.as_ref().map_or(0, |undo| undo.runs.len()))?;
    let undo = checkpoint.undo.iter().flat_map(|undo| &undo.runs);
    dropped.extend(undo.map(CheckpointRun::range));
    let dropped_end = dropped.last().map_or(Seq(0), |last: &SeqRange| last.end);
    let channels = checkpoint.channels.iter();
    let lists = channels.map(|channel| (&channel.runs, channel.undo.as_ref()));
    for (list, undo) in lists.chain(checkpoint.grace.iter().map(|grace| (&grace.runs, None))) {
        let undone = undo.map_or(&[][..], |undo| &undo.runs);
        let mut runs = reserved(list.len().saturating_add(undone.len()))?;
        runs.extend(undone.iter().map(CheckpointRun::range));
        if !are_apart(&runs) {
            return Ok(false);
        }
        let emptied = runs.len();
        runs.extend(list.iter().map(CheckpointRun::range));
        runs[emptied..].sort_unstable();
        if !are_apart(&runs) || dropped.iter().any(|range| overlaps(&runs, *range)) {
            return Ok(false);
        }
        given = runs.last().map_or(given, |last| given.max(last.end));
    }
    for channel in &checkpoint.channels {
        names.push(&channel.name);
    }
    let is_name = |name: &&str| ChannelName::new(name.as_bytes()).is_some();
    names.sort_unstable();
    let mut kept = reserved(checkpoint.undistributed.len())?;
    kept.extend(checkpoint.undistributed.iter().map(CheckpointRun::range));
    let end = kept.last().map_or(given, |last| last.end);
    Ok(is_numbered
        && has_seqs
        && names.iter().all(is_name)
        && names.windows(2).all(|pair| pair[0] != pair[1])
        && are_apart(&kept)
        && are_apart(&dropped)
        && kept
            .first()
            .is_none_or(|first| given.max(dropped_end) <= first.start)
        && given.max(end).max(dropped_end) <= next)
}

/// Returns whether one of the ranges, which are sorted and lie apart, has a seq of `range`.
fn overlaps(ranges: &[SeqRange], range: SeqRange) -> bool {
    let first = ranges.partition_point(|other| other.end <= range.start);
    ranges
        .get(first)
        .is_some_and(|other| other.start < range.end)
}

/// Returns whether each range ends before the next one starts.
fn are_apart(ranges: &[SeqRange]) -> bool {
    ranges.windows(2).all(|pair| pair[0].end <= pair[1].start)
}

#[cfg(test)]
mod tests;
