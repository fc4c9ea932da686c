//! The random number of a run of nsqd.

use std::hash::{BuildHasher, RandomState};

/// Draws 64 bits from the system's randomness. The secrets of the keys of `--dedup` follow from them, so nobody may guess
/// them from what `/stats` says, such as the time of the start.
pub(super) fn draw() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::draw;

    /// The upper bits were those of the clock and the process id, and so the same for days.
    #[test]
    fn all_bits_are_random() {
        let seeds: Vec<u64> = (0..64).map(|_| draw()).collect();
        let (all, any) = seeds
            .iter()
            .fold((u64::MAX, 0), |(all, any), seed| (all & seed, any | seed));
        // A bit is the same in all seeds with a probability of 2^-63.
        assert_eq!((all, any), (0, u64::MAX));
    }
}
