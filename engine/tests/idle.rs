//! A broker with a thousand topics and nothing to do costs next to nothing: less than 1 % of a core
//! and less than 100 MB of resident memory.
//!
//! Alone, with the figures: `cargo test --release -p engine --test idle -- --nocapture`

mod support;

use std::time::{Duration, Instant};

use support::{Broker, Client, PATIENCE, cpu_time, rss, wait_until, whole_machine};

const TOPICS: usize = 1_000;
/// Topics that also have a consumer, which has finished its message and waits for the next.
const CONSUMED: usize = 5;
const SHARDS: usize = 2;

/// Creation is followed by work that ends by itself: metadata, syncs, buffers given back.
const SETTLE: Duration = Duration::from_secs(5);
const MEASURE: Duration = Duration::from_secs(5);

/// Part of one core, in percent.
const CPU_PERCENT_MAX: f64 = 1.0;
const RSS_BYTES_MAX: u64 = 100_000_000;

#[test]
fn a_thousand_idle_topics_cost_almost_nothing() {
    let _machine = whole_machine();
    let broker = Broker::start(SHARDS, &[]);
    for number in 0..TOPICS {
        let topic = format!("idle-{number}");
        broker
            .post(&format!("/topic/create?topic={topic}"), b"")
            .expect_status(200);
        broker
            .post(
                &format!("/channel/create?topic={topic}&channel=channel"),
                b"",
            )
            .expect_status(200);
        broker
            .post(&format!("/pub?topic={topic}"), b"one message")
            .expect_status(200);
    }
    let consumers: Vec<Client> = (0..CONSUMED)
        .map(|number| consume_one(&broker, number))
        .collect();
    let depths_are_right = wait_until(PATIENCE, || {
        let stats = broker.stats();
        let topics = stats["topics"].as_array().expect("topics is an array");
        let depths = topics
            .iter()
            .filter_map(|topic| topic["channels"][0]["depth"].as_u64());
        topics.len() == TOPICS && depths.sum::<u64>() == (TOPICS - CONSUMED) as u64
    });
    assert!(
        depths_are_right,
        "each topic but {CONSUMED} holds its message in its channel"
    );

    std::thread::sleep(SETTLE);
    let cpu_before = cpu_time(broker.pid());
    let started = Instant::now();
    std::thread::sleep(MEASURE);
    let cpu = cpu_time(broker.pid()) - cpu_before;
    let cpu_percent = 100.0 * cpu.as_secs_f64() / started.elapsed().as_secs_f64();
    let rss = rss(broker.pid());
    eprintln!("idle with {TOPICS} topics: {cpu_percent:.2} % of a core ({cpu:?}), {rss:?}");
    assert!(
        cpu_percent < CPU_PERCENT_MAX,
        "{cpu_percent:.2} % of a core while idle"
    );
    assert!(
        rss.total_bytes < RSS_BYTES_MAX,
        "resident while idle: {rss:?}"
    );
    drop(consumers);
}

/// A consumer that takes and finishes the one message of its topic and stays connected.
fn consume_one(broker: &Broker, number: usize) -> Client {
    let mut client = Client::connect(broker.tcp_addr());
    client.subscribe(&format!("idle-{number}"), "channel");
    client.ready(10);
    let message = client.message();
    assert_eq!(message.body, b"one message");
    client.finish(&message.id);
    client
}
