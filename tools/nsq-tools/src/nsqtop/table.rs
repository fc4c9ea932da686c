//! [`Table`]: what a view shows, and its parts: [`Column`], [`Cell`], [`Row`]; and [`Pair`], the samples that a row is made
//! of.

use std::cmp::Ordering;
use std::time::Duration;

use nsq_doctor::{duration, grown, short};
use nsq_http::{LatencyStats, TopicStats};

use super::sample::{NodeFigures, Sample};

/// The rows of a view.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Table {
    /// The columns.
    pub(super) columns: &'static [Column],
    /// The rows.
    pub(super) rows: Vec<Row>,
}

/// The choice of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    /// Rows with this text, in any case. All rows if the text is empty.
    Text(String),
    /// Rows whose key begins with this text: the channels of one topic, or the clients of one channel.
    Parent(String),
}

/// The column by which a table is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sort {
    /// The index of the column.
    pub(super) column: usize,
    /// True if the last text and the smallest number come first.
    pub(super) is_reversed: bool,
}

/// A column of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column {
    /// The heading.
    pub(super) title: &'static str,
    /// The width in characters, or the smallest width of a text that may be cut off.
    pub(super) width: u16,
    /// True for a text, which stands on the left and takes what is left of the width.
    pub(super) is_text: bool,
}

/// A value in a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    /// A text. It has no control characters.
    Text(String),
    /// A number, or `None` where it is not known.
    Number(Option<f64>),
    /// A time in seconds, or `None` where it is not known.
    Seconds(Option<f64>),
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// The name that is different for each row, and the same in each sample.
    pub(super) key: String,
    /// The values, one for each column.
    pub(super) cells: Vec<Cell>,
    /// A sentence about the row, for which a cell may be too narrow.
    pub(super) detail: String,
    /// True if somebody should do something.
    pub(super) is_problem: bool,
}

/// Two samples of the cluster. The first sample of all has none before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair<'a> {
    /// The sample before.
    pub(super) before: Option<&'a Sample>,
    /// The newest sample.
    pub(super) after: &'a Sample,
}

impl<'a> Pair<'a> {
    /// Returns the time between the samples.
    pub(super) fn elapsed(&self) -> Duration {
        self.before.map_or(Duration::ZERO, |before| {
            self.after.at.saturating_sub(before.at)
        })
    }

    /// Returns a count per second. `None` if there is only one sample.
    pub(super) fn rate(&self, count: i64) -> Option<f64> {
        let seconds = self.elapsed().as_secs_f64();
        (seconds > 0.0).then(|| count as f64 / seconds)
    }

    /// Returns the figures of a node in the sample before.
    pub(super) fn node_before(&self, address: &str) -> Option<&'a NodeFigures> {
        self.before?.nodes.get(address)
    }

    /// Returns the messages and bytes that have arrived in a topic of a node. All messages of a new topic
    /// belong to this time, but not those of a new node.
    pub(super) fn arrived(&self, address: &str, topic: &TopicStats) -> (i64, i64) {
        let Some(before) = self.node_before(address) else {
            return (0, 0);
        };
        let mut topics = before.stats.topics.iter();
        let earlier = topics.find(|known| known.topic_name == topic.topic_name);
        let earlier = earlier.map_or((0, 0), |topic| (topic.message_count, topic.message_bytes));
        (
            grown(earlier.0, topic.message_count),
            grown(earlier.1, topic.message_bytes),
        )
    }
}

impl Row {
    /// Returns a row. `detail` may have texts that come from clients.
    pub(super) fn new(key: String, cells: Vec<Cell>, detail: &str, is_problem: bool) -> Row {
        Row {
            key,
            cells,
            detail: detail.replace(char::is_control, "?"),
            is_problem,
        }
    }

    fn contains(&self, lowercase: &str) -> bool {
        let is_in = |cell: &Cell| match cell {
            Cell::Text(text) => text.to_lowercase().contains(lowercase),
            Cell::Number(_) | Cell::Seconds(_) => false,
        };
        lowercase.is_empty()
            || self.cells.iter().any(is_in)
            || self.key.to_lowercase().contains(lowercase)
            || self.detail.to_lowercase().contains(lowercase)
    }
}

impl Cell {
    /// Returns a text without its control characters: names come from clients, and must not control
    /// the terminal.
    pub(super) fn text(text: &str) -> Cell {
        Cell::Text(text.replace(char::is_control, "?"))
    }

    /// Returns a count.
    pub(super) fn count(count: i64) -> Cell {
        Cell::Number(Some(count as f64))
    }

    /// Returns the text that is shown. A number has at most five characters.
    pub(super) fn shown(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Number(Some(number)) => short(*number),
            Cell::Seconds(Some(seconds)) => duration(*seconds),
            Cell::Number(None) | Cell::Seconds(None) => "-".to_owned(),
        }
    }

    /// Orders cells of one column: texts by the alphabet, the largest number first, unknown numbers
    /// last.
    fn order(&self, other: &Cell) -> Ordering {
        match (self, other) {
            (Cell::Text(a), Cell::Text(b)) => a.cmp(b),
            (Cell::Number(a) | Cell::Seconds(a), Cell::Number(b) | Cell::Seconds(b)) => {
                let value = |number: &Option<f64>| number.unwrap_or(f64::NEG_INFINITY);
                value(b).total_cmp(&value(a))
            }
            // One column has cells of one kind.
            _ => Ordering::Equal,
        }
    }
}

/// Returns a column of numbers, which have at most five characters.
pub(super) const fn number(title: &'static str) -> Column {
    let width = if title.len() > 5 { title.len() } else { 5 };
    Column {
        title,
        width: width as u16,
        is_text: false,
    }
}

/// Returns a column of texts.
pub(super) const fn text(title: &'static str, width: u16) -> Column {
    Column {
        title,
        width,
        is_text: true,
    }
}

/// Returns the largest value of the highest percentile of some latencies, in seconds. Percentiles of
/// several nodes have no common percentile, so the worst node is shown.
pub(super) fn worst_latency<'a>(latencies: impl Iterator<Item = &'a LatencyStats>) -> Option<f64> {
    // Without a message in the window, nsqd says 0.
    let measured = latencies.filter(|latency| latency.count > 0);
    let highest = |latency: &LatencyStats| {
        let percentiles = latency.percentiles.iter().flatten();
        let highest = percentiles.max_by(|a, b| a.quantile.total_cmp(&b.quantile))?;
        Some(highest.value)
    };
    let nanos = measured.filter_map(highest).max_by(f64::total_cmp)?;
    Some(nanos / 1e9)
}

/// Returns the largest age, in seconds, among those that are known. An age of 0 belongs to no message.
pub(super) fn oldest(ages_ms: impl Iterator<Item = Option<i64>>) -> Option<f64> {
    let oldest = ages_ms.flatten().filter(|age| *age > 0).max()?;
    Some(oldest as f64 / 1e3)
}

impl Default for Filter {
    fn default() -> Filter {
        Filter::Text(String::new())
    }
}

impl Table {
    /// Returns a table of the rows that `filter` chooses, sorted.
    pub(super) fn new(
        columns: &'static [Column],
        mut rows: Vec<Row>,
        filter: &Filter,
        sort: Sort,
    ) -> Table {
        match filter {
            Filter::Text(text) => {
                let text = text.to_lowercase();
                rows.retain(|row| row.contains(&text));
            }
            Filter::Parent(key) => rows.retain(|row| row.key.starts_with(key)),
        }
        rows.sort_by(|a, b| {
            let order = a.cells[sort.column].order(&b.cells[sort.column]);
            let order = if sort.is_reversed {
                order.reverse()
            } else {
                order
            };
            order.then_with(|| a.key.cmp(&b.key))
        });
        Table { columns, rows }
    }

    /// Returns the table as lines. Each column is as wide as its widest cell, and nothing is cut off.
    pub(super) fn plain_text(&self) -> String {
        let mut lines: Vec<Vec<String>> = Vec::with_capacity(self.rows.len() + 1);
        let titles = self.columns.iter();
        lines.push(titles.map(|column| column.title.to_owned()).collect());
        for row in &self.rows {
            lines.push(row.cells.iter().map(|cell| cell.shown()).collect());
        }
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|c| width(c).unwrap_or(0))
            .collect();
        let mut text = String::new();
        for line in &lines {
            let mut shown = String::new();
            for ((cell, width), column) in line.iter().zip(&widths).zip(self.columns) {
                shown += &if column.is_text {
                    format!("{cell:<width$}  ")
                } else {
                    format!("{cell:>width$}  ")
                };
            }
            text += shown.trim_end();
            text.push('\n');
        }
        text
    }
}
