//! At least once becomes once. Three nodes are hosts in network namespaces. A producer publishes each message to two of
//! them, and a consumer recognises the copies. Again and again, one node is killed at a random moment, its disk is
//! destroyed, and an empty node takes its place. Every confirmed message must be handled, and none twice.
//!
//! `RINGQ_TEST_KILLS` is the number of kills, and `RINGQ_SEED` repeats the choice of nodes and moments.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::network::{Host, Network};
use crate::support::{
    Broker, Launch, Random, TIMEOUT, number_from_env, wait_until, with_own_network,
};
use ringq_client::dedup::filters::RoaringPair;
use ringq_client::dedup::{Dedup, Key};
use ringq_client::{Address, Config, Consumer, Control, Message, Producer};
use tokio::runtime::Runtime;
use tokio::time::sleep;

const TOPIC: &str = "orders";
/// The kills of a run in CI.
const KILLS: u64 = 5;
/// The tasks that publish.
const PRODUCERS: usize = 4;
/// The confirmed messages that wait for the consumer when a node is killed, at the least, and in any case at the most.
const BACKLOG_MIN: usize = 100;
const BACKLOG_MAX: usize = 400;
/// The messages that are handled at the same time, and the time of each.
const HANDLERS: usize = 8;
const HANDLING: Duration = Duration::from_millis(4);
/// The time of each message before a kill, so that nodes have messages when they lose their disks.
const HANDLING_SLOWLY: Duration = Duration::from_millis(100);

/// One node with its host.
struct Node {
    host: Host,
    broker: Broker,
}

impl Node {
    fn start(host: Host) -> Node {
        let launch = Launch::new(1, &["--msg-timeout=5s"])
            .on(&format!("{}:4150", host.ip), &format!("{}:4151", host.ip));
        let broker = host.run(|| launch.start());
        Node { host, broker }
    }

    /// Kills the process, destroys its disk, and starts an empty node in its place.
    fn destroy(&mut self) {
        self.broker.kill9();
        for entry in fs::read_dir(self.broker.data_path()).expect("the data path is there") {
            let path = entry.expect("readable").path();
            let removed = if path.is_dir() {
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            };
            removed.expect("the test may remove it");
        }
        let broker = &mut self.broker;
        self.host.run(|| broker.restart_on_same_ports());
    }

    fn address(&self) -> Address {
        self.broker.tcp_addr().into()
    }
}

/// The state that producers, consumer and test share.
#[derive(Default)]
struct Ledger {
    next: AtomicU64,
    is_over: AtomicBool,
    /// True when the consumer is slow.
    is_slow: AtomicBool,
    /// The copies that nodes confirmed.
    copies: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The messages that two nodes confirmed and nobody has handled.
    owed: BTreeSet<u64>,
    confirmed: u64,
    handled: BTreeMap<u64, u32>,
}

impl Ledger {
    fn confirm(&self, number: u64) {
        let mut state = self.state.lock();
        state.confirmed += 1;
        if !state.handled.contains_key(&number) {
            state.owed.insert(number);
        }
    }

    fn handle(&self, number: u64) {
        let mut state = self.state.lock();
        state.owed.remove(&number);
        *state.handled.entry(number).or_default() += 1;
    }

    /// Returns those of `numbers` that are still owed.
    fn owed_of(&self, numbers: &BTreeSet<u64>) -> BTreeSet<u64> {
        let state = self.state.lock();
        numbers.intersection(&state.owed).copied().collect()
    }
}

/// Publishes each number to two nodes, until two have confirmed it.
async fn publish(ledger: Arc<Ledger>, producer: Producer) {
    while !ledger.is_over.load(Ordering::Relaxed) {
        if ledger.state.lock().owed.len() >= BACKLOG_MAX {
            sleep(Duration::from_millis(1)).await;
            continue;
        }
        let number = ledger.next.fetch_add(1, Ordering::Relaxed);
        let body = format!(r#"{{"number":{number}}}"#);
        loop {
            let copies = match producer.publish_to(2, TOPIC, body.clone()).await {
                Ok(receipts) => {
                    ledger.confirm(number);
                    ledger
                        .copies
                        .fetch_add(receipts.len() as u64, Ordering::Relaxed);
                    break;
                }
                // The message may be on a node. It is published again all the same.
                Err(error) => error.stored.len() as u64,
            };
            ledger.copies.fetch_add(copies, Ordering::Relaxed);
            sleep(Duration::from_millis(20)).await;
        }
    }
}

fn number_of(message: &Message) -> u64 {
    let body: serde_json::Value = serde_json::from_slice(message.body()).expect("JSON");
    body["number"].as_u64().expect("a number")
}

fn config() -> Config {
    Config {
        max_in_flight: 100,
        max_attempts: 0,
        lookupd_poll_interval: Duration::from_millis(500),
        ..Config::default()
    }
}

/// Starts the producers and the consumer of these nodes.
async fn start(ledger: &Arc<Ledger>, nodes: &[Address]) -> Control {
    let producer = Producer::builder()
        .nodes(nodes.iter().cloned())
        .publish_timeout(Some(TIMEOUT))
        .build()
        .expect("complete");
    let filter = RoaringPair::new(10_000_000, 1).expect("sizes");
    let key = Key::json_number(None, "/number").expect("a pointer");
    let dedup = Dedup::builder(key, filter).build().expect("complete");
    let consumer = Consumer::builder(TOPIC, "billing")
        .config(config())
        .nodes(nodes.iter().cloned())
        .dedup(dedup)
        .connect()
        .await
        .expect("complete");
    let control = consumer.control();
    for _ in 0..PRODUCERS {
        tokio::spawn(publish(Arc::clone(ledger), producer.clone()));
    }
    let ledger = Arc::clone(ledger);
    tokio::spawn(consumer.run(HANDLERS, move |message: Message| {
        let ledger = Arc::clone(&ledger);
        async move {
            sleep(if ledger.is_slow.load(Ordering::Relaxed) {
                HANDLING_SLOWLY
            } else {
                HANDLING
            })
            .await;
            ledger.handle(number_of(&message));
            Ok::<(), Infallible>(())
        }
    }));
    control
}

#[test]
fn any_node_may_lose_its_disk_and_each_message_counts_once() {
    let kills = number_from_env("RINGQ_TEST_KILLS", KILLS);
    let seed = number_from_env("RINGQ_SEED", std::process::id().into());
    println!("RINGQ_SEED={seed}");
    with_own_network(|| {
        let began = Instant::now();
        let mut random = Random::new(seed);
        let network = Network::new();
        let mut nodes = [11, 12, 13].map(|number| Node::start(network.host(number)));
        let addresses = nodes.each_ref().map(Node::address);
        let runtime = Runtime::new().expect("threads");
        let ledger = Arc::new(Ledger::default());
        let control = runtime.block_on(start(&ledger, &addresses));
        for kill in 0..kills {
            ledger.is_slow.store(true, Ordering::Relaxed);
            let is_full = wait_until(TIMEOUT, || ledger.state.lock().owed.len() >= BACKLOG_MIN);
            assert!(is_full, "kill {kill}: no messages come");
            std::thread::sleep(Duration::from_millis(random.below(300)));
            let victim = random.below(3) as usize;
            nodes[victim].destroy();
            ledger.is_slow.store(false, Ordering::Relaxed);
            // Another node may fail only when no message depends on it alone.
            let owed = ledger.state.lock().owed.clone();
            let is_handled = wait_until(TIMEOUT, || ledger.owed_of(&owed).is_empty());
            let lost = ledger.owed_of(&owed);
            assert!(is_handled, "kill {kill}, node {victim}: lost {lost:?}");
        }
        ledger.is_over.store(true, Ordering::Relaxed);
        let is_empty = wait_until(TIMEOUT, || ledger.state.lock().owed.is_empty());
        assert!(is_empty, "lost {:?}", ledger.state.lock().owed);
        // Copies that are still on their way must not be handled.
        std::thread::sleep(Duration::from_millis(500));
        let stats = control.stats().dedup.expect("a filter");
        runtime.block_on(control.shutdown());
        let state = ledger.state.lock();
        let twice: Vec<_> = state
            .handled
            .iter()
            .filter(|(_, count)| **count != 1)
            .collect();
        assert!(twice.is_empty(), "handled more than once: {twice:?}");
        let copies = ledger.copies.load(Ordering::Relaxed);
        println!(
            "{kills} kills in {:.0?}: {} messages confirmed, {} handled once, {} copies stored, {} recognised, {} lost with \
             their disks",
            began.elapsed(),
            state.confirmed,
            state.handled.len(),
            copies,
            stats.done,
            copies.saturating_sub(stats.fresh + stats.done),
        );
        assert!(stats.done > 0, "no copy was recognised");
        assert!(copies > stats.fresh + stats.done, "no disk had a message");
    });
}
