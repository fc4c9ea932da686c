//! The decay of counts.
//!
//! The formula is that of bitly's *Forget Table* (M. Dewar and M. Gorelick, "Forget Table", bitly
//! engineering blog, January 2013; `pyforget` in github.com/bitly/forgettable): a bin with count `c`
//! that was last changed `t` seconds ago is decremented by a sample of the distribution
//! `Poisson(c * rate * t)`, and not below 0. Nothing happens between two readings.
//!
//! One decrement for a long time would be too large: the mean of `c - Poisson(c * rate * t)` is
//! `c * (1 - rate * t)`, a straight line, while each step of a steady process forgets a part of what
//! the step before has left. So a long time is taken in steps of at most `1/64` of the mean lifetime
//! `1 / rate`. The mean is then `c * exp(-rate * t)` within 0.6 % for one half-life, however often the
//! bin is read, and half of a count is forgotten after `ln(2) / rate` seconds.

use rand::Rng;
use rand_distr::{Distribution, Poisson};

/// The longest step, in mean lifetimes.
const STEP_LIFETIMES: f64 = 1.0 / 64.0;

/// The mean lifetimes, beyond those that bring a count down to 1, after which nothing is left: the
/// last message survives them with a probability of 2e-9.
const LAST_LIFETIMES: f64 = 20.0;

/// Returns what is left of a count after some mean lifetimes, which is `rate * t`. A time that is not
/// positive changes nothing: clocks are set back.
pub(super) fn remaining(mut count: u64, lifetimes: f64, random: &mut impl Rng) -> u64 {
    if count == 0 || lifetimes.is_nan() || lifetimes <= 0.0 {
        return count;
    }
    if lifetimes > (count as f64).ln() + LAST_LIFETIMES {
        return 0;
    }
    let steps = (lifetimes / STEP_LIFETIMES).ceil();
    let lifetimes_per_step = lifetimes / steps;
    for _ in 0..steps as u64 {
        count = count.saturating_sub(poisson(count as f64 * lifetimes_per_step, random));
        if count == 0 {
            break;
        }
    }
    count
}

/// Returns a sample of the Poisson distribution with this mean.
fn poisson(mean: f64, random: &mut impl Rng) -> u64 {
    match Poisson::new(mean) {
        Ok(distribution) => distribution.sample(random) as u64,
        // Only a mean above 0 is accepted, and the product of two small numbers may be 0.
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests;
