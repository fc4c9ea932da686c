//! `sweep`: a staircase of rates, and the knee of latency over rate.

use crate::judgement;
use crate::rate::Rate;
use crate::result::{Ended, RunResult, SweepResult, Verdict};
use crate::run::{self, Options};
use crate::scenario::Scenario;
use crate::slo::CARRIED_SHARE;
use crate::target::Target;

/// A rate is behind the knee when its p99 is more than this many times the smallest.
const KNEE_FACTOR: f64 = 10.0;

/// Spreads `steps` rates from the first to the last, at even ratios.
pub fn rates(from: f64, to: f64, steps: u32) -> Vec<f64> {
    match steps {
        0 | 1 => vec![from],
        _ => {
            let ratio = (to / from).powf(1.0 / f64::from(steps - 1));
            (0..steps)
                .map(|step| from * ratio.powi(step.cast_signed()))
                .collect()
        }
    }
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
        let scenario = Scenario {
            rate: Rate::PerSecond(*rate),
            ..scenario.clone()
        };
        let finished = match run::run(target, &scenario, options) {
            Ok(finished) => finished,
            Err(error) => {
                failure = Some(error);
                break;
            }
        };
        say(&finished.result);
        let failed = matches!(
            finished.result.ended,
            Ended::Failed { .. } | Ended::Interrupted
        );
        steps.push(finished.result);
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
    let carried = |run: &&RunResult| {
        let Some(offered) = run.totals.offered_per_s else {
            return false;
        };
        run.totals.acknowledged_per_s >= CARRIED_SHARE * offered
            && p99_us(run).is_some_and(|p99| p99 <= KNEE_FACTOR * base_us)
            && run.self_check.verdict == Verdict::Trusted
    };
    let carried = steps.iter().filter(carried);
    carried
        .filter_map(|run| run.totals.offered_per_s)
        .reduce(f64::max)
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
