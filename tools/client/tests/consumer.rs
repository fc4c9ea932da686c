//! The consumer with real nsqds and nsqlookupds.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::closed::wait_for_close;
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

async fn connected(builder: ConsumerBuilder) -> Consumer {
    builder.connect().await.expect("the builder is complete")
}

/// Takes the next message. Panics if there is none for long.
async fn next(consumer: &mut Consumer) -> Message {
    let next = timeout(TIMEOUT, consumer.next()).await;
    next.expect("a message comes").expect("the consumer runs")
}

fn text(message: &Message) -> String {
    String::from_utf8_lossy(message.body()).into_owned()
}

/// Publishes the numbers of a range, as one batch.
fn publish_numbers(daemon: &Daemon, topic: &str, numbers: std::ops::Range<usize>) {
    let lines: Vec<String> = numbers.map(|number| number.to_string()).collect();
    let target = format!("/mpub?topic={topic}");
    daemon
        .post(&target, lines.join("\n").as_bytes())
        .expect_status(200);
}

/// Takes and finishes messages until all numbers of a range have come.
async fn finish_all(consumer: &mut Consumer, numbers: std::ops::Range<usize>) {
    let mut missing: BTreeSet<String> = numbers.map(|number| number.to_string()).collect();
    while !missing.is_empty() {
        let message = next(consumer).await;
        missing.remove(&text(&message));
        message.finish();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_node_is_discovered() {
    let lookupds = [Daemon::nsqlookupd(&[]), Daemon::nsqlookupd(&[])];
    let one = Daemon::nsqd_at(&[&lookupds[0]], &[]);
    one.create_channel("t", "c");
    publish_numbers(&one, "t", 0..10);
    let addresses = lookupds.iter().map(|lookupd| lookupd.http.to_string());
    let mut consumer = connected(builder("t", 10).lookupds(addresses)).await;
    finish_all(&mut consumer, 0..10).await;
    // Only the other nsqlookupd knows the new node.
    let two = Daemon::nsqd_at(&[&lookupds[1]], &[]);
    two.create_channel("t", "c");
    publish_numbers(&two, "t", 10..20);
    finish_all(&mut consumer, 10..20).await;
    let stats = consumer.control().stats();
    let mut ready: Vec<(Address, u32)> = stats
        .nodes
        .iter()
        .map(|found| (found.node.clone(), found.ready))
        .collect();
    let mut expected = vec![(node(&one), 5), (node(&two), 5)];
    ready.sort();
    expected.sort();
    assert_eq!(ready, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_leaves_nothing_in_flight() {
    let nsqd = Daemon::nsqd(&[]);
    nsqd.create_channel("t", "c");
    publish_numbers(&nsqd, "t", 0..200);
    let mut one = connected(builder("t", 100).node(node(&nsqd))).await;
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(next(&mut one).await);
    }
    nsqd.wait_for_figure("t", "c", "in_flight_count", 100);
    let control = one.control();
    let stopping = tokio::spawn(async move {
        // The messages that the application has not taken go back at once. The shutdown begins before the consumer is asked.
        let (_, end) = tokio::join!(control.shutdown(), one.next());
        end.is_none()
    });
    let mut two = connected(builder("t", 300).node(node(&nsqd))).await;
    let mut seen = BTreeSet::new();
    while seen.len() < 190 {
        let message = next(&mut two).await;
        // The original counts a return as an attempt.
        let attempts_max = 1 + u16::from(std::env::var_os("NSQD_BIN").is_some());
        assert!(message.attempts() <= attempts_max, "{}", message.attempts());
        seen.insert(text(&message));
        message.finish();
    }
    assert!(!stopping.is_finished(), "ten messages are still in work");
    for message in held {
        assert!(!seen.contains(&text(&message)));
        let done = message.finish().await;
        done.expect("the connection waits for the answer");
    }
    let has_ended = timeout(TIMEOUT, stopping)
        .await
        .expect("in time")
        .expect("no panic");
    assert!(has_ended);
    two.control().shutdown().await;
    nsqd.wait_for_answers("t", "c");
    nsqd.wait_for_figure("t", "c", "client_count", 0);
}

/// nsqd had closed the connection while the process stood still. The FIN was written into it, and counted as sent.
#[tokio::test]
async fn an_answer_after_a_pause_of_the_process_tells_that_the_connection_is_gone() {
    let mut nsqd = Daemon::nsqd(&[]);
    nsqd.create_channel("t", "c");
    nsqd.publish("t", &["one"]);
    let builder = builder("t", 1).node(node(&nsqd));
    let mut consumer = connected(builder).await;
    for round in 0..5 {
        let message = next(&mut consumer).await;
        // The runtime has one thread, which does not look at its sockets meanwhile.
        nsqd.restart();
        wait_for_close(nsqd.tcp);
        message
            .finish()
            .await
            .expect_err(&format!("round {round}: the connection is gone"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_block_hold_up_no_heartbeat_with_a_runtime_for_connections() {
    let nsqd = Daemon::nsqd(&[]);
    nsqd.create_channel("t", "c");
    publish_numbers(&nsqd, "t", 0..1);
    let config = Config {
        heartbeat_interval: Some(Duration::from_secs(4)),
        ..config(5)
    };
    let connections = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let builder = Consumer::builder("t", "c").config(config).node(node(&nsqd));
    let builder = builder.runtime(connections.handle().clone());
    let consumer = connected(builder).await;
    let control = consumer.control();
    let running = tokio::spawn(consumer.run(1, async |_message: Message| {
        // nsqd closes a connection that is silent for two heartbeats.
        std::thread::sleep(Duration::from_secs(10));
        Ok::<(), String>(())
    }));
    nsqd.wait_for_figure("t", "c", "in_flight_count", 1);
    nsqd.wait_for_figure("t", "c", "in_flight_count", 0);
    let stats = control.stats();
    assert_eq!((stats.received, stats.finished), (1, 1), "{stats:?}");
    control.shutdown().await;
    running.await.expect("run ends with the consumer");
    connections.shutdown_background();
}
