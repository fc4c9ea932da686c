//! [`Bits`]: an array of bits that counts those that are set, and the places of a key in it.

use crate::key::Fingerprint;

/// An array of bits, all clear at first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bits {
    words: Vec<u64>,
    bits: u64,
    set: u64,
}

impl Bits {
    pub(crate) fn new(bits: u64) -> Bits {
        let words = vec![0; bits.div_ceil(64) as usize];
        Bits {
            words,
            bits,
            set: 0,
        }
    }

    /// Makes the array from its words. `None` if a bit behind the last one is set, or if the number of words is wrong.
    pub(crate) fn from_words(words: Vec<u64>, bits: u64) -> Option<Bits> {
        let spare = bits.wrapping_neg() % 64;
        let is_clear = words
            .last()
            .is_none_or(|word| word.leading_zeros() >= spare as u32);
        let set = words.iter().map(|word| u64::from(word.count_ones())).sum();
        let is_whole = words.len() as u64 == bits.div_ceil(64);
        (is_whole && is_clear).then_some(Bits { words, bits, set })
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    pub(crate) fn len(&self) -> u64 {
        self.bits
    }

    /// Returns the number of bits that are set.
    pub(crate) fn set_count(&self) -> u64 {
        self.set
    }

    /// Returns the part of bits that are set.
    pub(crate) fn fill(&self) -> f64 {
        self.set as f64 / self.bits as f64
    }

    pub(crate) fn get(&self, bit: u64) -> bool {
        self.words[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }

    pub(crate) fn set(&mut self, bit: u64) {
        let word = &mut self.words[(bit / 64) as usize];
        let mask = 1 << (bit % 64);
        self.set += u64::from(*word & mask == 0);
        *word |= mask;
    }

    pub(crate) fn clear(&mut self) {
        self.words.fill(0);
        self.set = 0;
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.words.len() as u64 * 8
    }
}

/// The places of one key in one array. Arrays with different ids have independent places.
///
/// The places are h₁ + i · h₂ (Kirsch and Mitzenmacher, *Less hashing, same performance*, 2006). Both hashes come from
/// the halves of the fingerprint and from the id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    first: u64,
    step: u64,
}

impl Places {
    pub(crate) fn new(key: Fingerprint, id: u64) -> Places {
        let low = key.0 as u64;
        let high = (key.0 >> 64) as u64;
        Places {
            first: mix(low ^ mix(id)),
            step: mix(high.wrapping_add(id)) | 1,
        }
    }

    /// Returns the place with this number in an array of `bits` bits.
    pub(crate) fn get(self, number: u32, bits: u64) -> u64 {
        let hash = self
            .first
            .wrapping_add(self.step.wrapping_mul(number.into()));
        scale(hash, bits)
    }
}

/// Maps a uniform 64-bit number to `0..end`, uniformly: the upper half of the product (Lemire, 2019).
pub(crate) fn scale(hash: u64, end: u64) -> u64 {
    ((u128::from(hash) * u128::from(end)) >> 64) as u64
}

/// Mixes the bits of a number, one to one: the last step of SplitMix64 (Steele, Lea and Flood, 2014).
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_set_and_counted() {
        let mut bits = Bits::new(130);
        for bit in [0, 63, 64, 129, 64] {
            bits.set(bit);
        }
        assert_eq!(bits.set_count(), 4);
        assert!(bits.get(129) && !bits.get(128));
        let same = Bits::from_words(bits.words().to_vec(), 130);
        assert_eq!(same.as_ref(), Some(&bits));
        bits.clear();
        assert_eq!(bits, Bits::new(130));
    }

    #[test]
    fn words_that_are_no_such_array_are_refused() {
        assert_eq!(Bits::from_words(vec![0, 0, 4], 130), None);
        assert_eq!(Bits::from_words(vec![0, 0], 130), None);
        assert!(Bits::from_words(vec![0, 0, 3], 130).is_some());
        assert!(Bits::from_words(vec![u64::MAX; 2], 128).is_some());
    }

    #[test]
    fn places_are_inside_and_differ_between_arrays() {
        let key = Fingerprint(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
        for bits in [1, 64, 1_000_003] {
            for number in 0..100 {
                assert!(Places::new(key, 7).get(number, bits) < bits);
            }
        }
        let of = |id| Places::new(key, id).get(0, u64::MAX);
        assert_ne!(of(1), of(2));
    }
}
