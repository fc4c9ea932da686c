//! Tables of the page.

use super::markup::escape;

/// A cell; its text is escaped when it is written.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    text: String,
    /// A class of `style.css`, or empty.
    class: &'static str,
}

impl Cell {
    /// A cell that stands out: "good-text", "warn-text", "bad-text", or "text" for prose.
    pub(crate) fn classed(text: impl Into<String>, class: &'static str) -> Cell {
        let text = text.into();
        Cell { text, class }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell::classed(text, "")
    }
}

/// A table whose first column names the rows.
#[derive(Debug, Default)]
pub(crate) struct Table {
    head: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new<T: Into<String>>(head: impl IntoIterator<Item = T>) -> Table {
        Table {
            head: head.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Adds one figure of every column; leaves the row out where no column has the figure.
    pub(crate) fn figures(&mut self, name: &str, figures: impl IntoIterator<Item = Option<Cell>>) {
        let figures: Vec<Option<Cell>> = figures.into_iter().collect();
        if figures.iter().any(Option::is_some) {
            let cells = figures
                .into_iter()
                .map(|cell| cell.unwrap_or_else(|| "–".into()));
            self.row(std::iter::once(Cell::from(name)).chain(cells));
        }
    }

    pub(crate) fn render(&self, out: &mut String) {
        out.push_str("<div class=\"card scroll\"><table>\n");
        if self.head.iter().any(|name| !name.is_empty()) {
            out.push_str("<thead><tr>");
            for name in &self.head {
                put!(out, "<th scope=\"col\">{}</th>", escape(name));
            }
            out.push_str("</tr></thead>\n");
        }
        out.push_str("<tbody>\n");
        for row in &self.rows {
            out.push_str("<tr>");
            for (index, Cell { text, class }) in row.iter().enumerate() {
                let text = escape(text);
                match (index, class.is_empty()) {
                    (0, _) => put!(out, "<th scope=\"row\">{text}</th>"),
                    (_, true) => put!(out, "<td>{text}</td>"),
                    (_, false) => put!(out, "<td class=\"{class}\">{text}</td>"),
                }
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody></table></div>\n");
    }
}
