//! The check for Datadog's agent reads by key: a missing key would end the check.

use serde_json::{Value, json};

use super::{PYTHON, Poller, Scene};

#[test]
fn datadog_reads_gauges_and_counts_by_key() {
    let scene = Scene::start(&["--e2e-processing-latency-percentile=1.0,0.99,0.5"]);
    let mut agent = Poller::connect(&scene.broker, &PYTHON);
    let stats: Value = agent.decode("/stats?format=json");
    let number = |of: &Value, key: &str| match of[key].as_u64() {
        Some(number) => number,
        None => panic!("{key} is no count: {of}"),
    };
    let numbers = |of: &Value, keys: &[&str]| -> Vec<u64> {
        keys.iter().map(|key| number(of, key)).collect()
    };
    assert_eq!(stats["health"], "OK");
    let topics = stats["topics"].as_array().expect("a list");
    assert_eq!(topics.len(), 3);
    let orders = &topics[1];
    let keys = ["depth", "backend_depth", "message_count"];
    assert_eq!(numbers(orders, &keys), [0, 0, 10]);
    let billing = &orders["channels"].as_array().expect("a list")[1];
    let keys = [
        "depth",
        "backend_depth",
        "in_flight_count",
        "deferred_count",
        "message_count",
        "requeue_count",
        "timeout_count",
    ];
    assert_eq!(numbers(billing, &keys), [4, 0, 3, 2, 10, 1, 0]);
    let clients = billing["clients"].as_array().expect("a list");
    let consumer = &clients[0];
    let keys = [
        "ready_count",
        "in_flight_count",
        "finish_count",
        "message_count",
        "requeue_count",
    ];
    assert_eq!(numbers(consumer, &keys), [3, 3, 1, 5, 1]);
    let tags = [
        "client_id",
        "version",
        "tls",
        "user_agent",
        "deflate",
        "snappy",
    ];
    assert_eq!(
        tags.map(|tag| consumer[tag].clone()),
        [
            json!("worker-7"),
            json!("V2"),
            json!(false),
            json!("billing/2.1"),
            json!(false),
            json!(false)
        ]
    );
    // The name of a gauge is made of the quantile's digits. The check compares the first quantile
    // with 1, and splits the others at their dot.
    let percentiles = &billing["e2e_processing_latency"]["percentiles"];
    let quantiles: Vec<String> = percentiles
        .as_array()
        .expect("the broker measures")
        .iter()
        .map(|percentile| percentile["quantile"].to_string())
        .collect();
    assert_eq!(quantiles, ["1", "0.99", "0.5"]);
    assert!(percentiles[0]["value"].is_number());
}
