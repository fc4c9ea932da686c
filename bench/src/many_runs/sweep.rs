//! `sweep`: a staircase of rates, and the knee of latency over rate.

use crate::judgement;
use crate::many_runs::slo::CARRIED_SHARE;
use crate::result::{Ended, RunResult, SweepResult, Verdict};
use crate::run::{self, Options};
use crate::scenario::Scenario;
use crate::target::Target;

/// A rate is behind the knee when its p99 is more than this many times the smallest.
const KNEE_FACTOR: f64 = 10.0;

/// Spreads `steps` rates from the first to the last, at even ratios.
pub fn rates(from: f64, to: f64, steps: u32) -> Vec<f64> {
    let ratio = (to / from).powf(1.0 / f64::from(steps.max(2) - 1));
    let rate = |step: u32| from * ratio.powi(step.cast_signed());
    (0..steps).map(rate).collect()
}

/// Runs the scenario at each rate until a run fails. Returns the result, and the reason if a run
/// could not begin. `say` is called with each run.
pub fn sweep(
    target: &Target,
    scenario: &Scenario,
    rates: &[f64],
    options: &Options,
    mut say: impl FnMut(&RunResult),
) -> (SweepResult, Option<String>) {
    let mut steps = Vec::new();
    let mut failure = None;
    for rate in rates {
        let result = match run::run(target, &scenario.at_rate(*rate), options) {
            Ok(finished) => finished.result,
            Err(error) => {
                failure = Some(error);
                break;
            }
        };
        say(&result);
        let failed = result.is_failed() || result.ended == Ended::Interrupted;
        steps.push(result);
        if failed {
            break;
        }
    }
    let knee_per_s = knee(&steps);
    (SweepResult { steps, knee_per_s }, failure)
}

/// The 99th percentile of the latency that counts.
pub fn p99_us(run: &RunResult) -> Option<f64> {
    run.main_latency().map(|record| record.p99_us)
}

/// Finds the highest rate in front of the knee.
fn knee(steps: &[RunResult]) -> Option<f64> {
    let base_us = steps.iter().filter_map(p99_us).reduce(f64::min)?;
    let carried = |run: &RunResult| {
        let offered = run.totals.offered_per_s?;
        let is_carried = run.totals.acknowledged_per_s >= CARRIED_SHARE * offered
            && p99_us(run)? <= KNEE_FACTOR * base_us
            && run.self_check.verdict == Verdict::Trusted;
        is_carried.then_some(offered)
    };
    steps.iter().filter_map(carried).reduce(f64::max)
}

/// Draws the knee for the terminal: a line per rate, a bar as long as the logarithm of its p99.
pub fn picture(result: &SweepResult) -> String {
    const WIDTH: f64 = 50.0;
    let p99s: Vec<f64> = result.steps.iter().filter_map(p99_us).collect();
    let most = p99s.iter().copied().fold(1.0, f64::max);
    let least = p99s.iter().copied().fold(most, f64::min).max(0.001);
    let mut out = String::from("  offered/s   carried     p99 ms\n");
    for run in &result.steps {
        let offered = run.totals.offered_per_s.unwrap_or(0.0);
        let share = 100.0 * run.totals.acknowledged_per_s / offered.max(1e-9);
        let p99 = p99_us(run).unwrap_or(0.0);
        let height = (p99.max(least) / least).ln() / (most / least).ln().max(1e-9);
        let bar = "#".repeat((height * WIDTH).round() as usize + 1);
        let mut note = match run.self_check.verdict {
            Verdict::Trusted => String::new(),
            limited => format!("  ({})", judgement::whose(limited)),
        };
        if !run.ledger.is_clean() {
            note += &format!("  ({})", judgement::faults(&run.ledger));
        }
        out += &format!(
            "{offered:>11.0} {share:>8.1} % {:>10.3}  {bar}{note}\n",
            p99 / 1000.0
        );
    }
    out + &judgement::knee(result.knee_per_s) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_staircase_has_even_ratios() {
        let rates = rates(1000.0, 8000.0, 4);
        let rounded: Vec<u64> = rates.iter().map(|rate| rate.round() as u64).collect();
        assert_eq!(rounded, [1000, 2000, 4000, 8000]);
        assert_eq!(super::rates(5.0, 9.0, 1), [5.0]);
    }
}
