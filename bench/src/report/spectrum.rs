//! The percentile spectrum: every percentile of every latency, the rare ones with as much room as
//! the common ones.

use hdrhistogram::Histogram;

use super::chart::{Axis, Chart, Form, Look, Series};
use super::scale::Scale;
use super::unit::Unit;
use super::view::Column;
use crate::result::LoopKind;

/// Points per nine of the axis.
const POINTS_PER_NINE: i32 = 24;

/// All columns in one chart: colour says which result, dash which latency. With one result the
/// colour says which latency, too.
pub(crate) fn chart(columns: &[Column<'_>]) -> Option<Chart> {
    let mut series = Vec::new();
    for (index, column) in columns.iter().enumerate() {
        let both = [("delivery", &column.delivery), ("publish", &column.publish)];
        for (nth, (what, histogram)) in both.into_iter().enumerate() {
            let Some(histogram) = histogram else { continue };
            let (name, colour) = match columns.len() {
                1 => (what.to_owned(), nth as u8 + 1),
                _ => (format!("{}: {what}", column.name), (index % 6) as u8 + 1),
            };
            let form = Form::Line;
            let look = Look {
                colour,
                dash: nth as u8,
            };
            series.push(Series {
                name,
                look,
                form,
                points: points(histogram),
            });
        }
    }
    let note = note(columns);
    of(
        "spectrum",
        "Percentile spectrum",
        &note,
        series,
        columns.iter().filter_map(most).max()?,
    )
}

/// A spectrum of any series of points, whose axis ends where one value of `count` is left.
pub(crate) fn of(
    id: &str,
    title: &str,
    note: &str,
    series: Vec<Series>,
    count: u64,
) -> Option<Chart> {
    let values: Vec<f64> = series
        .iter()
        .flat_map(|series| &series.points)
        .map(|p| p.1)
        .collect();
    if values.is_empty() {
        return None;
    }
    Some(Chart {
        id: id.to_owned(),
        title: title.to_owned(),
        note: note.to_owned(),
        x: Axis {
            scale: Scale::nines(count),
            unit: Unit::Count,
            title: "percentile: each step to the right is ten times rarer".to_owned(),
        },
        y: Axis {
            scale: Scale::log(values),
            unit: Unit::Nanos,
            title: "latency (logarithmic)".to_owned(),
        },
        series,
        rules: Vec::new(),
        bands: Vec::new(),
        wide: true,
    })
}

/// The spectrum of a histogram, in nanoseconds, up to its largest value.
pub(crate) fn points(histogram: &Histogram<u64>) -> Vec<(f64, f64)> {
    let count = histogram.len();
    let last = (count.max(2) as f64).log10();
    let steps = (last * f64::from(POINTS_PER_NINE)).floor() as i32;
    let mut points: Vec<(f64, f64)> = (0..=steps)
        .map(|step| 1.0 - 10f64.powf(-f64::from(step) / f64::from(POINTS_PER_NINE)))
        .map(|quantile| (quantile, histogram.value_at_quantile(quantile) as f64))
        .collect();
    points.push((1.0 - 1.0 / count.max(2) as f64, histogram.max() as f64));
    points
}

fn most(column: &Column<'_>) -> Option<u64> {
    let both = [&column.delivery, &column.publish];
    both.into_iter().flatten().map(Histogram::len).max()
}

fn note(columns: &[Column<'_>]) -> String {
    let is_closed = |column: &&Column<'_>| column.run.loop_kind == LoopKind::Closed;
    let closed = columns.iter().filter(is_closed).count();
    if closed == 0 {
        return "Latency from the intended send time of each message: a stall counts for every \
                message that was due meanwhile. A point at 99.9 % says that one message in a \
                thousand took longer."
            .to_owned();
    }
    let names: Vec<&str> = columns
        .iter()
        .filter(is_closed)
        .map(|c| c.name.as_str())
        .collect();
    format!(
        "CLOSED LOOP ({}): latency from the actual send. While the daemon stalls nothing is sent, \
         so the rare latencies look better than users would see them.",
        names.join(", ")
    )
}
