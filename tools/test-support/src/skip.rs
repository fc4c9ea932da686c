//! The notices of tests that cannot run.

use std::io::{self, Write};

/// Prints that a test cannot run here. With `CI` set, the test fails, because CI can install or
/// permit the missing part.
///
/// # Panics
/// `CI` is set.
pub fn not_tested(why: &str) {
    let text = say(why);
    assert!(
        std::env::var_os("CI").is_none(),
        "CI counts what is not tested as failed: {text}"
    );
}

/// Prints that a test cannot run on this kernel. CI cannot change the kernel, so no test fails.
pub fn kernel_lacks(why: &str) {
    say(why);
}

/// Prints that a test cannot run because something cannot be fetched. CI cannot change the network, so no test fails.
pub fn network_lacks(why: &str) {
    say(why);
}

/// Writes past the test harness, which hides the output of the print macros of a passing test. A
/// skipped test passes.
fn say(why: &str) -> String {
    let text = format!("\n*** NOT TESTED: {why} ***\n");
    // Without stderr nobody could read the notice.
    let _ = io::stderr().write_all(text.as_bytes());
    text
}
