//! The tests delete channels and topics repeatedly while producers and consumers work. Other topics
//! and channels lose nothing. The clients of a deleted topic or channel get nsqd's errors. A
//! deleted topic or channel does not come back.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::support::{
    Broker, Client, FrameType, Message, TIMEOUT, contents, wait_until, whole_machine,
};

const DELETIONS: u64 = 60;
const PRODUCERS: u64 = 3;
const BATCH: u64 = 20;
const KEPT: &str = "kept";

/// The topic or channel to delete, with its consumer. Topic `kept` has a channel `kept` with
/// another consumer.
struct Doomed {
    topic: &'static str,
    channel: &'static str,
    delete: &'static str,
}

/// The state that the threads share.
#[derive(Default)]
struct Progress {
    /// The number of answered deletions.
    deleted: AtomicU64,
    /// The number of messages that the consumer of the doomed channel has received.
    received: AtomicU64,
    is_over: AtomicBool,
}

#[test]
fn a_channel_is_deleted_under_load() {
    delete_under_load(&Doomed {
        topic: KEPT,
        channel: "doomed",
        delete: "/channel/delete?topic=kept&channel=doomed",
    });
}

#[test]
fn a_topic_is_deleted_under_load() {
    delete_under_load(&Doomed {
        topic: "doomed",
        channel: "channel",
        delete: "/topic/delete?topic=doomed",
    });
}

fn delete_under_load(doomed: &Doomed) {
    let _machine = whole_machine();
    for shards in [1, 3] {
        let mut broker = Broker::start(shards, &[]);
        let (address, progress) = (broker.tcp_addr(), Progress::default());
        let mut consumer = Client::connect(address);
        consumer.subscribe(KEPT, KEPT);
        let (owed, mut finished) = thread::scope(|scope| {
            let finished = scope.spawn(move || consume_kept(consumer));
            let progress = &progress;
            let produce = |name| move || produce(address, name, doomed.topic, progress);
            let producers: Vec<_> = (0..PRODUCERS)
                .map(|name| scope.spawn(produce(name)))
                .collect();
            let victim = scope.spawn(|| consume_doomed(address, doomed, progress));
            for number in 1..=DELETIONS {
                delete_once(&broker, doomed, number, progress);
            }
            progress.is_over.store(true, Ordering::SeqCst);
            let owed = producers
                .into_iter()
                .flat_map(|producer| producer.join().expect("a producer does not panic"))
                .collect::<Vec<String>>();
            // The consumer's connection ends with its channel. The consumer may already be
            // connecting to the channel again.
            while {
                broker.post(doomed.delete, b"");
                !victim.is_finished()
            } {
                thread::yield_now();
            }
            let closings = victim.join().expect("the consumer does not panic");
            // A topic may have existed without its channel when it was deleted.
            assert!(
                closings * 2 > DELETIONS,
                "the connection was closed only {closings} times"
            );
            broker.wait_for_channel(KEPT, KEPT, &[("depth", 0), ("in_flight_count", 0)]);
            assert!(broker.sigterm_and_wait().success(), "a clean stop");
            (owed, finished.join().expect("the consumer does not panic"))
        });
        eprintln!(
            "deletion: {shards} shards, {} messages kept, {} received of deleted channels",
            owed.len(),
            progress.received.load(Ordering::SeqCst)
        );
        for body in owed {
            assert_eq!(finished.remove(&body), Some(1), "{body}: exactly once");
        }
        expect_gone(&mut broker, doomed);
    }
}

/// Deletes the doomed topic or channel when its consumer works, together with messages that no
/// consumer may see later.
fn delete_once(broker: &Broker, doomed: &Doomed, number: u64, progress: &Progress) {
    let before = progress.received.load(Ordering::SeqCst);
    let is_at_work = wait_until(TIMEOUT, || {
        progress.received.load(Ordering::SeqCst) > before
    });
    assert!(is_at_work, "nothing arrives before deletion {number}");
    let markers: Vec<String> = (0..BATCH).map(|_| format!("before {number}")).collect();
    broker.client().publish_many(doomed.topic, &markers);
    // The consumer may not have made its channel again yet.
    let is_deleted = wait_until(TIMEOUT, || broker.post(doomed.delete, b"").status == 200);
    assert!(is_deleted, "deletion {number} is answered");
    progress.deleted.store(number, Ordering::SeqCst);
}

/// Publishes to both topics in turn. Returns the bodies that got OK for the kept topic.
fn produce(address: SocketAddr, name: u64, doomed: &str, progress: &Progress) -> Vec<String> {
    let mut client = Client::connect(address);
    let mut owed = Vec::new();
    let mut number = 0;
    while !progress.is_over.load(Ordering::SeqCst) {
        for topic in [KEPT, doomed] {
            let bodies: Vec<String> = (number..number + BATCH)
                .map(|number| format!("{topic} {name} {number}"))
                .collect();
            number += BATCH;
            client.send(&Client::mpub(topic, &bodies));
            let frame = client.frame_after_heartbeats();
            if frame.data == b"OK" {
                owed.extend(bodies.into_iter().filter(|_| topic == KEPT));
            } else {
                // The error is that of nsqd while it deletes a topic, and it ends the connection.
                assert_ne!(topic, KEPT, "{}", frame.text());
                assert_eq!(frame.text(), "E_MPUB_FAILED MPUB failed exiting");
                client = Client::connect(address);
            }
        }
    }
    owed
}

/// Finishes every message until the broker is gone. Returns how often each body arrived.
fn consume_kept(mut client: Client) -> BTreeMap<String, u32> {
    client.ready(500);
    let mut finished = BTreeMap::new();
    while let Ok(Some(frame)) = client.try_frame() {
        if frame.is_heartbeat() {
            continue;
        }
        assert_eq!(frame.kind, FrameType::Message, "{}", frame.text());
        let message = Message::parse(&frame.data).expect("whole");
        client.finish(&message.id);
        let body = message.text();
        *finished.entry(body).or_default() += 1;
    }
    finished
}

/// Connects again whenever the connection is closed. Returns the number of closes.
fn consume_doomed(address: SocketAddr, doomed: &Doomed, progress: &Progress) -> u64 {
    let subscribe = format!("SUB {} {}\n", doomed.topic, doomed.channel);
    let mut closings = 0;
    while !progress.is_over.load(Ordering::SeqCst) {
        let deleted = progress.deleted.load(Ordering::SeqCst);
        let mut client = Client::connect(address);
        client.send(subscribe.as_bytes());
        let _ = client.try_send(b"RDY 100\n");
        while let Ok(Some(frame)) = client.try_frame() {
            let Some(message) =
                Message::parse(&frame.data).filter(|_| frame.kind == FrameType::Message)
            else {
                let text = frame.text();
                let is_expected = frame.data == b"OK"
                    || frame.is_heartbeat()
                    || text == "E_SUB_FAILED SUB failed exiting"
                    || text.starts_with("E_FIN_FAILED");
                assert!(is_expected, "{text}");
                continue;
            };
            progress.received.fetch_add(1, Ordering::SeqCst);
            let body = String::from_utf8_lossy(&message.body);
            if let Some(number) = body.strip_prefix("before ") {
                let number: u64 = number.parse().expect("a number");
                assert!(
                    number > deleted,
                    "deleted by {number}, back after {deleted}"
                );
            }
            let _ = client.try_send(&[b"FIN ".as_slice(), &message.id, b"\n"].concat());
        }
        closings += 1;
    }
    closings
}

/// Checks that the deleted topic or channel does not return after a restart, and that a deletion
/// after the restart leaves no file.
fn expect_gone(broker: &mut Broker, doomed: &Doomed) {
    broker.restart();
    let stats = broker.channel_stats(doomed.topic, doomed.channel);
    assert!(stats.is_none(), "it came back: {stats:?}");
    broker.admin(&format!("/topic/delete?topic={KEPT}"));
    let only = [broker.data_path().join("nsqd.dat")];
    let names = || {
        contents(broker.data_path())
            .into_iter()
            .map(|(path, _)| path)
    };
    let is_clean = wait_until(TIMEOUT, || names().eq(only.iter().cloned()));
    assert!(is_clean, "left behind: {:?}", names().collect::<Vec<_>>());
}
