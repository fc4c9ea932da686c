//! [`QuickHash`]: a hash of 64 bits for the duplicate meter.
//!
//! The hash folds products of 64-bit numbers, like wyhash: about 16 bytes per multiplication, so a body of 200 bytes
//! takes some 15 ns. Its secret keeps producers from choosing the sample by chance or habit. It is not made against
//! attacks: two bodies with one hash make one count wrong, and nothing else.

const MULTIPLIERS: [u64; 4] = [
    0xA076_1D64_78BD_642F,
    0xE703_7ED1_A0B4_28DB,
    0x8EBC_6AF0_9C88_C6E3,
    0x5899_65CC_7537_4CC3,
];

/// A hash with a secret.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuickHash {
    seed: u64,
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[inline]
fn number(bytes: &[u8; 8]) -> u64 {
    u64::from_le_bytes(*bytes)
}

impl QuickHash {
    /// Makes a hash with this secret.
    pub(crate) fn new(secret: u64) -> QuickHash {
        QuickHash {
            seed: fold(secret ^ MULTIPLIERS[0], MULTIPLIERS[1]),
        }
    }

    /// Returns the hash of some bytes.
    #[inline]
    pub(crate) fn hash(&self, bytes: &[u8]) -> u64 {
        let (pairs, rest) = bytes.as_chunks::<16>();
        // Two sums, so that one multiplication need not wait for the one before.
        let (mut one, mut two) = (self.seed, self.seed ^ MULTIPLIERS[2]);
        let (twos, last) = pairs.as_chunks::<2>();
        for [a, b] in twos {
            one = fold_pair(a, one, MULTIPLIERS[1]);
            two = fold_pair(b, two, MULTIPLIERS[3]);
        }
        for pair in last {
            one = fold_pair(pair, one, MULTIPLIERS[1]);
        }
        let mut end = [0; 16];
        end[..rest.len()].copy_from_slice(rest);
        let two = fold_pair(&end, two, MULTIPLIERS[2]);
        let length = bytes.len() as u64;
        fold(one ^ MULTIPLIERS[0] ^ length, two ^ MULTIPLIERS[1])
    }
}

#[inline]
fn fold_pair(pair: &[u8; 16], sum: u64, multiplier: u64) -> u64 {
    let (words, _) = pair.as_chunks::<8>();
    fold(number(&words[0]) ^ multiplier, number(&words[1]) ^ sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use std::collections::HashSet;

    /// All bytes count, and so does the length: no two of many similar bodies have one hash.
    #[test]
    fn similar_bodies_have_different_hashes() {
        let hash = QuickHash::new(7);
        let mut hashes = HashSet::new();
        let mut bodies = 0;
        for length in 0..100 {
            let body = vec![b'x'; length];
            assert!(hashes.insert(hash.hash(&body)));
            bodies += 1;
            for at in 0..length {
                for byte in [0, b'y', 0xFF] {
                    let mut body = body.clone();
                    body[at] = byte;
                    assert!(
                        hashes.insert(hash.hash(&body)),
                        "{byte} at {at} of {length}"
                    );
                    bodies += 1;
                }
            }
        }
        assert_eq!(hashes.len(), bodies);
    }

    /// The share of hashes below a limit is that of the limit, also for bodies that count up in text or binary.
    #[test]
    fn hashes_are_spread_evenly() {
        let mut random = Random::new(1);
        for secret in [0, 1, random.draw()] {
            let hash = QuickHash::new(secret);
            let text = (0..100_000).map(|it| hash.hash(format!("{{\"id\":{it}}}").as_bytes()));
            let binary = (0..100_000_u64).map(|it| hash.hash(&it.to_be_bytes()));
            for hashes in [text.collect::<Vec<u64>>(), binary.collect()] {
                let below = hashes.iter().filter(|it| **it <= u64::MAX / 100).count();
                assert!((850..1150).contains(&below), "{below}");
                let odd = hashes.iter().filter(|it| **it & 2 == 2).count();
                assert!((49_000..51_000).contains(&odd), "{odd}");
            }
        }
    }

    #[test]
    fn the_secret_changes_the_hash() {
        assert_ne!(QuickHash::new(1).hash(b"a"), QuickHash::new(2).hash(b"a"));
    }
}
