//! [`Random`]: a seeded generator of random numbers, so that a run can be repeated with the same sizes and
//! work.

/// A seeded generator with the distributions that a run needs.
#[derive(Clone, Debug)]
pub struct Random(fastrand::Rng);

impl Random {
    /// Makes a generator. The same seed gives the same numbers.
    pub fn new(seed: u64) -> Random {
        Random(fastrand::Rng::with_seed(seed))
    }

    /// Draws 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Draws a number below `limit`, which must not be zero.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0.u64(..limit)
    }

    /// Draws a number in `0.0..1.0`.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        self.0.f64()
    }

    /// Decides whether something of this probability happens. Draws nothing for 0 and 1.
    #[inline]
    pub fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && (share >= 1.0 || self.unit() < share)
    }

    /// Draws a normally distributed number, mean 0, deviation 1 (Box and Muller, one of the pair).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Draws an exponentially distributed number, mean 1 (inverse of the distribution function).
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }
}

#[cfg(test)]
mod tests;
