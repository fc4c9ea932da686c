//! A table as plain text.

use super::table::Table;

/// Returns the table as lines. Each column is as wide as its widest cell, and nothing is cut off.
pub(super) fn text(table: &Table) -> String {
    let mut lines: Vec<Vec<String>> = Vec::with_capacity(table.rows.len() + 1);
    let titles = table.columns.iter();
    lines.push(titles.map(|column| column.title.to_owned()).collect());
    for row in &table.rows {
        lines.push(row.cells.iter().map(|cell| cell.shown()).collect());
    }
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..table.columns.len())
        .map(|c| width(c).unwrap_or(0))
        .collect();
    let mut text = String::new();
    for line in &lines {
        let mut shown = String::new();
        for ((cell, width), column) in line.iter().zip(&widths).zip(table.columns) {
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
