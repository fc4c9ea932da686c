//! [`Checkpoint`]: the messages that a topic and its channels still owe, and the file that keeps this record.
//!
//! The file has three places, and the newest readable checkpoint counts. Two places are never overwritten: that of the
//! last durable checkpoint (power may fail), and that of the last written one (the process may be killed while it writes
//! the next). All places are in one file, because making a file is the most expensive step of a new topic.
//! docs/reference/format.md draws the bytes.

mod content;
mod encoding;
mod runs;

use std::iter;
use std::ops::Range;

pub use content::{
    ChannelCheckpoint, ChannelDraft, Checkpoint, CheckpointDraft, CheckpointOf, GraceCheckpoint,
    GraceDraft, PauseTerms, Roster, TimedRuns, UndoCheckpoint, UndoDraft,
};
#[cfg(any(test, feature = "sim"))]
pub use encoding::reseal;
pub use encoding::{NUMBER_MAX, PlaceContent, decode, encoded_bytes, reserved};
pub use runs::{CheckpointRun, Runs};

/// The file of all places.
pub const CHECKPOINT_FILE: &str = "checkpoint";
/// The number of places in the file.
pub const PLACES: usize = 3;
/// The least room of a place: a block of the disk. No two places share a block, so a write to one place does not touch
/// another place.
const PLACE_ROOM_MIN: u64 = 4096;

/// The length with which the file is made: room for the first checkpoint, and for one twice as long.
pub const FILE_BYTES_MIN: u64 = 2 * PLACE_ROOM_MIN * PLACES as u64;

/// The room a place needs for `bytes` bytes.
pub fn place_room(bytes: usize) -> u64 {
    (bytes as u64).next_power_of_two().max(PLACE_ROOM_MIN)
}

/// The length of a file with so much room in each place.
pub fn file_bytes(place_room: u64) -> u64 {
    place_room * PLACES as u64
}

/// Returns whether a checkpoint file is made with this length, or grows to it.
pub fn is_file_length(bytes: u64) -> bool {
    let room = bytes / PLACES as u64;
    bytes >= FILE_BYTES_MIN && bytes == file_bytes(room) && room.is_power_of_two()
}

/// Returns the pieces that hold the first `bytes` bytes of a place: the bytes of the place, and where they are in the
/// file.
///
/// ```text
///   room 4096       | a | b | c |
///   room 8192       | a | b | c | a | b | c |
///   room 16384      | a | b | c | a | b | c | a     | b     | c     |
/// ```
///
/// So a place grows by a new piece at the end of the file, and its earlier pieces never move.
pub fn pieces(place: usize, bytes: u64) -> impl Iterator<Item = (Range<u64>, u64)> {
    let place = place as u64;
    let first = (0..PLACE_ROOM_MIN, place * PLACE_ROOM_MIN);
    let rooms = iter::successors(Some(PLACE_ROOM_MIN), |room| room.checked_mul(2));
    let others = rooms.map(move |room| (room..room * 2, file_bytes(room) + place * room));
    iter::once(first)
        .chain(others)
        .take_while(move |(piece, _)| piece.start < bytes)
        .map(move |(piece, at)| (piece.start..piece.end.min(bytes), at))
}

#[cfg(test)]
mod tests;
