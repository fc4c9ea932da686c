//! Checks that examples of the pages are those that the compiler sees, and that the pages name the right version of Rust.

use std::fs;
use std::path::Path;
use std::process::Command;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the lines between the first fence of three backticks behind `heading` and the next fence.
fn block<'a>(page: &'a str, heading: &str) -> Vec<&'a str> {
    let start = page.find(heading).expect("the heading is there");
    let mut lines = page[start..].lines();
    lines
        .find(|line| line.trim_start_matches(['/', ' ']).starts_with("```"))
        .expect("a block begins");
    let block = lines.take_while(|line| !line.trim_start_matches(['/', ' ']).starts_with("```"));
    block.collect()
}

/// The doc test of `Dedup` compiles and runs the example. The page leaves out what rustdoc does not show.
#[test]
fn the_example_of_deduplication_is_the_doc_test() {
    let page = read("../../docs/deduplication.md");
    let source = read("src/dedup.rs");
    let tested = block(
        &source,
        "/// The recognition of messages that were handled before.",
    );
    let shown: Vec<&str> = tested
        .iter()
        .map(|line| line.strip_prefix("///").expect("a doc comment"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert!(shown.len() > 10, "{shown:?}");
    let page: Vec<&str> = block(&page, "## In a consumer");
    assert_eq!(page, shown);
}

/// CI builds with one toolchain. If this were newer than `rust-version`, nobody would know if the oldest permitted Rust still
/// builds the crate.
#[test]
fn the_oldest_permitted_rust_is_the_one_that_builds_the_crate() {
    let oldest = env!("CARGO_PKG_RUST_VERSION");
    for page in ["README.md", "../../docs/client.md"] {
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
