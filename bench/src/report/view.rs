//! What the page shows of each result: one [`Column`] per run, side by side.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;

use super::{ReportError, verdict};
use crate::result::{
    HistogramKind, Ledger, LoopKind, Machine, Outcome, RunResult, SavedResult, Side,
};

/// A result and what it is called on the page.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) result: SavedResult,
}

/// One run as it is shown beside the others.
#[derive(Debug)]
pub(crate) struct Column<'a> {
    pub(crate) name: String,
    /// Which run it is, where a result has several; else empty.
    pub(crate) remark: String,
    pub(crate) run: &'a RunResult,
    pub(crate) machine: &'a Machine,
    /// All rounds of its side, if it is one of a comparison; else the run alone.
    pub(crate) runs: Vec<&'a RunResult>,
    /// Of all runs together, as the histograms are.
    pub(crate) ledger: Ledger,
    pub(crate) publish: Option<Histogram<u64>>,
    pub(crate) delivery: Option<Histogram<u64>>,
}

impl<'a> Column<'a> {
    fn of(
        named: &'a Named,
        name: String,
        remark: &str,
        runs: &[&'a RunResult],
        shown: &'a RunResult,
    ) -> Result<Column<'a>, ReportError> {
        let merged = |kind| merged(&named.name, runs, kind);
        Ok(Column {
            name,
            remark: remark.to_owned(),
            run: shown,
            runs: runs.to_vec(),
            ledger: verdict::added_up(runs.iter().copied()),
            machine: &named.result.machine,
            publish: merged(HistogramKind::Publish)?,
            delivery: merged(HistogramKind::Delivery)?,
        })
    }

    /// Where its latencies are counted from.
    pub(crate) fn counted_from(&self) -> &'static str {
        match self.run.loop_kind {
            LoopKind::Closed => "from the actual send",
            LoopKind::Open | LoopKind::None => "from the intended send time",
        }
    }

    /// The latency to look at first, and what it is.
    pub(crate) fn main_latency(&self) -> Option<(&'static str, &Histogram<u64>)> {
        let delivery = self
            .delivery
            .as_ref()
            .map(|histogram| ("delivery", histogram));
        delivery.or_else(|| {
            self.publish
                .as_ref()
                .map(|histogram| ("publish", histogram))
        })
    }
}

/// The columns of all results, in order. The steps of a sweep have a section of their own.
pub(crate) fn columns(named: &[Named]) -> Result<Vec<Column<'_>>, ReportError> {
    let mut columns = Vec::new();
    for named in named {
        let name = named.name.clone();
        match &named.result.outcome {
            Outcome::Run(run) => columns.push(Column::of(named, name, "", &[run], run)?),
            Outcome::FindMax(found) => {
                if let Some(run) = &found.held {
                    let remark = "the confirming run at the highest rate within the objective";
                    columns.push(Column::of(named, name, remark, &[run], run)?);
                }
            }
            Outcome::Sweep(_) => {}
            Outcome::Compare(compare) => {
                for side in [&compare.a, &compare.b] {
                    if let Some((index, run)) = median_run(side) {
                        let runs: Vec<&RunResult> = side.runs.iter().collect();
                        let remark = format!(
                            "ledger and percentiles are of all {} rounds; charts over time and other \
                             figures of round {}, the median one by rate",
                            runs.len(),
                            index + 1
                        );
                        columns.push(Column::of(named, side.name.clone(), &remark, &runs, run)?);
                    }
                }
            }
        }
    }
    Ok(columns)
}

/// The round in the middle, by what was delivered (or acknowledged, without consumers).
fn median_run(side: &Side) -> Option<(usize, &RunResult)> {
    let mut rounds: Vec<(usize, &RunResult)> = side.runs.iter().enumerate().collect();
    let rate = |run: &RunResult| {
        let totals = &run.totals;
        if totals.delivered > 0 {
            totals.delivered_per_s
        } else {
            totals.acknowledged_per_s
        }
    };
    rounds.sort_by(|one, other| rate(one.1).total_cmp(&rate(other.1)));
    rounds.get(rounds.len() / 2).copied()
}

/// All values of the runs together. Histograms add up; percentiles of percentiles would not.
pub(crate) fn merged(
    file: &str,
    runs: &[&RunResult],
    kind: HistogramKind,
) -> Result<Option<Histogram<u64>>, ReportError> {
    let mut all: Option<Histogram<u64>> = None;
    for record in runs.iter().filter_map(|run| run.histogram(kind)) {
        let histogram = decode(&record.hdr_base64)
            .map_err(|why| ReportError::Histogram(file.to_owned(), why))?;
        match &mut all {
            None => all = Some(histogram),
            Some(all) => {
                all.auto(true);
                all.add(&histogram)
                    .map_err(|error| ReportError::Histogram(file.to_owned(), error.to_string()))?;
            }
        }
    }
    Ok(all.filter(|histogram| !histogram.is_empty()))
}

fn decode(base64: &str) -> Result<Histogram<u64>, String> {
    let bytes = BASE64_STANDARD
        .decode(base64)
        .map_err(|error| error.to_string())?;
    Deserializer::new()
        .deserialize(&mut bytes.as_slice())
        .map_err(|error| error.to_string())
}
