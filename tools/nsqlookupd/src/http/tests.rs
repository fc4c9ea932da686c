use std::time::Duration;

use program::http::{Routed, route};

use super::*;
use crate::database::Lifetimes;

#[test]
fn routes_of_the_specification() {
    let check = |method: &str, path: &str, expected: Routed<Endpoint>| {
        assert_eq!(route(ROUTES, method, path), expected, "{method} {path}");
    };
    let redirect = |path: &str| Routed::Redirect(path.to_string());
    check("GET", "/lookup/", redirect("/lookup"));
    check("GET", "/debug/", redirect("/debug"));
    check("GET", "/debug/pprof/", redirect("/debug/pprof"));
    check("GET", "/debug/pprof/mutex", Routed::NotFound);
    check("POST", "/Topic/Create", redirect("/topic/create"));
    check("GET", "/create_topic", Routed::NotFound);
    let post = Routed::WrongMethod("OPTIONS, POST".to_string());
    check("GET", "/topic/create", post);
}

#[test]
fn arguments_are_checked_in_the_originals_order() {
    let mut database = Database::new(Lifetimes {
        inactive: Duration::from_secs(300),
        tombstone: Duration::from_secs(45),
    });
    let mut check = |endpoint, query: &str, code: &'static str| {
        let query = Query::parse(query).unwrap();
        let changed = change(
            endpoint,
            &query,
            &mut database,
            Now::default(),
            &mut Vec::new(),
        );
        match changed {
            Ok(_) => assert_eq!(code, "", "{query:?}"),
            Err(failure) => assert_eq!(failure.code, code, "{query:?}"),
        }
    };
    check(Change::CreateTopic, "", "MISSING_ARG_TOPIC");
    check(Change::CreateTopic, "topic=*", "INVALID_ARG_TOPIC");
    check(Change::CreateTopic, "topic=t", "");
    check(Change::DeleteTopic, "topic=*", "");
    check(Change::Tombstone, "topic=*", "MISSING_ARG_NODE");
    check(Change::Tombstone, "topic=t&node=", "");
    for endpoint in [Change::CreateChannel, Change::DeleteChannel] {
        check(endpoint, "channel=*", "MISSING_ARG_TOPIC");
        check(endpoint, "topic=*", "INVALID_ARG_TOPIC");
        check(endpoint, "topic=t", "MISSING_ARG_CHANNEL");
        check(endpoint, "topic=t&channel=*", "INVALID_ARG_CHANNEL");
    }
    check(
        Change::DeleteChannel,
        "topic=t&channel=c",
        "CHANNEL_NOT_FOUND",
    );
    check(Change::CreateChannel, "topic=t&channel=c", "");
    check(Change::DeleteChannel, "topic=t&channel=c", "");
}

/// docs/operate/monitoring.md holds a table of all metrics, and it is this one. To write it anew, run this test with
/// UPDATE_DOCS=1.
#[test]
fn the_documentation_has_every_metric() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/operate/monitoring.md"
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
