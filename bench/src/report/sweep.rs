//! The staircase of a sweep: latency against rate, and its knee.

use super::chart::{Axis, Band, Chart, Form, LATENCY, OFFERED, PERCENTILE_LINES, Scale, Series};
use super::markup::escape;
use super::spectrum;
use super::table::{Cell, Table};
use super::view::{Named, merged};
use crate::judgement;
use crate::result::{RunResult, SweepResult, Verdict};
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

/// Draws lines against the offered rate.
fn by_rate(steps: &[&RunResult], series: Vec<Series>) -> Chart {
    Chart {
        x: OFFERED,
        at: steps.iter().map(|run| offered(run)).collect(),
        series,
        ..Chart::default()
    }
}

fn knee_chart(steps: &[&RunResult], knee_per_s: Option<f64>) -> Chart {
    let beyond = knee_per_s.map(|from| Band {
        from,
        until: None,
        label: "beyond the knee",
    });
    let lines = PERCENTILE_LINES.iter().enumerate();
    let lines = lines.map(|(index, &(name, colour, dash))| {
        let value = |run: &&RunResult| Some(run.main_latency()?.shown_us()[index] * 1e3);
        Series::new(name, colour, dash, Form::Marks, steps.iter().map(value))
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
        y: LATENCY,
        bands: beyond.into_iter().collect(),
        ..by_rate(steps, lines.collect())
    }
}

fn carried_chart(steps: &[&RunResult]) -> Chart {
    let line = |name, colour, dash, value: fn(&RunResult) -> f64| {
        let y = steps.iter().map(|run| Some(value(run)));
        Series::new(name, colour, dash, Form::Marks, y)
    };
    let lines = vec![
        line("delivered, all channels", 2, 0, |run| {
            run.totals.delivered_per_s
        }),
        line("acknowledged", 1, 1, |run| run.totals.acknowledged_per_s),
        line("offered", 5, 2, offered),
    ];
    Chart {
        title: "What was carried".to_owned(),
        note: "Where acknowledged leaves the line of what was offered, the daemon is behind."
            .to_owned(),
        y: Axis::linear("messages per second", Unit::PerSecond),
        ..by_rate(steps, lines)
    }
}

fn cpu_chart(steps: &[&RunResult]) -> Option<Chart> {
    let cores = steps.iter().map(|run| run.cores_used());
    let line = Series::new("daemon", 1, 0, Form::Marks, cores);
    line.y.iter().any(Option::is_some).then(|| Chart {
        title: "CPU of the daemon".to_owned(),
        note: "All its threads; 1 is one core.".to_owned(),
        y: Axis::linear("cores in use", Unit::Cores),
        ..by_rate(steps, vec![line])
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
    for run in &sweep.steps {
        let latencies = match run.main_latency() {
            Some(record) => record.shown_us().map(|us| Unit::Nanos.show(us * 1e3)),
            None => ["–"; 4].map(str::to_owned),
        };
        let [p50, p99, p999, max] = latencies.map(Cell::from);
        let ledger_class = if run.ledger.is_clean() {
            ""
        } else {
            "bad-text"
        };
        table.row([
            Unit::PerSecond.show(offered(run)).into(),
            Unit::PerSecond.show(run.totals.acknowledged_per_s).into(),
            Unit::PerSecond.show(run.totals.delivered_per_s).into(),
            p50,
            p99,
            p999,
            max,
            run.cores_used().map_or("–".to_owned(), number).into(),
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
