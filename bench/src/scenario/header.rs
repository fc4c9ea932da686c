//! [`Header`]: the first bytes of every message body, by which the ledger knows it again.
//!
//! ```text
//!   0       4          8               16                  24        28
//!   | magic | producer | number        | intended ns       | CRC-32  | filler ...
//!   | NSQB  | u32      | u64           | u64, Unix time    | u32     |
//! ```
//!
//! Little endian. The CRC-32 is that of filler, magic, producer, number and time *in this order*: the
//! filler's part is known beforehand, so a producer computes 24 bytes per message whatever the size,
//! and a consumer checks everything that is really there.

use crc32fast::Hasher;

/// Bytes in front of the filler: the least size of a message.
pub const HEADER_BYTES: usize = 28;
/// The first bytes of every body.
pub const MAGIC: [u8; 4] = *b"NSQB";
/// Most producers of a run: the lower half of the producer's number, the upper half names the run.
pub const PRODUCERS_MAX: u32 = 1 << 16;

const PRODUCER_AT: usize = 4;
const NUMBER_AT: usize = 8;
const INTENDED_AT: usize = 16;
const CRC_AT: usize = 24;
const _: () = assert!(CRC_AT + size_of::<u32>() == HEADER_BYTES);

/// The identity of a message: its producer, its number, and when it should have been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The run (upper 16 bits) and the producer within the run (lower 16 bits).
    pub producer: u32,
    /// The message's number: the producer counts its messages from 0.
    pub number: u64,
    /// The intended send time in nanoseconds of Unix time.
    pub intended_ns: u64,
}

/// The filler of one message size, with its checksum begun.
#[derive(Clone, Debug)]
pub struct Filler {
    /// The length of the filler in bytes.
    pub bytes: usize,
    begun: Hasher,
}

impl Filler {
    /// Makes a filler of the first `bytes` of `source`. Panics when `source` is shorter.
    pub fn new(source: &[u8], bytes: usize) -> Filler {
        let mut begun = Hasher::new();
        begun.update(&source[..bytes]);
        Filler { bytes, begun }
    }
}

impl Header {
    /// The header's bytes in front of this filler.
    #[inline]
    pub fn encode(&self, filler: &Filler) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..PRODUCER_AT].copy_from_slice(&MAGIC);
        out[PRODUCER_AT..NUMBER_AT].copy_from_slice(&self.producer.to_le_bytes());
        out[NUMBER_AT..INTENDED_AT].copy_from_slice(&self.number.to_le_bytes());
        out[INTENDED_AT..CRC_AT].copy_from_slice(&self.intended_ns.to_le_bytes());
        let mut crc = filler.begun.clone();
        crc.update(&out[..CRC_AT]);
        out[CRC_AT..].copy_from_slice(&crc.finalize().to_le_bytes());
        out
    }

    /// Reads the header of a body and checks the body against its checksum.
    #[inline]
    pub fn decode(body: &[u8]) -> Decoded {
        let Some((head, filler)) = body.split_first_chunk::<HEADER_BYTES>() else {
            return Decoded::Foreign;
        };
        let field = |at: usize| u64::from_le_bytes(*head[at..].first_chunk().expect("a field"));
        let word = |at: usize| u32::from_le_bytes(*head[at..].first_chunk().expect("a field"));
        let mut crc = Hasher::new();
        crc.update(filler);
        crc.update(&head[..CRC_AT]);
        let whole = crc.finalize() == word(CRC_AT);
        match (whole, head[..PRODUCER_AT] == MAGIC) {
            (true, true) => Decoded::Intact(Header {
                producer: word(PRODUCER_AT),
                number: field(NUMBER_AT),
                intended_ns: field(INTENDED_AT),
            }),
            (false, true) => Decoded::Damaged,
            (_, false) => Decoded::Foreign,
        }
    }
}

/// The outcome of checking a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// The body is ours and unaltered.
    Intact(Header),
    /// The body is ours by its first bytes, but was altered.
    Damaged,
    /// The body is not recognisable as ours: somebody else's, or altered in its first bytes.
    Foreign,
}

#[cfg(test)]
mod tests;
