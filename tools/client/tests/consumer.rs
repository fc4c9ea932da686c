//! The consumer with real nsqds and nsqlookupds.

use std::collections::BTreeSet;
use std::time::Duration;

use ringq_client::{Address, Config, Consumer, ConsumerBuilder, Message};
use test_support::TIMEOUT;
use test_support::daemon::Daemon;
use tokio::time::timeout;

fn node(daemon: &Daemon) -> Address {
    daemon.tcp.into()
}

/// A configuration whose discovery and reconnection take little time.
fn config(max_in_flight: u32) -> Config {
    Config {
        max_in_flight,
        lookupd_poll_interval: Duration::from_millis(500),
        ..Config::default()
    }
}

fn builder(topic: &str, max_in_flight: u32) -> ConsumerBuilder {
    Consumer::builder(topic, "c").config(config(max_in_flight))
}

/// Takes the next message. Panics if there is none for long.
async fn next(consumer: &mut Consumer) -> Message {
    let next = timeout(TIMEOUT, consumer.next()).await;
    next.expect("a message comes").expect("the consumer runs")
}

fn text(message: &Message) -> String {
    String::from_utf8_lossy(message.body()).into_owned()
}

#[tokio::test]
async fn messages_are_received_and_finished() {
    let nsqd = Daemon::nsqd(&[]);
    nsqd.create_channel("t", "c");
    let bodies: Vec<String> = (0..100).map(|index| index.to_string()).collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    nsqd.publish("t", &bodies);
    let mut consumer = builder("t", 10)
        .node(node(&nsqd))
        .connect()
        .await
        .expect("nsqd is there");
    let mut seen = BTreeSet::new();
    for _ in 0..100 {
        let message = next(&mut consumer).await;
        assert_eq!((message.attempts(), message.topic()), (1, "t"));
        assert_eq!(message.node(), &node(&nsqd));
        seen.insert(text(&message));
        message.finish().await.expect("the connection lives");
    }
    assert_eq!(seen, bodies.iter().map(|body| (*body).to_owned()).collect());
    let stats = consumer.control().stats();
    assert_eq!(
        (stats.received, stats.finished, stats.in_flight),
        (100, 100, 0)
    );
    consumer.control().shutdown().await;
    assert!(consumer.next().await.is_none());
    nsqd.wait_for_figure("t", "c", "depth", 0);
    nsqd.wait_for_figure("t", "c", "in_flight_count", 0);
}
