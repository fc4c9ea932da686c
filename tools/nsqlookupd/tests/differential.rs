//! Sends the same bytes to the original nsqlookupd and to ours (`test_support::differential`).

use std::path::Path;

use crate::support::{Client, Lookupd};
use test_support::differential::{self, Daemon, Suite, replace_behind, without_ringq_version};

#[test]
fn ours_answers_what_the_original_answered() {
    differential::run::<Client>(&Suite {
        package: "nsqlookupd",
        cases: concat!(env!("CARGO_MANIFEST_DIR"), "/tests/differential"),
        original: "NSQLOOKUPD_ORIGINAL",
        normal,
        start: &start,
    });
}

fn start(flags: &[String], program: Option<&Path>) -> Result<Box<dyn Daemon>, String> {
    Ok(Box::new(Lookupd::try_start(flags, program)?))
}

/// Replaces each value that differs from run to run by a name in braces, and sorts lists whose
/// order is random in the original.
fn normal(text: &str) -> String {
    let is_digit = |c: char| c.is_ascii_digit();
    let mut text = without_ringq_version(text);
    text = replace_behind(&text, "127.0.0.1:", "{port}", is_digit);
    text = replace_behind(&text, "\"last_update\":", "{time}", is_digit);
    text = replace_behind(&text, "\"tombstoned_at\":", "{time}", is_digit);
    // Only the answer to IDENTIFY has the daemon's own ports and name.
    if text.contains("{\"broadcast_address\":") && !text.contains("\"id\":") {
        text = replace_behind(&text, "_port\":", "{port}", is_digit);
        let host = program::hostname();
        text = text.replace(&format!("\"{host}\""), "\"{host}\"");
    }
    for list in ["{\"channels\":[", "{\"topics\":["] {
        text = sort_behind(&text, list, ']', ",");
    }
    sort_behind(&text, "\"producers\":[{", ']', "},{")
}

/// Sorts the elements of the list behind `marker`, up to the last `end`.
fn sort_behind(text: &str, marker: &str, end: char, separator: &str) -> String {
    let Some((before, list)) = text.split_once(marker) else {
        return text.to_owned();
    };
    // A list of names ends at the first bracket. A list of objects may have lists inside.
    let at = match separator {
        "," => list.find(end),
        _ => list.rfind(end).map(|at| at - 1),
    };
    let (list, after) = list.split_at(at.expect("a list has an end"));
    let mut elements: Vec<&str> = list.split(separator).collect();
    elements.sort_unstable();
    format!("{before}{marker}{}{after}", elements.join(separator))
}
