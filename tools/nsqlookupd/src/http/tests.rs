//! The answers are recorded (`tests/differential/*.case`).

use super::*;

/// docs/reference/metrics.md holds a table of all metrics, and it is this one. To write it anew, run this test with
/// UPDATE_DOCS=1.
#[test]
fn the_documentation_has_every_metric() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/metrics.md"
    );
    let page = std::fs::read_to_string(path).expect("the page exists");
    let table = program::metrics::table(&metrics::all());
    let updated = program::metrics::page_with_table(&page, "nsqlookupd's metrics", &table);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &updated).expect("the page can be written");
    }
    assert!(
        page == updated,
        "out of date: run with UPDATE_DOCS=1 and look at the difference"
    );
}
