//! Each tool beside the tool of NSQ 1.3.0 with the same name: the same input must have the same outcome.
//!
//! The outcomes of the originals are recorded in the case files. With `NSQ_TOOLS_ORIGINAL=DIR`, the originals in `DIR` run
//! beside our tools, and the records are written again.

mod case;
mod outcome;

use std::path::Path;

use case::Case;

const DIFFERENCES: &str = include_str!("../../../docs/reference/differences-tools.md");

/// The least number of cases of a tool. An emptied file of cases must not pass.
const CASES_MIN: usize = 15;

/// Records the outcome of the original, if the variable names its directory.
fn record(tool: &str, cases: &mut [Case]) {
    let Some(directory) = std::env::var_os("NSQ_TOOLS_ORIGINAL") else {
        return;
    };
    let program = Path::new(&directory).join(tool);
    for case in cases.iter_mut() {
        case.original = outcome::of(&program, case);
    }
    case::write(tool, cases);
}

/// Returns what is wrong with our outcome of a case, or `None`.
fn fault(program: &Path, case: &Case) -> Option<String> {
    let name = &case.name;
    if case.original.is_null() {
        return Some(format!(
            "{name}: the outcome of the original is not recorded"
        ));
    }
    if let Some(difference) = &case.difference {
        if difference.why.is_empty() || !DIFFERENCES.contains(&difference.doc) {
            return Some(format!(
                "{name}: docs/reference/differences-tools.md lacks {:?}",
                difference.doc
            ));
        }
        if case.expected() == case.original {
            return Some(format!("{name}: the listed difference is none"));
        }
    }
    let (ours, expected) = (outcome::of(program, case), case.expected());
    (ours != expected).then(|| format!("{name}:\n  ours     {ours}\n  expected {expected}"))
}

fn compare(tool: &str) {
    let mut cases = case::read(tool);
    record(tool, &mut cases);
    assert!(cases.len() >= CASES_MIN, "cases of {tool} are missing");
    let program = Path::new(env!("CARGO_BIN_EXE_nsq_tail")).with_file_name(tool);
    let faults: Vec<String> = cases
        .iter()
        .filter_map(|case| fault(&program, case))
        .collect();
    assert!(faults.is_empty(), "{tool}\n{}", faults.join("\n"));
}

#[test]
fn nsq_stat() {
    compare("nsq_stat");
}

#[test]
fn nsq_tail() {
    compare("nsq_tail");
}

#[test]
fn nsq_to_file() {
    compare("nsq_to_file");
}

#[test]
fn nsq_to_http() {
    compare("nsq_to_http");
}

#[test]
fn nsq_to_nsq() {
    compare("nsq_to_nsq");
}

#[test]
fn to_nsq() {
    compare("to_nsq");
}
