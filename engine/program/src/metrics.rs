//! The text of `/metrics` in Prometheus's text format, and the figures of the process.
//!
//! ```text
//!   families and samples ─► Exposition ─► parts of an answer
//! ```
//!
//! The module writes what it is told, sample by sample, so a program keeps no second copy of its figures. It knows no
//! topics: the programs have the names of their metrics.

mod process;

use std::fmt::Write as _;

pub use process::{PROCESS, append_process};

/// Bytes of a part of an answer. Copying a part into the output of a connection takes some 10 µs.
const PART_BYTES: usize = 64 * 1024;

/// Room for the last sample of a part, in bytes: a histogram has some kilobytes. A part that grows is copied.
const PART_EXCESS: usize = 8 * 1024;

/// The value of `Content-Type`: Prometheus's text format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number that only grows, until the process ends. The name ends in `_total`.
    Counter,
    /// A number that also falls.
    Gauge,
    /// Quantiles.
    Summary,
    /// Counts by upper bounds, and a sum. All of them only grow.
    Histogram,
}

impl Kind {
    /// Returns the word of `# TYPE`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Summary => "summary",
            Kind::Histogram => "histogram",
        }
    }
}

/// A metric: its name, type and meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// The name of the samples.
    pub name: &'static str,
    /// The type.
    pub kind: Kind,
    /// The meaning in one sentence, without line ends and backslashes.
    pub help: &'static str,
}

impl Family {
    /// Returns a metric.
    #[must_use]
    pub const fn new(name: &'static str, kind: Kind, help: &'static str) -> Family {
        Family { name, kind, help }
    }
}

/// The value of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An integer, which is written in full.
    Integer(u64),
    /// Any number, or NaN.
    Float(f64),
}

impl From<u64> for Number {
    fn from(value: u64) -> Number {
        Number::Integer(value)
    }
}

impl From<bool> for Number {
    fn from(value: bool) -> Number {
        Number::Integer(value.into())
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Number {
        Number::Float(value)
    }
}

/// The text while it is written.
pub struct Exposition<'r> {
    /// The family whose samples come next. Its head is written before its first sample.
    family: Option<Family>,
    is_head_due: bool,
    part: String,
    /// Gets the parts that are complete.
    receive: Box<dyn FnMut(String) + Send + 'r>,
    /// The bounds of the last histogram, and their texts. Histograms of a family have the same bounds, and a number takes
    /// longer to write than the rest of a line.
    bounds: Vec<f64>,
    bound_texts: Vec<String>,
}

impl<'r> Exposition<'r> {
    /// Returns an empty text, whose parts go to `receive` as soon as they are complete.
    #[must_use]
    pub fn new(receive: impl FnMut(String) + Send + 'r) -> Exposition<'r> {
        Exposition {
            family: None,
            is_head_due: false,
            part: String::new(),
            receive: Box::new(receive),
            bounds: Vec::new(),
            bound_texts: Vec::new(),
        }
    }

    /// Begins a family. A family without samples leaves no trace.
    pub fn begin(&mut self, family: Family) {
        self.is_head_due = true;
        self.family = Some(family);
    }

    /// Writes a sample of the family. `labels` comes from [`push_label`], and may be empty.
    ///
    /// # Panics
    /// If no family has begun.
    pub fn sample(&mut self, labels: &str, value: impl Into<Number>) {
        let family = self.family.expect("a family has begun");
        if std::mem::take(&mut self.is_head_due) {
            self.head(family);
        }
        self.line(family.name, "", labels, value.into());
        self.cut();
    }

    /// Writes the samples of one histogram of the family. `bounds` are the upper bounds of the buckets, which ascend, and
    /// `counts` the number of values up to each bound, and then the number of all values.
    ///
    /// # Panics
    /// If no family has begun, or there is not one more count than bounds.
    pub fn histogram(&mut self, labels: &str, bounds: &[f64], counts: &[u64], sum: f64) {
        let family = self.family.expect("a family has begun");
        assert_eq!(
            counts.len(),
            bounds.len() + 1,
            "the last count is of all values"
        );
        if std::mem::take(&mut self.is_head_due) {
            self.head(family);
        }
        if self.bounds != bounds {
            self.bounds = bounds.to_vec();
            // Every bound has a point or an exponent.
            let texts = bounds.iter().map(|bound| format!("{bound:?}"));
            self.bound_texts = texts.chain(["+Inf".to_owned()]).collect();
        }
        let comma = if labels.is_empty() { "" } else { "," };
        let start = [family.name, "_bucket{", labels, comma].concat();
        for (bound, count) in self.bound_texts.iter().zip(counts) {
            // Writing to memory does not fail.
            let _ = writeln!(self.part, "{start}le=\"{bound}\"}} {count}");
        }
        let total = counts[counts.len() - 1];
        self.line(family.name, "_count", labels, total.into());
        self.line(family.name, "_sum", labels, sum.into());
        self.cut();
    }

    fn line(&mut self, name: &str, suffix: &str, labels: &str, value: Number) {
        let out = &mut self.part;
        out.push_str(name);
        out.push_str(suffix);
        if !labels.is_empty() {
            out.push('{');
            out.push_str(labels);
            out.push('}');
        }
        out.push(' ');
        // Writing to memory does not fail.
        let _ = match value {
            Number::Integer(value) => writeln!(out, "{value}"),
            Number::Float(value) => writeln!(out, "{value}"),
        };
    }

    /// Writes a family with one sample without labels.
    pub fn single(&mut self, family: Family, value: impl Into<Number>) {
        self.begin(family);
        self.sample("", value);
    }

    fn head(&mut self, family: Family) {
        let Family { name, kind, help } = family;
        let kind = kind.word();
        let _ = writeln!(self.part, "# HELP {name} {help}");
        let _ = writeln!(self.part, "# TYPE {name} {kind}");
    }

    fn cut(&mut self) {
        if self.part.len() >= PART_BYTES {
            let next = String::with_capacity(PART_BYTES + PART_EXCESS);
            (self.receive)(std::mem::replace(&mut self.part, next));
        }
    }

    /// Ends the text.
    pub fn end(mut self) {
        if !self.part.is_empty() {
            (self.receive)(self.part);
        }
    }
}

/// Appends a label. Backslashes, quotes and line ends in the value are escaped.
pub fn push_label(labels: &mut String, name: &str, value: &str) {
    if !labels.is_empty() {
        labels.push(',');
    }
    labels.push_str(name);
    labels.push_str("=\"");
    for character in value.chars() {
        match character {
            '\\' => labels.push_str("\\\\"),
            '"' => labels.push_str("\\\""),
            '\n' => labels.push_str("\\n"),
            other => labels.push(other),
        }
    }
    labels.push('"');
}

#[cfg(test)]
mod tests;
