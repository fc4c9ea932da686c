//! Malformed and hostile streams over real sockets. Each gets the answer of the protocol's error
//! tables, closes at most its own connection, and harms no other client.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::support::{
    self, Broker, Client, Frame, FrameType, Message, Random, TIMEOUT, tcp_state, wait_until,
};

/// Returns `line`, then numbers as 32-bit words, then bytes.
fn bytes(line: &str, words: &[i32], rest: &[u8]) -> Vec<u8> {
    let mut all = line.as_bytes().to_vec();
    for word in words {
        all.extend_from_slice(&word.to_be_bytes());
    }
    all.extend_from_slice(rest);
    all
}

/// Waits until the broker counts no other connections.
fn wait_for_clients(broker: &Broker, count: u64) {
    let mut last = String::new();
    let settled = wait_until(TIMEOUT, || {
        let stats = broker.stats();
        last = stats.to_string();
        let producers = stats["producers"].as_array().map_or(0, Vec::len) as u64;
        let topics = stats["topics"].as_array().cloned().unwrap_or_default();
        let consumers: u64 = topics
            .iter()
            .flat_map(|topic| topic["channels"].as_array().cloned().unwrap_or_default())
            .map(|channel| channel["client_count"].as_u64().unwrap_or(0))
            .sum();
        producers + consumers == count
    });
    assert!(settled, "{count} clients are expected at the end: {last}");
}

/// A producer and a consumer with their own connections. They fail if anything goes wrong for them.
struct Neighbour {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(u64, Duration)>,
}

impl Neighbour {
    fn start(address: SocketAddr) -> Neighbour {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut producer = Client::connect(address);
            let mut consumer = Client::connect(address);
            consumer.subscribe("neighbour", "channel");
            consumer.ready(10);
            let mut rounds: u64 = 0;
            let mut slowest = Duration::ZERO;
            while !stopped.load(Ordering::Relaxed) || rounds < 10 {
                let before = Instant::now();
                let body = rounds.to_be_bytes();
                producer.publish("neighbour", &body);
                let message = consumer.message();
                assert_eq!(message.body, body, "one message at a time keeps its order");
                assert_eq!(message.attempts, 1);
                consumer.finish(&message.id);
                slowest = slowest.max(before.elapsed());
                rounds += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            (rounds, slowest)
        });
        Neighbour { stop, thread }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        let (rounds, slowest) = match self.thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        eprintln!("streams: the neighbour made {rounds} rounds, the slowest in {slowest:?}");
        assert!(slowest < TIMEOUT, "the neighbour waited for {slowest:?}");
    }
}

/// Sends the bytes on a new connection and ends its side of the stream. Returns the last frame before the end.
fn last_answer(broker: &Broker, sent: &[u8]) -> String {
    let mut client = Client::connect_without_magic(broker.tcp_addr());
    // A broker may close before it has read a long command, so a failed write does not matter.
    let _ = client.try_send(sent);
    client.close_write();
    let mut last = String::new();
    loop {
        match client.try_frame() {
            Ok(Some(frame)) => last = frame.text(),
            Ok(None) => return last,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return last,
            Err(error) => panic!("the end of the stream was expected: {error}"),
        }
    }
}

/// The answers to all malformed commands are recorded (`differential/*.case`). Here, each kind of them comes beside clients
/// that go on working, and leaves no connection behind.
#[test]
fn malformed_streams_harm_no_neighbour() {
    let second = bytes("first", &[0], b"");
    let nested = "[".repeat(100_000);
    let size = nested.len() as i32;
    let objects = "{\"a\":".repeat(100_000);
    let cases = [
        (
            bytes("\u{16}\u{3}\u{1}", &[0x0200_0100, 0x01fc_0303], b""),
            "E_BAD_PROTOCOL",
        ),
        (bytes("  V", &[], b""), ""),
        (
            bytes("  V2FOO\nPUB t\n", &[], b""),
            "E_INVALID invalid command FOO",
        ),
        (bytes("  V2", &[], &[b'x'; 16_384]), ""),
        (
            bytes("  V2PUB t\n", &[i32::MAX], &[0; 100]),
            "E_BAD_MESSAGE PUB message too big 2147483647 > 1048576",
        ),
        (
            bytes("  V2PUB t\n", &[5], b"four"),
            "E_BAD_MESSAGE PUB failed to read message body",
        ),
        (
            bytes("  V2DPUB t 1\n", &[5], b"four"),
            "E_BAD_MESSAGE DPUB failed to read message body",
        ),
        (
            bytes("  V2MPUB t\n", &[17, 2, 5], &second),
            "E_BAD_MESSAGE MPUB invalid message(1) body size 0",
        ),
        (
            bytes("  V2IDENTIFY\n", &[size], nested.as_bytes()),
            "E_BAD_BODY IDENTIFY failed to decode JSON body",
        ),
        (
            bytes(
                "  V2IDENTIFY\n",
                &[objects.len() as i32],
                objects.as_bytes(),
            ),
            "E_BAD_BODY IDENTIFY failed to decode JSON body",
        ),
        (
            bytes("  V2AUTH\n", &[6], b"secret"),
            "E_AUTH_DISABLED AUTH disabled",
        ),
        (
            bytes("  V2SUB s c\nRDY 2501\n", &[], b""),
            "E_INVALID RDY count 2501 out of range 0-2500",
        ),
        (
            bytes("  V2SUB s c\nFIN short\n", &[], b""),
            "E_INVALID invalid message ID",
        ),
        (bytes("  V2SUB s c\nCLS\n", &[], b""), "CLOSE_WAIT"),
    ];
    let broker = Broker::start(2, &[]);
    let neighbour = Neighbour::start(broker.tcp_addr());
    for (sent, expected) in cases {
        assert_eq!(last_answer(&broker, &sent), expected);
    }
    neighbour.stop();
    wait_for_clients(&broker, 0);
}

// --- whole sessions

/// The shortest session that publishes and consumes, byte for byte except timestamp and id.
#[test]
fn the_minimal_session() {
    let broker = Broker::start(2, &[]);
    let mut stream = TcpStream::connect(broker.tcp_addr()).expect("listening");
    stream
        .set_read_timeout(Some(TIMEOUT))
        .expect("a timeout above zero");
    let sent = bytes("  V2SUB t ch\nRDY 3\nPUB t\n", &[2], b"hi");
    stream.write_all(&sent).expect("connected");
    let mut got = [0; 10 + 10 + 36];
    stream
        .read_exact(&mut got)
        .expect("two answers and a message");
    let ok = b"\0\0\0\x06\0\0\0\0OK";
    // The message may come before the second OK: their order is not fixed.
    let at = if got[10..20] == *ok { 20 } else { 10 };
    assert_eq!(&got[..10], ok);
    let rest = [&got[10..at], &got[at + 36..]].concat();
    assert_eq!(rest, ok);
    let message = &got[at..at + 36];
    assert_eq!(&message[..8], b"\0\0\0\x20\0\0\0\x02");
    assert_eq!(&message[16..18], b"\0\x01", "the first attempt");
    let id = std::str::from_utf8(&message[18..34]).expect("hexadecimal");
    let id = u64::from_str_radix(id, 16).expect("hexadecimal");
    let timestamp = u64::from_be_bytes(message[8..16].try_into().expect("eight bytes"));
    let unix = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970");
    assert!(unix.as_nanos() as u64 - timestamp < TIMEOUT.as_nanos() as u64);
    let id_time = ((id >> 22) + 1_288_834_974_288) << 20;
    assert!(
        timestamp.abs_diff(id_time) < TIMEOUT.as_nanos() as u64,
        "the id tells the time"
    );
    assert_eq!(&message[34..], b"hi");
}

/// Returns a session with every command.
fn session(topic: &str) -> Vec<u8> {
    let mut all = b"  V2".to_vec();
    let identify = br#"{"client_id":"c","feature_negotiation":false}"#;
    all.extend_from_slice(&Client::command_with_body("IDENTIFY", identify));
    for number in 0..50u32 {
        let body = format!("body {number}");
        all.extend_from_slice(&Client::command_with_body(
            &format!("PUB {topic}"),
            body.as_bytes(),
        ));
        all.extend_from_slice(b"NOP\n");
    }
    let many: Vec<String> = (50..80).map(|number| format!("body {number}")).collect();
    all.extend_from_slice(&Client::mpub(topic, &many));
    for number in 80..100u32 {
        let body = format!("body {number}");
        let line = format!("DPUB {topic} 1");
        all.extend_from_slice(&Client::command_with_body(&line, body.as_bytes()));
    }
    all.extend_from_slice(format!("SUB {topic} channel\nRDY 200\n").as_bytes());
    all.extend_from_slice(b"FIN 0123456789abcdef\n");
    all
}

fn check_session(client: &mut Client) {
    for _ in 0..1 + 50 + 1 + 20 + 1 {
        client.expect_ok();
    }
    let mut bodies = std::collections::BTreeSet::new();
    let mut errors = 0;
    while bodies.len() < 100 || errors < 1 {
        let frame = client.frame_after_heartbeats();
        match frame.kind {
            FrameType::Message => {
                let message = Message::parse(&frame.data).expect("whole");
                client.finish(&message.id);
                let text = message.text();
                assert!(bodies.insert(text), "delivered twice");
            }
            FrameType::Error => {
                let text = frame.text();
                assert_eq!(
                    text,
                    "E_FIN_FAILED FIN 0123456789abcdef failed ID not in flight"
                );
                errors += 1;
            }
            FrameType::Response => panic!("not expected: {}", frame.text()),
        }
    }
    for number in 0..100 {
        assert!(
            bodies.contains(&format!("body {number}")),
            "body {number} is missing"
        );
    }
}

#[test]
fn a_session_in_one_write() {
    for shards in [1, 2] {
        let broker = Broker::start(shards, &[]);
        for number in 0..8 {
            let mut client = Client::connect_without_magic(broker.tcp_addr());
            client.send(&session(&format!("pipelined-{number}")));
            check_session(&mut client);
        }
    }
}

#[test]
fn a_session_one_byte_per_write() {
    let broker = Broker::start(2, &[]);
    for number in 0..2 {
        let mut client = Client::connect_without_magic(broker.tcp_addr());
        for byte in session(&format!("trickled-{number}")) {
            client.send(&[byte]);
        }
        check_session(&mut client);
    }
}

#[test]
fn a_session_in_pieces_of_any_size() {
    let broker = Broker::start(2, &[]);
    let mut random = Random::new(7);
    for number in 0..20 {
        let mut client = Client::connect_without_magic(broker.tcp_addr());
        let all = session(&format!("pieces-{number}"));
        let mut rest = all.as_slice();
        while !rest.is_empty() {
            let size = random.between(1, 40).min(rest.len() as u64) as usize;
            client.send(&rest[..size]);
            rest = &rest[size..];
            if random.one_in(10) {
                // The pause lets the broker read the piece by itself.
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        check_session(&mut client);
    }
}

// --- time

#[test]
fn a_silent_client_gets_a_heartbeat_and_then_the_end() {
    let broker = Broker::start(1, &[]);
    let mut client = broker.client();
    let start = Instant::now();
    client.identify(r#"{"heartbeat_interval":1000}"#);
    let heartbeat = client.frame();
    assert!(heartbeat.is_heartbeat(), "{heartbeat:?}");
    expect_elapsed(start, 1000);
    // A second heartbeat may come right before the end.
    let end = (0..2)
        .map(|_| client.try_frame())
        .find(|frame| !matches!(frame, Ok(Some(frame)) if frame.is_heartbeat()));
    assert!(
        matches!(end, Some(Ok(None))),
        "the end without an error frame, not {end:?}"
    );
    expect_elapsed(start, 2000);
}

#[test]
fn a_command_that_trickles_in_does_not_extend_the_deadline() {
    let broker = Broker::start(1, &[]);
    let mut client = broker.client();
    let start = Instant::now();
    client.identify(r#"{"heartbeat_interval":1000}"#);
    let mut writer = client.writer();
    let sender = std::thread::spawn(move || {
        let all = bytes("PUB t\n", &[1000], &[b'x'; 1000]);
        for byte in all {
            if writer.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(60));
        }
    });
    // At most two heartbeats come first.
    let mut frame = client.frame();
    for _ in 0..2 {
        if frame.is_heartbeat() {
            frame = client.frame();
        }
    }
    expect_elapsed(start, 2000);
    let text = "E_BAD_MESSAGE PUB failed to read message body";
    assert_eq!(
        frame,
        Frame {
            kind: FrameType::Error,
            data: text.into()
        }
    );
    client.expect_close();
    drop(client);
    sender.join().expect("the sender does not panic");
}

#[test]
fn commands_keep_a_connection_and_heartbeats_keep_coming() {
    let broker = Broker::start(1, &[]);
    let mut client = broker.client();
    let start = Instant::now();
    client.identify(r#"{"heartbeat_interval":3000}"#);
    client.subscribe("kept", "channel");
    for seconds in [3, 6, 9] {
        let heartbeat = client.frame();
        assert!(heartbeat.is_heartbeat(), "{heartbeat:?}");
        expect_elapsed(start, seconds * 1000);
        client.send(b"NOP\n");
    }
    client.publish("kept", b"x");
}

#[track_caller]
fn expect_elapsed(start: Instant, milliseconds: u64) {
    let elapsed = start.elapsed();
    let due = Duration::from_millis(milliseconds);
    // This is far below the 60 s for which the command arrives in pieces.
    let late = due + Duration::from_secs(40);
    assert!(
        due <= elapsed && elapsed < late,
        "{elapsed:?} instead of {milliseconds} ms"
    );
}

// --- hostile clients

/// The client sends RDY 2500 and never reads its large messages, so its window and the sockets'
/// buffers fill. Other clients notice nothing. Later the client reads or dies, and its messages go
/// to other consumers.
#[test]
fn a_client_that_never_reads_harms_nobody() {
    let broker = Broker::start(2, &[]);
    let neighbour = Neighbour::start(broker.tcp_addr());
    let mut idle = broker.client();
    idle.identify(r#"{"heartbeat_interval":1000,"msg_timeout":2000}"#);
    idle.subscribe("large", "channel");
    idle.ready(2500);
    let body = vec![b'x'; 100_000];
    let mut producer = broker.client();
    for _ in 0..300 {
        producer.publish("large", &body);
    }
    let before = support::rss(broker.pid()).anonymous_bytes;
    // The broker closes the client after at most two intervals (P10). Other consumers of the topic
    // are served.
    broker.wait_for_channel("large", "channel", &[("client_count", 0)]);
    // The client still reads nothing and the socket stays full, but the broker must close it.
    let is_free = wait_until(TIMEOUT, || {
        tcp_state(broker.tcp_addr(), idle.local_addr()).as_deref() != Some("01")
    });
    assert!(is_free, "a client that was closed keeps a descriptor");
    let after = support::rss(broker.pid()).anonymous_bytes;
    assert!(
        after < before + 20_000_000,
        "{before} bytes grew to {after}"
    );
    let mut other = broker.consumer("large", "channel", 100);
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 300 {
        let message = other.message();
        assert_eq!(message.body, body);
        other.finish(&message.id);
        seen.insert(message.id);
    }
    neighbour.stop();
}

/// Regression: the broker closed a consumer that read less than 800 KiB per heartbeat interval,
/// although the consumer continued to read. The kernel reports room in a socket only when a third
/// of the send buffer is free, which is 800 KiB here.
#[test]
fn a_consumer_that_reads_slowly_is_kept() {
    const HEARTBEAT: Duration = Duration::from_secs(4);
    /// The bytes of one read. The consumer reads 75 KiB per second, so reading the send buffer
    /// alone takes more than 5 intervals.
    const PIECE_BYTES: usize = 7680;
    let broker = Broker::start(1, &["--msg-timeout=10m"]);
    let body = vec![b'x'; 10_000];
    let mut producer = broker.client();
    for _ in 0..25 {
        producer.publish_many("large", &vec![&body; 100]);
    }
    let mut slow = broker.client();
    slow.identify(&format!(
        r#"{{"heartbeat_interval":{}}}"#,
        HEARTBEAT.as_millis()
    ));
    let mut stream = slow.writer();
    socket2::SockRef::from(&stream)
        .set_recv_buffer_size(16 * 1024)
        .expect("an open socket");
    slow.subscribe("large", "channel");
    slow.ready(2500);
    let mut piece = vec![0; PIECE_BYTES];
    let start = Instant::now();
    let mut answered = start;
    while start.elapsed() < 4 * HEARTBEAT {
        std::thread::sleep(Duration::from_millis(100));
        if let Err(error) = stream.read_exact(&mut piece) {
            panic!("closed after {:?}: {error}", start.elapsed());
        }
        if answered.elapsed() > HEARTBEAT / 2 {
            stream.write_all(b"NOP\n").expect("it is connected");
            answered = Instant::now();
        }
    }
    let channel = broker.channel("large", "channel");
    assert_eq!(channel["client_count"], 1);
    assert!(
        channel["depth"].as_u64() > Some(0),
        "everything fits into the buffers of the sockets"
    );
}

/// Regression: the listener accepted all waiting connections before any other task ran, so a flood
/// of connects delayed all clients.
#[test]
fn newcomers_take_turns_with_others() {
    const NEWCOMERS: usize = 200;
    let broker = Broker::start(1, &[]);
    let mut early = broker.client();
    early.identify("{}");
    broker.signal("STOP");
    let newcomers: Vec<_> = (0..NEWCOMERS)
        .map(|_| TcpStream::connect(broker.tcp_addr()).expect("the kernel accepts"))
        .collect();
    early.command("PUB early", b"x");
    broker.signal("CONT");
    early.expect_ok();
    let count = |log: &str| log.matches("TCP: new client(").count();
    let are_in = wait_until(TIMEOUT, || count(&broker.log()) > NEWCOMERS);
    assert!(are_in, "newcomers wait: {}", count(&broker.log()));
    let log = broker.log();
    let (_, behind) = log
        .split_once("TOPIC(early): created")
        .expect("the publish made it");
    let behind = count(behind);
    assert!(behind > NEWCOMERS / 2, "{behind} newcomers waited");
    drop(newcomers);
}

/// Regression: one event, here the checkpoint with the channel that many connections waited for,
/// let all of them carry out their next commands in one turn of the broker. No other client was
/// served during this turn. Now each connection gets its own turn: the RDY of the first connection
/// brings its message before the broker reads the next connection.
#[test]
fn connections_that_one_event_lets_go_on_take_turns() {
    const CLIENTS: usize = 40;
    let broker = Broker::start(1, &[]);
    let mut producer = broker.client();
    producer.publish("waits", b"known");
    let mut early = broker.consumer("waits", "early", 1);
    let known = early.message();
    early.finish(&known.id);
    let deleted = broker.post("/channel/delete?topic=waits&channel=early", b"");
    deleted.expect_status(200);
    // The next message has the next id, and waits for a channel.
    producer.publish("waits", b"next");
    let known = str::from_utf8(&known.id).expect("hexadecimal digits");
    let next = u64::from_str_radix(known, 16).expect("hexadecimal digits") + 1;
    let commands = format!("SUB waits channel\nRDY 1\nFIN {next:016x}\n");
    let mut clients: Vec<Client> = (0..CLIENTS)
        .map(|_| {
            let mut client = broker.client();
            client.identify("{}");
            client
        })
        .collect();
    // The broker sees all connections at once, so all of them wait for the same checkpoint.
    broker.signal("STOP");
    for client in &mut clients {
        client.send(commands.as_bytes());
    }
    broker.signal("CONT");
    let mut seen_before = 0;
    for client in &mut clients {
        client.expect_ok();
        let error = loop {
            let frame = client.frame_after_heartbeats();
            if frame.kind == FrameType::Error {
                break frame.text();
            }
        };
        seen_before += usize::from(error.ends_with("failed ID not in flight"));
    }
    assert_eq!(seen_before, 1, "of {CLIENTS} clients before a delivery");
}

#[test]
fn connections_that_die_in_the_middle_of_a_publish_leave_nothing() {
    let broker = Broker::start(2, &[]);
    let neighbour = Neighbour::start(broker.tcp_addr());
    let mut random = Random::new(42);
    let large = vec![b'x'; 1_000_000];
    let pub_large = Client::command_with_body("PUB torn", &large);
    let mpub_large = Client::mpub("torn", &vec![vec![b'y'; 250_000]; 16]);
    for round in 0..60 {
        let all = if round % 2 == 0 {
            &pub_large
        } else {
            &mpub_large
        };
        let cut_at = random.between(1, all.len() as u64 - 1) as usize;
        let mut client = broker.client();
        client.send(&all[..cut_at]);
        if round % 3 == 0 {
            reset(client);
        }
    }
    // Nobody reads these answers, and a reset arrives while the broker writes.
    for _ in 0..20 {
        let mut client = broker.client();
        client.send(&[b"NOP\n".repeat(1000), pub_small(200)].concat());
        reset(client);
    }
    wait_for_clients(&broker, 2);
    let torn = broker.topic_stats("torn");
    let count = torn.map_or(0, |topic| topic["message_count"].as_u64().unwrap_or(0));
    assert_eq!(count, 0, "a publish that was cut off has not happened");
    neighbour.stop();
    wait_for_clients(&broker, 0);
}

fn pub_small(count: usize) -> Vec<u8> {
    Client::command_with_body("PUB small", b"x").repeat(count)
}

/// Ends the connection with a reset instead of an orderly close.
fn reset(client: Client) {
    socket2::SockRef::from(&client.writer())
        .set_linger(Some(Duration::ZERO))
        .expect("an open socket");
}

/// Regression: line breaks and escape sequences from clients reached the log unchanged. A client
/// could forge log lines or control an operator's terminal.
#[test]
fn clients_cannot_forge_lines_of_the_log() {
    let broker = Broker::start(1, &["--log-level=debug"]);
    let forged = "x\n[nsqd] 2026/11/23 00:00:00.000000 FATAL: forged";
    for field in ["client_id", "hostname", "user_agent"] {
        let text = serde_json::Value::from(format!("{forged} \x1b[2J\u{9b}31m by {field}"));
        let mut client = broker.client();
        client.identify(&format!("{{\"{field}\":{text}}}"));
        let line = broker.wait_for_log(&format!("by {field}"));
        let shown = forged.replace('\n', "\\n") + " \\x1b[2J\\u009b31m by";
        assert!(line.contains(&shown), "{line}");
    }
    let mut client = broker.client();
    client.send(b"FOO\x1b[31m\r\x07 BAR\n");
    client.expect_error("E_INVALID invalid command FOO\x1b[31m\r\x07");
    let line = broker.wait_for_log("invalid command FOO");
    test_support::assert_like(&line, r"…invalid command FOO\x1b[31m\r\x07");
    let mut client = Client::connect_without_magic(broker.tcp_addr());
    client.send(b"\x1b[2J");
    client.expect_error("E_BAD_PROTOCOL");
    broker.wait_for_log(r"bad protocol magic '\x1b[2J'");
    broker.get("/nowhere%0aforged%1b?a=%0aforged");
    broker.wait_for_log("404 GET /nowhere");
    let mut http = TcpStream::connect(broker.http_addr()).expect("it listens");
    http.write_all(b"GET /raw\x1b[2J\x9b HTTP/1.1\r\nHost: x\r\n\r\n")
        .expect("it reads");
    http.set_read_timeout(Some(TIMEOUT)).expect("above zero");
    // Whatever the answer is, the log is checked afterwards.
    let mut first = [0];
    http.read_exact(&mut first).expect("an answer");
    let log = broker.log();
    let is_clean = |line: &str| !line.contains(|c: char| c.is_control());
    assert!(log.lines().all(is_clean), "{log}");
    let is_forged = |line: &str| line.starts_with("[nsqd] 2026/11/23 00:00:00.000000 FATAL");
    assert!(!log.lines().any(is_forged), "{log}");
}

/// The noise begins at the first byte or after a valid start.
#[test]
fn noise_is_refused_without_harm() {
    let broker = Broker::start(2, &[]);
    let neighbour = Neighbour::start(broker.tcp_addr());
    let mut random = Random::new(20_261_121);
    let words: [&[u8]; 14] = [
        b"  V2",
        b"PUB ",
        b"MPUB ",
        b"DPUB ",
        b"SUB ",
        b"RDY ",
        b"FIN ",
        b"REQ ",
        b"TOUCH ",
        b"CLS",
        b"IDENTIFY",
        b"NOP",
        b"\n",
        b"noise",
    ];
    for round in 0..400 {
        let mut noise = if round % 4 == 0 {
            Vec::new()
        } else {
            b"  V2".to_vec()
        };
        for _ in 0..random.between(1, 60) {
            match random.below(4) {
                0 => noise.push(random.next() as u8),
                1 => noise.extend_from_slice(&(random.below(300) as u32).to_be_bytes()),
                2 => noise.extend_from_slice(b"\n"),
                _ => noise.extend_from_slice(words[random.below(14) as usize]),
            }
        }
        let mut client = Client::connect_without_magic(broker.tcp_addr());
        let _ = client.try_send(&noise); // The connection may be closed already.
        client.close_write();
        // Whatever the answer is, it consists of frames and ends.
        loop {
            match client.try_frame() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                Err(error) => panic!("round {round}, {noise:?}: {error}"),
            }
        }
    }
    neighbour.stop();
    wait_for_clients(&broker, 0);
}
