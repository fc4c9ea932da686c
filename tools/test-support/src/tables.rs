//! The tables of flags and metrics in the pages of docs/.

use program::flag::{DefaultValue, Flag, Kind};
use program::metrics::Family;

/// Returns the page with another table between the marks `<!-- title -->` and `<!-- end of title -->`.
///
/// # Panics
/// If the page lacks one of these lines.
#[must_use]
pub fn page_with_table(page: &str, title: &str, table: &str) -> String {
    let (start, end) = (
        format!("<!-- {title} -->\n"),
        format!("<!-- end of {title} -->"),
    );
    let (before, rest) = page.split_once(&start).expect("the mark is there");
    let (_, after) = rest.split_once(&end).expect("the end mark is there");
    format!("{before}{start}{table}{end}{after}")
}

/// Returns a table of metrics with the names of their labels.
#[must_use]
pub fn of_metrics(families: &[(Family, &str)]) -> String {
    let mut table = "| metric | type | labels | meaning |\n|---|---|---|---|\n".to_owned();
    for (family, labels) in families {
        let (name, help) = (family.name, family.help);
        let kind = family.kind.word();
        table += &format!("| `{name}` | {kind} | {labels} | {help} |\n");
    }
    table
}

/// Returns a table of flags. Without any key, the table has no column for keys.
#[must_use]
pub fn of_flags(flags: &[Flag]) -> String {
    let has_keys = flags.iter().any(|flag| flag.key().is_some());
    let mut rows = String::from(if has_keys {
        "| flag | type | default | config key | meaning |\n|---|---|---|---|---|\n"
    } else {
        "| flag | type | default | meaning |\n|---|---|---|---|\n"
    });
    for flag in flags {
        let kind = match flag.kind {
            Kind::Boolean => "boolean",
            Kind::List => "texts",
            Kind::Floats => "numbers",
            Kind::Float => "number",
            Kind::Level | Kind::Word(_) | Kind::Choice(_) => "word",
            other => other.word(),
        };
        let default = match flag.default {
            DefaultValue::OfHost(_) => "from the host name".to_string(),
            DefaultValue::Fixed("") => String::new(),
            // A row of the table is one line.
            DefaultValue::Fixed(default) => format!("`{}`", default.replace('\n', "\\n")),
        };
        let key = match (has_keys, flag.key()) {
            (true, Some(key)) => format!("`{key}` | "),
            (true, None) => " | ".to_string(),
            (false, _) => String::new(),
        };
        let help = flag.meaning().replace('<', "&lt;").replace('|', "\\|");
        rows += &format!("| `--{}` | {kind} | {default} | {key}{help} |\n", flag.name);
    }
    rows
}
