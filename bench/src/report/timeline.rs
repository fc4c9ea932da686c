//! The charts over time: latency, rate, depth, and the daemon's process, on the same time axis.

use super::chart::{Axis, Band, Chart, Form, LATENCY, PERCENTILE_LINES, Scale, Series};
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
    lines: Lines,
}

/// The lines of a chart over time.
enum Lines {
    /// A line per percentile, without those of this name.
    Percentiles(fn(&Interval) -> Option<Percentiles>, &'static str),
    Values(&'static [Line]),
}

/// One line: name, colour, dash, form, and its value, if it was measured.
type Line = (&'static str, usize, usize, Form, Value);
type Value = fn(&Interval) -> Option<f64>;

const RATES: [Line; 4] = [
    ("delivered", 2, 0, Form::Line, |row| {
        Some(row.delivered_per_s)
    }),
    ("acknowledged", 1, 1, Form::Line, |row| {
        Some(row.acknowledged_per_s)
    }),
    ("sent", 4, 3, Form::Line, |row| Some(row.sent_per_s)),
    ("offered", 5, 2, Form::Line, |row| row.offered_per_s),
];
const DEPTHS: [Line; 3] = [
    ("depth", 1, 0, Form::Area, |row| Some(row.depth? as f64)),
    ("in flight", 2, 1, Form::Line, |row| {
        Some(row.in_flight? as f64)
    }),
    ("deferred", 3, 2, Form::Line, |row| {
        Some(row.deferred? as f64)
    }),
];
const CPU: [Line; 2] = [
    ("daemon", 1, 0, Form::Area, |row| {
        Some(row.daemon?.cpu_percent / 100.0)
    }),
    ("generator", 2, 1, Form::Line, |row| {
        Some(row.generator_cpu_percent / 100.0)
    }),
];
const MEMORY: [Line; 1] = [("resident", 1, 0, Form::Area, |row| {
    Some(row.daemon?.rss_bytes as f64)
})];
const DISK: [Line; 1] = [("written", 1, 0, Form::Area, |row| {
    Some(row.daemon?.disk_written_bytes_per_s)
})];

const KINDS: [Kind; 8] = [
    Kind {
        id: "delivery-latency",
        title: "Publish-to-delivery latency",
        note: "Of the messages that arrived in each interval",
        y: LATENCY,
        lines: Lines::Percentiles(|row| row.delivery, ""),
    },
    Kind {
        id: "publish-latency",
        title: "Publish latency",
        note: "Until the OK, of those that came in each interval",
        y: LATENCY,
        lines: Lines::Percentiles(|row| row.publish, ""),
    },
    Kind {
        id: "rate",
        title: "Rate",
        note: "Offered is what was due, delivered counts every channel",
        y: Axis::linear("messages per second", Unit::PerSecond),
        lines: Lines::Values(&RATES),
    },
    Kind {
        id: "depth",
        title: "Waiting messages",
        note: "From /stats, all channels together",
        y: Axis::linear("messages", Unit::Count),
        lines: Lines::Values(&DEPTHS),
    },
    Kind {
        id: "cpu",
        title: "CPU",
        note: "All threads; 1 is one core. The generator's for comparison",
        y: Axis::linear("cores in use", Unit::Cores),
        lines: Lines::Values(&CPU),
    },
    Kind {
        id: "memory",
        title: "Memory of the daemon",
        note: "Resident set at the end of each interval",
        y: Axis::linear("bytes", Unit::Bytes),
        lines: Lines::Values(&MEMORY),
    },
    Kind {
        id: "disk",
        title: "Disk writes of the daemon",
        note: "As the system accounts them to the process",
        y: Axis::linear("bytes per second", Unit::BytesPerSecond),
        lines: Lines::Values(&DISK),
    },
    Kind {
        id: "lateness",
        title: "Lateness of the generator",
        note: "How far behind its schedule the generator itself was; it is part of every latency",
        y: Axis {
            title: "lateness (logarithmic)",
            unit: Unit::Nanos,
            scale: Scale::Log,
        },
        lines: Lines::Percentiles(|row| row.lateness, "p99.9"),
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
            x: Axis::linear("time since the first send", Unit::Seconds),
            y: self.y,
            at: rows.iter().map(|row| row.at_s).collect(),
            series,
            bands: bands(rows),
            ..Chart::default()
        })
    }

    /// The lines that have a value at all. A line that is always zero is left out, unless it is the first.
    fn series(&self, rows: &[Interval]) -> Vec<Series> {
        let mut lines: Vec<Series> = match self.lines {
            Lines::Percentiles(of, without) => (PERCENTILE_LINES.iter().enumerate())
                .filter(|(_, (name, ..))| *name != without)
                .map(|(index, &(name, colour, dash))| {
                    let counted = |row: &Interval| of(row).filter(|found| found.count > 0);
                    let value = |row: &Interval| Some(counted(row)?.shown_us()[index] * 1e3);
                    Series::new(name, colour, dash, Form::Line, rows.iter().map(value))
                })
                .collect(),
            Lines::Values(lines) => (lines.iter())
                .map(|&(name, colour, dash, form, value)| {
                    Series::new(name, colour, dash, form, rows.iter().map(value))
                })
                .collect(),
        };
        let mut index = 0;
        lines.retain(|line| {
            index += 1;
            line.y.iter().flatten().any(|y| *y > 0.0 || index == 1)
        });
        lines
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
