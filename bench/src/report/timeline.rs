//! What happened over time: latency, rate, depth, and the daemon's process, on the same time axis.

use super::chart::{Axis, Band, Chart, Form, Look, Series};
use super::scale::Scale;
use super::unit::Unit;
use super::view::Column;
use crate::result::{Interval, LoopKind, Percentiles, Phase};

/// One kind of chart over time.
struct Kind {
    id: &'static str,
    title: &'static str,
    note: &'static str,
    y_title: &'static str,
    unit: Unit,
    is_log: bool,
    lines: &'static [Line],
}

/// One line of such a chart; `value` is NaN where it was not measured.
struct Line {
    name: &'static str,
    look: Look,
    form: Form,
    value: fn(&Interval) -> f64,
}

const fn line(name: &'static str, colour: u8, dash: u8, value: fn(&Interval) -> f64) -> Line {
    Line {
        name,
        look: Look { colour, dash },
        form: Form::Line,
        value,
    }
}

const fn area(name: &'static str, colour: u8, value: fn(&Interval) -> f64) -> Line {
    Line {
        name,
        look: Look { colour, dash: 0 },
        form: Form::Area,
        value,
    }
}

fn nanos(percentiles: Option<Percentiles>, pick: fn(&Percentiles) -> f64) -> f64 {
    let counted = percentiles.filter(|percentiles| percentiles.count > 0);
    counted.map_or(f64::NAN, |percentiles| pick(&percentiles) * 1e3)
}

fn count(value: Option<u64>) -> f64 {
    value.map_or(f64::NAN, |value| value as f64)
}

const KINDS: [Kind; 8] = [
    Kind {
        id: "delivery-latency",
        title: "Publish-to-delivery latency",
        note: "Of the messages that arrived in each interval",
        y_title: "latency (logarithmic)",
        unit: Unit::Nanos,
        is_log: true,
        lines: &[
            line("p50", 1, 0, |row| nanos(row.delivery, |p| p.p50_us)),
            line("p99", 2, 0, |row| nanos(row.delivery, |p| p.p99_us)),
            line("p99.9", 3, 1, |row| nanos(row.delivery, |p| p.p999_us)),
            line("max", 4, 2, |row| nanos(row.delivery, |p| p.max_us)),
        ],
    },
    Kind {
        id: "publish-latency",
        title: "Publish latency",
        note: "Until the OK, of those that came in each interval",
        y_title: "latency (logarithmic)",
        unit: Unit::Nanos,
        is_log: true,
        lines: &[
            line("p50", 1, 0, |row| nanos(row.publish, |p| p.p50_us)),
            line("p99", 2, 0, |row| nanos(row.publish, |p| p.p99_us)),
            line("p99.9", 3, 1, |row| nanos(row.publish, |p| p.p999_us)),
            line("max", 4, 2, |row| nanos(row.publish, |p| p.max_us)),
        ],
    },
    Kind {
        id: "rate",
        title: "Rate",
        note: "Offered is what was due, delivered counts every channel",
        y_title: "messages per second",
        unit: Unit::PerSecond,
        is_log: false,
        lines: &[
            line("delivered", 2, 0, |row| row.delivered_per_s),
            line("acknowledged", 1, 1, |row| row.acknowledged_per_s),
            line("sent", 4, 3, |row| row.sent_per_s),
            line("offered", 5, 2, |row| row.offered_per_s.unwrap_or(f64::NAN)),
        ],
    },
    Kind {
        id: "depth",
        title: "Waiting messages",
        note: "From /stats, all channels together",
        y_title: "messages",
        unit: Unit::Count,
        is_log: false,
        lines: &[
            area("depth", 1, |row| count(row.depth)),
            line("in flight", 2, 1, |row| count(row.in_flight)),
            line("deferred", 3, 2, |row| count(row.deferred)),
        ],
    },
    Kind {
        id: "cpu",
        title: "CPU",
        note: "All threads; 1 is one core. The generator's for comparison",
        y_title: "cores in use",
        unit: Unit::Cores,
        is_log: false,
        lines: &[
            area("daemon", 1, |row| {
                row.daemon.map_or(f64::NAN, |d| d.cpu_percent / 100.0)
            }),
            line("generator", 2, 1, |row| row.generator_cpu_percent / 100.0),
        ],
    },
    Kind {
        id: "memory",
        title: "Memory of the daemon",
        note: "Resident set at the end of each interval",
        y_title: "bytes",
        unit: Unit::Bytes,
        is_log: false,
        lines: &[area("resident", 1, |row| {
            row.daemon.map_or(f64::NAN, |d| d.rss_bytes as f64)
        })],
    },
    Kind {
        id: "disk",
        title: "Disk writes of the daemon",
        note: "As the system accounts them to the process",
        y_title: "bytes per second",
        unit: Unit::BytesPerSecond,
        is_log: false,
        lines: &[area("written", 1, |row| {
            row.daemon.map_or(f64::NAN, |d| d.disk_written_bytes_per_s)
        })],
    },
    Kind {
        id: "lateness",
        title: "Lateness of the generator",
        note: "How far behind its schedule the generator itself was; it is part of every latency",
        y_title: "lateness (logarithmic)",
        unit: Unit::Nanos,
        is_log: true,
        lines: &[
            line("p50", 1, 0, |row| nanos(row.lateness, |p| p.p50_us)),
            line("p99", 2, 0, |row| nanos(row.lateness, |p| p.p99_us)),
            line("max", 4, 2, |row| nanos(row.lateness, |p| p.max_us)),
        ],
    },
];

/// All charts over time. Those of the same kind stand beside each other and share their axes, so
/// that heights compare.
pub(crate) fn charts(columns: &[Column<'_>]) -> Vec<Vec<Chart>> {
    KINDS
        .iter()
        .map(|kind| kind.charts(columns))
        .filter(|charts| !charts.is_empty())
        .collect()
}

impl Kind {
    fn charts(&self, columns: &[Column<'_>]) -> Vec<Chart> {
        let drawn: Vec<(usize, Vec<Series>)> = columns
            .iter()
            .enumerate()
            .map(|(index, column)| (index, self.series(&column.run.series)))
            .filter(|(_, series)| !series.is_empty())
            .collect();
        let points = || {
            drawn
                .iter()
                .flat_map(|(_, series)| series)
                .flat_map(|s| &s.points)
        };
        let values = points().map(|point| point.1);
        let y = match self.is_log {
            true => Scale::log(values),
            false => Scale::from_zero(values, self.unit),
        };
        let x = Scale::until(points().map(|point| point.0).fold(0.0, f64::max));
        drawn
            .into_iter()
            .map(|(index, series)| {
                self.chart(index, &columns[index], columns.len(), series, (x, y))
            })
            .collect()
    }

    /// The lines that have a value at all. One that is always zero says little, but not nothing:
    /// it stays if it is the first.
    fn series(&self, rows: &[Interval]) -> Vec<Series> {
        let series = self.lines.iter().enumerate().map(|(index, line)| {
            let points: Vec<(f64, f64)> = rows
                .iter()
                .map(|row| (row.at_s, (line.value)(row)))
                .collect();
            let is_shown = points.iter().any(|(_, y)| *y > 0.0)
                || (index == 0 && points.iter().any(|(_, y)| y.is_finite()));
            let (name, look, form) = (line.name.to_owned(), line.look, line.form);
            (
                is_shown,
                Series {
                    name,
                    look,
                    form,
                    points,
                },
            )
        });
        series
            .filter(|(is_shown, _)| *is_shown)
            .map(|(_, series)| series)
            .collect()
    }

    fn chart(
        &self,
        index: usize,
        column: &Column<'_>,
        of: usize,
        series: Vec<Series>,
        (x, y): (Scale, Scale),
    ) -> Chart {
        let title = match of {
            1 => self.title.to_owned(),
            _ => format!("{}: {}", self.title, column.name),
        };
        let mut note = self.note.to_owned();
        if matches!(self.id, "delivery-latency" | "publish-latency") {
            note += &format!(", {}", column.counted_from());
            if column.run.loop_kind == LoopKind::Closed {
                note += " (closed loop: stalls are hidden)";
            }
        }
        note.push('.');
        Chart {
            id: format!("{}-{}", self.id, index + 1),
            title,
            note,
            x: Axis {
                scale: x,
                unit: Unit::Seconds,
                title: "time since the first send".into(),
            },
            y: Axis {
                scale: y,
                unit: self.unit,
                title: self.y_title.to_owned(),
            },
            series,
            rules: Vec::new(),
            bands: bands(&column.run.series),
            wide: false,
        }
    }
}

/// What was not measured: warm-up and drain.
fn bands(rows: &[Interval]) -> Vec<Band> {
    let mut bands: Vec<Band> = Vec::new();
    for row in rows {
        let label = match row.phase {
            Phase::Measure => continue,
            Phase::WarmUp => "warm-up",
            Phase::Drain => "drain",
        };
        let from = (row.at_s - row.length_s).max(0.0);
        match bands.last_mut().filter(|band| band.label == label) {
            Some(band) => band.until = row.at_s,
            None => bands.push(Band {
                from,
                until: row.at_s,
                label: label.to_owned(),
            }),
        }
    }
    bands
}
