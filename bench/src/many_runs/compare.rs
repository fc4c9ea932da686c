//! `compare`: the same scenario against two daemons in turns, A B A B, each time with a fresh data
//! directory; medians, ratios, spreads, thresholds.

use std::path::Path;
use std::str::FromStr;

use crate::daemon::{DaemonCommand, RunningDaemon};
use crate::generator::control::Control;
use crate::judgement;
use crate::result::{
    Bound, CompareResult, Ended, HistogramKind, Metric, Ratio, RunResult, Side, Threshold, Verdict,
};
use crate::run::{self, Finished, Options};
use crate::scenario::Scenario;

/// One of the two daemons to compare.
#[derive(Clone, Debug)]
pub struct Contender {
    /// The contender's name in tables and in the result.
    pub name: String,
    /// The command that starts its daemon.
    pub command: DaemonCommand,
}

struct Meter {
    name: &'static str,
    unit: &'static str,
    higher_is_better: bool,
    /// True when a bottleneck in the generator makes the figure say nothing about the daemon.
    needs_a_free_generator: bool,
    read: fn(&RunResult) -> Option<f64>,
}

/// Lists meters: the name, the unit, whether more is better, whether the generator's limit spoils it, the value.
macro_rules! meters {
    ($($name:literal $unit:literal $higher:literal $spoiled:literal: |$run:ident| $value:expr;)*) => {
        [$(Meter {
            name: $name,
            unit: $unit,
            higher_is_better: $higher,
            needs_a_free_generator: $spoiled,
            read: |$run| $value,
        }),*]
    };
}

const METERS: [Meter; 15] = meters! {
    "published_per_s" "msg/s" true true: |run| positive(run.totals.acknowledged_per_s);
    "delivered_per_s" "msg/s" true true: |run| positive(run.totals.delivered_per_s);
    "publish_p50_us" "us" false true: |run| Some(run.histogram(HistogramKind::Publish)?.p50_us);
    "publish_p99_us" "us" false true: |run| Some(run.histogram(HistogramKind::Publish)?.p99_us);
    "publish_p999_us" "us" false true: |run| Some(run.histogram(HistogramKind::Publish)?.p999_us);
    "delivery_p50_us" "us" false true: |run| Some(run.histogram(HistogramKind::Delivery)?.p50_us);
    "delivery_p99_us" "us" false true: |run| Some(run.histogram(HistogramKind::Delivery)?.p99_us);
    "delivery_p999_us" "us" false true: |run| Some(run.histogram(HistogramKind::Delivery)?.p999_us);
    "cpu_us_per_message" "us" false false: |run| run.resources?.cpu_us_per_message;
    "cpu_us_per_published" "us" false false: |run| run.resources?.cpu_us_per_published;
    "cpu_us_per_delivered" "us" false false: |run| run.resources?.cpu_us_per_delivered;
    "memory_bytes_per_queued" "bytes" false false: |run| run.resources?.memory_bytes_per_queued;
    "rss_max_bytes" "bytes" false false: |run| Some(run.resources?.rss_max_bytes as f64);
    "disk_bytes_per_message" "bytes" false false: |run| run.resources?.disk_bytes_per_message;
    "switches_per_message" "switches" false false: |run| switches_per_message(run);
};

fn positive(value: f64) -> Option<f64> {
    (value > 0.0).then_some(value)
}

fn switches_per_message(run: &RunResult) -> Option<f64> {
    let used = run.resources?;
    let messages = run.totals.acknowledged + run.totals.delivered;
    let switches = used.switches_voluntary + used.switches_involuntary;
    (messages > 0).then(|| switches as f64 / messages as f64)
}

impl FromStr for Threshold {
    type Err = String;

    /// Reads a bound such as `delivered_per_s>=0.95`, of which nothing is measured yet.
    fn from_str(text: &str) -> Result<Threshold, String> {
        let wrong = || format!("`{text}` is no requirement such as delivered_per_s>=0.95");
        let (bound, parts) = match text.split_once(">=") {
            Some(parts) => (Bound::AtLeast, Some(parts)),
            None => (Bound::AtMost, text.split_once("<=")),
        };
        let (metric, limit) = parts.ok_or_else(wrong)?;
        let limit: f64 = limit.trim().parse().map_err(|_| wrong())?;
        let metric = metric.trim();
        if !METERS.iter().any(|meter| meter.name == metric) {
            let known = METERS.map(|meter| meter.name).join(", ");
            return Err(format!("there is no metric `{metric}`; there are {known}"));
        }
        Ok(Threshold {
            metric: metric.into(),
            bound,
            limit,
            measured: None,
            met: false,
        })
    }
}

/// Runs the rounds. A daemon that does not come up, or a run that cannot begin, ends the rounds early. Returns the runs
/// of each side, and the reason for an early end. `each` is called with each run.
pub fn compare(
    contenders: &[Contender; 2],
    scenario: &Scenario,
    rounds: u32,
    base: &Path,
    options: &Options,
    mut each: impl FnMut(u32, &str, &mut Finished) -> Result<(), String>,
) -> ([Vec<RunResult>; 2], Option<String>) {
    let mut runs = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for (side, contender) in contenders.iter().enumerate() {
            let mut finished = run_against_fresh_daemon(contender, scenario, base, options);
            let told = match &mut finished {
                Ok(finished) => each(round, &contender.name, finished),
                Err(_) => Ok(()),
            };
            match told.and(finished) {
                Ok(finished) => runs[side].push(finished.result),
                Err(error) => return (runs, Some(format!("{}: {error}", contender.name))),
            }
            if Control::is_set(&options.stop) {
                return (runs, Some("interrupted".into()));
            }
        }
    }
    (runs, None)
}

/// Runs the scenario once against a fresh daemon.
fn run_against_fresh_daemon(
    contender: &Contender,
    scenario: &Scenario,
    base: &Path,
    options: &Options,
) -> Result<Finished, String> {
    let (daemon, target) = RunningDaemon::start(&contender.command, base)?;
    let mut finished = run::run(&target, scenario, options)?;
    finished.result.daemon.kind.clone_from(&contender.name);
    if Control::is_set(&options.stop) && finished.result.is_failed() {
        // Ctrl-C also reaches the daemon, because the daemon shares the terminal.
        finished.result.ended = Ended::Interrupted;
    }
    let stopped = daemon.stop();
    if let (Err(error), Ended::Complete) = (stopped, &finished.result.ended) {
        finished.result.ended = Ended::Failed { reason: error };
    }
    Ok(finished)
}

/// Judges the runs of both contenders: computes metrics and ratios, and checks every requirement. The result
/// passes when no failure was found, `failure` included.
pub fn judge(
    contenders: &[Contender; 2],
    scenario: &Scenario,
    (runs, failure): ([Vec<RunResult>; 2], Option<String>),
    requirements: &[Threshold],
) -> CompareResult {
    let [a_runs, b_runs] = runs;
    let mut failures: Vec<String> = failure.into_iter().collect();
    for (contender, runs) in contenders.iter().zip([&a_runs, &b_runs]) {
        for (round, run) in (1..).zip(runs) {
            let flaw = flaw(run).map(|flaw| format!("{} in round {round}: {flaw}", contender.name));
            failures.extend(flaw);
        }
    }
    let side = |contender: &Contender, runs: Vec<RunResult>| {
        let metrics = METERS.iter().filter_map(|meter| metric(meter, &runs));
        Side {
            name: contender.name.clone(),
            command: contender.command.text.clone(),
            metrics: metrics.collect(),
            runs,
        }
    };
    let a = side(&contenders[0], a_runs);
    let b = side(&contenders[1], b_runs);
    let ratios = METERS.iter().filter_map(|meter| ratio(meter.name, &a, &b));
    let ratios: Vec<Ratio> = ratios.collect();
    let is_limited = |run: &RunResult| run.self_check.verdict == Verdict::GeneratorLimited;
    let limited = a.runs.iter().chain(&b.runs).any(is_limited);
    let mut thresholds = requirements.to_vec();
    for threshold in &mut thresholds {
        let Threshold { metric, limit, .. } = &*threshold;
        let ratio = ratios.iter().find(|ratio| ratio.metric == *metric);
        let measured = ratio.map(|ratio| ratio.median);
        let met = measured.is_some_and(|ratio| match threshold.bound {
            Bound::AtLeast => ratio >= *limit,
            Bound::AtMost => ratio <= *limit,
        });
        let is_spoiled = |meter: &Meter| meter.name == metric && meter.needs_a_free_generator;
        failures.extend(match measured {
            None => Some(format!("{metric} could not be measured")),
            Some(ratio) if !met => Some(format!("{metric}: B/A is {ratio:.3}, required {limit}")),
            Some(_) if limited && METERS.iter().any(is_spoiled) => Some(format!(
                "{metric}: the generator was the bottleneck in some of the runs"
            )),
            Some(_) => None,
        });
        (threshold.measured, threshold.met) = (measured, met);
    }
    CompareResult {
        scenario: scenario.name.clone(),
        rounds: u32::try_from(b.runs.len()).unwrap_or(u32::MAX),
        a,
        b,
        ratios,
        thresholds,
        passed: failures.is_empty(),
        failures,
    }
}

/// The flaw of a run, if it has one.
fn flaw(run: &RunResult) -> Option<String> {
    match &run.ended {
        Ended::Failed { reason } => Some(reason.clone()),
        Ended::NotDrained => Some("not everything arrived".into()),
        Ended::Interrupted => Some("interrupted".into()),
        Ended::Complete if run.ledger.is_clean() => None,
        Ended::Complete => Some(judgement::faults(&run.ledger)),
    }
}

fn metric(meter: &Meter, runs: &[RunResult]) -> Option<Metric> {
    let values: Vec<Option<f64>> = runs.iter().map(meter.read).collect();
    let (median, min, max) = spread(values.iter().flatten().copied())?;
    Some(Metric {
        name: meter.name.into(),
        unit: meter.unit.into(),
        higher_is_better: meter.higher_is_better,
        values,
        median,
        min,
        max,
    })
}

fn ratio(name: &str, a: &Side, b: &Side) -> Option<Ratio> {
    let (a, b) = (a.metric(name)?, b.metric(name)?);
    let pairs = a.values.iter().zip(&b.values);
    let ratios = pairs.filter_map(|(a, b)| Some((*b)? / a.filter(|a| *a > 0.0)?));
    let (median, min, max) = spread(ratios)?;
    Some(Ratio {
        metric: name.into(),
        higher_is_better: a.higher_is_better,
        median,
        min,
        max,
    })
}

/// Finds the median, the smallest and the largest value.
fn spread(values: impl Iterator<Item = f64>) -> Option<(f64, f64, f64)> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (first, last) = (*values.first()?, *values.last()?);
    let (low, high) = ((values.len() - 1) / 2, values.len() / 2);
    Some((f64::midpoint(values[low], values[high]), first, last))
}

/// Formats a comparison as a table for the terminal, one metric a line, with failed checks below.
pub fn table(result: &CompareResult) -> String {
    let (a, b) = (&result.a, &result.b);
    let rounds = format!("median of {} (range)", result.rounds);
    let mut out = format!(
        "{rounds:24} {:>28} {:>28}   {1} / {0} (range)\n",
        a.name, b.name
    );
    let number = |value: f64| {
        let decimals = if value.abs() >= 100.0 { 0 } else { 3 };
        format!("{value:.decimals$}")
    };
    let shown = |metric: &Metric| {
        let [median, min, max] = [metric.median, metric.min, metric.max].map(number);
        format!("{median} ({min}-{max})")
    };
    for Meter { name, .. } in METERS {
        let sides = [a.metric(name), b.metric(name)];
        if sides.iter().all(Option::is_none) {
            continue;
        }
        let [a, b] = sides.map(|metric| metric.map_or("-".into(), shown));
        let ratio = result.ratios.iter().find(|ratio| ratio.metric == name);
        let ratio = ratio.map(|r| format!("{:.2} ({:.2}-{:.2})", r.median, r.min, r.max));
        let ratio = ratio.unwrap_or("-".into());
        put!(out, "{name:24} {a:>28} {b:>28}   {ratio}\n");
    }
    for failure in &result.failures {
        put!(out, "FAILED     {failure}\n");
    }
    out
}

#[cfg(test)]
mod tests;
