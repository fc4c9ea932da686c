use wire::go_json::to_string;

use super::*;

fn node(address: &str, hostname: &str, topics: &str) -> NodeStats {
    let body = format!("{{\"topics\":[{topics}]}}");
    let stats: nsq_http::Stats = nsq_http::read(body.as_bytes()).expect("the text is JSON");
    NodeStats {
        node: NodeIdentity {
            address: address.to_owned(),
            hostname: hostname.to_owned(),
            region: "us".to_owned(),
            zone: "a".to_owned(),
        },
        topics: stats.topics,
        ..NodeStats::default()
    }
}

/// The original has the totals in the place of the first node's channels.
#[test]
fn a_total_keeps_the_parts_of_each_node() {
    let channel = |depth: u32| {
        format!(
            r#"{{"channel_name":"c","depth":{depth},"backend_depth":1,"in_flight_count":2,"deferred_count":3,
                "requeue_count":4,"timeout_count":5,"message_count":6,"client_count":7,
                "zone_local_msg_count":8,"region_local_msg_count":9,"global_msg_count":10}}"#
        )
    };
    let topic = |depth: u32, paused: bool| {
        let channel = channel(depth);
        format!(
            r#"{{"topic_name":"t","depth":{depth},"backend_depth":1,"message_count":6,"paused":{paused},
                "oldest_unfinished_ms":{depth},"channels":[{channel}]}}"#
        )
    };
    let stats = [
        node("b:1", "h2", &topic(100, false)),
        node("a:1", "h2", &topic(20, true)),
        node(
            "z:1",
            "h1",
            &format!(
                "{},{{\"topic_name\":\"other\",\"depth\":9}}",
                topic(3, false)
            ),
        ),
        node("y:1", "h0", r#"{"topic_name":"other","depth":9}"#),
    ];
    let total = topic_total(&stats, "t");
    assert_eq!(
        (total.depth, total.memory_depth, total.backend_depth),
        (123, 120, 3)
    );
    assert_eq!((total.message_count, total.operated.is_paused), (18, true));
    assert_eq!(total.oldest_unfinished_ms, Some(100));
    let nodes = total.nodes.as_ref().unwrap();
    let shown: Vec<_> = nodes
        .iter()
        .map(|part| (part.node.as_str(), part.depth))
        .collect();
    assert_eq!(
        shown,
        [("z:1", 3), ("a:1", 20), ("b:1", 100)],
        "by hostname, then by address"
    );
    for part in nodes {
        assert_eq!(part.channels[0].node, part.node);
        assert_eq!(part.channels[0].depth, part.depth);
        assert_eq!(part.nodes, None);
    }
    let channel = &total.channels[0];
    assert_eq!((channel.node.as_str(), channel.depth), ("*", 123));
    let counts = (
        channel.in_flight_count,
        channel.deferred_count,
        channel.requeue_count,
        channel.timeout_count,
        channel.client_count,
        channel.deliveries.all,
    );
    assert_eq!(counts, (6, 9, 12, 15, 21, 81));
    assert_eq!(channel.nodes.as_ref().map(Vec::len), Some(3));
    assert_eq!(channel.clients, None, "clients were not asked for");
    assert_eq!(topic_total(&stats, "nope").nodes, Some(Vec::new()));
}

#[test]
fn sums_are_exact_and_stay_in_range() {
    let topic = |count: i64| format!(r#"{{"topic_name":"t","message_count":{count}}}"#);
    let total = |a, b| {
        let stats = [node("a:1", "h", &topic(a)), node("b:1", "h", &topic(b))];
        topic_total(&stats, "t").message_count
    };
    assert_eq!(total(9_007_199_254_740_993, 2), 9_007_199_254_740_995);
    assert_eq!(total(i64::MAX, 1), i64::MAX);
}

#[test]
fn latencies_are_weighted_and_the_minimum_ignores_nodes_without_messages() {
    let channel = |count: u32, p100: u32, p99: u32| {
        format!(
            r#"{{"topic_name":"t","channels":[{{"channel_name":"c","e2e_processing_latency":{{"count":{count},
                "percentiles":[{{"quantile":1,"value":{p100}}},{{"quantile":0.99,"value":{p99}}}]}}}}]}}"#
        )
    };
    let stats = [
        node("a:1", "h", &channel(0, 0, 0)),
        node("b:1", "h", &channel(13, 672_060_610, 500)),
        node("c:1", "h", &channel(3, 615_378_823, 900)),
        node(
            "d:1",
            "h",
            r#"{"topic_name":"t","channels":[{"channel_name":"c"}]}"#,
        ),
    ];
    let total = channel_total(&stats, "t", "c", 0).unwrap();
    let expected = concat!(
        r#"{"count":16,"percentiles":["#,
        r#"{"average":661432774.9375,"count":16,"max":672060610,"min":615378823,"quantile":1},"#,
        r#"{"average":575,"count":16,"max":900,"min":500,"quantile":0.99}],"#,
        r#""topic":"t","channel":"c","host":"*"}"#,
    );
    assert_eq!(to_string(&total.latency), expected);
    let part = &total.nodes.as_ref().unwrap()[1].latency;
    let expected = concat!(
        r#"{"count":13,"percentiles":["#,
        r#"{"average":672060610,"count":13,"max":672060610,"min":672060610,"quantile":1,"value":672060610},"#,
        r#"{"average":500,"count":13,"max":500,"min":500,"quantile":0.99,"value":500}],"#,
        r#""topic":"","channel":"","host":""}"#,
    );
    assert_eq!(to_string(&part), expected);
    let none = channel_total(&stats[..1], "t", "c", 0).unwrap();
    let percentiles = none.latency.percentiles.unwrap();
    assert_eq!((percentiles[0].average, percentiles[0].min), (0.0, 0.0));
    let without = channel_total(&stats[3..], "t", "c", 0).unwrap();
    assert!(to_string(&without.latency).contains(r#""percentiles":null"#));
}

#[test]
fn clients_come_in_the_order_of_their_distance() {
    let client = |address: &str, region: &str, zone: &str| {
        format!(
            r#"{{"remote_address":"{address}","topology_region":"{region}","topology_zone":"{zone}","connect_ts":90}}"#
        )
    };
    let clients = [
        client("far", "eu", "a"),
        client("near", "us", "b"),
        client("2", "us", "a"),
        client("1", "us", "a"),
    ];
    let topic = format!(
        r#"{{"topic_name":"t","channels":[{{"channel_name":"c","clients":[{}]}}]}}"#,
        clients.join(",")
    );
    let stats = [node("b:1", "h", &topic), node("a:1", "h", &topic)];
    let total = channel_total(&stats, "t", "c", 100).unwrap();
    let clients = total.clients.as_ref().unwrap();
    let order: Vec<String> = clients
        .iter()
        .map(|client| format!("{}/{}", client.node.address, client.given.remote_address))
        .collect();
    assert_eq!(
        order,
        [
            "a:1/1", "a:1/2", "a:1/near", "a:1/far", "b:1/1", "b:1/2", "b:1/near", "b:1/far"
        ]
    );
    assert_eq!(total.client_count, 8, "nsqds before 1.0 give no count");
    let json = to_string(&clients[0]);
    test_support::assert_like(&json, r#"…"connect_ts":90,"connected":10000000000,…"#);
    assert!(json.contains(
        r#""node_topology_region":"us","node_topology_zone":"a","topology_region":"us","topology_zone":"a","tls":false"#
    ));
    assert_eq!(channel_total(&stats, "t", "nope", 100), None);
}

#[test]
fn counts_of_deliveries_are_left_out_when_zero() {
    let body = |counts: &str| {
        let topic = format!(r#"{{"topic_name":"t","channels":[{{"channel_name":"c"{counts}}}]}}"#);
        let total = channel_total(&[node("a:1", "h", &topic)], "t", "c", 0).unwrap();
        to_string(&total)
    };
    assert!(!body("").contains("_msg_count"));
    let some = body(r#","region_local_msg_count":2"#);
    assert!(some.contains(
        r#""message_count":0,"delivery_msg_count":2,"region_local_msg_count":2,"client_count":0"#
    ));
}

/// Answers with bytes removed, doubled or replaced are either refused or lead to figures. A fixed
/// sequence decides about the bytes.
#[test]
fn spoiled_answers_do_no_harm() {
    let whole = br#"{"topics":[{"topic_name":"t","depth":9223372036854775807,"backend_depth":-9223372036854775808,
        "message_count":3,"paused":true,"channels":[{"channel_name":"c","depth":-1,"backend_depth":9223372036854775807,
        "client_count":-5,"clients":[{"connect_ts":-9223372036854775808,"hostname":"h"}],
        "e2e_processing_latency":{"count":-3,"percentiles":[{"quantile":1e400,"value":1e308},{"quantile":0.5}]}}]}]}"#;
    let mut state = 1_u64;
    let mut next = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(state >> 33).unwrap_or(0) % below
    };
    let mut understood = 0;
    for _ in 0..20_000 {
        let mut body = whole.to_vec();
        for _ in 0..=next(3) {
            let at = next(body.len());
            match next(3) {
                0 => _ = body.remove(at),
                1 => body.insert(at, body[at]),
                _ => body[at] = b"0123456789,:{}[]\"-tnx"[next(21)],
            }
        }
        let Ok(stats) = nsq_http::read::<nsq_http::Stats>(&body) else {
            continue;
        };
        understood += 1;
        let node = NodeIdentity::default();
        let stats = NodeStats {
            node,
            topics: stats.topics,
            ..NodeStats::default()
        };
        let both = [stats.clone(), stats];
        let topic = to_string(&topic_total(&both, "t"));
        serde_json::from_str::<serde_json::Value>(&topic).expect("it is JSON");
        if let Some(total) = channel_total(&both, "t", "c", i64::MAX) {
            let channel = to_string(&total);
            serde_json::from_str::<serde_json::Value>(&channel).expect("it is JSON");
        }
        topics_of_node(&both[0], 0);
    }
    assert!(understood > 100, "{understood}");
}

/// The figures of `--dedup` were in nsqd's answer only.
#[test]
fn the_figures_about_duplicates_are_passed_on_and_summed() {
    let by_number = r#"{"topic_name":"t","dedup_duplicate_count":9007199254740993,"dedup_unchecked_count":2,
        "dedup_publisher_count":3,"dedup_publisher_count_max":2978,"dedup_publisher_evicted_count":1}"#;
    let by_content = r#"{"topic_name":"t","dedup_duplicate_count":7,"dedup_unverified_count":5,"dedup_memory_refused_count":4,
        "dedup_reach_ms":61000}"#;
    let other = r#"{"topic_name":"t","dedup_duplicate_count":1,"dedup_reach_ms":9000}"#;
    let stats = [
        node("a:1", "h1", by_number),
        node("b:1", "h2", by_content),
        node("c:1", "h3", other),
        node("d:1", "h4", r#"{"topic_name":"t"}"#),
    ];
    let total = to_string(&topic_total(&stats, "t"));
    let total: serde_json::Value = serde_json::from_str(&total).unwrap();
    let sums = [
        ("dedup_duplicate_count", 9_007_199_254_741_001_i64),
        ("dedup_unchecked_count", 2),
        ("dedup_publisher_evicted_count", 1),
        ("dedup_unverified_count", 5),
        ("dedup_memory_refused_count", 4),
        ("dedup_reach_ms", 9000),
    ];
    for (field, expected) in sums {
        assert_eq!(total[field], expected, "{field}");
    }
    assert!(total.get("dedup_keyless_count").is_none());
    let parts = total["nodes"].as_array().unwrap();
    let has_figures = |part: &serde_json::Value| {
        let fields = part.as_object().unwrap().keys();
        fields.filter(|it| it.contains("dup")).count()
    };
    let counts: Vec<usize> = parts.iter().map(has_figures).collect();
    assert_eq!(counts, [5, 4, 2, 0]);
}
