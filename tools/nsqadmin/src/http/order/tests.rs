use nsq_http::{ChannelStats, TopicStats};

use super::*;
use crate::figures::NodeIdentity;

fn channel(name: &str, depth: i64, clients: i64, paused: bool) -> ChannelStats {
    ChannelStats {
        channel_name: name.to_owned(),
        depth,
        client_count: Some(clients),
        paused,
        ..ChannelStats::default()
    }
}

#[test]
fn the_undo_of_emptied_topics_leaves_the_channels_as_they_are() {
    let emptied = |undo_until_ms| TopicStats {
        undo_until_ms,
        undo_message_count: 3,
        ..topic("a", 1, vec![channel("c", 5, 0, false)])
    };
    let stats = [
        node("n1:1", vec![emptied(Some(9))]),
        node("n2:1", vec![emptied(None), topic("b", 0, vec![])]),
    ];
    let order = order(r#"{"action":"unempty","of":"topics","show":"all"}"#);
    let subjects = order.subjects(&stats, &BTreeSet::new());
    assert_eq!(subjects.len(), 1, "{subjects:?}");
    let Listed {
        topic,
        nodes,
        channels,
        depth,
        undo,
        ..
    } = &subjects[0];
    assert_eq!((&topic[..], *depth, channels.len()), ("a", 2, 0));
    assert!(nodes.iter().eq(["n1:1"]), "{nodes:?}");
    assert_eq!(undo.map(|undo| undo.message_count), Some(3));
}

#[test]
fn the_undo_of_an_empty_touches_the_nodes_that_have_one() {
    let emptied = |undo_until_ms, undo_message_count| ChannelStats {
        undo_until_ms,
        undo_message_count,
        ..channel("archive", 0, 0, false)
    };
    let kept = channel("kept", 5, 0, false);
    let stats = [
        node("n1:1", vec![topic("a", 0, vec![emptied(Some(9), 3), kept])]),
        node("n2:1", vec![topic("a", 0, vec![emptied(Some(7), 4)])]),
        node("n3:1", vec![topic("a", 0, vec![emptied(None, 0)])]),
    ];
    let order = order(r#"{"action":"unempty","of":"channels","show":"all"}"#);
    let subjects = order.subjects(&stats, &BTreeSet::new());
    assert_eq!(subjects.len(), 1, "{subjects:?}");
    let nodes = ["n1:1", "n2:1"].map(str::to_owned).into();
    assert_eq!(
        (&subjects[0].channel[..], &subjects[0].nodes),
        ("archive", &nodes)
    );
    let expected = Undo {
        until_ms: 7,
        message_count: 7,
    };
    assert_eq!(subjects[0].undo, Some(expected));
    // Somebody else empties one of the channels again, which adds messages to its undo.
    let more = Undo {
        message_count: 9,
        ..expected
    };
    let changed = [Listed {
        undo: Some(more),
        ..subjects[0].clone()
    }];
    assert_ne!(order.token(&changed), order.token(&subjects));
    // The undo means nothing to a pause.
    let pause = self::order(r#"{"action":"pause","of":"channels","show":"all"}"#);
    assert_eq!(pause.token(&changed), pause.token(&subjects));
    let json = wire::go_json::to_string(&subjects[0]);
    test_support::assert_like(&json, r#"…"undo_until_ms":7,"undo_message_count":7…"#);
}

fn topic(name: &str, depth: i64, channels: Vec<ChannelStats>) -> TopicStats {
    TopicStats {
        topic_name: name.to_owned(),
        depth,
        channels,
        ..TopicStats::default()
    }
}

fn node(address: &str, topics: Vec<TopicStats>) -> NodeStats {
    NodeStats {
        node: NodeIdentity {
            address: address.to_owned(),
            ..NodeIdentity::default()
        },
        topics,
        ..NodeStats::default()
    }
}

/// Two nodes: `Orders.eu` is on both, `orders.us` and `idle` on one each.
fn stats() -> Vec<NodeStats> {
    let eu = |depth| topic("Orders.eu", 0, vec![channel("archive", depth, 1, false)]);
    let us = topic(
        "orders.us",
        3,
        vec![
            channel("archive", 0, 0, true),
            channel("billing", 7, 0, false),
        ],
    );
    vec![
        node("n1:1", vec![eu(5), us]),
        node("n2:1", vec![eu(1), topic("idle", 0, Vec::new())]),
    ]
}

fn order(json: &str) -> Order {
    serde_json::from_str(json).expect("an order")
}

fn names(json: &str) -> Vec<String> {
    let inactive = ["forgotten".to_owned()].into_iter().collect();
    let subjects = order(json).subjects(&stats(), &inactive);
    let name = |subject: Listed| format!("{}/{}", subject.topic, subject.channel);
    subjects.into_iter().map(name).collect()
}

#[test]
fn the_filter_narrows_as_the_page_does() {
    let check = |filter: &str, expected: &[&str]| {
        let json = format!(r#"{{"action":"pause","of":"topics",{filter}}}"#);
        assert_eq!(names(&json), expected, "{filter}");
    };
    check(r#""search":"ORDERS""#, &["Orders.eu/", "orders.us/"]);
    check(r#""search":" us  ord ""#, &["orders.us/"]);
    check(r#""search":"nothing""#, &[]);
    check(r#""show":"all""#, &["Orders.eu/", "idle/", "orders.us/"]);
    check(r#""show":"backlog""#, &["Orders.eu/", "orders.us/"]);
    check(r#""show":"lonely""#, &["idle/", "orders.us/"]);
    check(r#""show":"paused""#, &["orders.us/"]);
    check(r#""topics":["idle","gone"]"#, &["idle/"]);
    check(r#""topics":["idle"],"show":"backlog""#, &[]);
}

#[test]
fn only_what_the_action_changes_is_listed() {
    let check = |action: &str, expected: &[&str]| {
        assert_eq!(names(action), expected, "{action}");
    };
    let all = r#""show":"all"}"#;
    check(
        &format!(r#"{{"action":"unpause","of":"channels",{all}"#),
        &["orders.us/archive"],
    );
    // A channel that is empty now may have messages at the next moment.
    check(
        &format!(r#"{{"action":"empty","of":"channels",{all}"#),
        &[
            "Orders.eu/archive",
            "orders.us/archive",
            "orders.us/billing",
        ],
    );
    check(
        &format!(r#"{{"action":"empty","of":"topics",{all}"#),
        &["Orders.eu/", "idle/", "orders.us/"],
    );
    check(
        &format!(r#"{{"action":"delete","of":"channels","channel":"archive",{all}"#),
        &["Orders.eu/archive", "orders.us/archive"],
    );
    check(
        &format!(r#"{{"action":"delete","of":"topics",{all}"#),
        &["Orders.eu/", "forgotten/", "idle/", "orders.us/"],
    );
}

#[test]
fn a_subject_shows_what_is_destroyed() {
    let delete = order(r#"{"action":"delete","of":"topics","search":"us"}"#);
    let subjects = delete.subjects(&stats(), &BTreeSet::new());
    assert_eq!(subjects.len(), 1);
    assert_eq!(subjects[0].depth, 10);
    let json = wire::go_json::to_string(&subjects[0]);
    let expected = r#"{"topic":"orders.us","depth":10,"in_flight_count":0,"deferred_count":0,"client_count":0,"paused":false,"nodes":["n1:1"],"channels":["archive","billing"]}"#;
    assert_eq!(json, expected);
    let empty = order(r#"{"action":"empty","of":"topics","search":"us"}"#);
    assert_eq!(empty.subjects(&stats(), &BTreeSet::new())[0].depth, 3);
}

#[test]
fn the_token_changes_with_what_is_touched_and_not_with_the_counts() {
    let token = |json: &str, stats: &[NodeStats]| {
        let order = order(json);
        order.token(&order.subjects(stats, &BTreeSet::new()))
    };
    let delete = r#"{"action":"delete","of":"topics","search":"orders"}"#;
    let before = token(delete, &stats());
    let mut more = stats();
    more[0].topics[1].depth += 5;
    assert_eq!(token(delete, &more), before);
    more[0].topics[1].channels.push(channel("new", 0, 0, false));
    assert_ne!(token(delete, &more), before);
    // A live channel has messages at one moment and none at the next. An order to empty such channels never came to its end.
    let empty = r#"{"action":"empty","of":"channels","search":"orders"}"#;
    let mut consumed = stats();
    consumed[0].topics[1].channels[1].depth = 0;
    assert_eq!(token(empty, &consumed), token(empty, &stats()));
    let mut elsewhere = stats();
    elsewhere[1].topics.push(topic("orders.us", 0, Vec::new()));
    assert_ne!(token(delete, &elsewhere), before);
    let pause = r#"{"action":"pause","of":"topics","search":"orders"}"#;
    assert_ne!(token(pause, &stats()), before);
    let longer = r#"{"action":"pause","of":"topics","search":"orders","for":"10m"}"#;
    assert_ne!(token(longer, &stats()), token(pause, &stats()));
}

#[test]
fn a_misspelled_or_missing_filter_is_no_order_for_everything() {
    let misspelled = r#"{"action":"delete","of":"topics","serach":"orders"}"#;
    assert!(serde_json::from_str::<Order>(misspelled).is_err());
    assert!(!order(r#"{"action":"delete","of":"topics"}"#).has_filter());
    assert!(!order(r#"{"action":"delete","of":"topics","search":" "}"#).has_filter());
    assert!(order(r#"{"action":"delete","of":"topics","show":"all"}"#).has_filter());
}
