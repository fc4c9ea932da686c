//! `compare`: the same scenario against two daemons in turns, A B A B, each time with a fresh data
//! directory; medians, ratios, spreads, thresholds.

use std::path::Path;
use std::str::FromStr;

use crate::control::Control;
use crate::daemon::{DaemonCommand, RunningDaemon};
use crate::judgement;
use crate::result::{
    Bound, CompareResult, Ended, HistogramKind, Metric, Ratio, RunResult, Side, Threshold, Verdict,
};
use crate::run::{self, Finished, Options};
use crate::scenario::Scenario;

/// One of the two daemons to compare.
#[derive(Clone, Debug)]
pub struct Contender {
    /// The side's name.
    pub name: String,
    /// The command that starts its daemon.
    pub command: DaemonCommand,
}

/// A bound on a ratio: `delivered_per_s>=0.95`.
#[derive(Clone, Debug, PartialEq)]
pub struct Requirement {
    metric: String,
    bound: Bound,
    limit: f64,
}

/// A metric: its name, unit, whether more is better, whether the generator's limit spoils it, and how to
/// read it from a run.
type Meter = (
    &'static str,
    &'static str,
    bool,
    bool,
    fn(&RunResult) -> Option<f64>,
);

const METERS: [Meter; 15] = [
    ("published_per_s", "msg/s", true, true, |run| {
        (run.totals.acknowledged > 0).then_some(run.totals.acknowledged_per_s)
    }),
    ("delivered_per_s", "msg/s", true, true, |run| {
        (run.totals.delivered > 0).then_some(run.totals.delivered_per_s)
    }),
    ("publish_p50_us", "us", false, true, |run| {
        Some(run.histogram(HistogramKind::Publish)?.p50_us)
    }),
    ("publish_p99_us", "us", false, true, |run| {
        Some(run.histogram(HistogramKind::Publish)?.p99_us)
    }),
    ("publish_p999_us", "us", false, true, |run| {
        Some(run.histogram(HistogramKind::Publish)?.p999_us)
    }),
    ("delivery_p50_us", "us", false, true, |run| {
        Some(run.histogram(HistogramKind::Delivery)?.p50_us)
    }),
    ("delivery_p99_us", "us", false, true, |run| {
        Some(run.histogram(HistogramKind::Delivery)?.p99_us)
    }),
    ("delivery_p999_us", "us", false, true, |run| {
        Some(run.histogram(HistogramKind::Delivery)?.p999_us)
    }),
    ("cpu_us_per_message", "us", false, false, |run| {
        run.resources?.cpu_us_per_message
    }),
    ("cpu_us_per_published", "us", false, false, |run| {
        run.resources?.cpu_us_per_published
    }),
    ("cpu_us_per_delivered", "us", false, false, |run| {
        run.resources?.cpu_us_per_delivered
    }),
    ("memory_bytes_per_queued", "bytes", false, false, |run| {
        run.resources?.memory_bytes_per_queued
    }),
    ("rss_max_bytes", "bytes", false, false, |run| {
        Some(run.resources?.rss_max_bytes as f64)
    }),
    ("disk_bytes_per_message", "bytes", false, false, |run| {
        run.resources?.disk_bytes_per_message
    }),
    ("switches_per_message", "switches", false, false, |run| {
        let used = run.resources?;
        let messages = run.totals.acknowledged + run.totals.delivered;
        let switches = used.switches_voluntary + used.switches_involuntary;
        (messages > 0).then(|| switches as f64 / messages as f64)
    }),
];

impl FromStr for Requirement {
    type Err = String;

    fn from_str(text: &str) -> Result<Requirement, String> {
        let wrong = || format!("`{text}` is no requirement such as delivered_per_s>=0.95");
        let (metric, bound, limit) = if let Some((metric, limit)) = text.split_once(">=") {
            (metric, Bound::AtLeast, limit)
        } else if let Some((metric, limit)) = text.split_once("<=") {
            (metric, Bound::AtMost, limit)
        } else {
            return Err(wrong());
        };
        let limit: f64 = limit.trim().parse().map_err(|_| wrong())?;
        let metric = metric.trim();
        if !METERS.iter().any(|meter| meter.0 == metric) {
            let known: Vec<&str> = METERS.iter().map(|meter| meter.0).collect();
            return Err(format!(
                "there is no metric `{metric}`; there are {}",
                known.join(", ")
            ));
        }
        Ok(Requirement {
            metric: metric.into(),
            bound,
            limit,
        })
    }
}

/// Runs the rounds until a daemon does not come up or a run cannot begin. Returns the runs, and what
/// ended them early. `each` gets each run.
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
            let finished = turn(contender, scenario, base, options).and_then(|mut finished| {
                each(round, &contender.name, &mut finished)?;
                Ok(finished)
            });
            let finished = match finished {
                Ok(finished) => finished,
                Err(error) => return (runs, Some(format!("{}: {error}", contender.name))),
            };
            runs[side].push(finished.result);
            if Control::is(&options.stop) {
                return (runs, Some("interrupted".into()));
            }
        }
    }
    (runs, None)
}

/// One run against a fresh daemon.
fn turn(
    contender: &Contender,
    scenario: &Scenario,
    base: &Path,
    options: &Options,
) -> Result<Finished, String> {
    let daemon = RunningDaemon::start(&contender.command, base)?;
    let mut finished = run::run(&daemon.target, scenario, options)?;
    finished.result.daemon.kind.clone_from(&contender.name);
    if Control::is(&options.stop) && finished.result.is_failed() {
        // Ctrl-C reaches the daemon, too: it shares the terminal.
        finished.result.ended = Ended::Interrupted;
    }
    let stopped = daemon.stop();
    if let (Err(error), Ended::Complete) = (stopped, &finished.result.ended) {
        finished.result.ended = Ended::Failed { reason: error };
    }
    Ok(finished)
}

/// Judges the runs.
pub fn judge(
    contenders: &[Contender; 2],
    scenario: &Scenario,
    (runs, failure): ([Vec<RunResult>; 2], Option<String>),
    requirements: &[Requirement],
) -> CompareResult {
    let [a_runs, b_runs] = runs;
    let mut failures: Vec<String> = failure.into_iter().collect();
    for (contender, runs) in contenders.iter().zip([&a_runs, &b_runs]) {
        for (round, run) in runs.iter().enumerate() {
            failures.extend(
                flaw(run).map(|flaw| format!("{} in round {}: {flaw}", contender.name, round + 1)),
            );
        }
    }
    let side = |contender: &Contender, runs: Vec<RunResult>| Side {
        name: contender.name.clone(),
        command: contender.command.text.clone(),
        metrics: METERS
            .iter()
            .filter_map(|meter| metric(meter, &runs))
            .collect(),
        runs,
    };
    let a = side(&contenders[0], a_runs);
    let b = side(&contenders[1], b_runs);
    let ratios: Vec<Ratio> = METERS
        .iter()
        .filter_map(|meter| ratio(meter.0, &a, &b))
        .collect();
    let limited = a
        .runs
        .iter()
        .chain(&b.runs)
        .any(|run| run.self_check.verdict == Verdict::GeneratorLimited);
    let mut thresholds = Vec::new();
    for requirement in requirements {
        let name = &requirement.metric;
        let measured = ratios
            .iter()
            .find(|ratio| ratio.metric == *name)
            .map(|ratio| ratio.median);
        let met = measured.is_some_and(|ratio| match requirement.bound {
            Bound::AtLeast => ratio >= requirement.limit,
            Bound::AtMost => ratio <= requirement.limit,
        });
        let spoiled = METERS.iter().any(|meter| meter.0 == name && meter.3) && limited;
        match measured {
            None => failures.push(format!("{name} could not be measured")),
            Some(ratio) if !met => {
                failures.push(format!(
                    "{name}: B/A is {ratio:.3}, required {}",
                    requirement.limit
                ));
            }
            Some(_) if spoiled => {
                failures.push(format!(
                    "{name}: the generator was the bottleneck in some of the runs"
                ));
            }
            Some(_) => {}
        }
        thresholds.push(Threshold {
            metric: name.clone(),
            bound: requirement.bound,
            limit: requirement.limit,
            measured,
            met,
        });
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
        Ended::Failed { reason } => return Some(reason.clone()),
        Ended::NotDrained => return Some("not everything arrived".into()),
        Ended::Interrupted => return Some("interrupted".into()),
        Ended::Complete => {}
    }
    (!run.ledger.is_clean()).then(|| judgement::faults(&run.ledger))
}

fn metric((name, unit, higher, _, read): &Meter, runs: &[RunResult]) -> Option<Metric> {
    let values: Vec<Option<f64>> = runs.iter().map(read).collect();
    let (median, min, max) = spread(values.iter().flatten().copied())?;
    Some(Metric {
        name: (*name).into(),
        unit: (*unit).into(),
        higher_is_better: *higher,
        values,
        median,
        min,
        max,
    })
}

fn ratio(name: &str, a: &Side, b: &Side) -> Option<Ratio> {
    let of = |side: &Side| {
        side.metrics
            .iter()
            .find(|metric| metric.name == name)
            .cloned()
    };
    let (a, b) = (of(a)?, of(b)?);
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
    let middle = values.len() / 2;
    let median = if values.len().is_multiple_of(2) {
        f64::midpoint(values[middle - 1], values[middle])
    } else {
        values[middle]
    };
    Some((median, first, last))
}

/// The comparison as a table.
pub fn table(result: &CompareResult) -> String {
    let (a, b) = (&result.a, &result.b);
    let mut out = format!(
        "{:24} {:>28} {:>28}   {} / {} (range)\n",
        format!("median of {} (range)", result.rounds),
        a.name,
        b.name,
        b.name,
        a.name
    );
    for meter in METERS {
        let of = |side: &Side| {
            let metric = side.metrics.iter().find(|metric| metric.name == meter.0)?;
            let number = |value: f64| {
                if value.abs() >= 100.0 {
                    format!("{value:.0}")
                } else {
                    format!("{value:.3}")
                }
            };
            Some(format!(
                "{} ({}-{})",
                number(metric.median),
                number(metric.min),
                number(metric.max)
            ))
        };
        let (a, b) = (of(a), of(b));
        if a.is_none() && b.is_none() {
            continue;
        }
        let ratio = result.ratios.iter().find(|ratio| ratio.metric == meter.0);
        let ratio = ratio.map(|r| format!("{:.2} ({:.2}-{:.2})", r.median, r.min, r.max));
        out += &format!(
            "{:24} {:>28} {:>28}   {}\n",
            meter.0,
            a.unwrap_or("-".into()),
            b.unwrap_or("-".into()),
            ratio.unwrap_or("-".into())
        );
    }
    for failure in &result.failures {
        out += &format!("FAILED     {failure}\n");
    }
    out
}

#[cfg(test)]
mod tests;
