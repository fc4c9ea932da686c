//! Checks that the pages name the right version of Rust.

use std::fs;
use std::path::Path;
use std::process::Command;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// CI builds with one toolchain. If this were newer than `rust-version`, nobody would know if the oldest permitted Rust still
/// builds the crate.
#[test]
fn the_oldest_permitted_rust_is_the_one_that_builds_the_crate() {
    let oldest = env!("CARGO_PKG_RUST_VERSION");
    for page in ["README.md", "../../docs/reference/client.md"] {
        let text = read(page);
        let is_named =
            text.contains(&format!(" {oldest},")) || text.contains(&format!("Rust {oldest} "));
        assert!(is_named, "{page} does not name Rust {oldest}");
    }
    let version = Command::new("rustc").arg("--version").output();
    let version = version.expect("the tests were built with rustc").stdout;
    let version = String::from_utf8(version).expect("text");
    let used = version.split(' ').nth(1).expect("rustc 1.2.3 (...)");
    if !used.starts_with(&format!("{oldest}.")) {
        test_support::skip::not_tested(&format!("Rust {oldest}, because rustc is {used}"));
    }
}
