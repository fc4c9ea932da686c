//! The answers are recorded (`tests/differential/*.case`).

use super::*;

/// docs/reference/metrics.md holds a table of all metrics, and it is this one. To write it anew, run this test with
/// UPDATE_DOCS=1.
#[test]
fn the_documentation_has_every_metric() {
    let table = program::metrics::table(&metrics::all());
    test_support::pages::check("reference/metrics.md", |page| {
        program::metrics::page_with_table(page, "nsqlookupd's metrics", &table)
    });
}
