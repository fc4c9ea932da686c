//! The figures of the runs side by side, and what they were measured with.

use hdrhistogram::Histogram;

use super::markup::{escape, put};
use super::scale::percentile;
use super::table::{Cell, Table};
use super::unit::{Unit, grouped, significant};
use super::verdict::{self, Tone};
use super::view::Column;
use crate::rate::Rate;
use crate::result::{Ledger, Machine, Resources, RunResult, Verdict};

/// One figure of a run; `None` if it was not measured.
struct Figure {
    name: &'static str,
    unit: Unit,
    value: fn(&Column<'_>) -> Option<f64>,
    /// Whether it says how fast the daemon is: if the generator was the limit, it does not.
    is_daemons: bool,
}

const fn figure(name: &'static str, unit: Unit, value: fn(&Column<'_>) -> Option<f64>) -> Figure {
    Figure {
        name,
        unit,
        value,
        is_daemons: false,
    }
}

fn resources(column: &Column<'_>, value: fn(&Resources) -> Option<f64>) -> Option<f64> {
    column.run.resources.as_ref().and_then(value)
}

fn positive(value: f64) -> Option<f64> {
    (value > 0.0).then_some(value)
}

const FIGURES: [Figure; 14] = [
    figure("offered", Unit::PerSecond, |c| c.run.totals.offered_per_s),
    Figure {
        is_daemons: true,
        ..figure("acknowledged", Unit::PerSecond, |c| {
            positive(c.run.totals.acknowledged_per_s)
        })
    },
    Figure {
        is_daemons: true,
        ..figure("delivered, all channels", Unit::PerSecond, |c| {
            positive(c.run.totals.delivered_per_s)
        })
    },
    figure("acknowledged bodies", Unit::BytesPerSecond, |c| {
        positive(c.run.totals.acknowledged_bytes_per_s)
    }),
    figure("CPU of the daemon", Unit::Cores, |c| {
        resources(c, |r| Some(r.cpu_s))
            .zip(positive(c.run.totals.measured_s))
            .map(|(a, b)| a / b)
    }),
    figure("CPU per message published or delivered", Unit::Nanos, |c| {
        resources(c, |r| r.cpu_us_per_message.map(|us| us * 1e3))
    }),
    figure("memory at the start", Unit::Bytes, |c| {
        resources(c, |r| Some(r.rss_start_bytes as f64))
    }),
    figure("memory at most", Unit::Bytes, |c| {
        resources(c, |r| Some(r.rss_max_bytes as f64))
    }),
    figure("memory per queued message", Unit::Bytes, |c| {
        resources(c, |r| r.memory_bytes_per_queued)
    }),
    figure("written to disk", Unit::Bytes, |c| {
        resources(c, |r| Some(r.disk_written_bytes as f64))
    }),
    figure("written to disk per message", Unit::Bytes, |c| {
        resources(c, |r| r.disk_bytes_per_message)
    }),
    figure("context switches, voluntary", Unit::Count, |c| {
        resources(c, |r| Some(r.switches_voluntary as f64))
    }),
    figure("context switches, involuntary", Unit::Count, |c| {
        resources(c, |r| Some(r.switches_involuntary as f64))
    }),
    figure("measured time", Unit::Seconds, |c| {
        Some(c.run.totals.measured_s)
    }),
];

/// The handful of figures to see first, for a page of one run.
pub(crate) fn tiles(column: &Column<'_>, out: &mut String) {
    let totals = &column.run.totals;
    let is_limited = column.run.self_check.verdict == Verdict::GeneratorLimited;
    let of = if is_limited {
        " (generator's limit)"
    } else {
        ""
    };
    let mut tiles: Vec<(String, String)> = Vec::new();
    if let Some(rate) = positive(totals.acknowledged_per_s) {
        tiles.push((format!("acknowledged{of}"), Unit::PerSecond.show(rate)));
    }
    if let Some(rate) = positive(totals.delivered_per_s) {
        tiles.push((format!("delivered{of}"), Unit::PerSecond.show(rate)));
    }
    if let Some((what, histogram)) = column.main_latency() {
        for quantile in [0.5, 0.99, 0.999] {
            let name = format!("{what} p{}", percentile(quantile).trim_end_matches(" %"));
            tiles.push((name, nanos(histogram.value_at_quantile(quantile))));
        }
        tiles.push((format!("{what} max"), nanos(histogram.max())));
    }
    if let Some(resources) = &column.run.resources {
        if let Some(us) = resources.cpu_us_per_message {
            tiles.push(("daemon CPU per message".into(), Unit::Nanos.show(us * 1e3)));
        }
        let memory = Unit::Bytes.show(resources.rss_max_bytes as f64);
        tiles.push(("daemon memory, at most".into(), memory));
    }
    out.push_str("<div class=\"tiles\">\n");
    for (name, value) in tiles {
        put!(out, "<div class=\"tile\"><span>{}</span>", escape(&name));
        put!(out, "<b>{}</b></div>\n", escape(&value));
    }
    out.push_str("</div>\n");
}

/// All figures, a column per run, each with its ratio to the first.
pub(crate) fn figures(columns: &[Column<'_>]) -> Table {
    let mut table = Table::new(head(columns));
    for figure in &FIGURES {
        let first = columns.first().and_then(figure.value);
        table.figures(
            figure.name,
            columns.iter().enumerate().map(|(index, column)| {
                let value = (figure.value)(column)?;
                let mut text = figure.unit.show(value);
                if let Some(first) = first.filter(|first| index > 0 && *first > 0.0) {
                    text += &format!(" ({} x)", significant(value / first));
                }
                let is_limited = column.run.self_check.verdict == Verdict::GeneratorLimited;
                Some(if figure.is_daemons && is_limited {
                    Cell::classed(format!("{text}, the generator's limit"), "warn-text")
                } else {
                    text.into()
                })
            }),
        );
    }
    table
}

/// Percentiles of the latencies, a column per run and latency.
pub(crate) fn percentiles(columns: &[Column<'_>]) -> Table {
    const QUANTILES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999];
    let mut head = vec![String::new()];
    let mut histograms = Vec::new();
    for column in columns {
        for (what, histogram) in [("delivery", &column.delivery), ("publish", &column.publish)] {
            let Some(histogram) = histogram else { continue };
            histograms.push(histogram);
            head.push(match columns.len() {
                1 => what.to_owned(),
                _ => format!("{}: {what}", column.name),
            });
        }
    }
    let mut table = Table::new(head);
    let mut row = |name: &str, value: &dyn Fn(&Histogram<u64>) -> Option<String>| {
        let cells = histograms
            .iter()
            .map(|histogram| value(histogram).map(Cell::from));
        table.figures(name, cells);
    };
    row("min", &|histogram| Some(nanos(histogram.min())));
    for quantile in QUANTILES {
        // A percentile that less than one value lies beyond is the maximum by another name.
        row(&percentile(quantile), &|histogram| {
            let beyond = histogram.len() as f64 * (1.0 - quantile);
            (beyond >= 1.0 - 1e-9).then(|| nanos(histogram.value_at_quantile(quantile)))
        });
    }
    row("max", &|histogram| Some(nanos(histogram.max())));
    row("mean", &|histogram| {
        Some(Unit::Nanos.show(histogram.mean()))
    });
    row("values", &|histogram| Some(grouped(histogram.len() as f64)));
    table
}

/// The whole ledger, a column per run.
pub(crate) fn ledger(columns: &[Column<'_>]) -> Table {
    let mut table = Table::new(head(columns));
    type Row = (&'static str, fn(&Ledger) -> u64, bool);
    let rows: [Row; 11] = [
        ("sent", |ledger| ledger.sent, false),
        ("acknowledged", |ledger| ledger.acknowledged, false),
        ("refused", |ledger| ledger.refused, true),
        ("unconfirmed", |ledger| ledger.unconfirmed, true),
        ("received, all channels", |ledger| ledger.received, false),
        ("lost", |ledger| ledger.lost, true),
        ("duplicated", |ledger| ledger.duplicated, true),
        ("corrupted", |ledger| ledger.corrupted, true),
        ("reordered", |ledger| ledger.reordered, false),
        (
            "redelivered, as expected",
            |ledger| ledger.redelivered,
            false,
        ),
        ("of somebody else", |ledger| ledger.foreign, false),
    ];
    for (name, value, is_bad) in rows {
        table.figures(
            name,
            columns.iter().map(|column| {
                let value = value(&column.ledger);
                let class = if is_bad && value > 0 { "bad-text" } else { "" };
                Some(Cell::classed(grouped(value as f64), class))
            }),
        );
    }
    table.figures(
        "verdict",
        columns.iter().map(|column| {
            let judgement = verdict::ledger(&column.ledger);
            let class = match judgement.tone {
                Tone::Good => "good-text",
                Tone::Warn => "warn-text",
                Tone::Bad => "bad-text",
            };
            Some(Cell::classed(
                judgement.head.replacen("Ledger: ", "", 1),
                class,
            ))
        }),
    );
    table
}

/// Where and with what it was measured.
pub(crate) fn setup(columns: &[Column<'_>]) -> Table {
    let mut table = Table::new(head(columns));
    let mut row = |name: &str, value: &dyn Fn(&Column<'_>) -> String| {
        let cells = columns.iter().map(|column| {
            let text = value(column);
            (!text.is_empty()).then(|| Cell::classed(text, "text"))
        });
        table.figures(name, cells);
    };
    row("daemon", &|c| {
        format!("{} {}", c.run.daemon.kind, c.run.daemon.version)
    });
    row("its address", &|c| c.run.daemon.tcp_address.clone());
    row("its command", &|c| {
        c.run.daemon.command.clone().unwrap_or_default()
    });
    row("scenario", &|c| scenario(c.run));
    row("processor", &|c| c.machine.cpu_model.clone());
    row("cores", &|c| c.machine.cores.to_string());
    row("memory", &|c| {
        Unit::Bytes.show(c.machine.memory_bytes as f64)
    });
    row("kernel", &|c| c.machine.kernel.clone());
    table
}

/// The fingerprint of a machine in a line.
pub(crate) fn machine(machine: &Machine) -> String {
    format!(
        "{}, {} cores, {} of memory, {}",
        machine.cpu_model,
        machine.cores,
        Unit::Bytes.show(machine.memory_bytes as f64),
        machine.kernel
    )
}

/// What was done, in a line.
pub(crate) fn scenario(run: &RunResult) -> String {
    let scenario = &run.scenario;
    let name = match scenario.name.as_str() {
        "" => String::new(),
        name => format!("{name}: "),
    };
    let rate = match scenario.rate {
        Rate::Max => "as fast as it goes".to_owned(),
        Rate::PerSecond(rate) => Unit::PerSecond.show(rate),
    };
    let batch = match scenario.via.is_batched() {
        true => format!(" in batches of {}", scenario.batch),
        false => String::new(),
    };
    format!(
        "{name}{}, {} each; {}, {} per channel; messages of {} bytes{batch}; {rate}; {} after {} \
         of warm-up",
        counted(scenario.topics, "topic"),
        counted(scenario.channels, "channel"),
        counted(scenario.producers, "producer"),
        counted(scenario.consumers, "consumer"),
        scenario.size,
        scenario.duration,
        scenario.warm_up
    )
}

/// "1 topic", "2 topics".
fn counted(count: u32, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {what}{plural}", grouped(f64::from(count)))
}

fn head(columns: &[Column<'_>]) -> Vec<String> {
    let names = columns.iter().map(|column| match columns.len() {
        1 => String::new(),
        _ => column.name.clone(),
    });
    std::iter::once(String::new()).chain(names).collect()
}

fn nanos(value: u64) -> String {
    Unit::Nanos.show(value as f64)
}
