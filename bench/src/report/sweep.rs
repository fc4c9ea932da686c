//! The staircase of a sweep: latency against rate, and its knee.

use super::chart::{Axis, Band, Chart, Form, Scale, Series};
use super::markup::escape;
use super::spectrum;
use super::table::{Cell, Table};
use super::view::{Named, merged};
use crate::judgement;
use crate::result::{HistogramRecord, RunResult, SweepResult, Verdict};
use crate::unit::{Unit, number};

/// Appends the section of a sweep; `index` tells it from others on the page.
pub(crate) fn render(
    named: &Named,
    sweep: &SweepResult,
    index: usize,
    out: &mut String,
) -> Result<(), String> {
    put!(
        out,
        "<h2>{}: latency against rate</h2>\n",
        escape(&named.name)
    );
    put!(
        out,
        "<p class=\"sub\">{}</p>\n",
        escape(&judgement::knee(sweep.knee_per_s))
    );
    let mut steps: Vec<&RunResult> = sweep.steps.iter().collect();
    steps.sort_by(|one, other| offered(one).total_cmp(&offered(other)));
    let mut charts = vec![
        ("knee", knee_chart(&steps, sweep.knee_per_s)),
        ("carried", carried_chart(&steps)),
    ];
    charts.extend(cpu_chart(&steps).map(|chart| ("sweep-cpu", chart)));
    charts.extend(spectra(named, sweep)?.map(|chart| ("sweep-spectrum", chart)));
    out.push_str("<div class=\"grid\">\n");
    for (kind, mut chart) in charts {
        chart.id = format!("{kind}-{index}");
        chart.render(out);
    }
    out.push_str("</div>\n<h3>Steps</h3>\n");
    table(sweep).render(out);
    Ok(())
}

fn offered(run: &RunResult) -> f64 {
    let totals = &run.totals;
    totals.offered_per_s.unwrap_or(totals.acknowledged_per_s)
}

/// One line of a chart: its name, colour, dash, and its value at a step.
type Line = (&'static str, usize, usize, fn(&RunResult) -> Option<f64>);

/// Draws values of the steps against the offered rate.
fn by_rate(steps: &[&RunResult], lines: &[Line]) -> Chart {
    let series = lines.iter().map(|(name, colour, dash, value)| Series {
        name: (*name).to_owned(),
        colour: *colour,
        dash: *dash,
        form: Form::Marks,
        y: steps.iter().map(|run| value(run)).collect(),
    });
    Chart {
        x: Axis {
            scale: Scale::Linear,
            unit: Unit::PerSecond,
            title: "offered, messages per second",
        },
        at: steps.iter().map(|run| offered(run)).collect(),
        series: series.collect(),
        ..Chart::default()
    }
}

fn knee_chart(steps: &[&RunResult], knee_per_s: Option<f64>) -> Chart {
    let beyond = knee_per_s.map(|from| Band {
        from,
        until: None,
        label: "beyond the knee",
    });
    Chart {
        title: "Latency against rate".to_owned(),
        note: "Publish-to-delivery latency from the intended send time; publish latency where \
               nothing was consumed. Each mark is a run."
            .to_owned(),
        wide: true,
        // The steps are at even ratios, and so they are on the axis.
        x: Axis {
            scale: Scale::Log,
            unit: Unit::PerSecond,
            title: "offered, messages per second (logarithmic)",
        },
        y: Axis {
            scale: Scale::Log,
            unit: Unit::Nanos,
            title: "latency (logarithmic)",
        },
        bands: beyond.into_iter().collect(),
        ..by_rate(
            steps,
            &[
                ("p50", 1, 0, |run| Some(run.main_latency()?.p50_us * 1e3)),
                ("p99", 2, 0, |run| Some(run.main_latency()?.p99_us * 1e3)),
                ("p99.9", 3, 1, |run| Some(run.main_latency()?.p999_us * 1e3)),
                ("max", 4, 2, |run| Some(run.main_latency()?.max_us * 1e3)),
            ],
        )
    }
}

fn carried_chart(steps: &[&RunResult]) -> Chart {
    Chart {
        title: "What was carried".to_owned(),
        note: "Where acknowledged leaves the line of what was offered, the daemon is behind."
            .to_owned(),
        y: Axis {
            scale: Scale::Linear,
            unit: Unit::PerSecond,
            title: "messages per second",
        },
        ..by_rate(
            steps,
            &[
                ("delivered, all channels", 2, 0, |run| {
                    Some(run.totals.delivered_per_s)
                }),
                ("acknowledged", 1, 1, |run| {
                    Some(run.totals.acknowledged_per_s)
                }),
                ("offered", 5, 2, |run| Some(offered(run))),
            ],
        )
    }
}

fn cpu_chart(steps: &[&RunResult]) -> Option<Chart> {
    steps
        .iter()
        .any(|run| run.cores_used().is_some())
        .then(|| Chart {
            title: "CPU of the daemon".to_owned(),
            note: "All its threads; 1 is one core.".to_owned(),
            y: Axis {
                scale: Scale::Linear,
                unit: Unit::Cores,
                title: "cores in use",
            },
            ..by_rate(steps, &[("daemon", 1, 0, RunResult::cores_used)])
        })
}

/// Draws the percentile spectra of all steps.
fn spectra(named: &Named, sweep: &SweepResult) -> Result<Option<Chart>, String> {
    let mut steps = Vec::new();
    for (index, run) in sweep.steps.iter().enumerate() {
        let Some(record) = run.main_latency() else {
            continue;
        };
        if let Some(latencies) = merged(&named.name, &[run], record.kind)? {
            steps.push((index, offered(run), latencies));
        }
    }
    let lines = steps
        .iter()
        .map(|(index, offered, latencies)| spectrum::Line {
            name: Unit::PerSecond.show(*offered),
            colour: index % 6 + 1,
            dash: index / 6 % 4,
            latencies,
        });
    let lines: Vec<_> = lines.collect();
    Ok((!lines.is_empty()).then(|| Chart {
        title: "Percentile spectrum of each step".to_owned(),
        note: "One line per step, named by the offered rate.".to_owned(),
        ..spectrum::of(&lines)
    }))
}

fn table(sweep: &SweepResult) -> Table {
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
    let or_dash = |text: Option<String>| Cell::from(text.unwrap_or_else(|| "–".to_owned()));
    for run in &sweep.steps {
        let us = |pick: fn(&HistogramRecord) -> f64| {
            or_dash(
                run.main_latency()
                    .map(|record| Unit::Nanos.show(pick(record) * 1e3)),
            )
        };
        let ledger_class = if run.ledger.is_clean() {
            ""
        } else {
            "bad-text"
        };
        table.row([
            Unit::PerSecond.show(offered(run)).into(),
            Unit::PerSecond.show(run.totals.acknowledged_per_s).into(),
            Unit::PerSecond.show(run.totals.delivered_per_s).into(),
            us(|record| record.p50_us),
            us(|record| record.p99_us),
            us(|record| record.p999_us),
            us(|record| record.max_us),
            or_dash(run.cores_used().map(number)),
            Cell::classed(judgement::ledger(&run.ledger).head, ledger_class),
            checked(run.self_check.verdict),
        ]);
    }
    table
}

/// Says in a cell whose limit a step's figures are.
pub(crate) fn checked(verdict: Verdict) -> Cell {
    let class = match verdict {
        Verdict::Trusted => "good-text",
        Verdict::GeneratorLimited => "warn-text",
    };
    Cell::classed(judgement::whose(verdict), class)
}
