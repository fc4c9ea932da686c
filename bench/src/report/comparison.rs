//! Two daemons side by side: every metric with the spread of its rounds, and the ratios.

use super::markup::escape;
use super::table::{Cell, Table};
use crate::result::{Bound, CompareResult, Metric, Ratio, Threshold};
use crate::unit::{Unit, number};

/// Appends the section of a comparison.
pub(crate) fn render(compare: &CompareResult, out: &mut String) {
    let (a, b) = (&compare.a, &compare.b);
    let (a_name, b_name) = (escape(&a.name), escape(&b.name));
    put!(out, "<h2>{b_name} against {a_name}</h2>\n");
    put!(
        out,
        "<p class=\"sub\">Scenario {}, {} rounds, each of which ran {a_name} and then {b_name} with a \
         fresh data directory. Bars are medians and start at zero, dots are the rounds. A ratio is \
         {b_name} over {a_name}, the median of the rounds' ratios: each round compares neighbours in \
         time.</p>\n",
        escape(&compare.scenario),
        compare.rounds
    );
    out.push_str("<div class=\"grid\">\n");
    for (index, metric) in a.metrics.iter().enumerate() {
        if let Some(other) = b.metric(&metric.name) {
            let ratio = compare
                .ratios
                .iter()
                .find(|ratio| ratio.metric == metric.name);
            figure(index + 1, [(&a.name, metric), (&b.name, other)], ratio, out);
        }
    }
    out.push_str("</div>\n");
    if !compare.thresholds.is_empty() {
        out.push_str("<h3>Thresholds</h3>\n");
        thresholds(&compare.thresholds).render(out);
    }
    out.push_str("<h3>Commands of the daemons</h3>\n");
    for side in [a, b] {
        put!(
            out,
            "<pre>{}: {}</pre>\n",
            escape(&side.name),
            escape(&side.command)
        );
    }
}

/// Appends one metric of both sides, each with its name.
fn figure(index: usize, sides: [(&str, &Metric); 2], ratio: Option<&Ratio>, out: &mut String) {
    let metric = sides[0].1;
    put!(
        out,
        "<figure class=\"chart\" id=\"compare-{index}\">\n<figcaption>"
    );
    put!(
        out,
        "<h3>{}</h3><p class=\"note\">",
        escape(&title(&metric.name))
    );
    out.push_str(match metric.higher_is_better {
        true => "More is better.",
        false => "Less is better.",
    });
    if let Some(ratio) = ratio {
        let (word, class) = judged(ratio);
        let [median, min, max] = [ratio.median, ratio.min, ratio.max].map(number);
        put!(
            out,
            " Ratio <b class=\"{class}\">{median}</b> ({min} to {max}): "
        );
        put!(out, "<span class=\"{class}\">{word}</span>.");
    }
    out.push_str("</p></figcaption>\n");
    let most = sides
        .iter()
        .map(|(_, metric)| metric.max)
        .fold(0.0, f64::max);
    for (index, (name, metric)) in sides.into_iter().enumerate() {
        bar(index + 1, name, metric, most, out);
    }
    out.push_str("</figure>\n");
}

/// A metric's name in words: without the unit, which its figures have.
fn title(name: &str) -> String {
    let name = name.replace("per_s", "per second");
    let words = name
        .split('_')
        .filter(|word| !matches!(*word, "us" | "bytes"));
    let words = words.map(|word| match word {
        "cpu" => "CPU",
        "rss" => "RSS",
        "p999" => "p99.9",
        word => word,
    });
    let title = words.collect::<Vec<_>>().join(" ");
    let mut letters = title.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

/// Appends a name with the median, and below them the bar of the median, the range, and a dot per
/// round, on an axis from zero to `most`.
fn bar(colour: usize, name: &str, metric: &Metric, most: f64, out: &mut String) {
    let percent = |value: f64| 100.0 * value / most.max(f64::MIN_POSITIVE);
    let [median, min, max] =
        [metric.median, metric.min, metric.max].map(|value| show(metric, value));
    let name = escape(name);
    put!(
        out,
        "<div class=\"bar-name\"><span>{name}</span><b>{median}</b></div>\n"
    );
    put!(out, "<div class=\"bars c{colour}\">");
    put!(
        out,
        "<div class=\"bar\" style=\"width:{:.2}%\" title=\"{name}: median {median}, from {min} to {max}\"></div>",
        percent(metric.median)
    );
    put!(
        out,
        "<div class=\"range\" style=\"left:{:.2}%;width:{:.2}%\"></div>",
        percent(metric.min),
        percent(metric.max - metric.min)
    );
    for (round, value) in metric.values.iter().enumerate() {
        let Some(value) = value else { continue };
        put!(
            out,
            "<i style=\"left:{:.2}%\" title=\"{name}, round {}: {}\"></i>",
            percent(*value),
            round + 1,
            show(metric, *value)
        );
    }
    out.push_str("</div>\n");
}

/// Says what a ratio means: a difference only if all rounds agree on its direction.
fn judged(ratio: &Ratio) -> (&'static str, &'static str) {
    let is_more = ratio.min > 1.0;
    let is_less = ratio.max < 1.0;
    match (is_more, is_less, ratio.higher_is_better) {
        (true, _, true) | (_, true, false) => ("better in every round", "good-text"),
        (true, _, false) | (_, true, true) => ("worse in every round", "bad-text"),
        _ => ("no difference that all rounds agree on", ""),
    }
}

fn thresholds(thresholds: &[Threshold]) -> Table {
    let mut table = Table::new(["metric", "asked for", "measured", ""]);
    for threshold in thresholds {
        let bound = match threshold.bound {
            Bound::AtLeast => "at least",
            Bound::AtMost => "at most",
        };
        let measured = threshold.measured.map_or("not measured".to_owned(), number);
        table.row([
            threshold.metric.clone().into(),
            format!("{bound} {} x", number(threshold.limit)).into(),
            measured.into(),
            match threshold.met {
                true => Cell::classed("met", "good-text"),
                false => Cell::classed("missed", "bad-text"),
            },
        ]);
    }
    table
}

/// Writes a value in the unit of its metric, escaped.
fn show(metric: &Metric, value: f64) -> String {
    match metric.unit.as_str() {
        "msg/s" => Unit::PerSecond.show(value),
        "us" => Unit::Nanos.show(value * 1e3),
        "bytes" => Unit::Bytes.show(value),
        unit => escape(&format!("{} {unit}", number(value))).into_owned(),
    }
}
