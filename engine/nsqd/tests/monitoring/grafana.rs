//! Grafana's boards for NSQ read series that Prometheus's statsd_exporter makes of statsd lines.
//! The mapping tells the lines apart by the number of words between dots, and by their type.

use std::collections::BTreeMap;

use super::Scene;
use crate::support::{Statsd, TIMEOUT, wait_until};

/// A series: its name and its labels without `instance`.
type Series = (String, Vec<String>);

/// Returns the instance, the series and the type of a statsd name.
fn map(name: &str, kind: &str) -> Option<(String, Series)> {
    let words: Vec<&str> = name.split('.').collect();
    let (instance, series, labels) = match words[..] {
        ["nsq", instance, "topic", topic, "channel", channel, key] => (
            instance,
            format!("nsq_topic_channel_{key}"),
            vec![topic, channel],
        ),
        ["nsq", instance, "topic", topic, key] => {
            (instance, format!("nsq_topic_{key}"), vec![topic])
        }
        ["nsq", instance, "mem", key] => (instance, format!("nsq_mem_{key}"), vec![]),
        _ => return None,
    };
    // Each rule is for one type. A line of another type gets no series.
    let counters = [
        "nsq_topic_channel_message_count",
        "nsq_topic_channel_requeue_count",
        "nsq_topic_channel_timeout_count",
        "nsq_topic_message_count",
        "nsq_topic_message_bytes",
        "nsq_mem_gc_runs",
    ];
    let expected = if counters.contains(&series.as_str()) {
        "c"
    } else {
        "g"
    };
    let labels = labels.into_iter().map(str::to_owned).collect();
    (kind == expected).then(|| (instance.to_owned(), (series, labels)))
}

/// Adds a push to the series: counters grow, gauges change.
fn apply(series: &mut BTreeMap<Series, i64>, instance: &str, push: &[String]) {
    for line in push.iter().flat_map(|datagram| datagram.lines()) {
        let parsed = line.split_once(':').and_then(|(name, rest)| {
            let (value, kind) = rest.split_once('|')?;
            Some((map(name, kind)?, value.parse::<i64>().ok()?, kind))
        });
        let Some(((found, key), value, kind)) = parsed else {
            panic!("the mapping has no rule for {line}");
        };
        assert_eq!(found, instance, "{line}");
        let old = series.entry(key).or_default();
        // A gauge with a sign would be a change of the old value.
        assert!(value >= 0 && !line.contains(":+"), "{line}");
        *old = if kind == "c" { *old + value } else { value };
    }
}

#[test]
fn grafana_has_every_series_of_its_boards() {
    let statsd = Statsd::listen();
    let scene = Scene::start(&[
        &format!("-{}", statsd.flag().trim_start_matches('-')),
        "-e2e-processing-latency-percentile=1.0,0.99,0.95",
        "-e2e-processing-latency-window-time=1m0s",
        "-broadcast-address=node-1.example.com",
        "-statsd-interval=2s",
    ]);
    let instance = format!("node-1_example_com_{}", scene.broker.http_addr().port());
    let expected = [
        ("nsq_topic_depth", "live#ephemeral", 2),
        ("nsq_topic_message_count", "live#ephemeral", 2),
        ("nsq_topic_depth", "orders", 0),
        ("nsq_topic_backend_depth", "orders", 0),
        ("nsq_topic_message_count", "orders", 10),
        ("nsq_topic_message_bytes", "orders", 80),
        ("nsq_topic_channel_depth", "orders/audit", 9),
        ("nsq_topic_channel_backend_depth", "orders/audit", 0),
        ("nsq_topic_channel_clients", "orders/audit", 0),
        ("nsq_topic_channel_depth", "orders/billing", 4),
        ("nsq_topic_channel_backend_depth", "orders/billing", 0),
        ("nsq_topic_channel_clients", "orders/billing", 1),
        ("nsq_topic_channel_in_flight_count", "orders/billing", 3),
        ("nsq_topic_channel_deferred_count", "orders/billing", 2),
        ("nsq_topic_channel_message_count", "orders/billing", 10),
        ("nsq_topic_channel_requeue_count", "orders/billing", 1),
        ("nsq_topic_channel_timeout_count", "orders/billing", 0),
        ("nsq_topic_channel_timeout_count", "returns/refunds", 1),
    ];
    let key = |name: &str, labels: &str| -> Series {
        let labels = labels.split('/').filter(|label| !label.is_empty());
        (name.to_owned(), labels.map(str::to_owned).collect())
    };
    let mut series = BTreeMap::new();
    // The first pushes may come from before the clients were done.
    let has_come = wait_until(TIMEOUT, || {
        apply(&mut series, &instance, &statsd.push());
        expected
            .iter()
            .all(|(name, labels, value)| series.get(&key(name, labels)) == Some(value))
    });
    assert!(has_come, "{series:#?}");

    for (name, labels) in [
        ("nsq_topic_e2e_processing_latency_99", "orders"),
        (
            "nsq_topic_channel_e2e_processing_latency_99",
            "orders/billing",
        ),
    ] {
        assert!(series[&key(name, labels)] > 0, "{name}");
    }
    for name in [
        "nsq_mem_heap_in_use_bytes",
        "nsq_mem_heap_idle_bytes",
        "nsq_mem_heap_released_bytes",
        "nsq_mem_heap_objects",
        "nsq_mem_next_gc_bytes",
        "nsq_mem_gc_pause_usec_100",
        "nsq_mem_gc_pause_usec_99",
        "nsq_mem_gc_pause_usec_95",
        "nsq_mem_gc_runs",
    ] {
        assert!(series.contains_key(&key(name, "")), "{name}");
    }
}
