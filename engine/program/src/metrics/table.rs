//! The table of metrics in a page. The tests of the programs compare pages with code by it.

use std::fmt::Write as _;

use super::Family;

/// Returns the table of metrics with the names of their labels.
#[must_use]
pub fn table(families: &[(Family, &str)]) -> String {
    let mut table = "| metric | type | labels | meaning |\n|---|---|---|---|\n".to_owned();
    for (family, labels) in families {
        let (name, help) = (family.name, family.help);
        let kind = family.kind.word();
        // Writing to memory does not fail.
        let _ = writeln!(table, "| `{name}` | {kind} | {labels} | {help} |");
    }
    table
}

/// Returns the page with another table between `<!-- title -->` and `<!-- end of title -->`.
///
/// # Panics
/// If the page lacks one of these lines.
#[must_use]
pub fn page_with_table(page: &str, title: &str, table: &str) -> String {
    let (start, end) = (
        format!("<!-- {title} -->\n"),
        format!("<!-- end of {title} -->"),
    );
    let at = page
        .find(&start)
        .expect("the page has the line before the table")
        + start.len();
    let length = page[at..]
        .find(&end)
        .expect("the page has the line behind the table");
    format!("{}{table}{}", &page[..at], &page[at + length..])
}
