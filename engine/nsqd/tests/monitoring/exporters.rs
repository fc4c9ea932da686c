//! Exporters for Prometheus, and DataKit's input. Their types are the same.

use serde::Deserialize;

use super::{GO, Latency, Poller, Scene, now_seconds};
use crate::support::{Broker, TIMEOUT, wait_until};

#[derive(Deserialize)]
struct Stats {
    version: String,
    health: String,
    start_time: i64,
    topics: Vec<Topic>,
}

#[derive(Deserialize)]
struct Topic {
    topic_name: String,
    paused: bool,
    depth: i64,
    backend_depth: i64,
    message_count: u64,
    e2e_processing_latency: Latency,
    channels: Vec<Channel>,
}

#[derive(Deserialize)]
struct Channel {
    channel_name: String,
    paused: bool,
    depth: i64,
    backend_depth: i64,
    message_count: u64,
    in_flight_count: i64,
    deferred_count: i64,
    requeue_count: u64,
    timeout_count: u64,
    e2e_processing_latency: Latency,
    clients: Vec<Consumer>,
}

#[derive(Deserialize)]
struct Consumer {
    client_id: String,
    hostname: String,
    version: String,
    remote_address: String,
    state: i32,
    finish_count: u64,
    message_count: u64,
    ready_count: i64,
    in_flight_count: i64,
    requeue_count: u64,
    connect_ts: i64,
    sample_rate: i32,
    deflate: bool,
    snappy: bool,
    tls: bool,
}

#[test]
fn exporters_read_every_topic_channel_and_client() {
    let began = now_seconds();
    // nsq_exporter takes the first percentile for the 99th and the second for the 95th.
    let mut scene = Scene::start(&["--e2e-processing-latency-percentile=0.99,0.95"]);
    let mut exporter = Poller::connect(&scene.broker, &GO);
    let stats: Stats = exporter.decode("/stats?format=json");
    assert_eq!(
        (stats.version.as_str(), stats.health.as_str()),
        ("1.3.0", "OK")
    );
    let recently = began..=now_seconds();
    assert!(recently.contains(&stats.start_time));

    let topics: Vec<_> = stats
        .topics
        .iter()
        .map(|topic| {
            (
                topic.topic_name.as_str(),
                topic.paused,
                topic.depth,
                topic.backend_depth,
                topic.message_count,
                topic.channels.len(),
            )
        })
        .collect();
    let expected = [
        ("live#ephemeral", false, 2, 0, 2, 0),
        ("orders", false, 0, 0, 10, 2),
        ("returns", false, 0, 0, 1, 1),
    ];
    assert_eq!(topics, expected);

    let all = stats.topics.iter().flat_map(|topic| &topic.channels);
    let channels: Vec<_> = all
        .clone()
        .map(|channel| {
            (
                channel.channel_name.as_str(),
                channel.paused,
                [channel.depth, channel.backend_depth],
                [channel.in_flight_count, channel.deferred_count],
                [channel.message_count, channel.requeue_count],
                channel.timeout_count,
                channel.clients.len(),
            )
        })
        .collect();
    let expected = [
        ("audit", true, [9, 0], [0, 1], [10, 0], 0, 0),
        ("billing", false, [4, 0], [3, 2], [10, 1], 0, 1),
        ("refunds", false, [1, 0], [0, 0], [1, 0], 1, 1),
    ];
    assert_eq!(channels, expected);

    let billing = all.clone().nth(1).expect("counted above");
    for latency in [
        &stats.topics[1].e2e_processing_latency,
        &billing.e2e_processing_latency,
    ] {
        let values = latency.all("value");
        assert_eq!((latency.count, values.len()), (1, 2));
        assert!(values[0] >= values[1] && values[1] > 0.0, "{values:?}");
    }
    let unfinished = all.clone().nth(2).expect("counted above");
    assert_eq!(unfinished.e2e_processing_latency.all("value"), [0.0, 0.0]);
    let no_channels = &stats.topics[0].e2e_processing_latency;
    assert!(no_channels.percentiles.is_none());

    let consumers: Vec<_> = all.flat_map(|channel| &channel.clients).collect();
    let shown: Vec<_> = consumers
        .iter()
        .map(|client| {
            (
                [&client.client_id, &client.hostname, &client.version].map(String::as_str),
                client.remote_address.clone(),
                [client.state, client.sample_rate],
                [
                    client.message_count,
                    client.finish_count,
                    client.requeue_count,
                ],
                [client.ready_count, client.in_flight_count],
                [client.deflate, client.snappy, client.tls],
            )
        })
        .collect();
    let consumer = scene.consumer.local_addr().to_string();
    let slow = scene.slow.local_addr().to_string();
    let no = [false; 3];
    let expected = [
        (
            ["worker-7", "worker-7.local", "V2"],
            consumer,
            [3, 0],
            [5, 1, 1],
            [3, 3],
            no,
        ),
        (
            ["slow", "slow.local", "V2"],
            slow,
            [3, 0],
            [1, 0, 0],
            [0, 0],
            no,
        ),
    ];
    assert_eq!(shown, expected);
    assert!(
        consumers
            .iter()
            .all(|client| recently.contains(&client.connect_ts))
    );

    // The next poll over the same connection sees the changes.
    scene.consumer.close_wait();
    scene.broker.admin("/topic/delete?topic=returns");
    let stats: Stats = exporter.decode("/stats?format=json");
    assert_eq!(stats.topics.len(), 2);
    drop(scene.consumer);
    let left = wait_until(TIMEOUT, || {
        let stats: Stats = exporter.decode("/stats?format=json");
        stats.topics[1].channels[1].clients.is_empty()
    });
    assert!(left, "the consumer is still shown");
}

#[test]
fn exporters_tell_what_is_on_disk_from_what_is_in_memory() {
    let broker = Broker::start(2, &["--mem-queue-size=3"]);
    for target in [
        "/topic/create?topic=orders",
        "/channel/create?topic=orders&channel=audit",
    ] {
        broker.admin(target);
    }
    let mut producer = broker.client();
    producer.publish_many("orders", &["12345678"; 10]);
    let mut exporter = Poller::connect(&broker, &GO);
    let mut last = Vec::new();
    let is_shown = wait_until(TIMEOUT, || {
        let stats: Stats = exporter.decode("/stats?format=json");
        let channel = &stats.topics[0].channels[0];
        last = vec![channel.depth, channel.backend_depth];
        last == [10, 7]
    });
    assert!(is_shown, "{last:?}");
}

#[test]
fn without_percentiles_there_is_a_latency_without_values() {
    let scene = Scene::start(&[]);
    let stats: Stats = Poller::connect(&scene.broker, &GO).decode("/stats?format=json");
    let topic = &stats.topics[1];
    for latency in [
        &topic.e2e_processing_latency,
        &topic.channels[1].e2e_processing_latency,
    ] {
        assert_eq!(latency.count, 0);
        assert!(latency.percentiles.is_none());
    }
}
