//! The forgetful Bloom filter with copies that come after varying delays. Time is virtual, and the delays follow from a
//! seed.
//!
//! `cargo test -p ringq-dedup --test dedup varying_delays:: -- --nocapture` prints the table of
//! docs/explain/filters.md.

use std::time::Duration;

use ringq_dedup::{Filter, arithmetic};

use crate::{START, forgetful, key};

const SEED: u64 = 4711;
const WINDOW: Duration = Duration::from_secs(60);
const RATE: f64 = 100.0;
const BOUND: f64 = 0.001;
/// The time in which messages come, in seconds: many periods, at whose ends the filter refreshes.
const SECONDS: f64 = 600.0;

/// A distribution of the time between a message and its copy, in seconds.
struct Delays {
    name: &'static str,
    /// Returns the delay below which this part (0 to 1) of all delays lies.
    quantile: fn(f64) -> f64,
}

const fn delays(name: &'static str, quantile: fn(f64) -> f64) -> Delays {
    Delays { name, quantile }
}

const DELAYS: [Delays; 8] = [
    delays("always 59 s", |_| 59.0),
    delays("uniform, 0 to 60 s", |part| 60.0 * part),
    delays("uniform, 0 to 120 s", |part| 120.0 * part),
    delays("exponential, mean 10 s", |part| -10.0 * (-part).ln_1p()),
    delays("exponential, mean 30 s", |part| -30.0 * (-part).ln_1p()),
    delays("exponential, mean 60 s", |part| -60.0 * (-part).ln_1p()),
    delays("heavy tail (Pareto, exponent 1.5), mean 10 s", |part| {
        10.0 / 3.0 * (1.0 - part).powf(-1.0 / 1.5)
    }),
    delays("heavy tail (Pareto, exponent 1.5), mean 60 s", |part| {
        20.0 * (1.0 - part).powf(-1.0 / 1.5)
    }),
];

impl Delays {
    /// Returns the part of copies that a filter with this window recognises, by the formula: the mean over all delays.
    fn expected(&self, filters: usize, window: Duration) -> f64 {
        const STEPS: u32 = 100_000;
        let parts = (0..STEPS).map(|step| (f64::from(step) + 0.5) / f64::from(STEPS));
        let recognised = parts.map(|part| {
            let delay = Duration::from_secs_f64((self.quantile)(part));
            arithmetic::forgetful_recognised(filters, window, delay)
        });
        recognised.sum::<f64>() / f64::from(STEPS)
    }

    /// Sends messages at `rate` and a copy of each, and returns the number of messages and of recognised copies.
    fn measure(&self, filters: usize, rate: f64) -> (u64, u64) {
        // The messages come at random, so the rate varies. A filter for the mean would refresh early now and then.
        let mut filter = forgetful(filters, WINDOW, 1.1 * RATE, BOUND);
        let mut random = fastrand::Rng::with_seed(SEED);
        let count = (SECONDS * rate) as u64;
        // The time and the number of each arrival. The first arrival of a number is the message.
        let mut arrivals: Vec<(Duration, u64)> = Vec::new();
        for number in 0..count {
            let at = Duration::from_secs_f64(SECONDS * random.f64());
            // Copies behind the end come without messages around them, as at an idle consumer.
            let delay = (self.quantile)(random.f64()).min(1e6);
            arrivals.push((at, number));
            arrivals.push((at + Duration::from_secs_f64(delay), number));
        }
        arrivals.sort_unstable();
        let mut is_copy = vec![false; count as usize];
        let mut recognised = 0;
        for (at, number) in arrivals {
            let key = key(number);
            if std::mem::replace(&mut is_copy[number as usize], true) {
                recognised += u64::from(filter.remembers(key, START + at));
            } else {
                filter.remember(key, START + at);
            }
        }
        (count, recognised)
    }
}

/// The filter recognises the part of the copies that the formula says. The window is the same for 3 and 5 filters. A
/// filter with fewer of them remembers some keys for longer.
#[test]
fn the_part_of_copies_that_are_recognised_is_that_of_the_formula() {
    println!("| delay | 3 filters: formula | measured | 5 filters: formula | measured |");
    println!("|---|---|---|---|---|");
    for delays in &DELAYS {
        let mut line = format!("| {}", delays.name);
        for filters in [3, 5] {
            let expected = delays.expected(filters, WINDOW);
            let (count, recognised) = delays.measure(filters, RATE);
            let measured = recognised as f64 / count as f64;
            line += &format!(" | {expected:.4} | {measured:.4}");
            // A copy that came too late is recognised by mistake with a probability of at most BOUND.
            let most = expected + (1.0 - expected) * BOUND;
            let deviation = (expected * (1.0 - expected) / count as f64).sqrt() + 1e-9;
            assert!(
                measured > expected - 5.0 * deviation && measured < most + 5.0 * deviation,
                "{}, {filters} filters: {measured}, and {expected} expected",
                delays.name
            );
        }
        println!("{line} |");
    }
}

/// A window that is longer than the longest delay recognises every copy, whatever the delays.
#[test]
fn a_window_longer_than_the_longest_delay_misses_no_copy() {
    for delays in DELAYS.iter().filter(|it| (it.quantile)(1.0) <= 60.0) {
        for filters in [3, 5, 12] {
            let (count, recognised) = delays.measure(filters, RATE);
            assert_eq!(recognised, count, "{}, {filters} filters", delays.name);
        }
    }
}

/// At four times the rate of the options, the window is a quarter, and the formula with this window holds.
#[test]
fn a_high_load_shortens_the_window_for_all_delays() {
    println!("| delay, at 4 times the rate | formula, for a quarter of the window | measured |");
    println!("|---|---|---|");
    for delays in &DELAYS {
        // 4 times the rate of the options.
        let (count, recognised) = delays.measure(5, 4.4 * RATE);
        let measured = recognised as f64 / count as f64;
        let expected = delays.expected(5, WINDOW / 4);
        println!("| {} | {expected:.4} | {measured:.4} |", delays.name);
        // The options permit some more keys than those of the rate: up to a tenth.
        let most = delays.expected(5, WINDOW.mul_f64(0.25 * 1.1));
        assert!(
            measured > expected - 0.02 && measured < most + 0.02,
            "{}: {measured}, and {expected} to {most} expected",
            delays.name
        );
    }
}
