//! The charts over time: latency, rate, depth, and the daemon's process, on the same time axis.

use super::chart::{Axis, Band, Chart, Form, Scale, Series};
use super::view::Column;
use crate::judgement::counted_from;
use crate::result::{Interval, Percentiles, Phase};
use crate::unit::Unit;

/// One kind of chart over time.
struct Kind {
    id: &'static str,
    title: &'static str,
    note: &'static str,
    y: Axis,
    lines: &'static [Line],
}

/// One line of such a chart: name, colour, dash, form, and its value, if it was measured.
type Line = (
    &'static str,
    usize,
    usize,
    Form,
    fn(&Interval) -> Option<f64>,
);

fn nanos(percentiles: Option<Percentiles>, pick: fn(&Percentiles) -> f64) -> Option<f64> {
    let counted = percentiles.filter(|percentiles| percentiles.count > 0)?;
    Some(pick(&counted) * 1e3)
}

const fn axis(title: &'static str, unit: Unit, scale: Scale) -> Axis {
    Axis { title, unit, scale }
}

const KINDS: [Kind; 8] = [
    Kind {
        id: "delivery-latency",
        title: "Publish-to-delivery latency",
        note: "Of the messages that arrived in each interval",
        y: axis("latency (logarithmic)", Unit::Nanos, Scale::Log),
        lines: &[
            ("p50", 1, 0, Form::Line, |row| {
                nanos(row.delivery, |p| p.p50_us)
            }),
            ("p99", 2, 0, Form::Line, |row| {
                nanos(row.delivery, |p| p.p99_us)
            }),
            ("p99.9", 3, 1, Form::Line, |row| {
                nanos(row.delivery, |p| p.p999_us)
            }),
            ("max", 4, 2, Form::Line, |row| {
                nanos(row.delivery, |p| p.max_us)
            }),
        ],
    },
    Kind {
        id: "publish-latency",
        title: "Publish latency",
        note: "Until the OK, of those that came in each interval",
        y: axis("latency (logarithmic)", Unit::Nanos, Scale::Log),
        lines: &[
            ("p50", 1, 0, Form::Line, |row| {
                nanos(row.publish, |p| p.p50_us)
            }),
            ("p99", 2, 0, Form::Line, |row| {
                nanos(row.publish, |p| p.p99_us)
            }),
            ("p99.9", 3, 1, Form::Line, |row| {
                nanos(row.publish, |p| p.p999_us)
            }),
            ("max", 4, 2, Form::Line, |row| {
                nanos(row.publish, |p| p.max_us)
            }),
        ],
    },
    Kind {
        id: "rate",
        title: "Rate",
        note: "Offered is what was due, delivered counts every channel",
        y: axis("messages per second", Unit::PerSecond, Scale::Linear),
        lines: &[
            ("delivered", 2, 0, Form::Line, |row| {
                Some(row.delivered_per_s)
            }),
            ("acknowledged", 1, 1, Form::Line, |row| {
                Some(row.acknowledged_per_s)
            }),
            ("sent", 4, 3, Form::Line, |row| Some(row.sent_per_s)),
            ("offered", 5, 2, Form::Line, |row| row.offered_per_s),
        ],
    },
    Kind {
        id: "depth",
        title: "Waiting messages",
        note: "From /stats, all channels together",
        y: axis("messages", Unit::Count, Scale::Linear),
        lines: &[
            ("depth", 1, 0, Form::Area, |row| Some(row.depth? as f64)),
            ("in flight", 2, 1, Form::Line, |row| {
                Some(row.in_flight? as f64)
            }),
            ("deferred", 3, 2, Form::Line, |row| {
                Some(row.deferred? as f64)
            }),
        ],
    },
    Kind {
        id: "cpu",
        title: "CPU",
        note: "All threads; 1 is one core. The generator's for comparison",
        y: axis("cores in use", Unit::Cores, Scale::Linear),
        lines: &[
            ("daemon", 1, 0, Form::Area, |row| {
                Some(row.daemon?.cpu_percent / 100.0)
            }),
            ("generator", 2, 1, Form::Line, |row| {
                Some(row.generator_cpu_percent / 100.0)
            }),
        ],
    },
    Kind {
        id: "memory",
        title: "Memory of the daemon",
        note: "Resident set at the end of each interval",
        y: axis("bytes", Unit::Bytes, Scale::Linear),
        lines: &[("resident", 1, 0, Form::Area, |row| {
            Some(row.daemon?.rss_bytes as f64)
        })],
    },
    Kind {
        id: "disk",
        title: "Disk writes of the daemon",
        note: "As the system accounts them to the process",
        y: axis("bytes per second", Unit::BytesPerSecond, Scale::Linear),
        lines: &[("written", 1, 0, Form::Area, |row| {
            Some(row.daemon?.disk_written_bytes_per_s)
        })],
    },
    Kind {
        id: "lateness",
        title: "Lateness of the generator",
        note: "How far behind its schedule the generator itself was; it is part of every latency",
        y: axis("lateness (logarithmic)", Unit::Nanos, Scale::Log),
        lines: &[
            ("p50", 1, 0, Form::Line, |row| {
                nanos(row.lateness, |p| p.p50_us)
            }),
            ("p99", 2, 0, Form::Line, |row| {
                nanos(row.lateness, |p| p.p99_us)
            }),
            ("max", 4, 2, Form::Line, |row| {
                nanos(row.lateness, |p| p.max_us)
            }),
        ],
    },
];

/// Draws all charts over time. Those of the same kind stand beside each other.
pub(crate) fn charts(columns: &[Column<'_>]) -> Vec<Chart> {
    let of_kind = |kind: &Kind| {
        let drawn = columns.iter().enumerate();
        let drawn = drawn.filter_map(|(index, column)| kind.chart(index, column, columns.len()));
        drawn.collect::<Vec<_>>()
    };
    KINDS.iter().flat_map(of_kind).collect()
}

impl Kind {
    /// Draws the chart of a column, if anything of this kind was measured.
    fn chart(&self, index: usize, column: &Column<'_>, of: usize) -> Option<Chart> {
        let rows = &column.run.series;
        let series: Vec<Series> = self.series(rows);
        if series.is_empty() {
            return None;
        }
        let mut note = self.note.to_owned();
        if matches!(self.id, "delivery-latency" | "publish-latency") {
            note += &format!(", {}", counted_from(column.run.loop_kind));
        }
        Some(Chart {
            id: format!("{}-{}", self.id, index + 1),
            group: self.id,
            title: match of {
                1 => self.title.to_owned(),
                _ => format!("{}: {}", self.title, column.name),
            },
            note: note + ".",
            x: axis("time since the first send", Unit::Seconds, Scale::Linear),
            y: self.y,
            at: rows.iter().map(|row| row.at_s).collect(),
            series,
            bands: bands(rows),
            ..Chart::default()
        })
    }

    /// The lines that have a value at all. A line that is always zero is left out, unless it is the
    /// first.
    fn series(&self, rows: &[Interval]) -> Vec<Series> {
        let mut series = Vec::new();
        for (index, (name, colour, dash, form, value)) in self.lines.iter().enumerate() {
            let y: Vec<Option<f64>> = rows.iter().map(value).collect();
            let mut values = y.iter().flatten();
            if values.any(|y| *y > 0.0 || index == 0) {
                series.push(Series {
                    name: (*name).to_owned(),
                    colour: *colour,
                    dash: *dash,
                    form: *form,
                    y,
                });
            }
        }
        series
    }
}

/// The stretches that were not measured: warm-up and drain.
fn bands(rows: &[Interval]) -> Vec<Band> {
    let mut bands: Vec<Band> = Vec::new();
    for row in rows {
        let label = match row.phase {
            Phase::Measure => continue,
            Phase::WarmUp => "warm-up",
            Phase::Drain => "drain",
        };
        let until = Some(row.at_s);
        match bands.last_mut().filter(|band| band.label == label) {
            Some(band) => band.until = until,
            None => bands.push(Band {
                from: (row.at_s - row.length_s).max(0.0),
                until,
                label,
            }),
        }
    }
    bands
}
