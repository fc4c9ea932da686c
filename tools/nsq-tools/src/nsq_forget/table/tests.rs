//! The statistics have fixed seeds, so a test that passes once always passes. The bounds are five
//! standard deviations of the sampled figure, so that another seed would pass, too (all but one in two
//! million).

use super::*;
use rand::SeedableRng;
use rand::rngs::StdRng;

/// The half-life is 100 s.
const RATE: f64 = std::f64::consts::LN_2 / 100.0;

fn table(distributions_max: usize, bins_max: usize) -> ForgetTable {
    let limits = Limits {
        distributions_max,
        bins_max,
    };
    ForgetTable::new(RATE, limits, State::default(), 5)
}

fn counts(table: &mut ForgetTable, name: &str, now: Seconds) -> Vec<(String, u64)> {
    let reading = table.read(name, Wanted::Largest(usize::MAX), now);
    let z: u64 = reading.bins.iter().map(|(_, count)| count).sum();
    assert_eq!(reading.z, z);
    let bins = reading.bins.into_iter();
    bins.map(|(name, count)| (name.into(), count)).collect()
}

#[test]
fn values_are_counted_and_read() {
    let mut table = table(10, 10);
    for (value, n) in [("red", 2), ("blue", 1), ("red", 3), ("green", 1)] {
        assert!(table.add("colours", value, n, 1.0));
    }
    let all = counts(&mut table, "colours", 1.0);
    let expected = [("red", 5), ("blue", 1), ("green", 1)].map(|(name, n)| (name.to_owned(), n));
    assert_eq!(all, expected);
    let some = table.read("colours", Wanted::Bins(&["blue", "pink"]), 1.0);
    assert_eq!(
        (some.z, some.bins),
        (7, vec![("blue".into(), 1), ("pink".into(), 0)])
    );
    let largest = table.read("colours", Wanted::Largest(1), 1.0);
    assert_eq!((largest.z, largest.bins), (7, vec![("red".into(), 5)]));
    assert_eq!(counts(&mut table, "sizes", 1.0), []);
    assert_eq!(table.distributions(), 1);
}

/// A steady stream of k values a second ends at k / rate, and half of that is there after a half-life.
#[test]
fn a_steady_stream_reaches_its_level_in_half_lives() {
    let mut table = table(10, 10);
    let per_second = 100;
    let level = f64::from(per_second) / RATE;
    let at = |table: &mut ForgetTable, seconds: std::ops::Range<u32>| {
        for second in seconds.clone() {
            for _ in 0..per_second {
                table.add("d", "v", 1, f64::from(second));
            }
        }
        table
            .read("d", Wanted::Largest(1), f64::from(seconds.end))
            .z as f64
    };
    // The level is about 14,400. The standard deviation of a Poisson count of this size is 120, and
    // five of them are 4 %. The first second's messages count in full at its beginning: 1 % more.
    let after_half_life = at(&mut table, 0..100) / level;
    assert!((after_half_life - 0.5).abs() < 0.05, "{after_half_life}");
    let after_long = at(&mut table, 100..1000) / level;
    assert!((after_long - 1.0).abs() < 0.06, "{after_long}");
    // After the stream has ended, half is left after a half-life.
    let z = table.read("d", Wanted::Largest(1), 1100.0).z as f64 / level;
    assert!((z - 0.5).abs() < 0.05, "{z}");
}

#[test]
fn the_recent_outweighs_the_old() {
    let mut table = table(10, 10);
    table.add("d", "old", 1000, 0.0);
    table.add("d", "new", 1000, 700.0);
    let all = counts(&mut table, "d", 700.0);
    // After seven half-lives, 1,000 / 128 = 7.8 are left. Five standard deviations are 14.
    assert_eq!(all[0], ("new".to_owned(), 1000));
    assert!(all[1].1 <= 22, "{all:?}");
    // At last, nothing is left of the distribution.
    assert_eq!(counts(&mut table, "d", 1e6), []);
    assert_eq!(table.distributions(), 0);
}

#[test]
fn a_full_distribution_drops_its_smallest_bins() {
    let mut table = table(10, 32);
    for value in 0..32_u64 {
        table.add("d", &format!("v{value}"), 100 + value, 0.0);
    }
    assert_eq!(table.counters.evicted_bins, 0);
    table.add("d", "another", 1, 0.0);
    let names: Vec<String> = counts(&mut table, "d", 0.0)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    // 32 / 16 bins leave together.
    assert_eq!((names.len(), table.counters.evicted_bins), (31, 2));
    assert!(!names.contains(&"v0".to_owned()) && !names.contains(&"v1".to_owned()));
    assert_eq!(names.last().map(String::as_str), Some("another"));
    // Empty bins leave first, and do not count.
    for value in 0..32_u64 {
        table.add("e", &format!("v{value}"), 1, 0.0);
    }
    table.add("e", "late", 1, 1e6);
    assert_eq!(
        (
            counts(&mut table, "e", 1e6).len(),
            table.counters.evicted_bins
        ),
        (1, 2)
    );
}

#[test]
fn a_full_table_drops_what_has_not_changed_for_longest() {
    let mut table = table(16, 4);
    for name in 0..16 {
        table.add(&format!("d{name}"), "v", 1, f64::from(16 - name));
    }
    table.add("another", "v", 1, 17.0);
    assert_eq!(
        (table.distributions(), table.counters.evicted_distributions),
        (16, 1)
    );
    assert_eq!(counts(&mut table, "d15", 17.0), []);
}

#[test]
fn names_have_a_bound() {
    let mut table = table(4, 4);
    let long = "x".repeat(NAME_BYTES_MAX + 1);
    for (name, value) in [("", "v"), ("d", ""), (&*long, "v"), ("d", &*long)] {
        assert!(!table.add(name, value, 1, 0.0));
    }
    assert_eq!((table.counters.skipped, table.distributions()), (4, 0));
    assert!(table.add(&long[1..], &long[1..], u64::MAX, 0.0));
    assert!(table.add(&long[1..], &long[1..], u64::MAX, 0.0));
}

#[test]
fn a_restored_table_goes_on_forgetting() {
    let mut table = table(10, 10);
    table.add("d", "v", 100_000, 0.0);
    let json = serde_json::to_string(&table.state()).unwrap();
    let state: State = serde_json::from_str(&json).unwrap();
    let limits = Limits {
        distributions_max: 10,
        bins_max: 10,
    };
    let mut restored = ForgetTable::new(RATE, limits, state, 6);
    assert_eq!(restored.state().distributions, table.state().distributions);
    // A half-life later, which the tool did not run. Five standard deviations are 1.6 % of the half,
    // and the steps forget up to 0.6 %.
    let z = restored.read("d", Wanted::Largest(1), 100.0).z as f64;
    assert!((z - 50_000.0).abs() < 1500.0, "{z}");
    restored.forget(1e6);
    assert_eq!(restored.distributions(), 0);
}

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
