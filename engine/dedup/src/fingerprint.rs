//! [`Fingerprint`]: the 80 bits that stand for the key of a message.

use diskq_log::splitmix64;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;

/// The bits of a fingerprint: the upper 80. Among n remembered keys, a fresh key meets an equal fingerprint with a
/// probability of at most n * 2^-80.
const UPPER_BITS: u128 = u128::MAX << 48;

/// The upper 80 of the 128 bits of a keyed hash. The others are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Fingerprint(u128);

impl Fingerprint {
    /// Makes a fingerprint of the upper 80 bits of `bits`.
    pub(crate) fn from_upper_bits(bits: u128) -> Fingerprint {
        Fingerprint(bits & UPPER_BITS)
    }

    /// Returns the fingerprint in the upper 80 bits. The others are 0.
    pub(crate) fn upper_bits(self) -> u128 {
        self.0
    }

    /// Returns the upper 64 bits.
    #[inline]
    fn upper_word(self) -> u64 {
        (self.0 >> u64::BITS) as u64
    }

    /// Returns the place of the fingerprint in a table of `slots` slots: a number below `slots`.
    #[inline]
    pub(crate) fn place(self, slots: usize) -> usize {
        ((u128::from(self.upper_word()) * slots as u128) >> u64::BITS) as usize
    }
}

/// Derives the seed of a topic from its name and the seed of the process.
pub(crate) fn seed_of(topic: &str, process_seed: u64) -> u64 {
    let mut state = process_seed;
    for byte in topic.bytes() {
        state = splitmix64(&mut state) ^ u64::from(byte);
    }
    splitmix64(&mut state)
}

/// Computes fingerprints with SipHash-1-3 and a secret of 128 bits. A producer does not know the secret, so a producer
/// cannot choose messages whose fingerprints are equal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyHasher {
    secret: [u8; 16],
}

impl KeyHasher {
    /// Makes a hasher. The secret is random, and is saved with the fingerprints.
    pub(crate) fn new(secret: [u8; 16]) -> KeyHasher {
        KeyHasher { secret }
    }

    /// Makes a hasher with a secret from a random number.
    pub(crate) fn seeded(mut seed: u64) -> KeyHasher {
        let mut secret = [0; 16];
        for half in secret.chunks_exact_mut(8) {
            half.copy_from_slice(&splitmix64(&mut seed).to_le_bytes());
        }
        KeyHasher { secret }
    }

    /// The secret.
    pub(crate) fn secret(&self) -> [u8; 16] {
        self.secret
    }

    /// Returns the fingerprint of the pieces of a key. Where a key is cut into pieces makes no difference.
    #[inline]
    pub(crate) fn fingerprint(&self, pieces: &[&[u8]]) -> Fingerprint {
        let mut hasher = SipHasher13::new_with_key(&self.secret);
        pieces.iter().for_each(|piece| hasher.write(piece));
        Fingerprint::from_upper_bits(hasher.finish128().as_u128())
    }
}

/// The secret stays out of logs.
impl std::fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyHasher")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(secret: u8, pieces: &[&[u8]]) -> Fingerprint {
        KeyHasher::new([secret; 16]).fingerprint(pieces)
    }

    #[test]
    fn pieces_make_no_difference_and_the_secret_does() {
        let whole = fingerprint(1, &[b"order 17"]);
        assert_eq!(fingerprint(1, &[b"ord", b"", b"er 17"]), whole);
        assert_ne!(fingerprint(2, &[b"order 17"]), whole);
        assert_ne!(fingerprint(1, &[b"order 18"]), whole);
    }

    #[test]
    fn bits_and_place() {
        for (upper, slots, place) in [
            (0_u128, 10, 0),
            (u128::MAX, 10, 9),
            (1 << 127, 10, 5),
            (u128::MAX, 1, 0),
        ] {
            let fingerprint = Fingerprint::from_upper_bits(upper);
            assert_eq!(fingerprint.place(slots), place);
            assert_eq!(fingerprint.upper_bits(), upper >> 48 << 48);
            assert_eq!(fingerprint.upper_word(), (upper >> 64) as u64);
        }
    }

    #[test]
    fn the_secret_stays_out_of_logs() {
        assert_eq!(format!("{:?}", KeyHasher::new([77; 16])), "KeyHasher");
    }
}
