//! Nodes that are back or gone, and consumers that have left.

use super::*;

fn consumer(client: &str, port: i64) -> Value {
    json!({"client_id": client, "hostname": "host-a", "remote_address": format!("10.0.0.1:{port}"), "connect_ts": port, "ready_count": 5})
}

/// Right after a node was back, the list said for a minute: "connect the consumers to every node".
#[test]
fn a_node_that_is_back_is_no_concern_until_the_consumers_have_had_time_to_find_it() {
    let mut checker = Checker::default();
    let mut concerns = Vec::new();
    for step in 0..40 {
        let start = 1_000 + 20 * STEP;
        let works = json!({"count": step * 100, "clients": [consumer("archive", 1)]});
        let mut nodes = vec![("n:1", works)];
        // The node was started at step 20. Consumers never find it.
        let age = (step - 20) * STEP * 1000;
        let back = json!({"depth": 7, "count": 7, "age": age, "start": start});
        nodes.extend((step >= 20).then_some(("n:2", back)));
        let checkup = checker.check(round(step, &nodes));
        if let [first, ..] = sentences(&checkup)[..] {
            concerns.push((step, first.to_owned()));
        }
    }
    let (step, sentence) = &concerns[0];
    assert_eq!((*step - 20) * STEP, 90, "{sentence}");
    test_support::assert_like(sentence, "…No consumer at n:2, where 7 messages wait…");
}

#[test]
fn a_node_that_is_gone_tells_what_it_had() {
    let gone_with = |topics: Value| {
        let mut checker = Checker::default();
        let mut first = idle_round(0, &["n:1", "n:2"]);
        let stats = serde_json::from_value(json!({"topics": topics})).unwrap();
        first.add_node("n:2", &stats, None);
        checker.check(first);
        let sentence = gone(checker.check(idle_round(STEP * 1000, &["n:1"]))).remove(0);
        let (_, had) = sentence.split_once("until it is back").expect("it is gone");
        had.to_owned()
    };
    let channels = |depth: i64| json!([{"channel_name": "a", "depth": depth, "in_flight_count": 1}, {"channel_name": "b", "deferred_count": 2}]);
    let topics = json!([
        {"topic_name": "idle"},
        {"topic_name": "mail", "depth": 6},
        {"topic_name": "orders", "depth": 1, "channels": channels(1199)},
        {"topic_name": "pay", "channels": channels(7)},
        {"topic_name": "audit", "channels": channels(6)},
    ]);
    assert_eq!(
        gone_with(topics),
        ": about 1.2k in 4 topics (orders, pay, audit and 1 more) in its last answer"
    );
    assert_eq!(
        gone_with(json!([{"topic_name": "mail", "depth": 6}])),
        ": about 6 in 1 topic (mail) in its last answer"
    );
    assert_eq!(
        gone_with(json!([{"topic_name": "idle"}])),
        ". It had none in its last answer"
    );
}

#[test]
fn a_channel_without_consumers_tells_who_the_last_ones_were() {
    let mut checker = Checker::default();
    let mut with = |step: i64, clients: Value| {
        let figures = json!({"depth": 9, "count": 9, "clients": clients});
        let checkup = checker.check(round(step, &[("n:1", figures)]));
        sentences(&checkup)
            .first()
            .map_or_else(String::new, |it| (*it).to_owned())
    };
    let none = || json!([]);
    with(0, none());
    let begin = "No consumers: 9 messages wait and 0/s arrive; start a consumer";
    assert_eq!(with(1, none()), begin, "nobody knows");
    with(2, json!([consumer("archive", 1), consumer("mail", 2)]));
    with(3, json!([consumer("archive", 1)]));
    let last = "archive (host-a, 10.0.0.1:1)";
    for (step, left) in [(4, "just now"), (5, "5.0s ago"), (20, "80s ago")] {
        let expected = format!("{begin}. The last one left {left}: {last}");
        assert_eq!(with(step, none()), expected);
    }
    let both = json!([consumer("archive", 1), consumer("mail", 2)]);
    assert!(!with(21, both).contains("left"));
    assert_eq!(
        with(22, none()),
        format!("{begin}. The last ones left just now: {last} and 1 more")
    );
}

/// The metrics of a node made numbers without an end, which JSON does not have.
#[test]
fn metrics_with_huge_numbers_leave_the_json_valid() {
    let metrics = |cpu: f64, free: f64| {
        let text = format!(
            "nsqd_shard_cpu_seconds_total{{shard=\"1\"}} {cpu:e}\nnsqd_shard_connections{{shard=\"1\"}} 1.7e308\n\
             nsqd_data_path_size_bytes 1.7e308\nnsqd_data_path_available_bytes {free:e}\n"
        );
        NodeMetrics::of_metrics(&text)
    };
    let mut checker = Checker::default();
    let mut last = Checkup::default();
    for step in 0..20 {
        // The first two rounds are a millisecond apart.
        let millis = if step == 0 {
            0
        } else {
            1 + (step - 1) * STEP * 1000
        };
        let mut round = round_at(millis, &[]);
        let free = if step % 2 == 0 { 1.7e308 } else { 1e-300 };
        let cpu = if step % 2 == 0 { 0.0 } else { 1.7e308 };
        round.add_node("n:1", &stats(&json!({"count": step})), metrics(cpu, free));
        last = checker.check(round);
        let publishing = last.publishing("t");
        let all = wire::go_json::to_string(&(last.nodes.get("n:1"), publishing));
        for text in [
            last.node("n:1").unwrap(),
            last.attention("", Duration::ZERO),
            all,
        ] {
            let read: Result<Value, _> = serde_json::from_str(&text);
            assert!(read.is_ok(), "step {step}: {text}");
        }
    }
    assert!(last.nodes["n:1"].disk.is_some());
}
