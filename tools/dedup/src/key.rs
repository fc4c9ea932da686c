//! The keys of filters: 128-bit hashes of keys, or numbers of messages.

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128, SipHasher13};

/// The 128-bit hash of a message's key.
///
/// Two different keys have equal fingerprints with a probability of 2⁻¹²⁸. Among n keys that a filter remembers, a fresh
/// key meets an equal fingerprint with a probability of at most n · 2⁻¹²⁸: 3 · 10⁻³⁰ for a billion keys. The hash has a
/// secret (see [`KeyHasher`]), so a producer that chooses its messages cannot make fingerprints equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub u128);

/// Computes fingerprints: SipHash-1-3 with 128 bits of output and a secret of 128 bits.
///
/// SipHash resists messages that are chosen to collide (Aumasson and Bernstein, 2012). A filter that is restored needs
/// the hasher with the secret of the filter that was saved, so the secret is part of the saved state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHasher {
    secret: [u8; 16],
}

impl KeyHasher {
    /// Makes a hasher with this secret. Choose the secret at random, once for each filter.
    #[must_use]
    pub fn new(secret: [u8; 16]) -> KeyHasher {
        KeyHasher { secret }
    }

    /// Returns the secret.
    #[must_use]
    pub fn secret(&self) -> [u8; 16] {
        self.secret
    }

    /// Returns the fingerprint of a key, such as the body of a message or a part of it.
    #[must_use]
    pub fn fingerprint(&self, key: &[u8]) -> Fingerprint {
        let mut hasher = SipHasher13::new_with_key(&self.secret);
        hasher.write(key);
        Fingerprint(hasher.finish128().as_u128())
    }

    /// Returns the fingerprint of a key of several parts, such as a client id and a sequence number. The parts count
    /// with their lengths, so `ab`, `c` and `a`, `bc` are different keys.
    #[must_use]
    pub fn fingerprint_of_parts(&self, parts: &[&[u8]]) -> Fingerprint {
        let mut hasher = SipHasher13::new_with_key(&self.secret);
        for part in parts {
            hasher.write(&(part.len() as u64).to_le_bytes());
            hasher.write(part);
        }
        Fingerprint(hasher.finish128().as_u128())
    }
}

/// The number of a message within its source: the key of a [`RoaringPair`](crate::RoaringPair).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageNumber {
    /// The source: a producer, a file, a table. The caller gives each source its own number.
    pub source: u64,
    /// The number of the message. The source never uses a number for two messages.
    pub number: u64,
}

#[cfg(test)]
mod tests {
    use super::KeyHasher;

    #[test]
    fn parts_count_with_their_lengths() {
        let hasher = KeyHasher::new([7; 16]);
        let of = |parts: &[&[u8]]| hasher.fingerprint_of_parts(parts);
        assert_ne!(of(&[b"ab", b"c"]), of(&[b"a", b"bc"]));
        assert_ne!(of(&[b"abc"]), hasher.fingerprint(b"abc"));
        assert_eq!(of(&[b"a", b"b"]), of(&[b"a", b"b"]));
    }

    #[test]
    fn another_secret_gives_other_fingerprints() {
        let one = KeyHasher::new([1; 16]);
        let two = KeyHasher::new([2; 16]);
        assert_ne!(one.fingerprint(b"order 7"), two.fingerprint(b"order 7"));
    }
}
