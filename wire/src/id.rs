//! [`Seq`], the number of a frame in its topic's log, and [`MessageId`], the same number as the
//! sixteen hexadecimal characters that travel on the wire.
//!
//! The id is a function of the seq, so a FIN finds its in-flight entry by subtraction:
//!
//! ```text
//!   bit 63                               22 21       12 11          0
//!      | seq bits 53..12 (42 bits)         | node id   | seq 11..0  |
//! ```
//!
//! nsqd's own ids have this shape (time, node, sequence). A topic's first seq
//! comes from the clock in nsqd's unit and epoch ([`Seq::from_clock`]). The ids therefore look like
//! nsqd's and sort by time, and a topic that is deleted and created again never repeats an id.

use std::fmt;

use crate::limits::ID_BYTES;

/// The largest seq: an id has 54 bits beside the node id.
pub const SEQ_MAX: u64 = (1 << SEQ_BITS) - 1;

const SEQ_BITS: u32 = HIGH_BITS + LOW_BITS;
/// Seq bits above and below the node id.
const HIGH_BITS: u32 = 42;
const LOW_BITS: u32 = 12;
const NODE_BITS: u32 = 10;
const LOW_MASK: u64 = (1 << LOW_BITS) - 1;
const NODE_MASK: u64 = (1 << NODE_BITS) - 1;
const _: () = assert!(HIGH_BITS + NODE_BITS + LOW_BITS == u64::BITS);

/// nsqd's clock unit: 2^20 ns, a little more than a millisecond.
const CLOCK_UNIT_SHIFT: u32 = 20;
/// nsqd's epoch in that unit.
const EPOCH: u64 = 1_288_834_974_288;

/// The number of a frame in its topic's log, `1..=`[`SEQ_MAX`]. Zero stands for "none yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// Returns the first seq of a topic that is created at `unix_ns`: at least 1 and at most
    /// [`SEQ_MAX`].
    ///
    /// Each 1.05 ms has 4096 seqs. A topic that is created again therefore starts beyond every seq
    /// of its predecessor, unless the predecessor received more than 3.9 million messages a second
    /// all its life.
    #[inline]
    #[must_use]
    pub fn from_clock(unix_ns: u64) -> Seq {
        let units = (unix_ns >> CLOCK_UNIT_SHIFT).saturating_sub(EPOCH);
        Seq((units << LOW_BITS).clamp(1, SEQ_MAX))
    }

    /// Returns the seq `n` places later. The result may be one past [`SEQ_MAX`], as the end of a
    /// range.
    #[inline]
    #[must_use]
    pub fn offset(self, n: u64) -> Seq {
        debug_assert!(
            n <= SEQ_MAX + 1 && self.0 + n <= SEQ_MAX + 1,
            "seq {} + {n}",
            self.0
        );
        Seq(self.0 + n)
    }

    /// Returns how many places `self` is behind `earlier`, which must not be greater than `self`.
    #[inline]
    #[must_use]
    pub fn since(self, earlier: Seq) -> u64 {
        debug_assert!(earlier <= self, "seq {} is before {}", self.0, earlier.0);
        self.0 - earlier.0
    }
}

/// A message id on the wire: sixteen bytes. The broker's ids are lower-case hexadecimal; a client
/// may send any bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub [u8; ID_BYTES]);

impl MessageId {
    /// Returns the id of the message at `seq` (at most [`SEQ_MAX`]) on `node` (`0..1024`, nsqd's
    /// `--node-id`).
    #[inline]
    #[must_use]
    pub fn new(seq: Seq, node: u16) -> MessageId {
        debug_assert!(
            seq.0 <= SEQ_MAX && u64::from(node) <= NODE_MASK,
            "{seq:?} on {node}"
        );
        let node = u64::from(node) & NODE_MASK;
        let high = (seq.0 >> LOW_BITS) << (NODE_BITS + LOW_BITS);
        let bits = high | (node << LOW_BITS) | (seq.0 & LOW_MASK);
        let mut text = [0; ID_BYTES];
        for (pair, byte) in text.chunks_exact_mut(2).zip(bits.to_be_bytes()) {
            pair.copy_from_slice(&HEX_PAIRS[usize::from(byte)]);
        }
        MessageId(text)
    }

    /// Returns the seq and the node behind the id, or `None` when the id is not sixteen lower-case
    /// hexadecimal digits. Each message therefore has only one spelling.
    #[inline]
    #[must_use]
    pub fn decode(&self) -> Option<(Seq, u16)> {
        let (halves, _) = self.0.as_chunks::<8>();
        let high = digits(u64::from_be_bytes(halves[0]))?;
        let low = digits(u64::from_be_bytes(halves[1]))?;
        let bits = squeeze(high) << 32 | squeeze(low);
        let high = bits >> (NODE_BITS + LOW_BITS);
        let node = (bits >> LOW_BITS) & NODE_MASK;
        Some((Seq(high << LOW_BITS | bits & LOW_MASK), node as u16))
    }

    /// The sixteen bytes.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; ID_BYTES] {
        &self.0
    }
}

/// Displays the text. Bytes that are not printable ASCII, which only a client can have sent, are
/// escaped.
impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MessageId({self})")
    }
}

/// The two hexadecimal digits of each byte value.
const HEX_PAIRS: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [digits[byte >> 4], digits[byte & 0xf]];
        byte += 1;
    }
    pairs
};

/// Repeats `byte` in each of eight bytes.
const fn each(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Returns the values of eight lower-case hexadecimal digits, each in the byte of its character.
#[inline]
fn digits(text: u64) -> Option<u64> {
    // The low half of `0` is 0 and that of `a` is 1. Only letters have bit 6.
    let letters = text >> 6 & each(1);
    let values = (text & each(0xf)) + letters * 9;
    // Any other character does not convert back to itself, or its value is above 15.
    let letters = (values + each(6)) >> 4 & each(1);
    let back = values + each(b'0') + letters * u64::from(b'a' - b'0' - 10);
    (back == text && values & each(0xf0) == 0).then_some(values)
}

/// Moves eight digits of a byte each together into 32 bits: pairs, then pairs of pairs, then all.
#[inline]
const fn squeeze(digits: u64) -> u64 {
    let bytes = (digits | digits >> 4) & 0x00ff_00ff_00ff_00ff;
    let words = (bytes | bytes >> 8) & 0x0000_ffff_0000_ffff;
    (words | words >> 16) & 0xffff_ffff
}

#[cfg(test)]
mod tests;
