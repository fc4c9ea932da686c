//! A consumer process that is killed again and again, with real nsqds: each message counts once, or at least once.
//!
//! The consumer is this test binary, started with another environment. Its result is a file with a line per message. One
//! consumer fills a filter from this file at the start, and the other one has its states in memcached.

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use ringq_client::dedup::filters::{
    Filter, Memcached, MemcachedOptions, MessageNumber, RoaringPair,
};
use ringq_client::dedup::{AnyFilter, Dedup, Key};
use ringq_client::{Address, Config, Consumer, Producer};
use test_support::daemon::Daemon;
use test_support::memcached::Memcached as Server;
use test_support::{TIMEOUT, wait_until};
use tokio::runtime::Runtime;

/// The variables of a consumer: the path of its result, the addresses of the nsqds, and that of memcached, if the states
/// are there.
const RESULT: &str = "RINGQ_TEST_RESULT";
const NODES: &str = "RINGQ_TEST_NODES";
const STORE: &str = "RINGQ_TEST_STORE";

/// The messages in flight of a consumer.
const IN_FLIGHT: u32 = 200;

/// The filter knows at least this many numbers. Copies of older messages would count twice.
const WINDOW: u64 = 100_000;

/// The lease of a message in memcached. A consumer needs far less time for all messages in flight, also on a busy machine.
const LEASE: Duration = Duration::from_secs(20);

/// Returns the number of a message.
fn number(body: &[u8]) -> Option<MessageNumber> {
    let number = std::str::from_utf8(body).ok()?.parse().ok()?;
    Some(MessageNumber { source: 1, number })
}

/// Opens the result, without a last line that a kill has cut. Returns the file and its text.
fn open_result(path: &Path) -> (File, String) {
    let mut text = fs::read_to_string(path).unwrap_or_default();
    text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
    let file = OpenOptions::new().create(true).append(true).open(path);
    let file = file.expect("writable");
    file.set_len(text.len() as u64).expect("it can be cut");
    (file, text)
}

/// Returns a filter of the numbers of a result.
fn filter_of(result: &str) -> RoaringPair {
    let mut filter = RoaringPair::new(WINDOW, 1).expect("valid sizes");
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.expect("the clock is past 1970");
    for line in result.lines() {
        filter.remember(number(line.as_bytes()).expect("a number"), now);
    }
    filter
}

fn store_at(address: &str) -> Memcached {
    let options = MemcachedOptions {
        lease: Some(LEASE),
        timeout: TIMEOUT,
        ..MemcachedOptions::new(address)
    };
    Memcached::new(options).expect("valid options")
}

/// Handles messages until it is killed: the body is the result.
async fn consume(path: &Path) {
    let nodes = env::var(NODES).expect("the test gives the nodes");
    let nodes = nodes
        .split(',')
        .map(|node| node.parse::<Address>().expect("an address"));
    let (mut result, text) = open_result(path);
    let filter: AnyFilter = match env::var(STORE) {
        Ok(address) => store_at(&address).into(),
        Err(_) => filter_of(&text).into(),
    };
    let mut consumer = Consumer::builder("t", "c")
        .config(Config {
            max_in_flight: IN_FLIGHT,
            max_attempts: 0,
            // The messages of a killed consumer come again after this time.
            msg_timeout: Duration::from_secs(1),
            ..Config::default()
        })
        .nodes(nodes)
        .dedup(
            Dedup::builder(Key::number_by(number), filter)
                .build()
                .expect("no file is needed"),
        )
        .connect()
        .await
        .expect("the nodes are there, or will be");
    while let Some(message) = consumer.next().await {
        // The result and the number are one line. Two writes, so that a kill can come between them.
        let text = format!(
            "{}\n",
            std::str::from_utf8(message.body()).expect("a number")
        );
        let (first, rest) = text.split_at(text.len() / 2);
        result.write_all(first.as_bytes()).expect("room");
        result.write_all(rest.as_bytes()).expect("room");
        // A connection that has broken gives the message again, and the filter knows it.
        _ = message.finish().await;
    }
}

/// The process of a consumer. A drop kills it.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it ends");
    }
}

/// Consumers of all nodes, one process after the other.
struct Consuming<'a> {
    /// The name of the test, which is the consumer in the other process.
    test: &'a str,
    nodes: &'a mut [Daemon],
    path: &'a Path,
    /// The memcached that has the states. `None`: the consumer has a filter.
    store: Option<&'a Server>,
    /// The message in the last line of each consumer that was killed: its commit may not have been sent.
    last: Vec<u64>,
}

impl Consuming<'_> {
    fn start(&self) -> Process {
        let nodes: Vec<String> = self.nodes.iter().map(|node| node.tcp.to_string()).collect();
        let mut command = Command::new(env::current_exe().expect("this program"));
        command
            .args(["--exact", self.test, "--nocapture"])
            .env(RESULT, self.path)
            .env(NODES, nodes.join(","));
        if let Some(store) = self.store {
            command.env(STORE, store.address());
        }
        Process(command.spawn().expect("the consumer starts"))
    }

    fn kill(&mut self, consumer: Process) {
        drop(consumer);
        self.last.extend(self.results().last());
    }

    fn results(&self) -> Vec<u64> {
        let text = fs::read_to_string(self.path).unwrap_or_default();
        let whole = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        let numbers = whole.map(|line| line.trim_end().parse().expect("a number"));
        numbers.collect()
    }

    /// The number of messages that have a result.
    fn done(&self) -> usize {
        self.results().iter().collect::<BTreeSet<_>>().len()
    }

    /// Kills consumers at random moments, and now and then the last node, until all messages have a result. Returns how
    /// many results each message has.
    fn run(&mut self, messages: usize, kills: usize) -> Vec<u32> {
        let seed = env::var("RINGQ_SEED");
        let seed = seed.map_or_else(
            |_| fastrand::u64(..),
            |seed| seed.parse().expect("a number"),
        );
        println!("RINGQ_SEED={seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut redelivered, mut leases) = (0, 0);
        for kill in 0..kills {
            let consumer = self.start();
            let before = self.done();
            // A quick consumer may have handled nearly all of them by now.
            let most = ((messages - before) / (kills - kill)).max(1);
            let until = messages.min(before + random.usize(1..=most));
            let reached = wait_until(TIMEOUT, || self.done() >= until);
            assert!(reached, "{} of {until}", self.done());
            sleep(Duration::from_micros(random.u64(0..3000)));
            self.kill(consumer);
            if let Some(store) = self.store {
                leases += store.stat("curr_items").saturating_sub(self.done() as u64);
            }
            if kill % 5 == 4
                && let Some(last) = self.nodes.last_mut()
            {
                last.restart();
            }
        }
        let consumer = self.start();
        let reached = wait_until(TIMEOUT, || self.done() >= messages);
        assert!(reached, "{} of {messages}", self.done());
        for node in &*self.nodes {
            node.wait_for_answers("t", "c");
            redelivered +=
                node.figure("t", "c", "requeue_count") + node.figure("t", "c", "timeout_count");
        }
        self.kill(consumer);
        assert!(redelivered > 0, "no message came twice");
        if self.store.is_some() {
            assert!(leases > 0, "no consumer had a lease when it was killed");
        }
        let mut counts = vec![0; messages];
        for number in self.results() {
            counts[number as usize] += 1;
        }
        counts
    }
}

/// Starts two nodes, which both have the messages with the numbers below `messages`.
fn nodes_with(runtime: &Runtime, messages: usize) -> [Daemon; 2] {
    let nodes = [(); 2].map(|()| Daemon::nsqd(&[]));
    for node in &nodes {
        node.create_channel("t", "c");
    }
    runtime.block_on(async {
        let addresses = nodes.iter().map(|node| Address::from(node.tcp));
        let producer = Producer::builder()
            .nodes(addresses)
            .build()
            .expect("the settings are right");
        let publishes = (0..messages).map(|number| producer.publish_to(2, "t", number.to_string()));
        for receipts in join_all(publishes).await {
            receipts.expect("both nodes store it");
        }
        producer.close().await.expect("all publishes are answered");
    });
    nodes
}

/// Each number has a copy on each of two nodes, and one of them is killed, too.
#[test]
fn each_message_counts_once() {
    let runtime = Runtime::new().expect("a runtime");
    if let Some(path) = env::var_os(RESULT) {
        return runtime.block_on(consume(Path::new(&path)));
    }
    let messages = 20_000;
    let mut nodes = nodes_with(&runtime, messages);
    let directory = tempfile::tempdir().expect("a directory");
    let mut consuming = Consuming {
        test: "killed_consumer::each_message_counts_once",
        nodes: &mut nodes,
        path: &directory.path().join("result"),
        store: None,
        last: Vec::new(),
    };
    let counts = consuming.run(messages, 20);
    let wrong = counts.iter().enumerate().filter(|(_, count)| **count != 1);
    let wrong: Vec<(usize, &u32)> = wrong.collect();
    assert_eq!(wrong, [], "numbers with another count than 1");
}

/// With memcached, no number is lost when a consumer dies with its leases. A number counts twice only if its consumer was
/// killed between the result and the commit.
#[test]
fn each_message_counts_although_leases_are_lost() {
    let runtime = Runtime::new().expect("a runtime");
    if let Some(path) = env::var_os(RESULT) {
        return runtime.block_on(consume(Path::new(&path)));
    }
    let Some(store) = Server::start() else {
        return;
    };
    let messages = 10_000;
    let mut nodes = nodes_with(&runtime, messages);
    let directory = tempfile::tempdir().expect("a directory");
    let mut consuming = Consuming {
        test: "killed_consumer::each_message_counts_although_leases_are_lost",
        nodes: &mut nodes,
        path: &directory.path().join("result"),
        store: Some(&store),
        last: Vec::new(),
    };
    let counts = consuming.run(messages, 5);
    for (number, count) in (0..).zip(counts) {
        let last = consuming.last.iter().filter(|it| **it == number);
        let most = 1 + last.count() as u32;
        assert!((1..=most).contains(&count), "{number} counts {count} times");
    }
}
