//! [`Random`]: random numbers that repeat for the same seed.

/// Returns the next random number of the sequence that the first `state` began. Every state is a
/// valid seed.
#[inline]
#[must_use]
pub fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

/// A small generator that repeats its numbers for the same seed. Sampling needs no better one.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Returns a generator with this seed.
    #[must_use]
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
