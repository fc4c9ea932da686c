//! The distributions that a run draws from, so that a run with the same seed can be repeated with the same sizes and
//! work.

use fastrand::Rng;

/// Decides whether something of this probability happens. Draws nothing for 0 and 1.
#[inline]
pub fn chance(random: &mut Rng, share: f64) -> bool {
    share > 0.0 && (share >= 1.0 || random.f64() < share)
}

/// Draws a normally distributed number, mean 0, deviation 1 (Box and Muller, one of the pair).
pub fn normal(random: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}

/// Draws an exponentially distributed number, mean 1 (inverse of the distribution function).
pub fn exponential(random: &mut Rng) -> f64 {
    -(1.0 - random.f64()).ln()
}

#[cfg(test)]
mod tests;
