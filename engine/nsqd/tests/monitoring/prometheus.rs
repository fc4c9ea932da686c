//! Prometheus: `/metrics` of nsqd and nsqlookupd, read by Prometheus's own parser for Python.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::Value;
use test_support::prometheus::{self, Metrics, scrape};

use super::Scene;
use crate::ringq_lookupd::Lookupd;
use crate::support::{
    Broker, Response, TIMEOUT, has_python, http_with_headers, interop_dir, wait_until,
};

fn ask(address: SocketAddr, target: &str, headers: &[&str]) -> Response {
    http_with_headers(address, "GET", target, headers, b"").expect_status(200)
}

/// Returns the Python that has the parser. Brokers start behind this: an installation may take longer than they keep a
/// client that says nothing.
fn python() -> Option<PathBuf> {
    has_python().then(|| prometheus::install(&interop_dir()))
}

/// Checks every figure of a topic or channel that `/stats` has too.
fn check_equal(metrics: &Metrics, labels: &[(&str, &str)], stats: &Value, pairs: &[(&str, &str)]) {
    for (metric, key) in pairs {
        let expected = match &stats[key] {
            Value::Bool(value) => f64::from(u8::from(*value)),
            value => value.as_f64().unwrap_or_else(|| panic!("{key}: {stats}")),
        };
        assert_eq!(
            metrics.value(metric, labels),
            expected,
            "{metric} {labels:?}"
        );
    }
}

const TOPIC: &[(&str, &str)] = &[
    ("nsqd_topic_messages_total", "message_count"),
    ("nsqd_topic_message_bytes_total", "message_bytes"),
    ("nsqd_topic_depth", "depth"),
    ("nsqd_topic_backend_depth", "backend_depth"),
    ("nsqd_topic_paused", "paused"),
    ("nsqd_topic_shard", "shard"),
];

const CHANNEL: &[(&str, &str)] = &[
    ("nsqd_channel_messages_total", "message_count"),
    ("nsqd_channel_depth", "depth"),
    ("nsqd_channel_backend_depth", "backend_depth"),
    ("nsqd_channel_in_flight_messages", "in_flight_count"),
    ("nsqd_channel_deferred_messages", "deferred_count"),
    ("nsqd_channel_requeues_total", "requeue_count"),
    ("nsqd_channel_timeouts_total", "timeout_count"),
    ("nsqd_channel_clients", "client_count"),
    ("nsqd_channel_paused", "paused"),
    (
        "nsqd_channel_e2e_latency_samples",
        "e2e_processing_latency_count",
    ),
];

#[test]
fn prometheus_reads_what_stats_shows() {
    let Some(python) = python() else {
        return;
    };
    let scene = Scene::start(&[
        "--e2e-processing-latency-percentile=0.99,0.5,0.99",
        "--mem-queue-size=3",
        "--dead-letter=orders/billing,max-attempts=5,topic=dead",
    ]);
    let metrics = &scrape(&python, scene.broker.http_addr(), "/metrics");
    let stats = scene.broker.stats();
    for topic in stats["topics"].as_array().expect("topics") {
        let name = topic["topic_name"].as_str().expect("a name");
        check_equal(metrics, &[("topic", name)], topic, TOPIC);
        let channels = topic["channels"].as_array().expect("channels");
        let count = metrics.value("nsqd_topic_channels", &[("topic", name)]);
        assert_eq!(count, channels.len() as f64);
        let age = |stats: &Value| stats["oldest_unfinished_ms"].as_f64().expect("an age") / 1e3;
        let shown = metrics.value("nsqd_topic_oldest_unfinished_seconds", &[("topic", name)]);
        assert!((shown > 0.0) == (age(topic) > 0.0) && shown <= age(topic));
        assert!(metrics.value("nsqd_topic_disk_bytes", &[("topic", name)]) > 0.0);
        for channel in channels {
            let mut channel = channel.clone();
            let latency = channel["e2e_processing_latency"].clone();
            channel["e2e_processing_latency_count"] = latency["count"].clone();
            let of = channel["channel_name"].as_str().expect("a name").to_owned();
            let labels = [("topic", name), ("channel", &*of)];
            check_equal(metrics, &labels, &channel, CHANNEL);
            let shown = metrics.value("nsqd_channel_oldest_unfinished_seconds", &labels);
            assert!(shown > 0.0 && shown <= age(&channel), "{shown} {channel}");
            check_histogram(metrics, &labels, latency["count"].as_f64());
            // A quantile that the flag names twice is there once.
            for (quantile, index) in [("0.99", 0), ("0.5", 1)] {
                let labels = [labels[0], labels[1], ("quantile", quantile)];
                let shown = metrics.value("nsqd_channel_e2e_latency_seconds", &labels);
                let expected = latency["percentiles"][index]["value"].as_f64();
                let expected = expected.expect("a value") / 1e9;
                match latency["count"].as_u64() {
                    Some(0) => assert!(shown.is_nan()),
                    _ => assert!((shown - expected).abs() < 1e-12 && shown > 0.0),
                }
            }
        }
    }
    let billing = [("topic", "orders"), ("channel", "billing")];
    assert_eq!(
        metrics.value("nsqd_channel_dead_letters_total", &billing),
        0.0
    );
    assert_eq!(
        metrics.find("nsqd_channel_dead_letters_total", &[]).len(),
        1
    );
    assert!(metrics.find("nsqd_client_ready_count", &[]).is_empty());
    check_node(metrics, &scene);
    let without = scrape(
        &python,
        scene.broker.http_addr(),
        "/metrics?include_histograms=false",
    );
    let histograms = without.0.iter().filter(|it| it.kind == "histogram");
    assert_eq!(histograms.count(), 0);
    assert!(!without.find("nsqd_channel_depth", &[]).is_empty());
}

/// A channel has a histogram once a message was finished. Prometheus's parser checks that the counts ascend.
fn check_histogram(metrics: &Metrics, labels: &[(&str, &str)], expected: Option<f64>) {
    let name = |suffix: &str| format!("nsqd_channel_publish_to_finish_seconds_{suffix}");
    let buckets = metrics.find(&name("bucket"), labels);
    if expected == Some(0.0) {
        assert!(buckets.is_empty(), "{labels:?}");
        return;
    }
    assert_eq!(buckets.len(), 24);
    assert_eq!(Some(metrics.value(&name("count"), labels)), expected);
    let all = [labels, &[("le", "+Inf")]].concat();
    assert_eq!(Some(metrics.value(&name("bucket"), &all)), expected);
    let sum = metrics.value(&name("sum"), labels);
    let shown = metrics.value(
        "nsqd_channel_e2e_latency_seconds",
        &[labels, &[("quantile", "0.99")]].concat(),
    );
    // One message was finished, and the summary has two significant digits.
    assert_eq!(expected, Some(1.0));
    assert!((sum - shown).abs() <= 0.01 * sum, "{sum} {shown}");
}

fn check_node(metrics: &Metrics, scene: &Scene) {
    let shards: Vec<_> = metrics.find("nsqd_shard_turns_total", &[]);
    assert_eq!(shards.len(), 2);
    let sum = |name: &str| -> f64 {
        let samples = metrics.find(name, &[]).into_iter();
        samples
            .map(|sample| sample.value.parse::<f64>().expect("a number"))
            .sum()
    };
    assert!(sum("nsqd_shard_turns_total") > 10.0);
    assert!(sum("nsqd_shard_cpu_seconds_total") > 0.0);
    assert_eq!(sum("nsqd_shard_connections"), 3.0);
    assert_eq!(sum("nsqd_shard_topics"), 3.0);
    assert_eq!(metrics.value("nsqd_healthy", &[]), 1.0);
    assert_eq!(metrics.value("nsqd_draining", &[]), 0.0);
    let version = [("version", "1.3.0")];
    assert_eq!(metrics.value("nsqd_build_info", &version), 1.0);
    let available = metrics.value("nsqd_data_path_available_bytes", &[]);
    assert!(available > 0.0 && available <= metrics.value("nsqd_data_path_size_bytes", &[]));
    let started = metrics.value("process_start_time_seconds", &[]);
    let shown = scene.broker.stats()["start_time"].as_f64().expect("a time");
    assert_eq!(started.floor(), shown);
    assert!(metrics.value("process_open_fds", &[]) > 5.0);
}

#[test]
fn filters_and_hostile_labels() {
    let Some(python) = python() else {
        return;
    };
    let broker = Broker::start(2, &[]);
    let hostile = "a\\\"b\n# TYPE x counter\u{7f}{}ä";
    for (topic, channel) in [("one", "c"), ("one", "d"), ("two", "c"), ("three", "e")] {
        let target = format!("/channel/create?topic={topic}&channel={channel}");
        broker.post(&format!("/topic/create?topic={topic}"), b"");
        broker.admin(&target);
    }
    let mut consumer = broker.client();
    let identity = serde_json::json!({"client_id": hostile, "hostname": hostile});
    consumer.identify(&identity.to_string());
    consumer.subscribe("one", "c");
    let is_there = || broker.stats()["topics"][0]["channels"][0]["client_count"] == 1;
    assert!(wait_until(TIMEOUT, is_there));
    let metrics = &scrape(
        &python,
        broker.http_addr(),
        "/metrics?channel=c&include_clients=true",
    );
    assert_eq!(metrics.find("nsqd_channel_depth", &[]).len(), 2);
    assert_eq!(metrics.find("nsqd_topic_depth", &[]).len(), 2);
    let client = metrics.find("nsqd_client_ready_count", &[]);
    assert_eq!(client.len(), 1);
    assert_eq!(client[0].labels["client_id"], hostile);
    assert_eq!(client[0].labels["hostname"], hostile);
    let address = consumer.local_addr().to_string();
    assert_eq!(client[0].labels["remote_address"], address);
    let address = broker.http_addr();
    let text = scrape(&python, address, "/metrics?topic=one");
    assert_eq!(text.find("nsqd_channel_depth", &[]).len(), 2);
    let text = scrape(&python, address, "/metrics?topic=nothing");
    assert!(text.find("nsqd_topic_depth", &[]).is_empty());
}

#[test]
fn prometheus_reads_nsqlookupd() {
    let Some(python) = python() else {
        return;
    };
    let lookupd = Lookupd::local(&[]);
    let broker = Broker::start(1, &[&lookupd.flag(), "--broadcast-address=node \"1\""]);
    broker.create("orders", "c");
    let is_there = || {
        let answer = ask(lookupd.server.http_address(), "/metrics", &[]).text();
        answer.contains("nsqlookupd_channels 1\n")
    };
    assert!(wait_until(TIMEOUT, is_there));
    let metrics = &scrape(&python, lookupd.server.http_address(), "/metrics");
    let node = format!("node \"1\":{}", broker.http_addr().port());
    let check = |name: &str, labels: &[(&str, &str)], expected: f64| {
        assert_eq!(metrics.value(name, labels), expected, "{name}");
    };
    check("nsqlookupd_topics", &[], 1.0);
    check("nsqlookupd_nodes", &[], 1.0);
    check("nsqlookupd_inactive_nodes", &[], 0.0);
    check("nsqlookupd_topic_producers", &[("topic", "orders")], 1.0);
    check("nsqlookupd_topic_tombstones", &[("topic", "orders")], 0.0);
    check("nsqlookupd_topic_channels", &[("topic", "orders")], 1.0);
    check("nsqlookupd_node_topics", &[("node", &node)], 1.0);
    let silence = metrics.value("nsqlookupd_node_silence_seconds", &[("node", &node)]);
    assert!((0.0..600.0).contains(&silence), "{silence}");
    assert!(metrics.value("process_cpu_seconds_total", &[]) > 0.0);
    check("nsqlookupd_build_info", &[("version", "1.3.0")], 1.0);
}
