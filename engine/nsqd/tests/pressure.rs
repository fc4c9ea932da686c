//! Clients send without pause and read nothing. The broker stops reading from them before they fill
//! its memory. It loses none of their answers if they read later.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::support::{
    self, Broker, Certificates, Client, TIMEOUT, Upgrade, http, rss, wait_until, whole_machine,
};
use upgrade::Upgrades;

/// The number of bytes of commands that a client offers.
const OFFERED_BYTES: u64 = 100_000_000;

/// The largest growth of the broker's memory during this: buffers of both shards, and lines of the
/// log.
const GROWTH_BYTES_MAX: u64 = 32_000_000;

/// The time without progress after which the broker counts as no longer reading from the client. On
/// a busy machine, this can only end the flood too early.
const STALL: Duration = Duration::from_secs(2);

/// Sends commands in pieces of about 64 KiB, on a separate thread.
struct Flood {
    sent_bytes: Arc<AtomicU64>,
    is_enough: Arc<AtomicBool>,
    /// The thread, which returns the number of sent commands.
    sender: JoinHandle<io::Result<u64>>,
}

impl Flood {
    /// Sends `command(0)`, `command(1)` and so on, then `last`.
    fn start(
        mut stream: TcpStream,
        mut upgrades: Option<Upgrades>,
        command: impl Fn(u64) -> Vec<u8> + Send + 'static,
        last: &'static [u8],
    ) -> Flood {
        stream.set_write_timeout(None).expect("an open socket");
        // The socket's buffers are small, because the test must read their content at the end.
        let socket = socket2::SockRef::from(&stream);
        let sizes = socket
            .set_recv_buffer_size(64 * 1024)
            .and(socket.set_send_buffer_size(64 * 1024));
        sizes.expect("an open socket");
        let sent_bytes = Arc::new(AtomicU64::new(0));
        let is_enough = Arc::new(AtomicBool::new(false));
        let (sent, enough) = (sent_bytes.clone(), is_enough.clone());
        let sender = std::thread::spawn(move || {
            let mut count = 0;
            let mut is_last = false;
            while !is_last {
                is_last =
                    enough.load(Ordering::Relaxed) || sent.load(Ordering::Relaxed) >= OFFERED_BYTES;
                let mut piece = Vec::new();
                while piece.len() < 64 * 1024 && !is_last {
                    piece.extend(command(count));
                    count += 1;
                }
                if is_last {
                    piece.extend_from_slice(last);
                }
                let bytes = piece.len() as u64;
                if let Some(upgrades) = &mut upgrades {
                    upgrades.seal(&[IoSlice::new(&piece)])?;
                    piece = std::mem::take(&mut upgrades.wire);
                }
                stream.write_all(&piece)?;
                sent.fetch_add(bytes, Ordering::Relaxed);
            }
            Ok(count)
        });
        Flood {
            sent_bytes,
            is_enough,
            sender,
        }
    }

    /// Waits until the broker takes no more bytes. The broker's memory must not grow meanwhile.
    fn wait_for_stall(&self, broker: &Broker, before: u64) {
        let mut last = (0, Instant::now());
        let is_over = wait_until(10 * TIMEOUT, || {
            let grown = rss(broker.pid()).anonymous_bytes.saturating_sub(before);
            assert!(grown < GROWTH_BYTES_MAX, "grew by {grown} bytes");
            let sent = self.sent_bytes.load(Ordering::Relaxed);
            if sent != last.0 {
                last = (sent, Instant::now());
            }
            last.1.elapsed() >= STALL
        });
        assert!(is_over, "the broker still reads");
        assert!(last.0 < OFFERED_BYTES, "the broker took everything");
        self.is_enough.store(true, Ordering::Relaxed);
    }

    fn count(self) -> u64 {
        let result = self.sender.join().expect("the sender does not panic");
        result.expect("the broker takes everything in the end")
    }
}

/// Checks that the broker does not poll busily while it does not read from a client.
fn check_idle(broker: &Broker) {
    let is_idle = wait_until(TIMEOUT, || {
        let before = support::cpu_time(broker.pid());
        std::thread::sleep(Duration::from_millis(500));
        support::cpu_time(broker.pid()) - before < Duration::from_millis(150)
    });
    assert!(
        is_idle,
        "the broker is busy with a client that it does not read"
    );
}

fn anonymous(broker: &Broker) -> u64 {
    rss(broker.pid()).anonymous_bytes
}

/// Sends FINs of unknown messages after a SUB. The connection moves to its topic's shard with all
/// bytes that were read.
fn check_fins(upgrade: Option<&Upgrade>) {
    let broker = Broker::start(2, &["--snappy", "--deflate", "--max-heartbeat-interval=5m"]);
    for topic in ["a", "b"] {
        let mut client = broker.client();
        client.identify(r#"{"heartbeat_interval":300000}"#);
        if let Some(upgrade) = upgrade {
            client.upgrade(std::slice::from_ref(upgrade));
        }
        let upgrades = upgrade.map(|upgrade| {
            // The two directions are separate streams.
            let mut upgrades = Upgrades::default();
            upgrades.push(match upgrade {
                Upgrade::Snappy => upgrade::Upgrade::snappy(),
                Upgrade::Deflate(level) => upgrade::Upgrade::deflate(*level),
                Upgrade::Tls(_) => unreachable!("its directions belong together"),
            });
            upgrades
        });
        let before = anonymous(&broker);
        let command = move |at: u64| match at {
            0 => format!("SUB {topic} channel\n").into_bytes(),
            _ => format!("FIN {at:016x}\n").into_bytes(),
        };
        let flood = Flood::start(
            client.writer(),
            upgrades,
            command,
            b"FIN 0000000000000000\n",
        );
        flood.wait_for_stall(&broker, before);
        check_idle(&broker);
        client.expect_ok();
        let mut at = 0;
        loop {
            let frame = client.frame();
            if frame.is_heartbeat() {
                continue;
            }
            at += 1;
            if frame.text().contains("FIN 0000000000000000 ") {
                break;
            }
            let expected = format!("E_FIN_FAILED FIN {at:016x} failed ID not in flight");
            assert_eq!(frame.text(), expected);
        }
        assert_eq!(flood.count(), at);
        eprintln!("pressure: {at} commands were taken from a client that read nothing");
    }
}

#[test]
fn a_consumer_that_reads_nothing_is_not_read_either() {
    check_fins(None);
}

#[test]
fn a_compressed_consumer_that_reads_nothing_is_not_read_either() {
    check_fins(Some(&Upgrade::Snappy));
    check_fins(Some(&Upgrade::Deflate(1)));
}

/// The answers to IDENTIFY are ten times its size, and a client may send IDENTIFY first. Without
/// heartbeats there is no deadline either.
#[test]
fn identify_without_end_is_bounded() {
    let broker = Broker::start(2, &[]);
    let mut client = broker.client();
    let before = anonymous(&broker);
    let identify = br#"{"feature_negotiation":true,"heartbeat_interval":-1}"#;
    let identify = Client::command_with_body("IDENTIFY", identify);
    let last = b"PUB last\n\0\0\0\x01x";
    let flood = Flood::start(client.writer(), None, move |_| identify.clone(), last);
    flood.wait_for_stall(&broker, before);
    check_idle(&broker);
    let mut count = 0;
    while client.frame().text() != "OK" {
        count += 1;
    }
    assert_eq!(flood.count(), count);
}

/// A consumer, whose connection does not move, publishes to topics of both shards. So half of the
/// answers come from another shard.
#[test]
fn publishes_to_other_shards_are_bounded() {
    let broker = Broker::start(2, &["--max-heartbeat-interval=5m"]);
    let mut client = broker.client();
    client.identify(r#"{"heartbeat_interval":300000}"#);
    client.subscribe("own", "channel");
    let before = anonymous(&broker);
    let publish = |at: u64| Client::command_with_body(&format!("PUB topic-{}", at % 8), b"x");
    let flood = Flood::start(client.writer(), None, publish, b"CLS\n");
    flood.wait_for_stall(&broker, before);
    check_idle(&broker);
    let mut count = 0;
    loop {
        let frame = client.frame();
        match frame.text().as_str() {
            "OK" => count += 1,
            "CLOSE_WAIT" => break,
            text => assert_eq!(text, "_heartbeat_"),
        }
    }
    assert_eq!(flood.count(), count);
}

#[test]
fn a_client_with_tls_that_reads_nothing_is_not_read_either() {
    let certificates = Certificates::new();
    let broker = certificates.broker(1, &[]);
    let mut client = broker.client();
    client.upgrade(&[certificates.tls()]);
    client.subscribe("topic", "channel");
    let before = anonymous(&broker);
    let piece = b"FIN 0123456789abcdef\n".repeat(3000);
    client
        .writer()
        .set_write_timeout(Some(STALL))
        .expect("an open socket");
    let mut sent = 0;
    while sent < OFFERED_BYTES && client.try_send(&piece).is_ok() {
        sent += piece.len() as u64;
        let grown = anonymous(&broker).saturating_sub(before);
        assert!(grown < GROWTH_BYTES_MAX, "grew by {grown} bytes");
    }
    assert!(sent < OFFERED_BYTES, "the broker took everything");
    check_idle(&broker);
}

/// HTTP requests that are sent together are answered one by one.
#[test]
fn requests_without_end_are_bounded() {
    let broker = Broker::start(1, &[]);
    let stream = TcpStream::connect(broker.http_addr()).expect("it listens");
    let before = anonymous(&broker);
    let request = |_| b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n".to_vec();
    let last = b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let writer = stream.try_clone().expect("descriptors are left");
    let flood = Flood::start(writer, None, request, last);
    flood.wait_for_stall(&broker, before);
    check_idle(&broker);
    let mut answers = String::new();
    stream
        .set_read_timeout(Some(TIMEOUT))
        .expect("a timeout above zero");
    (&stream)
        .read_to_string(&mut answers)
        .expect("the answers, to the end");
    let count = answers.matches("HTTP/1.1 200 OK\r\n").count() as u64;
    assert_eq!(flood.count() + 1, count);
}

/// Regression: the broker stored the offset of each message in the body, 16 bytes for a message of
/// 1 byte.
#[test]
fn a_batch_of_tiny_messages_takes_no_more_memory_than_its_body() {
    const COUNT: usize = 2_621_440;
    let broker = Broker::start(1, &[]);
    let before = anonymous(&broker);
    let body = b"x\n".repeat(COUNT);
    let body_bytes = body.len() as u64;
    let address = broker.http_addr();
    let request = std::thread::spawn(move || http(address, "POST", "/mpub?topic=tiny", &body));
    let mut grown = 0;
    while !request.is_finished() {
        grown = grown.max(anonymous(&broker).saturating_sub(before));
        std::thread::sleep(Duration::from_millis(5));
    }
    let answer = request.join().expect("the request does not panic");
    answer.expect_status(200);
    let topic = broker.topic("tiny");
    assert_eq!(topic["message_count"], COUNT);
    // The limit covers the body and the broker's usual buffers.
    assert!(grown < 3 * body_bytes, "{grown} bytes for {body_bytes}");
}

#[test]
fn others_are_served_beside_fifty_that_ask_without_end() {
    let _machine = whole_machine();
    let broker = Broker::start(2, &[]);
    let before = anonymous(&broker);
    let identify = Client::command_with_body("IDENTIFY", br#"{"feature_negotiation":true}"#);
    let identify = identify.repeat(1000);
    let hostile: Vec<_> = (0..50)
        .map(|_| {
            let client = broker.client();
            let [mut writer, mut reader] = [client.writer(), client.writer()];
            let identify = identify.clone();
            // Both threads end with the connection.
            let threads = [
                std::thread::spawn(move || while writer.write_all(&identify).is_ok() {}),
                std::thread::spawn(move || drop(io::copy(&mut reader, &mut io::sink()))),
            ];
            (client, threads)
        })
        .collect();
    let mut producer = broker.client();
    let mut consumer = broker.consumer("others", "channel", 1);
    let mut slowest = Duration::ZERO;
    for round in 0..200u32 {
        let start = Instant::now();
        producer.publish("others", &round.to_be_bytes());
        let message = consumer.message();
        assert_eq!(message.body, round.to_be_bytes());
        consumer.finish(&message.id);
        slowest = slowest.max(start.elapsed());
    }
    eprintln!("pressure: the slowest of 200 messages beside 50 hostile clients took {slowest:?}");
    let grown = anonymous(&broker).saturating_sub(before);
    assert!(grown < 2 * GROWTH_BYTES_MAX, "grew by {grown} bytes");
    for (client, threads) in hostile {
        let connection = client.writer();
        connection.shutdown(Shutdown::Both).expect("it is open");
        for thread in threads {
            thread.join().expect("it does not panic");
        }
    }
}
