//! The search for the highest rate within an objective, and the profile it leaves.

use super::chart::{Axis, Chart, Form, Look, Rule, Series};
use super::markup::{escape, put};
use super::scale::Scale;
use super::sweep::checked;
use super::table::{Cell, Table};
use super::unit::{Unit, significant};
use super::view::Named;
use crate::result::{FindMaxResult, Profile, SearchStep};

/// The section of a search for the highest rate.
pub(crate) fn render(named: &Named, found: &FindMaxResult, number: usize, out: &mut String) {
    put!(
        out,
        "<h2>{}: the highest rate within {}</h2>\n",
        escape(&named.name),
        escape(&found.slo)
    );
    let mut text = match found.found_per_s {
        Some(rate) => format!("{} held and confirmed", Unit::PerSecond.show(rate)),
        None => "No rate met the objective".to_owned(),
    };
    if let Some(rate) = found.failed_per_s {
        text += &format!("; {} failed", Unit::PerSecond.show(rate));
    }
    if found.generator_limited {
        text += ". The search ended at the generator's own limit: the daemon can do at least this";
    }
    put!(
        out,
        "<p class=\"sub\">{}.</p>\n<div class=\"grid\">\n",
        escape(&text)
    );
    out.push_str(&search_chart(found, number).render());
    out.push_str("</div>\n");
    if !found.headroom.is_empty() {
        out.push_str("<h3>Headroom</h3>\n");
        let mut table = Table::new(["term of the objective", "measured", "left"]);
        for headroom in &found.headroom {
            let left = headroom.left_share.map_or("–".to_owned(), |share| {
                format!("{} %", significant(share * 100.0))
            });
            let measured = match is_time(&headroom.term) {
                true => Unit::Nanos.show(headroom.measured * 1e3),
                false => significant(headroom.measured),
            };
            table.row([headroom.term.clone().into(), measured.into(), left.into()]);
        }
        table.render(out);
    }
    out.push_str("<h3>Rates tried</h3>\n");
    tried(&found.steps).render(out);
    if let Some(profile) = &found.profile {
        out.push_str("<h3>Profile for capacity planning</h3>\n");
        profile_table(profile).render(out);
    }
}

fn search_chart(found: &FindMaxResult, number: usize) -> Chart {
    let latency = |step: &SearchStep| step.delivery_p99_us.or(step.publish_p99_us);
    let points = |passed: bool| -> Vec<(f64, f64)> {
        let steps = found.steps.iter().filter(|step| step.passed == passed);
        let mut points: Vec<(f64, f64)> = steps
            .map(|step| {
                (
                    step.offered_per_s,
                    latency(step).map_or(f64::NAN, |us| us * 1e3),
                )
            })
            .collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        points
    };
    let series: Vec<Series> = [("met the objective", 3, true), ("missed it", 2, false)]
        .into_iter()
        .map(|(name, colour, passed)| Series {
            name: name.to_owned(),
            look: Look { colour, dash: 0 },
            form: if passed { Form::Dots } else { Form::Rings },
            points: points(passed),
        })
        .filter(|series| !series.points.is_empty())
        .collect();
    let rule = limit(found);
    let values = series.iter().flat_map(|s| &s.points).map(|point| point.1);
    let y = Scale::log(values.chain(rule.iter().map(|rule| rule.y)));
    let x = Scale::from_zero(
        found.steps.iter().map(|step| step.offered_per_s),
        Unit::PerSecond,
    );
    Chart {
        id: format!("search-{number}"),
        title: "The search".to_owned(),
        note: "The 99th percentile of publish-to-delivery latency (publish latency where nothing \
               was consumed) at each rate that was tried."
            .to_owned(),
        x: Axis {
            scale: x,
            unit: Unit::PerSecond,
            title: "offered, messages per second".to_owned(),
        },
        y: Axis {
            scale: y,
            unit: Unit::Nanos,
            title: "p99 latency (logarithmic)".to_owned(),
        },
        series,
        rules: rule.into_iter().collect(),
        bands: Vec::new(),
        wide: true,
    }
}

/// The limit that the objective sets to the 99th percentile, where it sets one.
fn limit(found: &FindMaxResult) -> Option<Rule> {
    let term = found
        .headroom
        .iter()
        .find(|headroom| headroom.term.starts_with("p99<"))?;
    let used_share = 1.0 - term.left_share?;
    let y = term.measured * 1e3 / used_share;
    (y.is_finite() && y > 0.0).then(|| Rule {
        y,
        label: format!("the objective: {}", term.term),
    })
}

/// Whether a term of an objective bounds a time, such as `p99<5ms`.
fn is_time(term: &str) -> bool {
    term.ends_with('s')
}

fn tried(steps: &[SearchStep]) -> Table {
    let mut table = Table::new([
        "stage",
        "offered",
        "acknowledged",
        "publish p99",
        "delivery p99",
        "objective",
        "self-check",
    ]);
    let us = |us: Option<f64>| us.map_or("–".to_owned(), |us| Unit::Nanos.show(us * 1e3));
    for step in steps {
        table.row([
            step.stage.clone().into(),
            Unit::PerSecond.show(step.offered_per_s).into(),
            Unit::PerSecond.show(step.acknowledged_per_s).into(),
            us(step.publish_p99_us).into(),
            us(step.delivery_p99_us).into(),
            match step.passed {
                true => Cell::classed("met", "good-text"),
                false => Cell::classed(format!("missed: {}", step.missed.join(", ")), "bad-text"),
            },
            checked(step.verdict),
        ]);
    }
    table
}

fn profile_table(profile: &Profile) -> Table {
    let mut table = Table::new(["", ""]);
    let nanos = |seconds: f64| Unit::Nanos.show(seconds * 1e9);
    let rows = [
        ("rate", Some(Unit::PerSecond.show(profile.messages_per_s))),
        (
            "message size",
            Some(Unit::Bytes.show(profile.message_bytes)),
        ),
        ("channels", Some(profile.channels.to_string())),
        (
            "cores used by the daemon",
            profile.daemon_cores_used.map(significant),
        ),
        (
            "CPU per published message",
            profile.cpu_s_per_published.map(nanos),
        ),
        (
            "CPU per delivered message",
            profile.cpu_s_per_delivered.map(nanos),
        ),
        (
            "memory, nothing queued",
            profile
                .memory_bytes_idle
                .map(|b| Unit::Bytes.show(b as f64)),
        ),
        (
            "memory per queued message",
            profile.memory_bytes_per_queued.map(|b| Unit::Bytes.show(b)),
        ),
        (
            "disk per queued message",
            profile.disk_bytes_per_message.map(|b| Unit::Bytes.show(b)),
        ),
    ];
    for (name, value) in rows {
        table.figures(name, [value.map(Cell::from)]);
    }
    table
}
