//! Consumers that share a memcached, and consumers without it. The nsqds are in memory.
#![cfg(feature = "memcached")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ringq_client::dedup::filters::{
    Fingerprint, InverseBloom, Memcached, MemcachedOptions, SharedBegin,
};
use ringq_client::dedup::{AnyFilter, Dedup, Key, WhenUnavailable};
use ringq_client::testing::{MockBroker, MockNetwork};
use ringq_client::{Config, Consumer, Control, Event, Message, Requeue};
use test_support::TIMEOUT;
use test_support::daemon::Daemon;
use test_support::memcached::Memcached as Server;
use tokio::time::{sleep, timeout};

fn store(server: &Server, change: impl FnOnce(&mut MemcachedOptions)) -> Memcached {
    let mut options = MemcachedOptions::new(&server.address());
    options.timeout = Duration::from_secs(20);
    change(&mut options);
    Memcached::new(options).expect("valid options")
}

fn config() -> Config {
    Config {
        max_in_flight: 20,
        max_attempts: 0,
        max_backoff_duration: Duration::ZERO,
        default_requeue_delay: Duration::from_millis(20),
        ..Config::default()
    }
}

async fn consumer(
    network: &MockNetwork,
    nodes: &[MockBroker],
    dedup: Dedup,
    events: impl Fn(Event) + Send + Sync + 'static,
) -> Consumer {
    Consumer::builder("t", "c")
        .config(config())
        .connector(network.clone())
        .nodes(nodes.iter().map(MockBroker::address))
        .dedup(dedup)
        .events(events)
        .connect()
        .await
        .expect("complete")
}

async fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !done() {
        assert!(Instant::now() < end, "{what}");
        sleep(Duration::from_millis(10)).await;
    }
}

fn is_empty(nodes: &[MockBroker]) -> bool {
    let empty = |node: &MockBroker| node.depth("t", "c") == (0, 0);
    nodes.iter().all(empty)
}

async fn next(consumer: &mut Consumer) -> Message {
    let message = timeout(TIMEOUT, consumer.next()).await;
    message
        .expect("a message comes")
        .expect("the consumer runs")
}

fn done(control: &Control) -> u64 {
    control.stats().dedup.expect("a filter").done
}

/// Three consumers and two nodes. Some handlers fail, and some messages are dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_consumers_handle_each_message_once() {
    let Some(server) = Server::start() else {
        return;
    };
    const MESSAGES: usize = 300;
    let network = MockNetwork::new();
    let nodes = ["n1:4150", "n2:4150"].map(|node| network.broker(node));
    for number in 0..MESSAGES {
        for node in &nodes {
            node.publish("t", format!(r#"{{"id":{number}}}"#));
        }
    }
    let handled: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
    let mut controls = Vec::new();
    let mut tasks = Vec::new();
    for number in 0..3 {
        let key = Key::json("/id").expect("a pointer");
        let dedup = Dedup::builder(key, store(&server, |_| ())).build();
        let dedup = dedup.expect("complete");
        let mut consumer = consumer(&network, &nodes, dedup, |_| ()).await;
        controls.push(consumer.control());
        let handled = Arc::clone(&handled);
        tasks.push(tokio::spawn(async move {
            let mut rng = fastrand::Rng::with_seed(number);
            while let Some(message) = consumer.next().await {
                sleep(Duration::from_millis(rng.u64(0..3))).await;
                if rng.u8(0..5) == 0 {
                    continue;
                }
                let body = String::from_utf8_lossy(message.body()).into_owned();
                *handled.lock().entry(body).or_default() += 1;
                message.finish();
            }
        }));
    }
    let all = || handled.lock().len() == MESSAGES;
    wait_until("all messages are handled", all).await;
    // A copy may be deferred, which shows in no depth.
    let duplicates = || controls.iter().map(done).sum::<u64>();
    let all = || duplicates() == MESSAGES as u64 && is_empty(&nodes);
    wait_until("all copies are finished", all).await;
    for control in &controls {
        control.shutdown().await;
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    let handled = handled.lock();
    assert!(handled.values().all(|count| *count == 1), "{handled:?}");
    assert_eq!(duplicates(), MESSAGES as u64);
}

/// When nsqd has the FIN, every other consumer gets the answer that the message is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commit_comes_before_the_fin() {
    let Some(server) = Server::start() else {
        return;
    };
    let network = MockNetwork::new();
    let nodes = [network.broker("n1:4150")];
    let shared = store(&server, |_| ());
    let key = Key::by(|body| Some(body.to_vec()));
    let dedup = Dedup::builder(key, shared.clone())
        .build()
        .expect("complete");
    let mut consumer = consumer(&network, &nodes, dedup, |_| ()).await;
    for number in 0..100 {
        nodes[0].publish("t", number.to_string());
        let message = next(&mut consumer).await;
        let parts: [&[u8]; 4] = [b"t/c", b"bytes", b"", message.body()];
        let key: Fingerprint = shared.options().hasher.fingerprint_of_parts(&parts);
        let begun = shared.begin(key, TIMEOUT).await.expect("memcached answers");
        assert!(matches!(begun, SharedBegin::InProgress), "{begun:?}");
        // The future resolves when the FIN has left.
        message.finish().await.expect("the connection lives");
        let begun = shared.begin(key, TIMEOUT).await.expect("memcached answers");
        assert!(matches!(begun, SharedBegin::Done), "{begun:?}");
    }
    wait_until("nsqd has all FINs", || is_empty(&nodes)).await;
    // A requeue releases the key.
    nodes[0].publish("t", "again");
    drop(next(&mut consumer).await);
    let message = next(&mut consumer).await;
    assert_eq!(message.attempts(), 2);
    message.finish().await.expect("the connection lives");
}

/// While memcached is unavailable, messages wait. They are neither lost nor handled twice, and the application hears of
/// it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_wait_for_a_store_that_is_unavailable() {
    let Some(mut server) = Server::start() else {
        return;
    };
    let network = MockNetwork::new();
    let nodes = ["n1:4150", "n2:4150"].map(|node| network.broker(node));
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let events = {
        let log = Arc::clone(&log);
        move |event: Event| log.lock().push(event.to_string())
    };
    let count = |text: &str| {
        let log = log.lock();
        log.iter().filter(|line| line.contains(text)).count()
    };
    let dedup = Dedup::builder(Key::body(), store(&server, |_| ())).build();
    let mut consumer = consumer(&network, &nodes, dedup.expect("complete"), events).await;
    server.kill();
    for node in &nodes {
        node.publish("t", "a");
        node.publish("t", "b");
    }
    let control = consumer.control();
    let failures = || control.stats().dedup.expect("a filter").store_failures >= 8;
    wait_until("the store is unavailable", failures).await;
    assert_eq!(count("memcached cannot be used"), 1);
    server.restart();
    let mut bodies: Vec<String> = Vec::new();
    for _ in 0..2 {
        let message = next(&mut consumer).await;
        bodies.push(String::from_utf8_lossy(message.body()).into_owned());
        message.finish().await.expect("the connection lives");
    }
    bodies.sort();
    assert_eq!(bodies, ["a", "b"]);
    wait_until("the copies are finished", || is_empty(&nodes)).await;
    assert_eq!(done(&control), 2);
    assert!(count("the store answers again") >= 1);
    consumer.control().shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_may_do_without_a_store_that_is_unavailable() {
    let options = MemcachedOptions {
        timeout: Duration::from_millis(200),
        ..MemcachedOptions::new("unix:///nobody/listens")
    };
    let filter: AnyFilter = Memcached::new(options).expect("valid options").into();
    let dedup = Dedup::builder(Key::body(), filter)
        .when_store_unavailable(WhenUnavailable::Handle)
        .build()
        .expect("complete");
    let network = MockNetwork::new();
    let nodes = [network.broker("n1:4150")];
    let mut consumer = consumer(&network, &nodes, dedup, |_| ()).await;
    for _ in 0..2 {
        nodes[0].publish("t", "a");
        next(&mut consumer).await.finish();
    }
    wait_until("both copies are finished", || is_empty(&nodes)).await;
}

/// With ringq's nsqd, a copy that goes back because the first copy takes too long has no attempt more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_goes_back_counts_no_attempt() {
    let first = Daemon::nsqd(&[]);
    let nsqd = Daemon::nsqd(&["--msg-timeout=12s", "--max-msg-timeout=12s"]);
    for nsqd in [&first, &nsqd] {
        nsqd.create_channel("t", "c");
    }
    let filter = InverseBloom::new(1000).expect("slots");
    let dedup = Dedup::builder(Key::body(), filter).build();
    let mut consumer = Consumer::builder("t", "c")
        .config(config())
        .nodes([first.tcp, nsqd.tcp])
        .dedup(dedup.expect("complete"))
        .connect()
        .await
        .expect("complete");
    first.publish("t", &["a"]);
    let message = next(&mut consumer).await;
    nsqd.publish("t", &["a"]);
    let control = consumer.control();
    let requeued = || control.stats().dedup.expect("a filter").requeued >= 1;
    wait_until("the copy goes back", requeued).await;
    // The first message gives up, so its copy is fresh.
    message.requeue_without_backoff(Requeue::After(Duration::from_secs(60)));
    let copy = next(&mut consumer).await;
    assert_eq!((copy.attempts(), &copy.body()[..]), (1, &b"a"[..]));
    copy.finish().await.expect("the connection lives");
}
