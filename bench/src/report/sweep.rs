//! The staircase of a sweep: latency against rate, and its knee.

use hdrhistogram::Histogram;

use super::chart::{Axis, Band, Chart, Form, Look, Series};
use super::markup::{escape, put};
use super::scale::Scale;
use super::spectrum;
use super::table::{Cell, Table};
use super::unit::{Unit, significant};
use super::view::{Named, merged};
use super::{ReportError, verdict};
use crate::result::{HistogramKind, HistogramRecord, RunResult, SweepResult, Verdict};

/// The section of a sweep; `number` tells it from others on the page.
pub(crate) fn render(
    named: &Named,
    sweep: &SweepResult,
    number: usize,
    out: &mut String,
) -> Result<(), ReportError> {
    put!(
        out,
        "<h2>{}: latency against rate</h2>\n",
        escape(&named.name)
    );
    let knee = match sweep.knee_per_s {
        Some(rate) => format!(
            "The knee is at {}: beyond it the rate was not carried, or p99 was \
             more than ten times that of the lowest step.",
            Unit::PerSecond.show(rate)
        ),
        None => "There is no knee: even the lowest step was too much.".to_owned(),
    };
    put!(
        out,
        "<p class=\"sub\">{}</p>\n<div class=\"grid\">\n",
        escape(&knee)
    );
    out.push_str(&knee_chart(sweep, number).render());
    out.push_str(&carried_chart(sweep, number).render());
    if let Some(chart) = cpu_chart(sweep, number) {
        out.push_str(&chart.render());
    }
    if let Some(chart) = spectra(named, sweep, number)? {
        out.push_str(&chart.render());
    }
    out.push_str("</div>\n<h3>Steps</h3>\n");
    steps(sweep).render(out);
    Ok(())
}

/// The latency that counts: delivery, or publish where nothing was consumed.
fn latency(run: &RunResult) -> Option<&HistogramRecord> {
    let delivery = run.histogram(HistogramKind::Delivery);
    delivery.or_else(|| run.histogram(HistogramKind::Publish))
}

fn offered(run: &RunResult) -> f64 {
    run.totals
        .offered_per_s
        .unwrap_or(run.totals.acknowledged_per_s)
}

fn rates(sweep: &SweepResult) -> Axis {
    let rates = sweep.steps.iter().map(offered);
    Axis {
        scale: Scale::from_zero(rates, Unit::PerSecond),
        unit: Unit::PerSecond,
        title: "offered, messages per second".to_owned(),
    }
}

fn line(name: &str, colour: u8, dash: u8, points: Vec<(f64, f64)>) -> Series {
    let look = Look { colour, dash };
    Series {
        name: name.to_owned(),
        look,
        form: Form::Marks,
        points,
    }
}

fn by_rate(sweep: &SweepResult, value: impl Fn(&RunResult) -> f64) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = sweep
        .steps
        .iter()
        .map(|run| (offered(run), value(run)))
        .collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    points
}

fn knee_chart(sweep: &SweepResult, number: usize) -> Chart {
    let nanos = |pick: fn(&HistogramRecord) -> f64| {
        by_rate(sweep, |run| {
            latency(run).map_or(f64::NAN, |record| pick(record) * 1e3)
        })
    };
    let series = vec![
        line("p50", 1, 0, nanos(|record| record.p50_us)),
        line("p99", 2, 0, nanos(|record| record.p99_us)),
        line("p99.9", 3, 1, nanos(|record| record.p999_us)),
        line("max", 4, 2, nanos(|record| record.max_us)),
    ];
    // The steps are at even ratios, and so are they on the axis.
    let x = Axis {
        scale: Scale::log(sweep.steps.iter().map(offered)),
        unit: Unit::PerSecond,
        title: "offered, messages per second (logarithmic)".to_owned(),
    };
    let values: Vec<f64> = series
        .iter()
        .flat_map(|s| &s.points)
        .map(|point| point.1)
        .collect();
    let Scale::Log { max: end, .. } = x.scale else {
        unreachable!("these rates are on a logarithmic axis")
    };
    let beyond = sweep.knee_per_s.map(|knee| Band {
        from: knee,
        until: end,
        label: "beyond the knee".to_owned(),
    });
    Chart {
        id: format!("knee-{number}"),
        title: "Latency against rate".to_owned(),
        note: "Publish-to-delivery latency from the intended send time; publish latency where \
               nothing was consumed. Each mark is a run."
            .to_owned(),
        x,
        y: Axis {
            scale: Scale::log(values),
            unit: Unit::Nanos,
            title: "latency (logarithmic)".to_owned(),
        },
        series,
        rules: Vec::new(),
        bands: beyond.into_iter().collect(),
        wide: true,
    }
}

fn carried_chart(sweep: &SweepResult, number: usize) -> Chart {
    let series = vec![
        line(
            "delivered, all channels",
            2,
            0,
            by_rate(sweep, |run| run.totals.delivered_per_s),
        ),
        line(
            "acknowledged",
            1,
            1,
            by_rate(sweep, |run| run.totals.acknowledged_per_s),
        ),
        line("offered", 5, 2, by_rate(sweep, offered)),
    ];
    let values: Vec<f64> = series
        .iter()
        .flat_map(|s| &s.points)
        .map(|point| point.1)
        .collect();
    Chart {
        id: format!("carried-{number}"),
        title: "What was carried".to_owned(),
        note: "Where acknowledged leaves the line of what was offered, the daemon is behind."
            .to_owned(),
        x: rates(sweep),
        y: Axis {
            scale: Scale::from_zero(values, Unit::PerSecond),
            unit: Unit::PerSecond,
            title: "messages per second".to_owned(),
        },
        series,
        rules: Vec::new(),
        bands: Vec::new(),
        wide: false,
    }
}

fn cpu_chart(sweep: &SweepResult, number: usize) -> Option<Chart> {
    let cores = by_rate(sweep, |run| {
        let resources = run.resources.as_ref();
        resources.map_or(f64::NAN, |resources| {
            resources.cpu_s / run.totals.measured_s
        })
    });
    if !cores.iter().any(|(_, cores)| cores.is_finite()) {
        return None;
    }
    Some(Chart {
        id: format!("sweep-cpu-{number}"),
        title: "CPU of the daemon".to_owned(),
        note: "All its threads; 1 is one core.".to_owned(),
        x: rates(sweep),
        y: Axis {
            scale: Scale::from_zero(cores.iter().map(|point| point.1), Unit::Cores),
            unit: Unit::Cores,
            title: "cores in use".to_owned(),
        },
        series: vec![line("daemon", 1, 0, cores)],
        rules: Vec::new(),
        bands: Vec::new(),
        wide: false,
    })
}

/// The percentile spectra of all steps.
fn spectra(
    named: &Named,
    sweep: &SweepResult,
    number: usize,
) -> Result<Option<Chart>, ReportError> {
    let mut series = Vec::new();
    let mut count = 0;
    for (index, run) in sweep.steps.iter().enumerate() {
        let Some(kind) = latency(run).map(|record| record.kind) else {
            continue;
        };
        let Some(histogram) = merged(&named.name, &[run], kind)? else {
            continue;
        };
        let histogram: Histogram<u64> = histogram;
        count = count.max(histogram.len());
        series.push(Series {
            name: Unit::PerSecond.show(offered(run)),
            look: Look {
                colour: (index % 6) as u8 + 1,
                dash: (index / 6 % 4) as u8,
            },
            form: Form::Line,
            points: spectrum::points(&histogram),
        });
    }
    let id = format!("sweep-spectrum-{number}");
    let note = "One line per step, named by the offered rate.";
    Ok(spectrum::of(
        &id,
        "Percentile spectrum of each step",
        note,
        series,
        count,
    ))
}

fn steps(sweep: &SweepResult) -> Table {
    let mut table = Table::new([
        "offered",
        "acknowledged",
        "delivered",
        "p50",
        "p99",
        "p99.9",
        "max",
        "cores",
        "ledger",
        "self-check",
    ]);
    for run in &sweep.steps {
        let us = |pick: fn(&HistogramRecord) -> f64| {
            latency(run).map_or("–".to_owned(), |record| {
                Unit::Nanos.show(pick(record) * 1e3)
            })
        };
        let cores = run
            .resources
            .as_ref()
            .map(|r| r.cpu_s / run.totals.measured_s);
        let ledger = verdict::ledger(&run.ledger);
        let ledger_class = if run.ledger.is_clean() {
            ""
        } else {
            "bad-text"
        };
        table.row([
            Unit::PerSecond.show(offered(run)).into(),
            Unit::PerSecond.show(run.totals.acknowledged_per_s).into(),
            Unit::PerSecond.show(run.totals.delivered_per_s).into(),
            us(|record| record.p50_us).into(),
            us(|record| record.p99_us).into(),
            us(|record| record.p999_us).into(),
            us(|record| record.max_us).into(),
            cores.map_or("–".to_owned(), significant).into(),
            Cell::classed(ledger.head.replacen("Ledger: ", "", 1), ledger_class),
            checked(run.self_check.verdict),
        ]);
    }
    table
}

pub(crate) fn checked(verdict: Verdict) -> Cell {
    match verdict {
        Verdict::Trusted => Cell::classed("the daemon's", "good-text"),
        Verdict::GeneratorLimited => Cell::classed("the generator's limit", "warn-text"),
    }
}
