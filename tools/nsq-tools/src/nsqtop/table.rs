//! [`Table`]: what a view shows, as a pure function of two samples.

use super::row::{Column, Pair, Row};
use super::{channels, clients, nodes, shards, topics};

/// The kind of things that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// A row for each channel.
    Channels,
    /// A row for each topic.
    Topics,
    /// A row for each connection.
    Clients,
    /// A row for each nsqd.
    Nodes,
    /// A row for each shard that has a topic.
    Shards,
}

/// All views, in the order of their keys and of the enum.
pub(super) const VIEWS: [View; 5] = [
    View::Channels,
    View::Topics,
    View::Clients,
    View::Nodes,
    View::Shards,
];

/// A view of two samples.
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

impl View {
    /// Returns the view of a name in `--view`.
    pub(super) fn of_name(name: &str) -> View {
        let found = VIEWS.into_iter().find(|view| view.name() == name);
        found.expect("the table of flags accepts no other name")
    }

    /// Returns the name.
    pub(super) fn name(self) -> &'static str {
        match self {
            View::Channels => "channels",
            View::Topics => "topics",
            View::Clients => "clients",
            View::Nodes => "nodes",
            View::Shards => "shards",
        }
    }

    /// Returns the columns.
    pub(super) fn columns(self) -> &'static [Column] {
        match self {
            View::Channels => channels::COLUMNS,
            View::Topics => topics::COLUMNS,
            View::Clients => clients::COLUMNS,
            View::Nodes => nodes::COLUMNS,
            View::Shards => shards::COLUMNS,
        }
    }

    /// Returns the order before the user chooses one.
    pub(super) fn usual_sort(self) -> Sort {
        let title = match self {
            View::Channels => "DEPTH",
            View::Topics => "IN/S",
            View::Clients => "INFLT",
            View::Nodes => "NODE",
            View::Shards => "IN/S",
        };
        let column = self
            .columns()
            .iter()
            .position(|column| column.title == title);
        Sort {
            column: column.expect("the view has this column"),
            is_reversed: false,
        }
    }

    /// Returns the order by the column with this heading, in any case. A minus in front reverses the
    /// order.
    ///
    /// # Errors
    /// There is no such column. The error is the reason for the user.
    pub(super) fn sort_by_name(self, name: &str) -> Result<Sort, String> {
        let (title, is_reversed) = match name.strip_prefix('-') {
            Some(rest) => (rest, true),
            None => (name, false),
        };
        let mut columns = self.columns().iter();
        let column = columns.position(|column| column.title.eq_ignore_ascii_case(title));
        let column = column.ok_or_else(|| {
            let titles: Vec<String> = self
                .columns()
                .iter()
                .map(|c| c.title.to_lowercase())
                .collect();
            let titles = titles.join(", ");
            format!(
                "--sort: the view {} has no column {title:?}; its columns are {titles}",
                self.name()
            )
        })?;
        Ok(Sort {
            column,
            is_reversed,
        })
    }

    /// Returns the rows, in the order of their keys.
    pub(super) fn rows(self, pair: Pair<'_>) -> Vec<Row> {
        match self {
            View::Channels => channels::rows(pair),
            View::Topics => topics::rows(pair),
            View::Clients => clients::rows(pair),
            View::Nodes => nodes::rows(pair),
            View::Shards => shards::rows(pair),
        }
    }
}

impl Default for Filter {
    fn default() -> Filter {
        Filter::Text(String::new())
    }
}

impl Table {
    /// Returns a view of two samples: the rows that `filter` chooses, sorted.
    pub(super) fn new(view: View, pair: Pair<'_>, filter: &Filter, sort: Sort) -> Table {
        let mut rows = view.rows(pair);
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
        Table {
            columns: view.columns(),
            rows,
        }
    }
}

#[cfg(test)]
mod tests;
