//! [`Slot`]: the sixteen bytes that say where a frame is and whether it is whole.
//!
//! ```text
//!   0        4        8        12        16      little endian
//!   | start  | end    | crc    | defer ms |
//! ```
//!
//! `start` and `end` are the frame's bounds in the segment. The CRC is over the frame's bytes and
//! starts not from zero but from a mix of everything else that must be right: the segment's
//! generation, the seq, both bounds and the deferral. So one pass over one slice checks all of it,
//! which for a message of 200 bytes costs half of feeding the hasher piece by piece.

use wire::id::Seq;

use crate::crc::crc32c;

/// The size of a slot.
pub const SLOT_BYTES: usize = 16;

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
}

impl Slot {
    /// The slot of the message `seq`, whose `frame` starts at `start`.
    #[inline]
    pub(crate) fn of(generation: u64, seq: Seq, start: u32, defer_ms: u32, frame: &[u8]) -> Slot {
        let end = start + frame.len() as u32;
        let crc = crc(mix(generation, seq, start, end, defer_ms), frame);
        Slot {
            start,
            end,
            crc,
            defer_ms,
        }
    }

    /// Returns whether `frame` is what this slot was made for, under this generation and seq.
    pub(crate) fn is_proof_of(&self, generation: u64, seq: Seq, frame: &[u8]) -> bool {
        self.crc
            == crc(
                mix(generation, seq, self.start, self.end, self.defer_ms),
                frame,
            )
    }

    /// The bytes of the slot.
    #[inline]
    #[must_use]
    pub fn encode(&self) -> [u8; SLOT_BYTES] {
        let low = u64::from(self.start) | u64::from(self.end) << 32;
        let high = u64::from(self.crc) | u64::from(self.defer_ms) << 32;
        (u128::from(low) | u128::from(high) << 64).to_le_bytes()
    }

    /// The slot of these bytes. Any bytes are some slot.
    #[inline]
    #[must_use]
    pub fn decode(bytes: &[u8; SLOT_BYTES]) -> Slot {
        let all = u128::from_le_bytes(*bytes);
        Slot {
            start: all as u32,
            end: (all >> 32) as u32,
            crc: (all >> 64) as u32,
            defer_ms: (all >> 96) as u32,
        }
    }
}

/// The CRC-32C of `frame` continued from `start`. 0 is stored as 1: see [`Slot::crc`].
#[inline]
fn crc(start: u32, frame: &[u8]) -> u32 {
    crc32c(start, frame).max(1)
}

/// Thirty-two bits that depend on every bit of the five values. Part of the format.
///
/// For equal frames, CRCs differ exactly when their starting values differ, so a stale or shifted
/// slot is accepted once in 2^32 times, as with a CRC over the same bytes. The steps are those of
/// well-known 64-bit mixers: multiply by an odd constant, fold the high half down.
#[inline]
fn mix(generation: u64, seq: Seq, start: u32, end: u32, defer_ms: u32) -> u32 {
    let bounds = u64::from(start) | u64::from(end) << 32;
    let mut mixed = generation ^ seq.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ mixed >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93) ^ bounds;
    mixed = (mixed ^ mixed >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93) ^ u64::from(defer_ms);
    mixed = (mixed ^ mixed >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (mixed >> 32) as u32
}

#[cfg(test)]
mod tests;
