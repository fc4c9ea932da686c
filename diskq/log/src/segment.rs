//! One segment as bytes: frames grow forward, slots grow backward. Pure; owns no memory.
//!
//! ```text
//!   0       64      128                                                  segment bytes
//!   | head  | twin  | frame 0 | frame 1 | ... ->      <- ... | slot 1 | slot 0 |
//! ```
//!
//! The two head blocks say the same, so that one flipped bit costs no segment; only the twin is
//! written a second time, when the segment is sealed. docs/reference/format.md draws them byte by byte.
//!
//! A message exists from the moment its slot is whole. The slot is stored after the frame, but
//! nothing relies on that order: the kernel writes pages as it likes, the CRC covers both.
//!
//! The slots of a segment have sixteen bytes, or thirty-two with the origins of the messages
//! ([`SlotKind`]). The version in the head tells which.

use std::iter;
use std::ops::Range;

use wire::frame::{ATTEMPTS_AT, HEADER_BYTES, TIMESTAMP_AT, write_header};
use wire::id::{MessageId, Seq};
use wire::origin::Origin;

use crate::crc::crc32c;
use crate::random::splitmix64;
use crate::range::SeqRange;
use crate::slot::{NO_ORIGIN, SLOT_BYTES, Slot, SlotKind};

/// The offset at which the first frame starts.
pub const FRAMES_AT: u32 = 128;
/// The formats that this code writes and reads: CRC-32C in the slots, without and with origins.
const VERSION: u16 = 2;
const VERSION_WITH_ORIGIN: u16 = 3;
/// The size of a page. The size of a segment for a large message is rounded up to whole pages.
pub const PAGE_BYTES: u32 = 4096;
/// No segment is larger: offsets are 32 bits, and sums of two of them stay below 2^32.
pub const SEGMENT_BYTES_LIMIT: u32 = 1 << 30;
/// The largest size of segments, unless a batch or a backlog of many of them needs more. At this size, the cost of spilling and reading back a file
/// is small.
pub const SPILLED_BYTES: u32 = 16 << 20;

const BLOCK_BYTES: usize = 64;
const HEAD_MAGIC: [u8; 4] = *b"RQSG";
const TWIN_MAGIC: [u8; 4] = *b"RQST";
const _: () = assert!(FRAMES_AT as usize == 2 * BLOCK_BYTES);

/// The content of both head blocks, from the segment's first append on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Random per use of the file: nothing written under another one is valid.
    pub generation: u64,
    /// The seq of the first message.
    pub base: Seq,
    /// The length of the file.
    pub bytes: u32,
    /// The node id in the message ids, for the tools.
    pub node: u16,
    /// The kind of the slots.
    pub slots: SlotKind,
}

/// Returns the next generation of the sequence that `seed` began: a random number that is not 0.
#[must_use]
pub fn next_generation(seed: &mut u64) -> u64 {
    splitmix64(seed).max(1)
}

/// The content that the twin has in addition once the segment is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The number of messages.
    pub count: u32,
    /// The offset at which the last frame ends.
    pub end: u32,
}

impl Seal {
    /// Returns whether a segment with this head can have been sealed so.
    pub fn fits(&self, head: &Head) -> bool {
        let least = bytes_needed(head.slots, u64::from(self.count), u64::from(FRAMES_AT));
        let slots = u64::from(self.count) * head.slots.bytes() as u64;
        self.count > 0
            && u64::from(self.end) + slots >= least
            && u64::from(self.end) + slots <= u64::from(head.bytes)
    }
}

/// Returns whether a segment can have this length.
pub fn is_size(bytes: u32) -> bool {
    (PAGE_BYTES..=SEGMENT_BYTES_LIMIT).contains(&bytes)
}

/// The result of reading the first 128 bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadState {
    /// Nothing was ever written: prepared, not used.
    Unused,
    /// A segment; sealed or not.
    Segment(Head, Option<Seal>),
    /// Written by a version this code does not know.
    Newer(u16),
    /// Neither block is whole.
    Unreadable,
}

/// Writes both blocks of a segment that starts its life (again).
pub fn write_head(bytes: &mut [u8], head: &Head) {
    bytes[..BLOCK_BYTES].copy_from_slice(&encode_block(HEAD_MAGIC, head, None));
    bytes[BLOCK_BYTES..2 * BLOCK_BYTES].copy_from_slice(&encode_block(TWIN_MAGIC, head, None));
}

/// Writes the twin of a segment that takes no more messages.
pub fn write_seal(bytes: &mut [u8], head: &Head, seal: &Seal) {
    let block = encode_block(TWIN_MAGIC, head, Some(seal));
    bytes[BLOCK_BYTES..2 * BLOCK_BYTES].copy_from_slice(&block);
}

/// Reads what [`write_head`] and [`write_seal`] wrote.
pub fn read_head(bytes: &[u8]) -> HeadState {
    let Some(blocks) = bytes.get(..2 * BLOCK_BYTES) else {
        return HeadState::Unreadable;
    };
    if blocks.iter().all(|&byte| byte == 0) {
        return HeadState::Unused;
    }
    let (head, twin) = blocks.split_at(BLOCK_BYTES);
    match (
        decode_block(HEAD_MAGIC, head),
        decode_block(TWIN_MAGIC, twin),
    ) {
        // The twin of an earlier life is no seal of this one.
        (Block::Intact(head, _), Block::Intact(twin, seal)) if twin == head => {
            HeadState::Segment(head, seal)
        }
        (Block::Intact(head, _), _) => HeadState::Segment(head, None),
        (_, Block::Intact(twin, seal)) => HeadState::Segment(twin, seal),
        (Block::Newer(version), _) | (_, Block::Newer(version)) => HeadState::Newer(version),
        (Block::Broken, Block::Broken) => HeadState::Unreadable,
    }
}

enum Block {
    Intact(Head, Option<Seal>),
    Newer(u16),
    Broken,
}

fn encode_block(magic: [u8; 4], head: &Head, seal: Option<&Seal>) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    block[0..4].copy_from_slice(&magic);
    let version = match head.slots {
        SlotKind::Plain => VERSION,
        SlotKind::WithOrigin => VERSION_WITH_ORIGIN,
    };
    block[4..6].copy_from_slice(&version.to_le_bytes());
    block[6..8].copy_from_slice(&head.node.to_le_bytes());
    block[8..16].copy_from_slice(&head.generation.to_le_bytes());
    block[16..24].copy_from_slice(&head.base.0.to_le_bytes());
    block[24..28].copy_from_slice(&head.bytes.to_le_bytes());
    if let Some(seal) = seal {
        block[28..32].copy_from_slice(&1u32.to_le_bytes());
        block[32..36].copy_from_slice(&seal.count.to_le_bytes());
        block[36..40].copy_from_slice(&seal.end.to_le_bytes());
    }
    let crc = crc32c(0, &block[..60]);
    block[60..64].copy_from_slice(&crc.to_le_bytes());
    block
}

fn decode_block(magic: [u8; 4], block: &[u8]) -> Block {
    let u16_at = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
    let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
    let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    if block[..4] != magic || crc32c(0, &block[..60]) != u32_at(60) {
        return Block::Broken;
    }
    let slots = match u16_at(4) {
        VERSION => SlotKind::Plain,
        VERSION_WITH_ORIGIN => SlotKind::WithOrigin,
        other => return Block::Newer(other),
    };
    let head = Head {
        generation: u64_at(8),
        base: Seq(u64_at(16)),
        bytes: u32_at(24),
        node: u16_at(6),
        slots,
    };
    let seal = (u32_at(28) == 1).then(|| Seal {
        count: u32_at(32),
        end: u32_at(36),
    });
    Block::Intact(head, seal)
}

/// Returns the bytes that `count` messages take: their frames and slots. `body_bytes` is the sum of their bodies.
#[inline]
pub fn bytes_needed(slots: SlotKind, count: u64, body_bytes: u64) -> u64 {
    body_bytes + count * (HEADER_BYTES + slots.bytes()) as u64
}

/// Returns the largest number of messages that fit a segment with this head, all with empty bodies.
pub fn count_limit(head: &Head) -> u32 {
    head.bytes.saturating_sub(FRAMES_AT) / (HEADER_BYTES + head.slots.bytes()) as u32
}

/// Returns where the slot of the `index`-th message starts.
#[inline]
pub fn slot_offset(segment_bytes: usize, slots: SlotKind, index: u32) -> Option<usize> {
    segment_bytes.checked_sub((index as usize + 1) * slots.bytes())
}

/// The slot of the `index`-th message, copied out before anyone judges it.
#[inline]
pub fn slot_at(bytes: &[u8], slots: SlotKind, index: u32) -> Option<Slot> {
    let at = slot_offset(bytes.len(), slots, index)?;
    let slot = bytes.get(at..)?;
    match slots {
        SlotKind::Plain => slot.first_chunk().map(Slot::decode),
        SlotKind::WithOrigin => slot.first_chunk().map(Slot::decode_with_origin),
    }
}

/// Returns the place of the frames and the place of the slots of the messages from the `index`-th on. The segment has
/// `count` messages, and the last frame ends at `end`.
pub(crate) fn pieces_from(
    bytes: &[u8],
    slots: SlotKind,
    index: u32,
    count: u32,
    end: u32,
) -> [Range<u32>; 2] {
    let length = bytes.len() as u32;
    let slot_bytes = slots.bytes() as u32;
    let slot_end = |count: u32| length.saturating_sub(count.saturating_mul(slot_bytes));
    let start = match slot_at(bytes, slots, index) {
        Some(slot) if index > 0 => slot.start.min(end),
        _ => 0,
    };
    [start..end, slot_end(count)..slot_end(index)]
}

/// One message to be written.
#[derive(Clone, Copy, Debug)]
pub struct NewFrame<'a> {
    /// The time of the publish, in Unix nanoseconds.
    pub timestamp_ns: i64,
    /// Its id.
    pub id: MessageId,
    /// The deferral in milliseconds. 0: the message is not deferred.
    pub defer_ms: u32,
    /// Its body.
    pub body: &'a [u8],
}

/// Writes the `index`-th message of a segment with plain slots at `start`: frame first, slot last.
/// Returns where the frame ends. The caller has made sure that there is room.
#[inline(always)]
pub fn write_frame(
    bytes: &mut [u8],
    head: &Head,
    index: u32,
    start: u32,
    new: &NewFrame<'_>,
) -> u32 {
    debug_assert_eq!(head.slots, SlotKind::Plain, "the slots have origins");
    write(bytes, head, SlotKind::Plain, index, start, new, None)
}

/// Writes a message with its origin to a segment with any slots, as [`write_frame`] does. Plain slots do not keep the
/// origin.
#[inline(never)]
pub fn write_numbered(
    bytes: &mut [u8],
    head: &Head,
    index: u32,
    start: u32,
    new: &NewFrame<'_>,
    origin: Option<Origin>,
) -> u32 {
    write(bytes, head, head.slots, index, start, new, origin)
}

#[inline(always)]
fn write(
    bytes: &mut [u8],
    head: &Head,
    kind: SlotKind,
    index: u32,
    start: u32,
    new: &NewFrame<'_>,
    origin: Option<Origin>,
) -> u32 {
    let seq = Seq(head.base.0 + u64::from(index));
    let end = start as usize + HEADER_BYTES + new.body.len();
    let at = slot_offset(bytes.len(), kind, index).expect("the caller made sure there is room");
    // Split where the slots begin: a frame can never run into them.
    let (frames, slots) = bytes.split_at_mut(at);
    let frame = &mut frames[start as usize..end];
    let (header, body) = frame
        .split_first_chunk_mut::<HEADER_BYTES>()
        .expect("a frame is longer than its header");
    // First deliveries send these bytes as they are, so attempts is 1 already.
    write_header(header, new.body.len() as u32, new.timestamp_ns, 1, &new.id);
    body.copy_from_slice(new.body);
    let origin = match kind {
        SlotKind::Plain => None,
        SlotKind::WithOrigin => Some(origin.unwrap_or(NO_ORIGIN)),
    };
    let slot = Slot::of(head.generation, seq, start, new.defer_ms, origin, frame);
    if let Some(origin) = slot.origin {
        slots[SLOT_BYTES..kind.bytes()].copy_from_slice(&Slot::encode_origin(origin));
    }
    slots[..SLOT_BYTES].copy_from_slice(&slot.encode());
    end as u32
}

/// The seqs of messages given by their indices in a segment.
#[must_use]
pub fn seqs_at(base: Seq, indices: &Range<u32>) -> SeqRange {
    let at = |index: u32| Seq(base.0.saturating_add(u64::from(index)));
    SeqRange::new(at(indices.start), at(indices.end))
}

/// The messages that reading every slot of a segment has found. Indices count messages from the segment's base.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// The whole messages.
    pub whole: Vec<Range<u32>>,
    /// Whole messages that were deferred: index, time of the publish in Unix nanoseconds, deferral in milliseconds.
    pub deferred: Vec<(u32, u64, u32)>,
    /// The offset at which the last whole frame ends.
    pub end: u32,
}

impl Scan {
    /// The number of whole messages.
    pub fn count(&self) -> u64 {
        self.whole
            .iter()
            .map(|whole| u64::from(whole.end - whole.start))
            .sum()
    }

    /// The messages among the first `count` that are not whole.
    pub fn holes(&self, count: u32) -> Vec<Range<u32>> {
        let mut holes = Vec::new();
        let mut start = 0;
        for whole in self.whole.iter().chain(iter::once(&(count..count))) {
            if start < whole.start.min(count) {
                holes.push(start..whole.start.min(count));
            }
            start = whole.end;
        }
        holes
    }
}

/// The messages of `holes` whose slot or frame lies in `unreadable`.
pub fn unread(
    bytes: &[u8],
    slots: SlotKind,
    holes: &[Range<u32>],
    unreadable: &[Range<u32>],
) -> Vec<Range<u32>> {
    if unreadable.is_empty() {
        return Vec::new();
    }
    let is_unread = |start: u32, end: u32| {
        let mut pieces = unreadable.iter();
        pieces.any(|piece| piece.start < end && start < piece.end)
    };
    let is_lost = |&index: &u32| {
        let at = slot_offset(bytes.len(), slots, index).unwrap_or(0) as u32;
        is_unread(at, at + slots.bytes() as u32)
            || slot_at(bytes, slots, index).is_some_and(|slot| is_unread(slot.start, slot.end))
    };
    let lost = holes.iter().cloned().flatten().filter(is_lost);
    lost.map(|index| index..index + 1).collect()
}

/// Reads every slot. Does not stop at bad ones: what is good behind them is kept. `count` is the
/// number of messages if that is known (sealed segments).
pub fn scan(bytes: &[u8], head: &Head, count: Option<u32>) -> Scan {
    let mut scan = Scan {
        end: FRAMES_AT,
        ..Scan::default()
    };
    let limit = count_limit(&Head {
        bytes: bytes.len() as u32,
        ..*head
    });
    let limit = count.map_or(limit, |count| count.min(limit));
    for index in 0..limit {
        let Some(at) = slot_offset(bytes.len(), head.slots, index) else {
            break;
        };
        // Frames and slots grow towards each other: where they meet there is no further slot.
        if at < scan.end as usize {
            break;
        }
        let Some(slot) = whole_at(bytes, head, index, at) else {
            plant!(TornEndsRecovery, break);
            continue;
        };
        match scan.whole.last_mut() {
            Some(last) if last.end == index => last.end += 1,
            _ => scan.whole.push(index..index + 1),
        }
        scan.end = scan.end.max(slot.end);
        if slot.defer_ms != 0 {
            let published_ns = timestamp_at(&bytes[slot.start as usize..]).unwrap_or(0);
            scan.deferred.push((index, published_ns, slot.defer_ms));
        }
    }
    scan
}

/// Returns whether slot and frame of the `index`-th message are whole.
pub fn is_whole(bytes: &[u8], head: &Head, index: u32) -> bool {
    let at = slot_offset(bytes.len(), head.slots, index);
    at.is_some_and(|at| whole_at(bytes, head, index, at).is_some())
}

/// The slot of the `index`-th message, if slot and frame are whole. `at` is where the slot is.
fn whole_at(bytes: &[u8], head: &Head, index: u32, at: usize) -> Option<Slot> {
    let slot = slot_at(bytes, head.slots, index)?;
    if slot.start < FRAMES_AT || slot.start >= slot.end || slot.end as usize > at {
        return None;
    }
    let frame = &bytes[slot.start as usize..slot.end as usize];
    is_frame(frame, slot, head, index).then_some(slot)
}

/// Returns whether `frame` is the one that `slot`, the slot of the `index`-th message, describes.
pub(crate) fn is_frame(frame: &[u8], slot: Slot, head: &Head, index: u32) -> bool {
    // The cheap test first: noise that passes it is too rare to make the CRCs below cost more than
    // one pass over the segment.
    let Some(size) = frame.first_chunk() else {
        return false;
    };
    if frame.len() < HEADER_BYTES || u32::from_be_bytes(*size) as usize != frame.len() - 4 {
        return false;
    }
    let seq = Seq(head.base.0.wrapping_add(u64::from(index)));
    plant!(CrcLeftOut, return true);
    slot.is_proof_of(head.generation, seq, frame)
}

/// Returns the time of the publish of the `index`-th message, in Unix nanoseconds. The message is not checked, so the
/// time of a message that is not whole may be any number. `None`: it has no frame within the segment.
pub fn published_ns(bytes: &[u8], slots: SlotKind, index: u32) -> Option<u64> {
    let slot = slot_at(bytes, slots, index)?;
    let frame = bytes.get(slot.start as usize..slot.end as usize)?;
    timestamp_at(frame)
}

/// The bytes from the start of a frame up to the end of its timestamp.
pub const TIMESTAMP_END: usize = ATTEMPTS_AT;

/// Returns the time of the publish, in Unix nanoseconds, from the start of a frame. `None`: the frame is too short, or the
/// time is none.
pub fn timestamp_at(frame: &[u8]) -> Option<u64> {
    let timestamp = frame.get(TIMESTAMP_AT..ATTEMPTS_AT)?.first_chunk()?;
    u64::try_from(i64::from_be_bytes(*timestamp)).ok()
}

/// The bytes from the start of a segment up to the end of the first message's timestamp.
pub const FIRST_TIMESTAMP_END: usize = FRAMES_AT as usize + ATTEMPTS_AT;

/// Returns the time of the publish of the first message, in Unix nanoseconds, from the start of a segment. 0: the time
/// is not known, because `start` is shorter than [`FIRST_TIMESTAMP_END`] or the time is none.
pub fn first_published_ns(start: &[u8]) -> u64 {
    let frame = start.get(FRAMES_AT as usize..);
    frame.and_then(timestamp_at).unwrap_or(0)
}

#[cfg(test)]
mod tests;
