//! What a test says where it cannot run. The unit tests of the shell use this file, too.

use std::io::{self, Write};

/// Says loudly that a test cannot run here. With `CI` set, the test fails: CI can install or allow what is missing.
pub fn not_tested(why: &str) {
    let text = say(why);
    assert!(
        std::env::var_os("CI").is_none(),
        "CI counts what is not tested as failed: {text}"
    );
}

/// Says loudly that a test cannot run on this kernel. CI cannot give a kernel what it lacks, so no test fails.
pub fn kernel_lacks(why: &str) {
    say(why);
}

/// The test harness captures what the print macros write unless the test fails. A test that is left out passes, so
/// the text goes past the harness.
fn say(why: &str) -> String {
    let text = format!("\n*** NOT TESTED: {why} ***\n");
    let _ = io::stderr().write_all(text.as_bytes());
    text
}
