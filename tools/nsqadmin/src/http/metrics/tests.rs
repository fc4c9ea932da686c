use super::*;

/// Returns all metrics with the names of their labels, for the table of the page.
fn all() -> Vec<(Family, &'static str)> {
    fn of<T>(rows: &[Row<T>], labels: &'static str) -> Vec<(Family, &'static str)> {
        rows.iter().map(|row| (row.family, labels)).collect()
    }
    let mut all = vec![
        (BUILD, "version, ringq_version"),
        (REQUESTS, "method, code"),
    ];
    all.extend(of(UPSTREAM, "server, address"));
    all.push((FAILURES, "server, address, reason"));
    all.push((COLLECTIONS, "result"));
    all.extend(of(COLLECTION, ""));
    all.extend(of(LIVE, ""));
    all.extend([(STREAMS, ""), (STREAMS_LIMIT, "")]);
    all.extend([(ACTS, "action, result"), (AUDIT_FAILURES, "")]);
    all.push((NOTIFICATIONS, "result"));
    all
}

/// docs/monitoring.md holds a table of all metrics, and it is this one. To write it anew, run this test with
/// UPDATE_DOCS=1.
#[test]
fn the_documentation_has_every_metric() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/monitoring.md");
    let page = std::fs::read_to_string(path).expect("the page exists");
    let table = program::metrics::table(&all());
    let updated = program::metrics::page_with_table(&page, "nsqadmin's metrics", &table);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &updated).expect("the page can be written");
    }
    assert!(
        page == updated,
        "out of date: run with UPDATE_DOCS=1 and look at the difference"
    );
}
