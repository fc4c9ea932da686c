//! The figures of the runs side by side, and what they were measured with.

use super::markup::escape;
use super::table::{Cell, Table};
use super::view::Column;
use crate::judgement::{self, rates_are_the_generators};
use crate::result::{Ledger, Machine, RunResult};
use crate::tally::Latencies;
use crate::unit::{Unit, number};

/// The handful of figures to see first, for a page of one run.
pub(crate) fn tiles(column: &Column<'_>, out: &mut String) {
    let totals = &column.run.totals;
    let whose = match rates_are_the_generators(column.run) {
        true => " (generator's limit)",
        false => "",
    };
    let mut tiles: Vec<(String, String)> = Vec::new();
    let rates = [
        ("acknowledged", totals.acknowledged_per_s),
        ("delivered", totals.delivered_per_s),
    ];
    for (name, rate) in rates.into_iter().filter(|(_, rate)| *rate > 0.0) {
        tiles.push((format!("{name}{whose}"), Unit::PerSecond.show(rate)));
    }
    if let Some((what, latencies)) = column.latencies().next() {
        for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
            let value = nanos(latencies.value_at_quantile(quantile));
            tiles.push((format!("{what} {name}"), value));
        }
        tiles.push((format!("{what} max"), nanos(latencies.max())));
    }
    if let Some(used) = &column.run.resources {
        if let Some(us) = used.cpu_us_per_message {
            tiles.push(("daemon CPU per message".into(), Unit::Nanos.show(us * 1e3)));
        }
        let memory = Unit::Bytes.show(used.rss_max_bytes as f64);
        tiles.push(("daemon memory, at most".into(), memory));
    }
    out.push_str("<div class=\"tiles\">\n");
    for (name, value) in tiles {
        put!(out, "<div class=\"tile\"><span>{}</span>", escape(&name));
        put!(out, "<b>{}</b></div>\n", escape(&value));
    }
    out.push_str("</div>\n");
}

/// Reads a figure of a run.
type Figure = fn(&RunResult) -> Option<f64>;

/// Lists figures. A row has the name, the unit, whether it is a rate that the generator may limit, and the value.
macro_rules! figures {
    ($($name:literal $unit:ident $is_rate:literal: |$run:ident| $value:expr;)*) => {
        [$(($name, Unit::$unit, $is_rate, |$run| $value)),*]
    };
}

const FIGURES: [(&str, Unit, bool, Figure); 14] = figures! {
    "offered" PerSecond false: |run| run.totals.offered_per_s;
    "acknowledged" PerSecond true: |run| positive(run.totals.acknowledged_per_s);
    "delivered, all channels" PerSecond true: |run| positive(run.totals.delivered_per_s);
    "acknowledged bodies" BytesPerSecond false: |run| positive(run.totals.acknowledged_bytes_per_s);
    "CPU of the daemon" Cores false: |run| run.cores_used();
    "CPU per message published or delivered" Nanos false: |run| Some(run.resources?.cpu_us_per_message? * 1e3);
    "memory at the start" Bytes false: |run| Some(run.resources?.rss_start_bytes as f64);
    "memory at most" Bytes false: |run| Some(run.resources?.rss_max_bytes as f64);
    "memory per queued message" Bytes false: |run| run.resources?.memory_bytes_per_queued;
    "written to disk" Bytes false: |run| Some(run.resources?.disk_written_bytes as f64);
    "written to disk per message" Bytes false: |run| run.resources?.disk_bytes_per_message;
    "context switches, voluntary" Count false: |run| Some(run.resources?.switches_voluntary as f64);
    "context switches, involuntary" Count false: |run| Some(run.resources?.switches_involuntary as f64);
    "measured time" Seconds false: |run| Some(run.totals.measured_s);
};

fn positive(value: f64) -> Option<f64> {
    (value > 0.0).then_some(value)
}

/// All figures, a column per run, each with its ratio to the first.
pub(crate) fn figures(columns: &[Column<'_>]) -> Table {
    let mut table = Table::new(head(columns));
    // A rate that was the generator's limit says so.
    let mut row = |name, unit: Unit, is_rate, value: Figure| {
        let first = columns.first().and_then(|column| value(column.run));
        let cells = columns.iter().enumerate().map(|(index, column)| {
            let value = value(column.run)?;
            let mut text = unit.show(value);
            if let Some(first) = first.filter(|first| index > 0 && *first > 0.0) {
                text += &format!(" ({} x)", number(value / first));
            }
            Some(if is_rate && rates_are_the_generators(column.run) {
                Cell::classed(format!("{text}, the generator's limit"), "warn-text")
            } else {
                text.into()
            })
        });
        table.figures(name, cells);
    };
    for (name, unit, is_rate, value) in FIGURES {
        row(name, unit, is_rate, value);
    }
    table
}

/// Percentiles of the latencies, a column per run and latency.
pub(crate) fn percentiles(columns: &[Column<'_>]) -> Table {
    const QUANTILES: [(&str, f64); 6] = [
        ("50 %", 0.5),
        ("90 %", 0.9),
        ("99 %", 0.99),
        ("99.9 %", 0.999),
        ("99.99 %", 0.9999),
        ("99.999 %", 0.99999),
    ];
    let mut head = vec![String::new()];
    let mut all = Vec::new();
    for column in columns {
        for (what, latencies) in column.latencies() {
            all.push(latencies);
            head.push(column.titled(what, columns.len()));
        }
    }
    let mut table = Table::new(head);
    let mut row = |name: &str, value: &dyn Fn(&Latencies) -> Option<String>| {
        let cells = all.iter().map(|latencies| value(latencies).map(Cell::from));
        table.figures(name, cells);
    };
    row("min", &|latencies| Some(nanos(latencies.min())));
    for (name, quantile) in QUANTILES {
        // A percentile that less than one value lies beyond is the maximum by another name.
        row(name, &|latencies| {
            let beyond = latencies.len() as f64 * (1.0 - quantile);
            (beyond >= 1.0 - 1e-9).then(|| nanos(latencies.value_at_quantile(quantile)))
        });
    }
    row("max", &|latencies| Some(nanos(latencies.max())));
    row("mean", &|latencies| {
        Some(Unit::Nanos.show(latencies.mean()))
    });
    row("values", &|latencies| Some(number(latencies.len() as f64)));
    table
}

/// The whole ledger, a column per run.
pub(crate) fn ledger(columns: &[Column<'_>]) -> Table {
    let mut table = Table::new(head(columns));
    // A count that must be zero stands out if it is not.
    let mut row = |name, must_be_zero, count: fn(&Ledger) -> u64| {
        let cells = columns.iter().map(|column| {
            let count = count(&column.ledger);
            let class = if must_be_zero && count > 0 {
                "bad-text"
            } else {
                ""
            };
            Some(Cell::classed(number(count as f64), class))
        });
        table.figures(name, cells);
    };
    row("sent", false, |ledger| ledger.sent);
    row("acknowledged", false, |ledger| ledger.acknowledged);
    row("refused", true, |ledger| ledger.refused);
    row("unconfirmed", true, |ledger| ledger.unconfirmed);
    row("received, all channels", false, |ledger| ledger.received);
    row("lost", true, |ledger| ledger.lost);
    row("duplicated", true, |ledger| ledger.duplicated);
    row("corrupted", true, |ledger| ledger.corrupted);
    row("reordered", false, |ledger| ledger.reordered);
    row("redelivered, as expected", false, |ledger| {
        ledger.redelivered
    });
    row("of somebody else", false, |ledger| ledger.foreign);
    let verdicts = columns.iter().map(|column| {
        let judgement = judgement::ledger(&column.ledger);
        let class = judgement.tone.text_class();
        Some(Cell::classed(judgement.head, class))
    });
    table.figures("verdict", verdicts);
    table
}

/// Where and with what it was measured.
pub(crate) fn setup(columns: &[Column<'_>]) -> Table {
    let mut table = Table::new(head(columns));
    let mut row = |name: &str, value: fn(&Column<'_>) -> String| {
        let cells = columns.iter().map(|column| {
            let text = value(column);
            (!text.is_empty()).then(|| Cell::classed(text, "text"))
        });
        table.figures(name, cells);
    };
    row("daemon", |c| {
        format!("{} {}", c.run.daemon.kind, c.run.daemon.version)
    });
    row("its address", |c| c.run.daemon.tcp_address.clone());
    row("its command", |c| {
        c.run.daemon.command.clone().unwrap_or_default()
    });
    row("scenario", |c| c.run.scenario.summary());
    row("processor", |c| c.machine.cpu_model.clone());
    row("cores", |c| c.machine.cores.to_string());
    row("memory", |c| {
        Unit::Bytes.show(c.machine.memory_bytes as f64)
    });
    row("kernel", |c| c.machine.kernel.clone());
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
