//! [`Chart`]: what a chart of the page shows. The figure around it is HTML from here; its data are JSON
//! inside the figure, which `page.js` hands to uPlot.

use serde::Serialize;

use super::markup::{escape, json};
#[cfg(doc)]
use crate::result::Percentiles;
use crate::unit::Unit;

/// One chart.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Chart {
    /// The figure's id in the page, for links and tests.
    #[serde(skip)]
    pub(crate) id: String,
    #[serde(skip)]
    pub(crate) title: String,
    /// A sentence that tells how to read the chart.
    #[serde(skip)]
    pub(crate) note: String,
    /// True when the chart goes across the page; else two stand beside each other.
    #[serde(skip)]
    pub(crate) wide: bool,
    /// Charts of one group get the same axes, so that their heights compare. Empty: a group of its own.
    pub(crate) group: &'static str,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// The x of each point, ascending.
    pub(crate) at: Vec<f64>,
    pub(crate) series: Vec<Series>,
    /// Lines across at values of interest.
    pub(crate) rules: Vec<Rule>,
    /// Stretches of the x axis that are set apart.
    pub(crate) bands: Vec<Band>,
}

/// One axis.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Axis {
    pub(crate) title: &'static str,
    pub(crate) unit: Unit,
    pub(crate) scale: Scale,
}

/// The way values are spread along an axis.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scale {
    /// Proportionally, from zero.
    #[default]
    Linear,
    /// By orders of magnitude, for values that span several.
    Log,
    /// Percentiles: a value n is the fraction `1 - 10^-n`, so that 90 %, 99 % and 99.9 % are one step
    /// apart each.
    Nines,
}

/// One line of a chart. Colour and dash both tell it from the others.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Series {
    pub(crate) name: String,
    /// 1 to 6: the variables `--c1` to `--c6` of `style.css`.
    pub(crate) colour: usize,
    /// 0 to 3: solid, dashed, dotted, dashes and dots.
    pub(crate) dash: usize,
    pub(crate) form: Form,
    /// The y of each point; `None` is a gap.
    pub(crate) y: Vec<Option<f64>>,
}

impl Series {
    pub(crate) fn new(
        name: &str,
        colour: usize,
        dash: usize,
        form: Form,
        y: impl Iterator<Item = Option<f64>>,
    ) -> Series {
        Series {
            name: name.to_owned(),
            colour,
            dash,
            form,
            y: y.collect(),
        }
    }
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Form {
    Line,
    /// A line with the area down to zero filled.
    Area,
    /// A line with a mark at each point: few measurements, each of them a run.
    Marks,
    /// Marks alone: measurements in no order.
    Dots,
    /// Hollow marks alone.
    Rings,
}

/// A line across.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Rule {
    pub(crate) y: f64,
    pub(crate) label: String,
}

/// A stretch of the x axis.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Band {
    pub(crate) from: f64,
    /// Absent: to the end of the axis.
    pub(crate) until: Option<f64>,
    pub(crate) label: &'static str,
}

/// The lines that show percentiles: name, colour and dash, in the order of [`Percentiles::shown_us`].
pub(crate) const PERCENTILE_LINES: [(&str, usize, usize); 4] =
    [("p50", 1, 0), ("p99", 2, 0), ("p99.9", 3, 1), ("max", 4, 2)];

/// The axis of latencies.
pub(crate) const LATENCY: Axis = Axis {
    title: "latency (logarithmic)",
    unit: Unit::Nanos,
    scale: Scale::Log,
};

/// The axis of what is offered.
pub(crate) const OFFERED: Axis = Axis::linear("offered, messages per second", Unit::PerSecond);

impl Axis {
    pub(crate) const fn linear(title: &'static str, unit: Unit) -> Axis {
        Axis {
            title,
            unit,
            scale: Scale::Linear,
        }
    }
}

impl Chart {
    /// Appends the figure with its data.
    pub(crate) fn render(&self, out: &mut String) {
        let class = if self.wide { "chart wide" } else { "chart" };
        let [id, title, note] = [&self.id, &self.title, &self.note].map(|text| escape(text));
        let label = self.description();
        put!(
            out,
            "<figure class=\"{class}\" id=\"{id}\">\n<figcaption><h3>{title}</h3>\
             <p class=\"note\">{note}</p></figcaption>\n\
             <script type=\"application/json\">{}</script>\n\
             <div class=\"plot\" role=\"img\" aria-label=\"{}\"></div>\n</figure>\n",
            json(self),
            escape(&label)
        );
    }

    /// Describes the chart to those who do not see it.
    fn description(&self) -> String {
        let names: Vec<&str> = self.series.iter().map(|series| &*series.name).collect();
        let (title, y, x) = (&self.title, self.y.title, self.x.title);
        format!("{title}: {y} over {x}; {}", names.join(", "))
    }
}

#[cfg(test)]
mod tests;
