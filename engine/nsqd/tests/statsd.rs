//! Statistics over time: pushes to statsd, and end-to-end latency.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Broker, Statsd, TIMEOUT, wait_until};

fn value(push: &[String], key: &str) -> Option<String> {
    let lines = push.iter().flat_map(|datagram| datagram.lines());
    let mut values = lines.filter_map(|line| line.split_once(':'));
    values
        .find(|(found, _)| *found == key)
        .map(|(_, value)| value.to_owned())
}

fn one_message_through(broker: &Broker) {
    let mut producer = broker.client();
    producer.publish("orders", b"four");
    let mut consumer = broker.consumer("orders", "billing", 1);
    let message = consumer.message();
    // This delay makes a measurable latency.
    thread::sleep(Duration::from_millis(20));
    consumer.finish(&message.id);
    let is_finished = || {
        let stats = broker.channel("orders", "billing");
        stats["clients"][0]["finish_count"] == 1
    };
    assert!(wait_until(TIMEOUT, is_finished));
}

#[test]
fn pushes_have_every_topic_and_the_growth_since_the_last_push() {
    let statsd = Statsd::listen();
    let flags = [
        &statsd.flag(),
        "--statsd-interval=1s",
        "--statsd-prefix=x.%s",
        "--broadcast-address=node.example.com",
        "--e2e-processing-latency-percentile=0.5,0.99",
    ];
    let broker = Broker::start(2, &flags);
    one_message_through(&broker);
    let prefix = format!("x.node_example_com_{}.", broker.http_addr().port());
    let count = format!("{prefix}topic.orders.message_count");
    let clients = format!("{prefix}topic.orders.channel.billing.clients");
    let latency = format!("{prefix}topic.orders.e2e_processing_latency_99");
    // Earlier pushes may be from the time before the message, or from the time when the message was
    // in flight.
    let mut total = 0;
    let mut last = Vec::new();
    let has_come = wait_until(TIMEOUT, || {
        last = statsd.push();
        let counted = value(&last, &count).unwrap_or("0|c".to_owned());
        total += counted
            .trim_end_matches("|c")
            .parse::<i64>()
            .expect("a number");
        let has_left = value(&last, &clients).as_deref() == Some("0|g");
        has_left && value(&last, &latency).is_some_and(|latency| latency != "0|g")
    });
    assert!(has_come, "{last:?}");
    assert_eq!(total, 1);
    for datagram in &last {
        assert!(
            datagram.len() <= 508 && datagram.ends_with('\n'),
            "{datagram}"
        );
        assert!(
            datagram.lines().all(|line| line.starts_with(&prefix)),
            "{datagram}"
        );
    }
    let latency = value(&last, &latency).expect("measured");
    let latency: u64 = latency.trim_end_matches("|g").parse().expect("ns");
    assert!(
        (20_000_000..60_000_000_000).contains(&latency),
        "{latency} ns"
    );
    assert_eq!(
        value(&statsd.push(), &count).as_deref(),
        Some("0|c"),
        "none was added"
    );
    broker.wait_for_log("INFO: STATSD: pushing stats to 127.0.0.1:");
}

#[test]
fn ephemeral_topics_memory_and_packets_follow_the_flags() {
    let statsd = Statsd::listen();
    let flags = [
        &statsd.flag(),
        "--statsd-interval=1s",
        "--statsd-mem-stats=false",
        "--statsd-exclude-ephemeral",
        "--statsd-udp-packet-size=1",
        "--statsd-prefix=",
    ];
    let broker = Broker::start(1, &flags);
    for name in ["kept", "gone%23ephemeral"] {
        broker.admin(&format!("/topic/create?topic={name}"));
    }
    let first = statsd.datagram();
    assert_eq!(
        first, "topic.kept.message_count:0|c\n",
        "a datagram per line"
    );
    let deadline = Instant::now() + Duration::from_millis(2500);
    while Instant::now() < deadline {
        let next = statsd.datagram();
        assert!(next.starts_with("topic.kept."), "{next}");
        assert_eq!(next.lines().count(), 1);
    }
}

#[test]
fn an_unknown_host_is_logged_and_the_end_waits_for_no_push() {
    let flags = ["--statsd-address=nowhere.invalid:1", "--statsd-interval=1s"];
    let broker = Broker::start(1, &flags);
    broker.wait_for_log("ERROR: failed to create UDP socket to statsd(nowhere.invalid:1)");
    broker.get("/ping").expect_status(200);
    drop(broker);

    let statsd = Statsd::listen();
    let mut broker = Broker::start(1, &[&statsd.flag(), "--statsd-interval=1h"]);
    let began = Instant::now();
    assert!(broker.sigterm_and_wait().success());
    assert!(began.elapsed() < TIMEOUT);
    assert!(broker.log().contains("INFO: STATSD: closing"));
}

#[test]
fn latencies_are_shown_in_the_order_of_nsqd() {
    let broker = Broker::start(
        1,
        &[
            "--e2e-processing-latency-percentile=0.5",
            "--e2e-processing-latency-percentile=0.99",
        ],
    );
    broker.create("orders", "billing");
    let latency = broker.channel("orders", "billing");
    let shown = latency["e2e_processing_latency"].to_string();
    let empty =
        r#"{"count":0,"percentiles":[{"quantile":0.99,"value":0},{"quantile":0.5,"value":0}]}"#;
    let parsed: serde_json::Value = serde_json::from_str(empty).expect("JSON");
    assert_eq!(shown, parsed.to_string());
    one_message_through(&broker);
    for latency in [
        &broker.channel("orders", "billing")["e2e_processing_latency"],
        &broker.topic("orders")["e2e_processing_latency"],
    ] {
        assert_eq!(latency["count"], 1);
        assert_eq!(latency["percentiles"][0]["quantile"], 0.99);
        let value = latency["percentiles"][1]["value"]
            .as_f64()
            .expect("a number");
        assert!(value >= 20e6, "{value} ns");
    }
    let text = broker.get("/stats").text();
    assert!(text.contains("ms, "), "{text}");
}

/// Nothing told which message failed again and again while it was deferred.
#[test]
fn the_failed_attempts_of_the_oldest_message() {
    let broker = Broker::start(2, &[]);
    let mut producer = broker.client();
    let mut consumer = broker.consumer("orders", "billing", 1);
    let failed = || {
        let channel = broker.channel_stats("orders", "billing");
        let channel = channel.expect("it is there");
        channel["oldest_failed_attempts"].as_u64().unwrap_or(0)
    };
    producer.publish("orders", b"poison");
    for attempts in 1..=3 {
        let message = consumer.message();
        assert_eq!(
            (message.attempts, failed()),
            (attempts, u64::from(attempts) - 1)
        );
        let delay = if attempts == 3 { 600_000 } else { 0 };
        consumer.requeue(&message.id, delay);
    }
    // It is deferred now, and others come and go.
    producer.publish("orders", b"good");
    let good = consumer.message();
    assert_eq!((good.body.as_slice(), failed()), (&b"good"[..], 3));
    consumer.finish(&good.id);
    assert!(wait_until(TIMEOUT, || failed() == 3));
}

#[test]
fn the_age_of_the_oldest_unfinished_message() {
    let statsd = Statsd::listen();
    let flags = [&statsd.flag(), "--statsd-interval=1s", "--statsd-prefix=x."];
    let mut broker = Broker::start(2, &flags);
    let start = Instant::now();
    let mut producer = broker.client();
    producer.publish("orders", b"x");
    producer.publish("alone", b"x");
    let mut consumer = broker.consumer("orders", "billing", 1);
    consumer.message();
    thread::sleep(Duration::from_millis(1100));
    let age = |stats: &serde_json::Value| {
        let age = stats["oldest_unfinished_ms"].as_u64();
        age.expect("a number")
    };
    let ages = |broker: &Broker| {
        let channel = broker.channel_stats("orders", "billing");
        let topics = ["orders", "alone"].map(|topic| broker.topic_stats(topic));
        let topics = topics.map(|stats| age(&stats.expect("it is there")));
        let ages = (age(&channel.expect("it is there")), topics);
        // No message is older than this test.
        let most = start.elapsed().as_millis() as u64;
        assert!(
            ages.0 <= most && ages.1[1] <= most,
            "{ages:?} after {most} ms"
        );
        ages
    };
    let (in_flight, [none, waiting]) = ages(&broker);
    assert!(
        in_flight >= 1100 && waiting >= 1100,
        "{in_flight} {waiting}"
    );
    assert_eq!(none, 0);
    let key = "x.topic.orders.channel.billing.oldest_unfinished_ms";
    let is_pushed = || {
        let pushed = value(&statsd.push(), key).unwrap_or("0|g".to_owned());
        let age: u64 = pushed.trim_end_matches("|g").parse().expect("a gauge");
        age >= 1100
    };
    assert!(wait_until(TIMEOUT, is_pushed));

    // The publish time is in the log.
    broker.kill9();
    broker.restart();
    let (after, [_, waiting]) = ages(&broker);
    assert!(
        after > in_flight && waiting > in_flight,
        "{after} {waiting}"
    );
    let mut consumer = broker.consumer("orders", "billing", 1);
    let _message = consumer.take();
    assert!(wait_until(TIMEOUT, || ages(&broker).0 == 0));
}
