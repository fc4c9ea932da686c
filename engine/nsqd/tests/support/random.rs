//! Random numbers from a seed, which are the same on every machine (xorshift64*).

/// A generator. Equal seeds give equal numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    pub fn new(seed: u64) -> Random {
        // xorshift cannot leave the state zero. The multiplication separates the states of adjacent
        // seeds.
        Random {
            state: (seed ^ 0x9E37_79B9_7F4A_7C15).wrapping_mul(0xD134_2543_DE82_EF95) | 1,
        }
    }

    /// Returns any number.
    pub fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Returns a number below `end`, which is not zero.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "below(0) has no answer");
        self.next() % end
    }

    /// Returns a number from `first` to `last`, both included.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// Returns true once in `n` times on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
