//! Messages that their publishers number and send again are stored once, by the real broker on real files.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Broker, Client, FrameType, Message, Random, is_timeout};

const INCREMENTS: u64 = 10_000;
/// The broker is killed each time this many increments are acknowledged.
const KILL_EVERY: u64 = 2_500;
const BATCH_MAX: u64 = 40;
/// Sends that the publisher does not wait for.
const IN_FLIGHT_MAX: usize = 6;
const TIMEOUT: Duration = Duration::from_secs(60);

fn frame_body(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_be_bytes()[..], body].concat()
}

/// Returns the increments from `first` on as an MPUB, or as a PUB if it is one.
fn publish(first: u64, count: u64) -> Vec<u8> {
    let body = |number: u64| format!("+1 {number}").into_bytes();
    if count == 1 {
        let line = format!("PUB counter {first}\n").into_bytes();
        return [line, frame_body(&body(first))].concat();
    }
    let bodies: Vec<u8> = (first..first + count)
        .flat_map(|number| frame_body(&body(number)))
        .collect();
    let line = format!("MPUB counter {first}\n").into_bytes();
    let sizes = [bodies.len() as u32 + 4, count as u32];
    let sizes: Vec<u8> = sizes.into_iter().flat_map(u32::to_be_bytes).collect();
    [line, sizes, bodies].concat()
}

/// Connects as a publisher.
fn connect_as(id: &str, address: SocketAddr) -> io::Result<Client> {
    let mut client = Client::try_connect_within(address, TIMEOUT)?;
    let json = format!(r#"{{"feature_negotiation":true,"publisher_id":"{id}"}}"#);
    let command = [&b"IDENTIFY\n"[..], &frame_body(json.as_bytes())].concat();
    client.try_send(&command)?;
    let answer = next_frame(&mut client)?;
    assert!(answer.ends_with(r#""publisher_id":true}"#), "{answer}");
    Ok(client)
}

/// Returns the text of the next response.
fn next_frame(client: &mut Client) -> io::Result<String> {
    loop {
        let Some(frame) = client.try_frame()? else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        if frame.is_heartbeat() {
            client.try_send(b"NOP\n")?;
            continue;
        }
        assert_eq!(frame.kind, FrameType::Response, "{}", frame.text());
        return Ok(frame.text());
    }
}

/// Publishes all increments over connections that it cuts at random. A publish without an answer is sent again, with
/// the same numbers and perhaps in other batches.
struct Counting {
    random: Random,
    acknowledged: u64,
    cuts: u32,
}

impl Counting {
    /// Publishes until `target` increments are acknowledged, or the broker is gone.
    fn publish_until(&mut self, address: SocketAddr, target: u64) {
        let end = Instant::now() + TIMEOUT;
        while self.acknowledged < target {
            assert!(Instant::now() < end, "no progress");
            if let Err(error) = self.use_connection(address, target) {
                assert_ne!(error.kind(), io::ErrorKind::InvalidData, "{error}");
            }
            self.cuts += 1;
        }
    }

    fn use_connection(&mut self, address: SocketAddr, target: u64) -> io::Result<()> {
        let mut client = connect_as("c0ffee", address)?;
        let (mut sent, mut ends) = (self.acknowledged, Vec::new());
        loop {
            while ends.len() < IN_FLIGHT_MAX && sent < target {
                let count = self.random.between(1, BATCH_MAX).min(target - sent);
                let command = publish(sent, count);
                if self.random.one_in(40) {
                    // The connection ends in the middle of a command.
                    let part = self.random.below(command.len() as u64) as usize;
                    return client.try_send(&command[..part]);
                }
                client.try_send(&command)?;
                sent += count;
                ends.push(sent);
            }
            if ends.is_empty() {
                return Ok(());
            }
            if self.random.one_in(30) {
                // The answers to these publishes are never read.
                return Ok(());
            }
            let answer = next_frame(&mut client)?;
            assert_eq!(answer, "OK");
            self.acknowledged = ends.remove(0);
        }
    }
}

/// Consumes the counter until `is_over`, and counts each stored message once: after a crash, a message may come again
/// under the same id.
fn count(
    address: SocketAddr,
    is_over: &AtomicBool,
    seen: &AtomicUsize,
) -> BTreeMap<[u8; 16], Vec<u8>> {
    let mut messages = BTreeMap::new();
    while !is_over.load(Ordering::Relaxed) {
        let Ok(mut client) = Client::try_connect_within(address, TIMEOUT) else {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        client.set_read_timeout(Duration::from_secs(1));
        if client.try_send(b"SUB counter total\nRDY 300\n").is_err() {
            continue;
        }
        while !is_over.load(Ordering::Relaxed) {
            let frame = match client.try_frame() {
                Ok(Some(frame)) => frame,
                Err(error) if is_timeout(&error) => continue,
                Ok(None) | Err(_) => break,
            };
            if frame.is_heartbeat() && client.try_send(b"NOP\n").is_err() {
                break;
            }
            if frame.kind != FrameType::Message {
                continue;
            }
            let message = Message::parse(&frame.data).expect("a whole message");
            messages.insert(message.id, message.body);
            seen.store(messages.len(), Ordering::Relaxed);
            let fin = [&b"FIN "[..], &message.id, b"\n"].concat();
            if client.try_send(&fin).is_err() {
                break;
            }
        }
    }
    messages
}

#[test]
fn ten_thousand_increments_over_connections_that_are_cut_and_a_broker_that_is_killed() {
    let flags = ["--dedup=counter=publisher", "--sync-timeout=300ms"];
    let mut broker = Broker::start_on("127.0.23.1", 2, &flags);
    let address = broker.tcp_addr();
    let created = broker.post("/topic/create?topic=counter", b"");
    assert_eq!(created.status, 200);
    let created = broker.post("/channel/create?topic=counter&channel=total", b"");
    assert_eq!(created.status, 200);
    let (is_over, seen) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let consumer = {
        let (is_over, seen) = (is_over.clone(), seen.clone());
        std::thread::spawn(move || count(address, &is_over, &seen))
    };
    let mut producer = Counting {
        random: Random::new(23),
        acknowledged: 0,
        cuts: 0,
    };
    let mut duplicates = 0;
    for kill in 1..=INCREMENTS / KILL_EVERY {
        producer.publish_until(address, kill * KILL_EVERY);
        // The publisher does not know that these were acknowledged.
        producer.acknowledged -= producer.random.below(500);
        let stats = broker.topic("counter");
        duplicates += stats["dedup_duplicate_count"].as_u64().expect("a number");
        broker.kill9();
        broker.restart_on_same_ports();
    }
    producer.publish_until(address, INCREMENTS);
    let end = Instant::now() + TIMEOUT;
    while seen.load(Ordering::Relaxed) < INCREMENTS as usize && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    // A message that was stored twice is still to come.
    std::thread::sleep(Duration::from_millis(300));
    is_over.store(true, Ordering::Relaxed);
    let messages = consumer.join().expect("the consumer counts");
    let bodies: BTreeSet<&Vec<u8>> = messages.values().collect();
    println!(
        "{} cuts, {duplicates} duplicates before kills",
        producer.cuts
    );
    assert_eq!(bodies.len(), INCREMENTS as usize, "increments are missing");
    assert_eq!(messages.len(), INCREMENTS as usize, "the total");
    assert!(producer.cuts > 20 && duplicates > 100);
}

/// Connections of one publisher on all shards send the same numbers at the same time.
#[test]
fn copies_on_several_connections_at_once_are_stored_once() {
    for sync in ["--sync-timeout=100ms", "--sync-every=1"] {
        let broker = Broker::start(3, &["--dedup=*=publisher", sync]);
        let address = broker.tcp_addr();
        let clients: Vec<_> = (0..6)
            .map(|at: u64| {
                std::thread::spawn(move || {
                    let mut client = connect_as("7f", address).expect("connects");
                    let mut commands = Vec::new();
                    for first in 0..100 {
                        commands.extend(publish(first, 1 + (first + at) % 3));
                    }
                    client.send(&commands);
                    for _ in 0..100 {
                        client.expect_ok();
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().expect("every copy gets OK");
        }
        let stats = broker.topic("counter");
        assert_eq!(stats["message_count"], 102, "{stats}");
        assert_eq!(stats["depth"], 102, "{stats}");
    }
}

#[test]
fn http_publishes_have_numbers_and_a_restart_keeps_them() {
    let mut broker = Broker::start(2, &["--dedup=orders.*=publisher,window=64"]);
    let send = |broker: &Broker, target: &str, body: &[u8]| {
        let answer = broker.post(target, body);
        assert_eq!((answer.status, &*answer.text()), (200, "OK"));
    };
    let figures = |broker: &Broker| {
        let stats = broker.topic("orders.eu");
        let number = |key: &str| stats[key].as_u64().expect("the topic has a rule");
        [
            number("depth"),
            number("dedup_duplicate_count"),
            number("dedup_unchecked_count"),
            number("dedup_publisher_count"),
        ]
    };
    let one = "/pub?topic=orders.eu&publisher=7f&number=0";
    let three = "/mpub?topic=orders.eu&publisher=7f&number=0";
    send(&broker, one, b"a");
    send(&broker, one, b"a");
    send(&broker, three, b"a\nb\nc");
    send(&broker, "/pub?topic=orders.eu", b"a");
    assert_eq!(figures(&broker), [4, 2, 1, 1]);
    assert!(broker.sigterm_and_wait().success());
    broker.restart();
    send(&broker, three, b"a\nb\nc");
    assert_eq!(figures(&broker), [4, 3, 0, 1]);
    broker.kill9();
    broker.restart();
    send(&broker, three, b"a\nb\nc");
    assert_eq!(figures(&broker), [4, 3, 0, 1]);
    let refused = broker.post("/pub?topic=orders.eu&publisher=7f", b"a");
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("INVALID_NUMBER"));
    // Without a rule, a topic has none of the keys.
    send(&broker, "/pub?topic=other&publisher=7f&number=0", b"a");
    let other = broker.topic("other");
    assert_eq!(other.get("dedup_duplicate_count"), None);
}

/// A rule that comes or goes begins a new segment, and the messages of the old one are delivered.
#[test]
fn a_rule_comes_and_goes_with_a_restart() {
    let mut broker = Broker::start(1, &[]);
    let publish = |broker: &Broker, number: u64| {
        let target = format!("/pub?topic=t&publisher=7f&number={number}");
        let answer = broker.post(&target, format!("m{number}").as_bytes());
        assert_eq!(answer.status, 200);
    };
    publish(&broker, 0);
    for (flags, number) in [
        (&["--dedup=t=publisher"][..], 1),
        (&[], 2),
        (&["--dedup=t=publisher"], 3),
    ] {
        broker.kill9();
        broker.restart_with(1, flags);
        publish(&broker, number);
        publish(&broker, 1);
    }
    let mut client = broker.consumer("t", "ch", 100);
    let bodies: Vec<String> = (0..5)
        .map(|_| {
            let message = client.take();
            message.text()
        })
        .collect();
    // Without the rule, `m1` was stored a second time.
    assert_eq!(bodies, ["m0", "m1", "m2", "m1", "m3"]);
    client.expect_silence(Duration::from_millis(300));
}
