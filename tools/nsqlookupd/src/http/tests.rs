//! The answers are recorded (`tests/differential/*.case`).

use test_support::tables;

use super::*;

/// docs/reference/metrics.md holds a table of all metrics, and it is this one. To write it anew, run this test with
/// UPDATE_DOCS=1.
#[test]
fn the_documentation_has_every_metric() {
    let table = tables::of_metrics(&metrics::all());
    test_support::pages::check("reference/metrics.md", |page| {
        tables::page_with_table(page, "nsqlookupd's metrics", &table)
    });
}
