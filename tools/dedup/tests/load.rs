//! The forgetful filter, which may drop fresh messages, while the load changes: the bound on false positives must hold in
//! each phase, and for any number of constituents. Time is virtual, and the keys follow from a seed, so each run is the
//! same.
//!
//! `cargo test -p ringq-dedup --test dedup load:: -- --nocapture` prints the figures of docs/explain/filters.md.

use std::time::Duration;

use ringq_dedup::Filter;

use crate::{START, forgetful, key};

const WINDOW: Duration = Duration::from_secs(30);
/// The rate for which the filter is made, in keys per second.
const RATE: f64 = 200.0;
/// Fresh keys that are asked for in each phase.
const PROBES: u64 = 60_000;
/// Moments of a phase at which fresh keys are asked for.
const LOOKS: u64 = 60;

/// The smallest number of constituents, that of the tools, a larger one, and the largest.
const CONSTITUENTS: [usize; 4] = [3, 5, 12, 64];

/// A part of the load: its name, its seconds, and the rate as a multiple of [`RATE`] at a part of the phase (0 to 1).
type Phase = (&'static str, f64, fn(f64) -> f64);

/// Ten bursts. A tenth of the time has nearly all keys.
fn bursts(part: f64) -> f64 {
    let is_burst = (part * 10.0).fract() < 0.1;
    if is_burst { 20.0 } else { 0.05 }
}

const PHASES: [Phase; 8] = [
    ("the usual rate", 60.0, |_| 1.0),
    ("ten times the rate", 30.0, |_| 10.0),
    ("the usual rate again", 20.0, |_| 1.0),
    ("a tenth of the rate", 60.0, |_| 0.1),
    ("bursts of 20 times the rate", 100.0, bursts),
    ("nothing at all", 12.0, |_| 0.0),
    ("from nothing to 100 times the rate", 10.0, |_| 100.0),
    ("the usual rate at the end", 40.0, |_| 1.0),
];

/// Feeds the phases to a filter with this number of constituents, and checks each of them.
fn check(filters: usize, bound: f64) {
    let name = format!("forgetful Bloom of {filters} filters");
    let mut filter = forgetful(filters, WINDOW, RATE, bound);
    let (mut fed, mut probed) = (0_u64, 1_u64 << 40);
    let mut began = START;
    println!("{name}, bound {bound}:");
    println!("| phase | keys | computed | measured |");
    println!("|---|---|---|---|");
    for (phase, seconds, factor) in PHASES {
        // A step of a millisecond has the keys that have come due in it.
        let (mut due, mut wrong, mut computed) = (0.0, 0_u64, 0.0_f64);
        let fed_before = fed;
        let steps = (seconds * 1000.0) as u64;
        for step in 0..steps {
            let now = began + Duration::from_millis(step);
            due += RATE * factor(step as f64 / steps as f64) / 1000.0;
            while due >= 1.0 {
                filter.remember(key(fed), now);
                // Between two looks, the filter may be fuller than at either of them.
                if fed.is_multiple_of(16) {
                    computed = computed.max(filter.false_positives());
                }
                fed += 1;
                due -= 1.0;
            }
            if step % (steps / LOOKS) == 0 {
                for _ in 0..PROBES / LOOKS {
                    wrong += u64::from(filter.remembers(key(probed), now));
                    probed += 1;
                }
                computed = computed.max(filter.false_positives());
            }
        }
        began += Duration::from_secs_f64(seconds);
        let measured = wrong as f64 / PROBES as f64;
        println!(
            "| {phase} | {} | {computed:.5} | {measured:.5} |",
            fed - fed_before
        );
        // The false positives of a phase are a sum of independent events with this standard deviation at most.
        let deviation = (bound * (1.0 - bound) / PROBES as f64).sqrt();
        assert!(computed <= bound, "{name}, {phase}: {computed}");
        assert!(
            measured <= bound + 5.0 * deviation,
            "{name}, {phase}: {measured}"
        );
    }
}

#[test]
fn the_forgetful_filter_keeps_its_bound_while_the_load_changes() {
    for filters in CONSTITUENTS {
        for bound in [0.01, 0.001] {
            check(filters, bound);
        }
    }
}

/// A refresh before its time must not come so often that the window is missed at the rate for which the filter is made.
#[test]
fn the_window_is_kept_up_to_the_rate_of_the_options() {
    for bound in [0.05, 0.01, 0.001, 1e-5] {
        for filters in CONSTITUENTS {
            let mut forgetful = forgetful(filters, WINDOW, RATE, bound);
            for number in 0..(RATE * 300.0) as u64 {
                let at = START + Duration::from_secs_f64(number as f64 / RATE);
                forgetful.remember(key(number), at);
            }
            let shortest = forgetful.shortest_window();
            // Each of 64 filters takes 97 keys a period, so by chance one of them is full some milliseconds early.
            let permitted = shortest.filter(|it| filters == 64 && *it > WINDOW.mul_f64(0.999));
            assert_eq!(
                shortest, permitted,
                "forgetful of {filters} filters, {bound}"
            );
        }
    }
}
