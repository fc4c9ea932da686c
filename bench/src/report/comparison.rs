//! Two daemons side by side: every metric with the spread of its rounds, and the ratios.

use super::markup::{escape, put};
use super::scale::Scale;
use super::table::{Cell, Table};
use super::unit::{Unit, significant};
use super::verdict::{Judgement, Tone};
use crate::result::{Bound, CompareResult, Metric, Ratio, Threshold};

const WIDTH: f64 = 552.0;
const HEIGHT: f64 = 112.0;
const LEFT: f64 = 12.0;
const RIGHT: f64 = 16.0;

/// The section of a comparison.
pub(crate) fn render(compare: &CompareResult, out: &mut String) {
    let (a, b) = (&compare.a, &compare.b);
    put!(
        out,
        "<h2>{} against {}</h2>\n",
        escape(&b.name),
        escape(&a.name)
    );
    put!(
        out,
        "<p class=\"sub\">Scenario {}, {} rounds, each of which ran {} and then {} with a fresh data \
         directory. Bars are medians and start at zero, dots are the rounds. A ratio is {} over {}, \
         the median of the rounds' ratios: each round compares neighbours in time.</p>\n",
        escape(&compare.scenario),
        compare.rounds,
        escape(&a.name),
        escape(&b.name),
        escape(&b.name),
        escape(&a.name)
    );
    out.push_str("<div class=\"grid\">\n");
    for (index, metric) in a.metrics.iter().enumerate() {
        let other = b.metrics.iter().find(|other| other.name == metric.name);
        let ratio = compare
            .ratios
            .iter()
            .find(|ratio| ratio.metric == metric.name);
        if let Some(other) = other {
            let pair = Pair {
                names: [&a.name, &b.name],
                metrics: [metric, other],
                ratio,
            };
            pair.render(index + 1, out);
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

/// The comparison's own verdict.
pub(crate) fn judgement(compare: &CompareResult) -> Judgement {
    let mut judgement = match (compare.passed, compare.thresholds.is_empty()) {
        (true, true) => Judgement::new(
            Tone::Good,
            "Comparison: clean",
            "Every run was clean and no figure was the generator's own. No thresholds were given.",
        ),
        (true, false) => Judgement::new(
            Tone::Good,
            "Comparison: passed",
            "Every threshold was met, every run was clean, no figure was the generator's own.",
        ),
        (false, _) => Judgement::new(Tone::Bad, "Comparison: not passed", ""),
    };
    judgement.reasons.clone_from(&compare.failures);
    judgement
}

/// One metric of both sides.
struct Pair<'a> {
    names: [&'a str; 2],
    metrics: [&'a Metric; 2],
    ratio: Option<&'a Ratio>,
}

impl Pair<'_> {
    fn render(&self, number: usize, out: &mut String) {
        let metric = self.metrics[0];
        let (unit, factor) = unit_of(&metric.unit);
        let show = |value: f64| match unit {
            Some(unit) => unit.show(value * factor),
            None => format!("{} {}", significant(value), metric.unit),
        };
        let title = title(&metric.name);
        put!(
            out,
            "<figure class=\"chart\" id=\"compare-{number}\">\n<figcaption>"
        );
        put!(out, "<h3>{}</h3><p class=\"note\">", escape(&title));
        out.push_str(if metric.higher_is_better {
            "More is better."
        } else {
            "Less is better."
        });
        if let Some(ratio) = self.ratio {
            let (word, class) = judged(ratio);
            put!(
                out,
                " Ratio <b class=\"{class}\">{}</b> ({} to {}): <span class=\"{class}\">{word}</span>.",
                significant(ratio.median),
                significant(ratio.min),
                significant(ratio.max)
            );
        }
        out.push_str("</p></figcaption>\n");
        let values = self
            .metrics
            .iter()
            .flat_map(|metric| [metric.median, metric.max]);
        let scale = Scale::from_zero(values, unit.unwrap_or(Unit::Cores));
        let label = format!("{title}: {}", self.names.join(" and "));
        put!(
            out,
            "<div class=\"plot\"><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\""
        );
        put!(out, " aria-label=\"{}\">\n", escape(&label));
        for (index, (name, metric)) in self.names.into_iter().zip(self.metrics).enumerate() {
            bar(index, name, metric, scale, &show, out);
        }
        out.push_str("</svg></div>\n</figure>\n");
    }
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

/// A name, and below it the bar of the median, the range, and a dot per round.
fn bar(
    index: usize,
    name: &str,
    metric: &Metric,
    scale: Scale,
    show: &dyn Fn(f64) -> String,
    out: &mut String,
) {
    let colour = index + 1;
    let at = |value: f64| LEFT + scale.place(value) * (WIDTH - LEFT - RIGHT);
    let top = 16.0 + index as f64 * 52.0;
    let (bar_top, middle) = (top + 7.0, top + 17.0);
    put!(
        out,
        "<text x=\"{LEFT}\" y=\"{top}\">{}</text>",
        escape(name)
    );
    let right = WIDTH - RIGHT;
    put!(
        out,
        "<text class=\"y strong\" x=\"{right}\" y=\"{top}\">{}",
        escape(&show(metric.median))
    );
    put!(
        out,
        "</text>\n<path class=\"axis\" d=\"M{LEFT} {}v26\"/>",
        bar_top - 3.0
    );
    put!(
        out,
        "<rect class=\"bar c{colour}\" x=\"{LEFT}\" y=\"{bar_top}\" height=\"20\" rx=\"2\""
    );
    let spread = format!(
        "{name}: median {}, from {} to {}",
        show(metric.median),
        show(metric.min),
        show(metric.max)
    );
    put!(
        out,
        " width=\"{:.1}\"><title>{}</title></rect>",
        at(metric.median) - LEFT,
        escape(&spread)
    );
    let (least, most) = (at(metric.min), at(metric.max));
    put!(
        out,
        "<path class=\"whisker\" d=\"M{least:.1} {middle}H{most:.1}\"/>\n"
    );
    for (round, value) in metric.values.iter().enumerate() {
        let Some(value) = value else { continue };
        let text = format!("{name}, round {}: {}", round + 1, show(*value));
        put!(
            out,
            "<circle class=\"mark c{colour}\" cx=\"{:.1}\" cy=\"{middle}\" r=\"4\">",
            at(*value)
        );
        put!(out, "<title>{}</title></circle>\n", escape(&text));
    }
}

/// What a ratio says: a difference only if all rounds agree on its direction.
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
        let verdict = match threshold.met {
            true => Cell::classed("met", "good-text"),
            false => Cell::classed("missed", "bad-text"),
        };
        table.row([
            threshold.metric.clone().into(),
            format!("{bound} {} x", significant(threshold.limit)).into(),
            threshold
                .measured
                .map_or("not measured".to_owned(), significant)
                .into(),
            verdict,
        ]);
    }
    table
}

/// How to show the units that comparisons use, and what makes them the unit's own.
fn unit_of(name: &str) -> (Option<Unit>, f64) {
    match name {
        "msg/s" => (Some(Unit::PerSecond), 1.0),
        "ns" => (Some(Unit::Nanos), 1.0),
        "us" => (Some(Unit::Nanos), 1e3),
        "ms" => (Some(Unit::Nanos), 1e6),
        "s" => (Some(Unit::Seconds), 1.0),
        "bytes" => (Some(Unit::Bytes), 1.0),
        "bytes/s" => (Some(Unit::BytesPerSecond), 1.0),
        _ => (None, 1.0),
    }
}
