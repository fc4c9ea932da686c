//! [`Slot`]: the bytes that say where a frame is and whether it is whole.
//!
//! ```text
//!   0        4        8        12         16           24         32      little endian
//!   | start  | end    | crc    | defer ms |  publisher |  number  |
//!   |<-------------- every slot --------->|<-- with an origin ---->|
//! ```
//!
//! `start` and `end` are the frame's bounds in the segment. The CRC is over the frame's bytes and
//! starts not from zero but from a mix of everything else that must be right: the segment's
//! generation, the seq, both bounds and the deferral. So one pass over one slice checks all of it,
//! which for a message of 200 bytes costs half of feeding the hasher piece by piece.

use wire::id::Seq;
use wire::origin::Origin;

use crate::crc::crc32c;

/// The size of a slot without an origin, and of the part that all slots have.
pub const SLOT_BYTES: usize = 16;
/// The size of the origin in a slot.
const ORIGIN_BYTES: usize = 16;
const K: u64 = 0xD6E8_FEB8_6659_FD93;

/// The slots of a segment: all have the same size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum SlotKind {
    /// Slots of sixteen bytes: format version 2.
    #[default]
    Plain = SLOT_BYTES as u32,
    /// Slots of thirty-two bytes, which have the origin of their message: format version 3.
    WithOrigin = (SLOT_BYTES + ORIGIN_BYTES) as u32,
}

impl SlotKind {
    /// The size of a slot in bytes.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> usize {
        self as usize
    }
}

/// The place of a frame, and the proof that the frame is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The frame's first byte in the segment.
    pub start: u32,
    /// One past its last byte.
    pub end: u32,
    /// Never 0, so that sixteen zero bytes are no slot.
    pub crc: u32,
    /// The deferral in milliseconds with which the message was published. 0: the message was not deferred.
    pub defer_ms: u32,
    /// The origin of the message, if the slots of the segment have one. A publisher of 0 means that the message has no
    /// origin.
    pub origin: Option<Origin>,
}

/// The origin of a message without one, in a slot that has room for it.
pub(crate) const NO_ORIGIN: Origin = Origin {
    publisher: 0,
    number: 0,
};

impl Slot {
    /// The slot of the message `seq`, whose `frame` starts at `start`. Slots with room for an origin have [`NO_ORIGIN`] for a
    /// message without one, and plain slots have `None`.
    #[inline(always)]
    pub(crate) fn of(
        generation: u64,
        seq: Seq,
        start: u32,
        defer_ms: u32,
        origin: Option<Origin>,
        frame: &[u8],
    ) -> Slot {
        let end = start + frame.len() as u32;
        let mixed = mix(generation, seq, start, end, defer_ms, origin);
        Slot {
            start,
            end,
            crc: crc(mixed, frame),
            defer_ms,
            origin,
        }
    }

    /// Returns whether `frame` is what this slot was made for, under this generation and seq.
    pub(crate) fn is_proof_of(&self, generation: u64, seq: Seq, frame: &[u8]) -> bool {
        let Slot {
            start,
            end,
            defer_ms,
            origin,
            ..
        } = *self;
        self.crc == crc(mix(generation, seq, start, end, defer_ms, origin), frame)
    }

    /// The origin of the message, if the message has one.
    #[must_use]
    pub fn message_origin(&self) -> Option<Origin> {
        self.origin.filter(|origin| origin.publisher != 0)
    }

    /// The bytes of the part that all slots have.
    #[inline]
    #[must_use]
    pub fn encode(&self) -> [u8; SLOT_BYTES] {
        let low = u64::from(self.start) | u64::from(self.end) << 32;
        let high = u64::from(self.crc) | u64::from(self.defer_ms) << 32;
        (u128::from(low) | u128::from(high) << 64).to_le_bytes()
    }

    /// The bytes of the origin in a slot that has one.
    pub(crate) fn encode_origin(origin: Origin) -> [u8; ORIGIN_BYTES] {
        (u128::from(origin.publisher) | u128::from(origin.number) << 64).to_le_bytes()
    }

    /// The slot of these bytes, whose second part is the origin. Any bytes are some slot.
    pub(crate) fn decode_with_origin(bytes: &[u8; SLOT_BYTES + ORIGIN_BYTES]) -> Slot {
        let (first, origin) = bytes.split_first_chunk().expect("a slot has two parts");
        let origin = origin.first_chunk().copied().unwrap_or_default();
        let origin = u128::from_le_bytes(origin);
        Slot {
            origin: Some(Origin {
                publisher: origin as u64,
                number: (origin >> 64) as u64,
            }),
            ..Slot::decode(first)
        }
    }

    /// The plain slot of these bytes. Any bytes are some slot.
    #[inline]
    #[must_use]
    pub fn decode(bytes: &[u8; SLOT_BYTES]) -> Slot {
        let all = u128::from_le_bytes(*bytes);
        Slot {
            start: all as u32,
            end: (all >> 32) as u32,
            crc: (all >> 64) as u32,
            defer_ms: (all >> 96) as u32,
            origin: None,
        }
    }
}

/// The CRC-32C of `frame` continued from `start`. 0 is stored as 1: see [`Slot::crc`].
#[inline]
fn crc(start: u32, frame: &[u8]) -> u32 {
    crc32c(start, frame).max(1)
}

/// Thirty-two bits that depend on every bit of the values. Part of the format.
///
/// For equal frames, CRCs differ exactly when their starting values differ, so a stale or shifted
/// slot is accepted once in 2^32 times, as with a CRC over the same bytes. The steps are those of
/// well-known 64-bit mixers: multiply by an odd constant, fold the high half down.
#[inline(always)]
fn mix(
    generation: u64,
    seq: Seq,
    start: u32,
    end: u32,
    defer_ms: u32,
    origin: Option<Origin>,
) -> u32 {
    let bounds = u64::from(start) | u64::from(end) << 32;
    let mut mixed = generation ^ seq.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ mixed >> 32).wrapping_mul(K) ^ bounds;
    mixed = (mixed ^ mixed >> 32).wrapping_mul(K) ^ u64::from(defer_ms);
    if let Some(origin) = origin {
        mixed = (mixed ^ mixed >> 32).wrapping_mul(K) ^ origin.publisher;
        mixed = (mixed ^ mixed >> 32).wrapping_mul(K) ^ origin.number;
    }
    mixed = (mixed ^ mixed >> 32).wrapping_mul(K);
    (mixed >> 32) as u32
}

#[cfg(test)]
mod tests;
