//! The search for the highest rate within an objective, and the profile it leaves.

use super::chart::{Axis, Chart, Form, OFFERED, Rule, Scale, Series};
use super::markup::escape;
use super::sweep::checked;
use super::table::{Cell, Table};
use super::view::Named;
use crate::judgement::SEARCH_LIMITED;
use crate::result::{FindMaxResult, Headroom, Profile, SearchStep};
use crate::unit::{Unit, number};

/// Appends the section of a search; `index` tells it from others on the page.
pub(crate) fn render(named: &Named, found: &FindMaxResult, index: usize, out: &mut String) {
    let (name, slo) = (escape(&named.name), escape(&found.slo));
    put!(out, "<h2>{name}: the highest rate within {slo}</h2>\n");
    let mut text = match found.found_per_s {
        Some(rate) => format!("{} held and confirmed", Unit::PerSecond.show(rate)),
        None => "No rate met the objective".to_owned(),
    };
    if let Some(rate) = found.failed_per_s {
        text += &format!("; {} failed", Unit::PerSecond.show(rate));
    }
    if found.generator_limited {
        text += &format!("; {SEARCH_LIMITED}");
    }
    put!(
        out,
        "<p class=\"sub\">{}.</p>\n<div class=\"grid\">\n",
        escape(&text)
    );
    Chart {
        id: format!("search-{index}"),
        ..chart(found)
    }
    .render(out);
    out.push_str("</div>\n");
    if !found.headroom.is_empty() {
        out.push_str("<h3>Headroom</h3>\n");
        headroom(&found.headroom).render(out);
    }
    out.push_str("<h3>Rates tried</h3>\n");
    tried(&found.steps).render(out);
    if let Some(profile) = &found.profile {
        out.push_str("<h3>Profile for capacity planning</h3>\n");
        profile_table(profile).render(out);
    }
}

fn chart(found: &FindMaxResult) -> Chart {
    let mut steps: Vec<&SearchStep> = found.steps.iter().collect();
    steps.sort_by(|one, other| one.offered_per_s.total_cmp(&other.offered_per_s));
    let series = |name: &str, colour, passed, form| {
        let latency_us = |step: &SearchStep| step.delivery_p99_us.or(step.publish_p99_us);
        let of = |step: &&SearchStep| latency_us(step).filter(|_| step.passed == passed);
        Series::new(
            name,
            colour,
            0,
            form,
            steps.iter().map(|step| Some(of(step)? * 1e3)),
        )
    };
    let both = [
        series("met the objective", 3, true, Form::Dots),
        series("missed it", 2, false, Form::Rings),
    ];
    Chart {
        title: "The search".to_owned(),
        note: "The 99th percentile of publish-to-delivery latency (publish latency where nothing \
               was consumed) at each rate that was tried."
            .to_owned(),
        wide: true,
        x: OFFERED,
        y: Axis {
            scale: Scale::Log,
            unit: Unit::Nanos,
            title: "p99 latency (logarithmic)",
        },
        at: steps.iter().map(|step| step.offered_per_s).collect(),
        series: both
            .into_iter()
            .filter(|series| series.y.iter().any(Option::is_some))
            .collect(),
        rules: limit(found).into_iter().collect(),
        ..Chart::default()
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

fn headroom(terms: &[Headroom]) -> Table {
    let mut table = Table::new(["term of the objective", "measured", "left"]);
    for Headroom {
        term,
        measured,
        left_share,
    } in terms
    {
        // Terms such as p99<5ms bound a time, the others count messages.
        let measured = match term.ends_with('s') {
            true => Unit::Nanos.show(measured * 1e3),
            false => number(*measured),
        };
        let left = left_share.map_or("–".to_owned(), |share| {
            format!("{} %", number(share * 100.0))
        });
        table.row([term.clone().into(), measured.into(), left.into()]);
    }
    table
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
    let mut row = |name, unit: Unit, value: Option<f64>| {
        table.figures(name, [value.map(|value| unit.show(value).into())]);
    };
    row("rate", Unit::PerSecond, Some(profile.messages_per_s));
    row("message size", Unit::Bytes, Some(profile.message_bytes));
    row("channels", Unit::Count, Some(profile.channels.into()));
    row(
        "cores used by the daemon",
        Unit::Count,
        profile.daemon_cores_used,
    );
    let published = profile.cpu_s_per_published.map(|cpu_s| cpu_s * 1e9);
    row("CPU per published message", Unit::Nanos, published);
    let delivered = profile.cpu_s_per_delivered.map(|cpu_s| cpu_s * 1e9);
    row("CPU per delivered message", Unit::Nanos, delivered);
    let idle = profile.memory_bytes_idle.map(|bytes| bytes as f64);
    row("memory, nothing queued", Unit::Bytes, idle);
    row(
        "memory per queued message",
        Unit::Bytes,
        profile.memory_bytes_per_queued,
    );
    row(
        "disk per queued message",
        Unit::Bytes,
        profile.disk_bytes_per_message,
    );
    table
}
