//! [`Column`]: one run as the page shows it, beside the others.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::serialization::Deserializer;

use crate::judgement;
use crate::result::{HistogramKind, Ledger, Machine, Outcome, RunResult, SavedResult, Side};
use crate::tally::Latencies;

/// A result and what it is called on the page.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) result: SavedResult,
}

/// One run.
#[derive(Debug)]
pub(crate) struct Column<'a> {
    pub(crate) name: String,
    /// The name of this run within its result; empty where the result has no other.
    pub(crate) remark: String,
    pub(crate) run: &'a RunResult,
    pub(crate) machine: &'a Machine,
    /// All rounds of a side, in a comparison; else the run alone.
    pub(crate) runs: Vec<&'a RunResult>,
    /// The ledger of all these runs together.
    pub(crate) ledger: Ledger,
    /// The delivery latencies of all these runs together.
    delivery: Option<Latencies>,
    /// The publish latencies of all these runs together.
    publish: Option<Latencies>,
}

impl<'a> Column<'a> {
    fn new(
        named: &'a Named,
        runs: Vec<&'a RunResult>,
        shown: &'a RunResult,
    ) -> Result<Column<'a>, String> {
        let merged = |kind| merged(&named.name, &runs, kind);
        Ok(Column {
            name: named.name.clone(),
            remark: String::new(),
            run: shown,
            machine: &named.result.machine,
            ledger: judgement::added_up(&runs),
            delivery: merged(HistogramKind::Delivery)?,
            publish: merged(HistogramKind::Publish)?,
            runs,
        })
    }

    /// The latencies that were measured, by name. The first is the one to look at first.
    pub(crate) fn latencies(&self) -> impl Iterator<Item = (&'static str, &Latencies)> {
        let both = [("delivery", &self.delivery), ("publish", &self.publish)];
        both.into_iter()
            .filter_map(|(what, latencies)| Some((what, latencies.as_ref()?)))
    }

    /// Names a figure of this column where `count` columns stand beside each other.
    pub(crate) fn titled(&self, what: &str, count: usize) -> String {
        match count {
            1 => what.to_owned(),
            _ => format!("{}: {what}", self.name),
        }
    }
}

/// The columns of all results, in order. The steps of a sweep have a section of their own.
pub(crate) fn columns(named: &[Named]) -> Result<Vec<Column<'_>>, String> {
    let mut columns = Vec::new();
    for named in named {
        match &named.result.outcome {
            Outcome::Run(run) => columns.push(Column::new(named, vec![run], run)?),
            Outcome::FindMax(found) => {
                if let Some(run) = &found.held {
                    let remark = "the confirming run at the highest rate within the objective";
                    columns.push(Column {
                        remark: remark.to_owned(),
                        ..Column::new(named, vec![run], run)?
                    });
                }
            }
            Outcome::Sweep(_) => {}
            Outcome::Compare(compare) => {
                for side in [&compare.a, &compare.b] {
                    let Some((index, run)) = median_run(side) else {
                        continue;
                    };
                    columns.push(Column {
                        name: side.name.clone(),
                        remark: format!(
                            "ledger and percentiles are of all {} rounds; charts over time and other \
                             figures of round {}, the median one by rate",
                            side.runs.len(),
                            index + 1
                        ),
                        ..Column::new(named, side.runs.iter().collect(), run)?
                    });
                }
            }
        }
    }
    Ok(columns)
}

/// Finds the round in the middle, by what was delivered (or acknowledged, without consumers).
fn median_run(side: &Side) -> Option<(usize, &RunResult)> {
    let mut rounds: Vec<(usize, &RunResult)> = side.runs.iter().enumerate().collect();
    let rate = |run: &RunResult| match run.totals.delivered {
        0 => run.totals.acknowledged_per_s,
        _ => run.totals.delivered_per_s,
    };
    rounds.sort_by(|one, other| rate(one.1).total_cmp(&rate(other.1)));
    rounds.get(rounds.len() / 2).copied()
}

/// Adds up the histograms of several runs of the result `name`: percentiles of percentiles would be
/// wrong.
pub(crate) fn merged(
    name: &str,
    runs: &[&RunResult],
    kind: HistogramKind,
) -> Result<Option<Latencies>, String> {
    let damaged = |why: String| format!("a histogram in the result {name} is damaged: {why}");
    let mut all: Option<Latencies> = None;
    for record in runs.iter().filter_map(|run| run.histogram(kind)) {
        let bytes = BASE64_STANDARD
            .decode(&record.hdr_base64)
            .map_err(|error| damaged(error.to_string()))?;
        let one: Latencies = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| damaged(error.to_string()))?;
        match &mut all {
            None => all = Some(one),
            Some(all) => {
                all.auto(true);
                all.add(&one).map_err(|error| damaged(error.to_string()))?;
            }
        }
    }
    Ok(all.filter(|latencies| !latencies.is_empty()))
}
