//! [`PageData`]: what the page shows, as JSON for `page.js`.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::serialization::Deserializer;
use serde::Serialize;

use crate::judgement::{self, Judgement};
use crate::result::tally::{Latencies, latencies};
use crate::result::{
    CompareResult, FindMaxResult, HistogramKind, Ledger, Machine, Outcome, RunResult, SavedResult,
    Side, Verdict,
};

/// Points of a spectrum for each nine of its axis.
const POINTS_PER_NINE: f64 = 24.0;

/// Everything on the page.
#[derive(Serialize)]
pub(super) struct PageData {
    results: Vec<ShownResult>,
    runs: Group,
    whose: BTreeMap<Verdict, &'static str>,
}

/// A saved result without its runs, and its name on the page.
#[derive(Serialize)]
struct ShownResult {
    name: String,
    tool: String,
    command: Vec<String>,
    started_unix_ms: u64,
    machine: Machine,
    #[serde(flatten)]
    section: Section,
}

/// The part of a result that has a section of its own.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each saved result"
)]
enum Section {
    Run {
        scenario: String,
        summary: String,
    },
    Sweep {
        knee_per_s: Option<f64>,
        knee: String,
        verdicts: Vec<Judgement>,
        #[serde(flatten)]
        steps: Group,
    },
    FindMax {
        #[serde(flatten)]
        found: Box<FindMaxResult>,
        limit: Option<&'static str>,
    },
    Compare {
        verdict: Judgement,
        #[serde(flatten)]
        compare: CompareResult,
    },
}

/// Runs beside each other, and the spectrum of their latencies.
#[derive(Serialize)]
struct Group {
    columns: Vec<Column>,
    spectrum: Spectrum,
}

/// One run, or the rounds of one side of a comparison.
#[derive(Serialize)]
struct Column {
    name: String,
    /// The name of this run within its result; empty where the result has no other.
    remark: String,
    /// The run, or the round whose figures and charts over time are shown. It has no whole histograms.
    run: RunResult,
    machine: Machine,
    summary: String,
    /// The ledger of all rounds together.
    ledger: Ledger,
    /// The verdicts on all rounds together; the first is that on the ledger.
    verdicts: Vec<Judgement>,
    counted_from: &'static str,
    /// False if the generator limited the rates.
    has_own_rates: bool,
    cores_used: Option<f64>,
    /// The latencies of all rounds together. The first is the one to look at first.
    latencies: Vec<Latency>,
}

/// The percentiles of a latency in nanoseconds.
#[derive(Serialize)]
struct Latency {
    what: HistogramKind,
    count: u64,
    min: u64,
    /// The percentiles 50, 90, 99, 99.9, 99.99 and 99.999. A percentile that less than one value lies beyond is the
    /// maximum by another name, and absent.
    percentiles: [Option<u64>; 6],
    max: u64,
    mean: f64,
    #[serde(skip)]
    histogram: Latencies,
}

/// Every percentile of some latencies, the rare ones with as much room as the common ones.
#[derive(Serialize)]
struct Spectrum {
    /// The points of the axis: n is the fraction `1 - 10^-n`.
    at: Vec<f64>,
    /// The values of each latency at these points, in nanoseconds; `None` behind its largest value.
    ns: Vec<Vec<Option<u64>>>,
}

impl PageData {
    /// Collects the data of results, each with its name.
    /// Fails when a histogram is damaged; in words for the user.
    pub(super) fn new(named: Vec<(String, SavedResult)>) -> Result<PageData, String> {
        let mut columns = Vec::new();
        let mut results = Vec::new();
        for (name, result) in named {
            let section = Section::new(&name, &result.machine, result.outcome, &mut columns)?;
            results.push(ShownResult {
                name,
                tool: result.tool,
                command: result.command,
                started_unix_ms: result.started_unix_ms,
                machine: result.machine,
                section,
            });
        }
        let verdicts = [
            Verdict::Trusted,
            Verdict::GeneratorLimited,
            Verdict::ClocksDiffer,
        ];
        Ok(PageData {
            results,
            runs: Group::new(columns, usize::MAX),
            whose: verdicts
                .map(|verdict| (verdict, judgement::whose(verdict)))
                .into(),
        })
    }
}

impl Section {
    /// Takes the runs of a result into `columns`, and the rest into its section.
    fn new(
        name: &str,
        machine: &Machine,
        outcome: Outcome,
        columns: &mut Vec<Column>,
    ) -> Result<Section, String> {
        Ok(match outcome {
            Outcome::Run(run) => {
                let scenario = run.scenario.name.clone();
                let summary = run.scenario.summary();
                columns.push(Column::new(name, machine, vec![*run], 0)?);
                Section::Run { scenario, summary }
            }
            Outcome::Sweep(sweep) => {
                let runs: Vec<&RunResult> = sweep.steps.iter().collect();
                let verdicts = judgement::of_many(&runs, "step");
                let step = |mut run: RunResult| {
                    run.series.clear();
                    Column::new(name, machine, vec![run], 0)
                };
                let steps = sweep.steps.into_iter().map(step);
                Section::Sweep {
                    knee_per_s: sweep.knee_per_s,
                    knee: judgement::knee(sweep.knee_per_s),
                    verdicts,
                    steps: Group::new(steps.collect::<Result<_, _>>()?, 1),
                }
            }
            Outcome::FindMax(mut found) => {
                if let Some(run) = found.held.take() {
                    let mut column = Column::new(name, machine, vec![run], 0)?;
                    let remark = "the confirming run at the highest rate within the objective";
                    column.remark = remark.to_owned();
                    columns.push(column);
                }
                let limit = match (found.generator_limited, found.reached_most) {
                    (true, _) => Some(judgement::SEARCH_LIMITED),
                    (false, true) => Some(judgement::SEARCH_REACHED_MOST),
                    (false, false) => None,
                };
                Section::FindMax { found, limit }
            }
            Outcome::Compare(mut compare) => {
                for side in [&mut compare.a, &mut compare.b] {
                    columns.extend(column_of_side(name, machine, side)?);
                }
                Section::Compare {
                    verdict: judgement::comparison(&compare),
                    compare,
                }
            }
        })
    }
}

/// Takes the rounds of a side into a column, if there is one.
fn column_of_side(
    file: &str,
    machine: &Machine,
    side: &mut Side,
) -> Result<Option<Column>, String> {
    let runs = std::mem::take(&mut side.runs);
    let rounds = runs.len();
    let Some(median) = median_run(&runs) else {
        return Ok(None);
    };
    Ok(Some(Column {
        name: side.name.clone(),
        remark: format!(
            "ledger and percentiles are of all {rounds} rounds; charts over time and other figures of \
             round {}, the median one by rate",
            median + 1
        ),
        ..Column::new(file, machine, runs, median)?
    }))
}

/// Finds the round in the middle, by what was delivered (or acknowledged, without consumers).
fn median_run(runs: &[RunResult]) -> Option<usize> {
    let rate = |index: &usize| match runs[*index].totals {
        totals if totals.delivered == 0 => totals.acknowledged_per_s,
        totals => totals.delivered_per_s,
    };
    let mut rounds: Vec<usize> = (0..runs.len()).collect();
    rounds.sort_by(|one, other| rate(one).total_cmp(&rate(other)));
    rounds.get(rounds.len() / 2).copied()
}

impl Column {
    /// The column of a run, or of several rounds of which `shown` is shown. `file` names the result in errors.
    fn new(
        file: &str,
        machine: &Machine,
        mut runs: Vec<RunResult>,
        shown: usize,
    ) -> Result<Column, String> {
        let all: Vec<&RunResult> = runs.iter().collect();
        let mut latencies = Vec::new();
        for kind in [HistogramKind::Delivery, HistogramKind::Publish] {
            let histogram = merged(&all, kind)
                .map_err(|why| format!("a histogram in the result {file} is damaged: {why}"))?;
            latencies.extend(histogram.map(|histogram| Latency::new(kind, histogram)));
        }
        let ledger = judgement::added_up(&all);
        let verdicts = match all[..] {
            [run] => judgement::of_run(run),
            _ => judgement::of_many(&all, "round"),
        };
        let mut run = runs.swap_remove(shown);
        for record in &mut run.histograms {
            record.hdr_base64.clear();
        }
        Ok(Column {
            name: file.to_owned(),
            remark: String::new(),
            machine: machine.clone(),
            summary: run.scenario.summary(),
            ledger,
            verdicts,
            counted_from: judgement::counted_from(run.loop_kind),
            has_own_rates: !judgement::rates_are_the_generators(&run),
            cores_used: run.cores_used(),
            latencies,
            run,
        })
    }
}

/// Adds up the histograms of several runs: percentiles of percentiles would be wrong.
fn merged(runs: &[&RunResult], kind: HistogramKind) -> Result<Option<Latencies>, String> {
    let mut all = latencies();
    all.auto(true);
    for record in runs.iter().filter_map(|run| run.histogram(kind)) {
        let bytes = BASE64_STANDARD.decode(&record.hdr_base64);
        let bytes = bytes.map_err(|error| error.to_string())?;
        let one: Latencies = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| error.to_string())?;
        all.add(&one).map_err(|error| error.to_string())?;
    }
    Ok((!all.is_empty()).then_some(all))
}

impl Latency {
    fn new(what: HistogramKind, histogram: Latencies) -> Latency {
        let percentile = |quantile: f64| {
            let beyond = histogram.len() as f64 * (1.0 - quantile);
            (beyond >= 1.0 - 1e-9).then(|| histogram.value_at_quantile(quantile))
        };
        Latency {
            what,
            count: histogram.len(),
            min: histogram.min(),
            percentiles: [0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999].map(percentile),
            max: histogram.max(),
            mean: histogram.mean(),
            histogram,
        }
    }
}

impl Group {
    /// The runs, with the spectrum of the first `most` latencies of each.
    fn new(columns: Vec<Column>, most: usize) -> Group {
        let shown = columns.iter().map(|run| run.latencies.iter().take(most));
        let shown: Vec<&Latencies> = shown.flatten().map(|latency| &latency.histogram).collect();
        Group {
            spectrum: Spectrum::of(&shown),
            columns,
        }
    }
}

impl Spectrum {
    fn of(all: &[&Latencies]) -> Spectrum {
        // A histogram of n values ends where one value is left: at the logarithm of n.
        let end = |latencies: &Latencies| (latencies.len().max(2) as f64).log10();
        let mut at: Vec<f64> = all.iter().map(|latencies| end(latencies)).collect();
        let steps = at.iter().copied().fold(0.0, f64::max) * POINTS_PER_NINE;
        at.extend((0..=steps as u32).map(|step| f64::from(step) / POINTS_PER_NINE));
        at.sort_by(f64::total_cmp);
        at.dedup();
        let values = |latencies: &&Latencies| {
            let end = end(latencies);
            let value = |nines: &f64| match *nines {
                nines if nines < end => Some(latencies.value_at_quantile(1.0 - 10f64.powf(-nines))),
                nines => (nines == end).then(|| latencies.max()),
            };
            at.iter().map(value).collect()
        };
        let ns = all.iter().map(values).collect();
        Spectrum { at, ns }
    }
}
