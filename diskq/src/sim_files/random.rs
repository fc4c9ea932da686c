use diskq_log::splitmix64;

/// A generator that repeats its numbers for the same seed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        splitmix64(&mut self.0) % limit
    }

    pub(super) fn coin(&mut self) -> bool {
        self.below(2) == 0
    }
}
