//! The formulas of the filters: how much a filter forgets, how often it is wrong, and how large it must be.
//!
//! Rates are in messages per second. Probabilities are between 0 and 1.

use std::f64::consts::LN_2;
use std::time::Duration;

use crate::error::FilterOptionError;

/// Returns the probability that an inverse Bloom filter with `slots` slots has forgotten a key after `further` further
/// keys: 1 − (1 − 1/N)^x. Each further key overwrites a given slot with probability 1/N.
#[must_use]
pub fn forgotten(slots: u64, further: f64) -> f64 {
    -(further * (-1.0 / slots as f64).ln_1p()).exp_m1()
}

/// Returns the number of slots with which an inverse Bloom filter has forgotten a key after `delay` with a probability
/// of at most `forgotten_max`, if `rate` keys come per second.
///
/// This solves [`forgotten`] for N: N = 1 / (1 − (1 − p)^(1/x)) with x = rate · delay, rounded up. For 1,000 messages
/// per second, a delay of an hour and 0.9, the result is 1,563,461.
///
/// # Errors
/// If the rate or the delay is not positive, or the probability is not between 0 and 1.
pub fn slots_for(rate: f64, delay: Duration, forgotten_max: f64) -> Result<u64, FilterOptionError> {
    positive("rate", rate)?;
    positive("delay", delay.as_secs_f64())?;
    probability("forgotten_max", forgotten_max)?;
    let further = rate * delay.as_secs_f64();
    let slots = -1.0 / ((-forgotten_max).ln_1p() / further).exp_m1();
    Ok(slots.ceil().max(1.0) as u64)
}

/// Returns the delay up to which an inverse Bloom filter with `slots` slots has forgotten a key with a probability of
/// at most `forgotten_max`, if `rate` keys come per second. This is the reverse of [`slots_for`].
///
/// # Errors
/// If the number of slots or the rate is not positive, or the probability is not between 0 and 1.
pub fn delay_for(slots: u64, rate: f64, forgotten_max: f64) -> Result<Duration, FilterOptionError> {
    positive("slots", slots as f64)?;
    positive("rate", rate)?;
    probability("forgotten_max", forgotten_max)?;
    let further = (-forgotten_max).ln_1p() / (-1.0 / slots as f64).ln_1p();
    let seconds = further / rate;
    // A filter with one slot forgets at the next key.
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

/// Returns the number of bits with which a Bloom filter of `keys` keys and `hashes` hash functions is half full:
/// m = n · k / ln 2 (Broder and Mitzenmacher, *Network applications of Bloom filters*, 2004).
#[must_use]
pub fn half_full_bits(keys: f64, hashes: u32) -> u64 {
    (keys * f64::from(hashes) / LN_2).ceil().max(64.0) as u64
}

/// Returns the number of bits with which a Bloom filter is at most half full after `keys` keys, apart from chance.
///
/// The number of set bits varies: its standard deviation is at most 0.28 √m for m bits, where the mean is m / 2. A
/// filter for 1 + δ as many keys has a mean that is lower by 0.35 δ m. So δ = 3.2 / √m is worth four standard
/// deviations: 7 % of the memory for 2,000 bits, and 0.3 % for a million.
pub(crate) fn spare_bits(keys: f64, hashes: u32) -> u64 {
    let bits = half_full_bits(keys, hashes) as f64;
    half_full_bits(keys * (1.0 + 3.2 / bits.sqrt()), hashes)
}

/// Returns the part of bits that are set in a Bloom filter with `bits` bits after `count` random bits were set: 1 − (1
/// − 1/`bits`)^`count`.
#[must_use]
pub fn fill(bits: u64, count: f64) -> f64 {
    forgotten(bits, count)
}

/// Returns the probability that a fresh key is found in at least one pair of neighbouring filters of a
/// [`ForgetfulBloom`](crate::ForgetfulBloom), by the filters' parts of set bits, in order:
/// 1 − Π (1 − (rᵢ · rᵢ₊₁)^k). The filters have independent hash functions.
#[must_use]
pub fn forgetful_false_positives(fills: &[f64], hashes: u32) -> f64 {
    let exponent = f64::from(hashes);
    let pairs = fills.windows(2);
    let misses = pairs.map(|pair| 1.0 - (pair[0] * pair[1]).powf(exponent));
    1.0 - misses.product::<f64>()
}

/// Returns the probability that a [`ForgetfulBloom`](crate::ForgetfulBloom) of `filters` filters recognises a copy that
/// comes `delay` after its message: 1 up to the window W, and (W + P − delay) / P from there to W + P, where the period
/// P is W / (F − 2) with F filters. The message comes at any moment of a period with the same probability. The rate is
/// at most that of the options; at a higher rate, `window` is the shorter window that is left.
///
/// So with delays of the distribution function D, the filter recognises the mean of D over the times from W to W + P.
#[must_use]
pub fn forgetful_recognised(filters: usize, window: Duration, delay: Duration) -> f64 {
    let window = window.as_secs_f64();
    let period = window / filters.saturating_sub(2).max(1) as f64;
    ((window + period - delay.as_secs_f64()) / period).clamp(0.0, 1.0)
}

/// Checks that a value is a positive, finite number.
pub(crate) fn positive(option: &'static str, value: f64) -> Result<(), FilterOptionError> {
    if value > 0.0 && value.is_finite() {
        return Ok(());
    }
    Err(FilterOptionError {
        option,
        requirement: "a positive number",
        value,
    })
}

/// Checks that the machine can give this many bytes to a filter. The filter takes its memory later.
pub(crate) fn affordable(
    option: &'static str,
    value: f64,
    bytes: f64,
) -> Result<(), FilterOptionError> {
    // A number of bytes above the largest one is cut to it, and no machine has so many.
    match Vec::<u8>::new().try_reserve_exact(bytes as usize) {
        Ok(()) => Ok(()),
        Err(_) => Err(FilterOptionError {
            option,
            requirement: "smaller: the filter does not fit into the memory of this machine",
            value,
        }),
    }
}

/// Checks that a value is a probability that is neither certain nor impossible.
pub(crate) fn probability(option: &'static str, value: f64) -> Result<(), FilterOptionError> {
    if value > 0.0 && value < 1.0 {
        return Ok(());
    }
    Err(FilterOptionError {
        option,
        requirement: "above 0 and below 1",
        value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_example_of_slots() {
        let hour = Duration::from_secs(3600);
        assert_eq!(slots_for(1000.0, hour, 0.9), Ok(1_563_461));
        let back = delay_for(1_563_461, 1000.0, 0.9).expect("valid");
        let seconds = back.as_secs_f64();
        assert!((3600.0..3600.01).contains(&seconds), "{seconds}");
    }

    #[test]
    fn slots_are_enough_and_one_less_is_not() {
        for (rate, seconds, max) in [(10.0, 60, 0.01), (1e5, 86_400, 0.5), (3.0, 1, 0.999)] {
            let delay = Duration::from_secs(seconds);
            let slots = slots_for(rate, delay, max).expect("valid");
            let further = rate * delay.as_secs_f64();
            assert!(forgotten(slots, further) <= max * (1.0 + 1e-9));
            assert!(slots == 1 || forgotten(slots - 1, further) > max * (1.0 - 1e-9));
        }
    }

    #[test]
    fn values_without_meaning_are_refused() {
        let hour = Duration::from_secs(3600);
        for error in [
            slots_for(0.0, hour, 0.5).map(drop),
            slots_for(f64::NAN, hour, 0.5).map(drop),
            slots_for(1.0, Duration::ZERO, 0.5).map(drop),
            slots_for(1.0, hour, 1.0).map(drop),
            delay_for(0, 1.0, 0.5).map(drop),
            delay_for(1, 1.0, 0.0).map(drop),
        ] {
            let error = error.expect_err("it has no meaning").to_string();
            assert!(error.contains("must be"), "{error}");
        }
    }

    #[test]
    fn the_last_period_of_a_forgetful_filter() {
        let seconds = Duration::from_secs;
        let check = |filters, delay, expected: f64| {
            let recognised = forgetful_recognised(filters, seconds(60), seconds(delay));
            assert!((recognised - expected).abs() < 1e-12, "{filters}, {delay}");
        };
        check(3, 60, 1.0);
        check(3, 90, 0.5);
        check(3, 121, 0.0);
        check(5, 60, 1.0);
        check(5, 75, 0.25);
        check(5, 80, 0.0);
    }

    #[test]
    fn pairs_of_filters_by_hand() {
        let rate = forgetful_false_positives(&[0.5, 0.5, 0.5], 1);
        assert!((rate - (1.0 - 0.75 * 0.75)).abs() < 1e-12);
    }
}
