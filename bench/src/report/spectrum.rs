//! The percentile spectrum: every percentile of every latency, the rare ones with as much room as
//! the common ones.

use super::chart::{Axis, Chart, Form, LATENCY, Scale, Series};
use super::view::Column;
use crate::result::LoopKind;
use crate::tally::Latencies;
use crate::unit::Unit;

/// Points per nine of the axis.
const POINTS_PER_NINE: f64 = 24.0;

/// One line of a spectrum.
pub(crate) struct Line<'a> {
    pub(crate) name: String,
    pub(crate) colour: usize,
    pub(crate) dash: usize,
    pub(crate) latencies: &'a Latencies,
}

/// Draws all columns in one chart: the colour says which result, the dash which latency. With one result
/// the colour says which latency, too.
pub(crate) fn chart(columns: &[Column<'_>]) -> Option<Chart> {
    let mut lines = Vec::new();
    for (index, column) in columns.iter().enumerate() {
        for (what, latencies) in column.latencies() {
            let dash = usize::from(what == "publish");
            lines.push(Line {
                name: column.titled(what, columns.len()),
                colour: if columns.len() == 1 {
                    dash + 1
                } else {
                    index % 6 + 1
                },
                dash,
                latencies,
            });
        }
    }
    (!lines.is_empty()).then(|| Chart {
        id: "spectrum".to_owned(),
        title: "Percentile spectrum".to_owned(),
        note: note(columns),
        ..of(&lines)
    })
}

/// Draws the spectra of some latencies, each up to its largest value.
pub(crate) fn of(lines: &[Line<'_>]) -> Chart {
    // A histogram of n values ends where one value is left: at the logarithm of n.
    let end = |latencies: &Latencies| (latencies.len().max(2) as f64).log10();
    let mut at: Vec<f64> = lines.iter().map(|line| end(line.latencies)).collect();
    let steps = at.iter().copied().fold(0.0, f64::max) * POINTS_PER_NINE;
    at.extend((0..=steps as u32).map(|step| f64::from(step) / POINTS_PER_NINE));
    at.sort_by(f64::total_cmp);
    at.dedup();
    let series = lines.iter().map(|line| {
        let end = end(line.latencies);
        let value = |nines: &f64| match nines.total_cmp(&end) {
            std::cmp::Ordering::Less => {
                let quantile = 1.0 - 10f64.powf(-nines);
                Some(line.latencies.value_at_quantile(quantile) as f64)
            }
            std::cmp::Ordering::Equal => Some(line.latencies.max() as f64),
            std::cmp::Ordering::Greater => None,
        };
        Series::new(
            &line.name,
            line.colour,
            line.dash,
            Form::Line,
            at.iter().map(value),
        )
    });
    Chart {
        wide: true,
        x: Axis {
            scale: Scale::Nines,
            unit: Unit::Count,
            title: "percentile, each step ten times rarer",
        },
        y: LATENCY,
        series: series.collect(),
        at,
        ..Chart::default()
    }
}

fn note(columns: &[Column<'_>]) -> String {
    let closed: Vec<&str> = columns
        .iter()
        .filter(|column| column.run.loop_kind == LoopKind::Closed)
        .map(|column| column.name.as_str())
        .collect();
    if closed.is_empty() {
        return "Latency from the intended send time of each message: a stall counts for every \
                message that was due meanwhile. A point at 99.9 % says that one message in a \
                thousand took longer."
            .to_owned();
    }
    format!(
        "CLOSED LOOP ({}): latency from the actual send. While the daemon stalls nothing is sent, \
         so the rare latencies look better than users would see them.",
        closed.join(", ")
    )
}
