//! [`Random`]: a seeded generator of random numbers.

use diskq_log::splitmix64;

/// A small generator that repeats its numbers for the same seed. Sampling needs no better one.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Returns a generator with this seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the next 64 random bits.
    pub fn draw(&mut self) -> u64 {
        splitmix64(&mut self.0)
    }

    /// Returns a number below `bound`. The bias is below 2^-32 for the bounds used here.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }
}
