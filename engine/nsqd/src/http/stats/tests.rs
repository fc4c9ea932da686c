//! The JSON of `/stats`. `tests/differential/http_stats.case` has the answers of a real broker, also as text.

use super::*;
use crate::config::Config;
use crate::process::Ports;
use engine_rules::stats::{
    ChannelCounters, ChannelStats, ClientStats, ConsumerCounters, DeadLetterStats, LatencyStats,
    NumberStats, Percentile, PubCount, TopicStats,
};
use std::sync::Arc;

/// The state of nsqd from which the expected texts were captured.
fn captured() -> StatsSnapshot {
    let latency = |count: u64, value: f64| LatencyStats {
        count,
        percentiles: [0.99, 0.5]
            .map(|quantile| Percentile { quantile, value })
            .to_vec(),
    };
    let client = |id: &str, host: &str, port: u16| ClientStats {
        client_id: id.to_string(),
        hostname: host.to_string(),
        remote_address: format!("127.0.0.1:{port}"),
        connect_ts: 1_795_254_098,
        user_agent: "client/1.0".to_string(),
        ..Default::default()
    };
    let audit = ChannelStats {
        channel_name: "audit#ephemeral".to_string(),
        depth: 8,
        deferred_count: 1,
        counters: ChannelCounters {
            message_count: 9,
            ..Default::default()
        },
        clients: Some(Vec::new()),
        paused: true,
        e2e_processing_latency: latency(0, 0.0),
        ..Default::default()
    };
    let consumer = ClientStats {
        state: 3,
        ready_count: 5,
        in_flight_count: 4,
        counters: ConsumerCounters {
            message_count: 8,
            finish_count: 3,
            requeue_count: 1,
        },
        ..client("cons-1", "host-a", 42730)
    };
    let billing = ChannelStats {
        channel_name: "billing".to_string(),
        in_flight_count: 4,
        deferred_count: 2,
        counters: ChannelCounters {
            message_count: 9,
            global_msg_count: 8,
            requeue_count: 1,
            ..Default::default()
        },
        client_count: 1,
        clients: Some(vec![consumer]),
        e2e_processing_latency: latency(3, 102_215_749.0),
        ..Default::default()
    };
    let orders = TopicStats {
        topic_name: "orders".to_string(),
        channels: vec![billing, audit],
        message_count: 9,
        message_bytes: 61,
        e2e_processing_latency: latency(3, 102_215_749.0),
        shard: 3,
        ..Default::default()
    };
    let live = TopicStats {
        topic_name: "live#ephemeral".to_string(),
        ..Default::default()
    };
    let pub_counts = vec![PubCount {
        topic: "orders".to_string(),
        count: 8,
    }];
    let producer = ClientStats {
        pub_counts,
        ..client("prod-1", "host-p", 42742)
    };
    StatsSnapshot {
        topics: vec![orders, live],
        producers: vec![producer],
        memory: engine_rules::stats::MemoryStats {
            heap_objects: 4046,
            heap_idle_bytes: 1_835_008,
            heap_in_use_bytes: 1_769_472,
            heap_released_bytes: 1_835_008,
            next_gc_bytes: 4_194_304,
            ..Default::default()
        },
    }
}

/// Returns the answer as JSON.
fn shown(mut snapshot: StatsSnapshot) -> String {
    let ports = Ports {
        tcp: 4150,
        http: 4151,
        https: 0,
    };
    let config = Config::from_args([]).expect("there are no flags");
    let start_time = UNIX_EPOCH + Duration::from_secs(1_795_254_098);
    let query = Query::parse("format=json").expect("it is well-formed");
    let wanted = Wanted::from_query(&query);
    snapshot.sort();
    show_one_pub_count(&mut snapshot, &wanted.filter);
    View {
        info: &Info::new(Arc::new(config), ports, start_time),
        health: "OK".to_owned(),
        is_draining: false,
        snapshot,
        wanted,
        is_topic_unknown: false,
    }
    .json()
}

#[test]
fn stats_as_json_are_those_of_the_specification() {
    let expected = r#"{"version":"1.3.0","health":"OK","start_time":1795254098,"topics":[{"topic_name":"live#ephemeral","channels":[],"depth":0,"backend_depth":0,"message_count":0,"message_bytes":0,"paused":false,"e2e_processing_latency":{"count":0,"percentiles":null},"oldest_unfinished_ms":0,"shard":0},{"topic_name":"orders","channels":[{"channel_name":"audit#ephemeral","depth":8,"backend_depth":0,"in_flight_count":0,"deferred_count":1,"message_count":9,"requeue_count":0,"timeout_count":0,"client_count":0,"clients":[],"paused":true,"e2e_processing_latency":{"count":0,"percentiles":[{"quantile":0.99,"value":0},{"quantile":0.5,"value":0}]},"oldest_unfinished_ms":0},{"channel_name":"billing","depth":0,"backend_depth":0,"in_flight_count":4,"deferred_count":2,"message_count":9,"global_msg_count":8,"requeue_count":1,"timeout_count":0,"client_count":1,"clients":[{"client_id":"cons-1","hostname":"host-a","version":"V2","remote_address":"127.0.0.1:42730","state":3,"ready_count":5,"in_flight_count":4,"message_count":8,"finish_count":3,"requeue_count":1,"connect_ts":1795254098,"sample_rate":0,"deflate":false,"snappy":false,"user_agent":"client/1.0","topology_zone":"","topology_region":"","tls":false,"tls_cipher_suite":"","tls_version":"","tls_negotiated_protocol":"","tls_negotiated_protocol_is_mutual":false}],"paused":false,"e2e_processing_latency":{"count":3,"percentiles":[{"quantile":0.99,"value":102215749},{"quantile":0.5,"value":102215749}]},"oldest_unfinished_ms":0}],"depth":0,"backend_depth":0,"message_count":9,"message_bytes":61,"paused":false,"e2e_processing_latency":{"count":3,"percentiles":[{"quantile":0.99,"value":102215749},{"quantile":0.5,"value":102215749}]},"oldest_unfinished_ms":0,"shard":3}],"memory":{"heap_objects":4046,"heap_idle_bytes":1835008,"heap_in_use_bytes":1769472,"heap_released_bytes":1835008,"gc_pause_usec_100":0,"gc_pause_usec_99":0,"gc_pause_usec_95":0,"next_gc_bytes":4194304,"gc_total_runs":0},"producers":[{"client_id":"prod-1","hostname":"host-p","version":"V2","remote_address":"127.0.0.1:42742","state":0,"ready_count":0,"in_flight_count":0,"message_count":0,"finish_count":0,"requeue_count":0,"connect_ts":1795254098,"sample_rate":0,"deflate":false,"snappy":false,"user_agent":"client/1.0","topology_zone":"","topology_region":"","pub_counts":[{"topic":"orders","count":8}],"tls":false,"tls_cipher_suite":"","tls_version":"","tls_negotiated_protocol":"","tls_negotiated_protocol_is_mutual":false}]}"#;
    assert_eq!(shown(captured()), expected);
}

#[test]
fn stats_have_the_keys_of_dead_letters_and_of_dedup_only_with_a_rule() {
    let mut snapshot = captured();
    let orders = &mut snapshot.topics[0];
    orders.numbers = Some(NumberStats {
        duplicate_count: 7,
        unchecked_count: 2,
        publisher_count: 3,
        publisher_count_max: 3120,
        evicted_count: 1,
    });
    let billing = &mut orders.channels[0];
    billing.oldest_unfinished_ms = 61_000;
    billing.oldest_failed_attempts = 15;
    billing.dead_letters = Some(DeadLetterStats {
        topic: "orders.dead".to_string(),
        count: 7,
        waiting_count: 2,
    });
    let json = shown(snapshot);
    for added in [
        r#","oldest_unfinished_ms":61000,"oldest_failed_attempts":15,"dead_letter_topic":"orders.dead","dead_letter_count":7,"dead_letter_waiting_count":2}"#,
        r#","dedup_duplicate_count":7,"dedup_unchecked_count":2,"dedup_publisher_count":3,"dedup_publisher_count_max":3120,"dedup_publisher_evicted_count":1}"#,
    ] {
        assert!(json.contains(added), "{json}");
    }
    assert_eq!(json.matches("dead_letter_topic").count(), 1);
    assert_eq!(json.matches("dedup_").count(), 5);
}
