//! One chart: axes, series, legend and tooltips, as inline SVG within a `<figure>`.
//!
//! ```text
//!   title                       what is shown
//!   note                        how to read it, what it is not
//!   legend                      a swatch (colour and dash) and a name per series
//!   ┌ svg ────────────────┐
//!   │ y title             │    y labels to the left, lines across
//!   │ 2 ms ┤───────────── │
//!   │ 1 ms ┤──╱╲────────  │    hover: a column per x with a <title> that names all values there
//!   │    0 └──┬────┬────  │
//!   │         10 s 20 s   │
//!   └─────────────────────┘
//! ```
//!
//! Colours and fonts are classes of `style.css`, so that light and dark are one page.

use super::markup::{escape, put};
use super::scale::{Scale, percentile};
use super::unit::Unit;

/// How many points a line gets at most; of more, each pixel's smallest and largest are kept.
const POINTS_MAX: usize = 600;
/// How many tooltips a chart gets at most.
const COLUMNS_MAX: usize = 160;

const LEFT: f64 = 64.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 42.0;

/// What an axis says.
#[derive(Debug, Clone)]
pub(crate) struct Axis {
    pub(crate) scale: Scale,
    pub(crate) unit: Unit,
    pub(crate) title: String,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Line,
    /// A line with the area down to zero filled.
    Area,
    /// A line with a mark at each point: few measurements, each of them a run.
    Marks,
    /// Marks alone: measurements in no order.
    Dots,
    /// The same, but hollow.
    Rings,
}

impl Form {
    /// Whether its points are not connected.
    fn is_loose(self) -> bool {
        matches!(self, Form::Dots | Form::Rings)
    }

    /// The class of its marks.
    fn mark(self) -> &'static str {
        if self == Form::Rings { "ring" } else { "mark" }
    }
}

/// Colour (1 to 6) and dash (0 to 3): a series is told by both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) colour: u8,
    pub(crate) dash: u8,
}

#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) look: Look,
    pub(crate) form: Form,
    /// In ascending x; a y that is not finite is a gap.
    pub(crate) points: Vec<(f64, f64)>,
}

/// A line across at a value of interest, with its name.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) y: f64,
    pub(crate) label: String,
}

/// A stretch of the x axis that is set apart, with its name.
#[derive(Debug, Clone)]
pub(crate) struct Band {
    pub(crate) from: f64,
    pub(crate) until: f64,
    pub(crate) label: String,
}

#[derive(Debug, Clone)]
pub(crate) struct Chart {
    /// Says which chart of the page this is, for links and tests.
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) note: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) bands: Vec<Band>,
    /// Across the page, or two beside each other.
    pub(crate) wide: bool,
}

impl Chart {
    fn width(&self) -> f64 {
        if self.wide { 1120.0 } else { 552.0 }
    }

    fn height(&self) -> f64 {
        if self.wide { 360.0 } else { 250.0 }
    }

    fn x_at(&self, value: f64) -> f64 {
        LEFT + self.x.scale.place(value) * (self.width() - LEFT - RIGHT)
    }

    fn y_at(&self, value: f64) -> f64 {
        let plot = self.height() - TOP - BOTTOM;
        TOP + (1.0 - self.y.scale.place(value)) * plot
    }

    fn bottom(&self) -> f64 {
        self.height() - BOTTOM
    }

    /// The whole figure as HTML.
    pub(crate) fn render(&self) -> String {
        let mut out = String::with_capacity(16 << 10);
        let class = if self.wide { "chart wide" } else { "chart" };
        put!(
            out,
            "<figure class=\"{class}\" id=\"{}\">\n<figcaption>",
            escape(&self.id)
        );
        put!(out, "<h3>{}</h3>", escape(&self.title));
        if !self.note.is_empty() {
            put!(out, "<p class=\"note\">{}</p>", escape(&self.note));
        }
        out.push_str("</figcaption>\n");
        self.legend(&mut out);
        let (width, height) = (self.width(), self.height());
        put!(
            out,
            "<div class=\"plot\"><svg viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-label=\"{}\">\n",
            escape(&self.description())
        );
        self.axes(&mut out);
        for series in &self.series {
            self.line(series, &mut out);
        }
        self.rules(&mut out);
        self.band_names(&mut out);
        self.columns(&mut out);
        out.push_str("</svg></div>\n</figure>\n");
        out
    }

    /// What the chart shows, in words, for those who do not see it.
    fn description(&self) -> String {
        let names: Vec<&str> = self
            .series
            .iter()
            .map(|series| series.name.as_str())
            .collect();
        format!(
            "{}: {} over {}; {}",
            self.title,
            self.y.title,
            self.x.title,
            names.join(", ")
        )
    }

    fn legend(&self, out: &mut String) {
        out.push_str("<ul class=\"legend\">");
        for series in &self.series {
            let Look { colour, dash } = series.look;
            if series.form.is_loose() {
                put!(
                    out,
                    "<li><svg width=\"12\" height=\"10\" aria-hidden=\"true\">\
                     <circle class=\"{} c{colour}\" cx=\"6\" cy=\"5\" r=\"4\"/></svg>{}</li>",
                    series.form.mark(),
                    escape(&series.name)
                );
                continue;
            }
            put!(
                out,
                "<li><svg width=\"26\" height=\"10\" aria-hidden=\"true\">\
                 <path class=\"line c{colour} d{dash}\" d=\"M1 5H25\"/></svg>{}</li>",
                escape(&series.name)
            );
        }
        out.push_str("</ul>\n");
    }

    fn axes(&self, out: &mut String) {
        let (left, right, bottom) = (LEFT, self.width() - RIGHT, self.bottom());
        for band in &self.bands {
            let (from, until) = (self.x_at(band.from), self.x_at(band.until));
            let width = until - from;
            if width <= 0.0 {
                continue;
            }
            put!(
                out,
                "<rect class=\"band\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{width:.1}\" \
                 height=\"{:.1}\"><title>{}</title></rect>\n",
                bottom - TOP,
                escape(&band.label)
            );
        }
        put!(
            out,
            "<text class=\"title\" x=\"4\" y=\"12\">{}</text>\n",
            escape(&self.y.title)
        );
        for tick in self.y.scale.ticks(self.y.unit) {
            let y = self.y_at(tick.value);
            let class = if (y - bottom).abs() < 0.1 {
                "axis"
            } else {
                "grid-line"
            };
            put!(
                out,
                "<path class=\"{class}\" d=\"M{left} {y:.1}H{right}\"/>"
            );
            let (x, y) = (left - 7.0, y + 4.0);
            put!(
                out,
                "<text class=\"y\" x=\"{x}\" y=\"{y:.1}\">{}</text>\n",
                escape(&tick.label)
            );
        }
        let mut free_from = 0.0;
        for tick in self.x.scale.ticks(self.x.unit) {
            let x = self.x_at(tick.value);
            put!(out, "<path class=\"tick\" d=\"M{x:.1} {bottom}v5\"/>");
            let half = tick.label.chars().count() as f64 * 3.3;
            if x - half < free_from {
                continue;
            }
            free_from = x + half + 8.0;
            let at = x.min(self.width() - half - 2.0);
            let y = bottom + 18.0;
            put!(
                out,
                "<text class=\"x\" x=\"{at:.1}\" y=\"{y}\">{}</text>\n",
                escape(&tick.label)
            );
        }
        let (middle, y) = ((left + right) / 2.0, self.height() - 6.0);
        put!(out, "<path class=\"axis\" d=\"M{left} {bottom}H{right}\"/>");
        put!(out, "<text class=\"title x\" x=\"{middle}\" y=\"{y}\">");
        put!(out, "{}</text>\n", escape(&self.x.title));
    }

    fn line(&self, series: &Series, out: &mut String) {
        let Look { colour, dash } = series.look;
        let points = thinned(&series.points, POINTS_MAX);
        let runs: Vec<&[(f64, f64)]> = points
            .split(|(_, y)| !y.is_finite())
            .filter(|run| !run.is_empty())
            .collect();
        for run in &runs {
            let mut path = String::with_capacity(run.len() * 14);
            for (index, (x, y)) in run.iter().enumerate() {
                let verb = if index == 0 { 'M' } else { 'L' };
                put!(path, "{verb}{:.1} {:.1}", self.x_at(*x), self.y_at(*y));
            }
            if series.form == Form::Area {
                let (first, last) = (self.x_at(run[0].0), self.x_at(run[run.len() - 1].0));
                let bottom = self.bottom();
                put!(out, "<path class=\"area c{colour}\" d=\"{path}");
                put!(out, "L{last:.1} {bottom}L{first:.1} {bottom}Z\"/>");
            }
            if !series.form.is_loose() {
                put!(
                    out,
                    "<path class=\"line c{colour} d{dash}\" d=\"{path}\"/>\n"
                );
            }
            // A single value is no line; a short run deserves to be seen as the few values it is.
            if series.form == Form::Marks || series.form.is_loose() || run.len() == 1 {
                for (x, y) in run.iter() {
                    let (x, y) = (self.x_at(*x), self.y_at(*y));
                    let class = series.form.mark();
                    let radius = if series.form.is_loose() { 5.0 } else { 3.5 };
                    put!(out, "<circle class=\"{class} c{colour}\" cx=\"{x:.1}\"");
                    put!(out, " cy=\"{y:.1}\" r=\"{radius}\"/>");
                }
            }
        }
    }

    fn rules(&self, out: &mut String) {
        for rule in &self.rules {
            let (y, right) = (self.y_at(rule.y), self.width() - RIGHT);
            let above = if y < TOP + 14.0 { y + 14.0 } else { y - 5.0 };
            put!(out, "<path class=\"rule\" d=\"M{LEFT} {y:.1}H{right}\"/>");
            put!(
                out,
                "<text class=\"rule\" x=\"{:.1}\" y=\"{above:.1}\">",
                right - 4.0
            );
            put!(out, "{}</text>\n", escape(&rule.label));
        }
    }

    /// The names of bands that are wide enough for one, close to the axis.
    fn band_names(&self, out: &mut String) {
        for band in &self.bands {
            let (from, until) = (self.x_at(band.from), self.x_at(band.until));
            if until - from > band.label.chars().count() as f64 * 6.4 {
                let (middle, y) = ((from + until) / 2.0, self.bottom() - 9.0);
                put!(out, "<text class=\"name\" x=\"{middle:.1}\" y=\"{y}\">");
                put!(out, "{}</text>\n", escape(&band.label));
            }
        }
    }

    /// Invisible columns over the plot, each with a tooltip of all values at its x. The column
    /// shows when it is pointed at.
    fn columns(&self, out: &mut String) {
        let stops = self.stops();
        let height = self.bottom() - TOP;
        out.push_str("<g class=\"columns\">");
        for (index, x) in stops.iter().enumerate() {
            let here = self.x_at(*x);
            let from = match index {
                0 => LEFT,
                _ => (self.x_at(stops[index - 1]) + here) / 2.0,
            };
            let until = match stops.get(index + 1) {
                None => self.width() - RIGHT,
                Some(next) => (self.x_at(*next) + here) / 2.0,
            };
            put!(
                out,
                "<g><rect x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\"",
                until - from
            );
            put!(
                out,
                " height=\"{height:.1}\"/><path d=\"M{here:.1} {TOP}v{height:.1}\"/>"
            );
            put!(out, "<title>{}</title></g>\n", escape(&self.tooltip(*x)));
        }
        out.push_str("</g>");
    }

    /// Where the columns are: the x of all points, thinned evenly along the axis.
    fn stops(&self) -> Vec<f64> {
        let points = self.series.iter().flat_map(|series| &series.points);
        let mut stops: Vec<f64> = points.map(|(x, _)| *x).filter(|x| x.is_finite()).collect();
        stops.sort_by(f64::total_cmp);
        let apart = (self.width() - LEFT - RIGHT) / COLUMNS_MAX as f64;
        let mut last = f64::NEG_INFINITY;
        stops.retain(|x| {
            let here = self.x_at(*x);
            let keep = here - last >= apart;
            if keep {
                last = here;
            }
            keep
        });
        stops
    }

    fn tooltip(&self, x: f64) -> String {
        let mut text = match self.x.scale {
            Scale::Nines { .. } => percentile(x),
            _ => self.x.unit.show(x),
        };
        for series in &self.series {
            let distance = |point: &&(f64, f64)| (self.x_at(point.0) - self.x_at(x)).abs();
            let nearest = series
                .points
                .iter()
                .min_by(|one, other| distance(one).total_cmp(&distance(other)));
            if let Some((_, y)) =
                nearest.filter(|point| distance(point) < 12.0 && point.1.is_finite())
            {
                put!(text, "\n{}: {}", series.name, self.y.unit.show(*y));
            }
        }
        text
    }
}

/// At most about `max` points that look the same: of each stretch of the series its first,
/// smallest, largest and last, so that no peak is lost, and a gap stays one.
fn thinned(points: &[(f64, f64)], max: usize) -> Vec<(f64, f64)> {
    if points.len() <= max {
        return points.to_vec();
    }
    let stretch = points.len().div_ceil(max / 4);
    let mut kept = Vec::with_capacity(max + 4);
    for stretch in points.chunks(stretch) {
        let y_of = |index: &usize| stretch[*index].1;
        let finite = || (0..stretch.len()).filter(|index| stretch[*index].1.is_finite());
        let least = finite().min_by(|one, other| y_of(one).total_cmp(&y_of(other)));
        let most = finite().max_by(|one, other| y_of(one).total_cmp(&y_of(other)));
        let mut indexes = vec![0, stretch.len() - 1];
        indexes.extend((0..stretch.len()).find(|index| !stretch[*index].1.is_finite()));
        indexes.extend(least);
        indexes.extend(most);
        indexes.sort_unstable();
        indexes.dedup();
        kept.extend(indexes.into_iter().map(|index| stretch[index]));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>) -> Chart {
        let axis = |scale, unit, title: &str| Axis {
            scale,
            unit,
            title: title.to_owned(),
        };
        Chart {
            id: "c".to_owned(),
            title: "A <b>".to_owned(),
            note: String::new(),
            x: axis(Scale::until(10.0), Unit::Seconds, "time"),
            y: axis(Scale::FromZero { max: 100.0 }, Unit::Count, "messages"),
            series: vec![Series {
                name: "depth & more".to_owned(),
                look: Look { colour: 1, dash: 0 },
                form: Form::Line,
                points,
            }],
            rules: Vec::new(),
            bands: Vec::new(),
            wide: false,
        }
    }

    #[test]
    fn points_are_where_the_axes_say() {
        let html = chart(vec![(0.0, 0.0), (5.0, 50.0), (10.0, 100.0)]).render();
        // The plot is 64..534 wide and 24..208 high.
        assert!(
            html.contains("d=\"M64.0 208.0L299.0 116.0L534.0 24.0\""),
            "{html}"
        );
        assert!(
            html.contains("<title>5 s\ndepth &amp; more: 50</title>"),
            "{html}"
        );
        assert!(html.contains("A &lt;b&gt;"), "{html}");
    }

    #[test]
    fn a_gap_splits_the_line() {
        let html = chart(vec![(0.0, 0.0), (1.0, f64::NAN), (2.0, 10.0), (3.0, 10.0)]).render();
        assert_eq!(
            html.matches("class=\"line c1 d0\" d=\"M").count(),
            3,
            "legend and two runs"
        );
    }

    #[test]
    fn thinning_keeps_the_peak() {
        let mut points: Vec<(f64, f64)> = (0..100_000).map(|x| (f64::from(x), 1.0)).collect();
        points[77_777].1 = 9.0;
        let kept = thinned(&points, 600);
        assert!(kept.len() <= 700, "{}", kept.len());
        assert!(kept.contains(&(77_777.0, 9.0)));
        assert!(kept.is_sorted_by(|one, other| one.0 < other.0));
        assert_eq!((kept[0].0, kept[kept.len() - 1].0), (0.0, 99_999.0));
    }
}
