//! The statistics have fixed seeds, so a test that passes once always passes. The bounds are five
//! standard deviations of the sampled figure, so that another seed would pass, too (all but one in two
//! million).

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;

/// Returns what is left of `count` in each of `samples` experiments.
fn left(count: u64, lifetimes: f64, samples: u64) -> Vec<u64> {
    let mut random = StdRng::seed_from_u64(7);
    (0..samples)
        .map(|_| remaining(count, lifetimes, &mut random))
        .collect()
}

fn mean(values: &[u64]) -> f64 {
    values.iter().sum::<u64>() as f64 / values.len() as f64
}

fn variance(values: &[u64]) -> f64 {
    let mean = mean(values);
    let squares = values.iter().map(|value| (*value as f64 - mean).powi(2));
    squares.sum::<f64>() / (values.len() - 1) as f64
}

#[track_caller]
fn check_near(value: f64, expected: f64, bound: f64) {
    assert!(
        (value - expected).abs() <= bound,
        "{value} is not {expected} ± {bound}"
    );
}

/// A short time is one step. The decrement then has the Poisson distribution's mean and variance,
/// both of which are `c * rate * t`.
#[test]
fn one_decrement_is_a_poisson_sample() {
    let (count, lifetimes, samples) = (10_000, 0.01, 20_000);
    let decrements: Vec<u64> = left(count, lifetimes, samples)
        .iter()
        .map(|left| count - left)
        .collect();
    let expected: f64 = 100.0;
    let n = samples as f64;
    check_near(mean(&decrements), expected, 5.0 * (expected / n).sqrt());
    // The variance of the sample variance of a Poisson distribution is about 2 * expected^2 / n.
    check_near(
        variance(&decrements),
        expected,
        5.0 * expected * (2.0 / n).sqrt(),
    );
}

/// Pearson's chi-square against the Poisson distribution with mean 3: P(k) = exp(-3) * 3^k / k!.
#[test]
fn the_decrements_pass_a_chi_square_test() {
    let samples = 50_000;
    let count = 1000;
    let decrements = left(count, 0.003, samples);
    // The classes are 0 to 8, and 9 and more.
    let mut observed = [0_u64; 10];
    for left in decrements {
        observed[usize::try_from(count - left).unwrap().min(9)] += 1;
    }
    let mut probability = (-3.0_f64).exp();
    let mut rest = 1.0;
    let mut chi_square = 0.0;
    for (k, observed) in observed.iter().enumerate() {
        let of_class = if k == 9 { rest } else { probability };
        let expected = of_class * samples as f64;
        chi_square += (*observed as f64 - expected).powi(2) / expected;
        rest -= probability;
        probability *= 3.0 / (k + 1) as f64;
    }
    // The 99.9th percentile for nine degrees of freedom is 27.9.
    assert!(chi_square < 27.9, "{chi_square}");
}

/// Half of a count is left after ln(2) / rate seconds, whether the count is read once or often.
#[test]
fn half_is_left_after_a_half_life() {
    let half_life = std::f64::consts::LN_2;
    let (count, samples) = (1000, 2000);
    // Each of the c messages is left with probability 1/2: the variance is at most c / 4 for a death
    // process; the Poisson decrements add to it. Its root is below 25, and a mean of 2,000 samples has
    // a 45th of that. The steps forget up to 0.6 % more.
    let bound = 5.0 * 25.0 / (samples as f64).sqrt() + 500.0 * 0.006;
    check_near(mean(&left(count, half_life, samples)), 500.0, bound);
    check_near(mean(&left(count, 2.0 * half_life, samples)), 250.0, bound);
    let mut random = StdRng::seed_from_u64(8);
    let read_often = |_| {
        (0..1000).fold(count, |count, _| {
            remaining(count, half_life / 1000.0, &mut random)
        })
    };
    let often: Vec<u64> = (0..samples).map(read_often).collect();
    check_near(mean(&often), 500.0, bound);
}

#[test]
fn small_counts_are_forgotten_one_by_one() {
    // A single message is left with probability exp(-rate * t), here 1/e. Its variance is p * (1 - p).
    let samples = 20_000;
    let p = (-1.0_f64).exp();
    let bound = 5.0 * (p * (1.0 - p) / samples as f64).sqrt();
    check_near(mean(&left(1, 1.0, samples)), p, bound);
    assert!(left(1, 50.0, 100).iter().all(|left| *left == 0));
    assert!(left(u64::MAX, 65.0, 10).iter().all(|left| *left == 0));
}

#[test]
fn time_that_has_not_passed_forgets_nothing() {
    let mut random = StdRng::seed_from_u64(1);
    for lifetimes in [0.0, -5.0, f64::NAN] {
        assert_eq!(remaining(9, lifetimes, &mut random), 9, "{lifetimes}");
    }
    assert_eq!(remaining(0, 1.0, &mut random), 0);
    assert_eq!(remaining(9, f64::INFINITY, &mut random), 0);
    assert_eq!(remaining(5, 1e-320, &mut random), 5);
}
