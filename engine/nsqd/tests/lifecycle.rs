//! From one run to the next: a clean stop keeps the state, the next start finds it, and a deletion
//! leaves no files behind.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::support::{
    Broker, Client, FrameType, Launch, Message, TIMEOUT, contents, http, wait_until, whole_machine,
};

/// The longest graceful stop, even on a busy machine. P13 (docs/explain/reliability.md) promises 5 s on an
/// idle machine. The tests print the real time.
const STOP_MAX: Duration = Duration::from_secs(30);
/// The longest start, however long the backlog is (P8).
const START_MAX: Duration = Duration::from_secs(2);
/// The time for starts. The quickest counts, because a busy machine delays some.
const STARTS: Duration = Duration::from_secs(60);

fn stop(broker: &mut Broker) {
    let status = broker.sigterm_and_wait();
    assert!(status.success(), "the broker ended with {status}");
}

fn expect_depth(broker: &Broker, topic: &str, channel: &str, depth: u64) {
    broker.wait_for_channel(topic, channel, &[("depth", depth)]);
}

/// Takes `count` messages and finishes them.
fn take(broker: &Broker, topic: &str, channel: &str, count: usize) -> Vec<Message> {
    let ready = u32::try_from(count.clamp(1, 500)).expect("small");
    let mut consumer = broker.consumer(topic, channel, ready);
    let messages = (0..count).map(|_| consumer.take()).collect();
    // The broker answers the end of input with a close after it has carried out every FIN.
    consumer.close_write();
    while let Ok(Some(frame)) = consumer.try_frame() {
        assert_ne!(frame.kind, FrameType::Error, "{}", frame.text());
    }
    messages
}

// --- the stop

#[test]
fn sigterm_under_load_loses_nothing() {
    stop_under_load("TERM", 2, 1);
}

#[test]
fn sigint_under_load_loses_nothing() {
    stop_under_load("INT", 1, 1);
}

/// The producers change the topic with each publish. So their connections never stay on a topic's
/// shard, and most publishes cross shards.
#[test]
fn sigterm_under_load_across_shards_loses_nothing() {
    for _ in 0..3 {
        stop_under_load("TERM", 3, 5);
    }
}

/// The number of producers to one topic. With this many, some message is always not synced.
const HTTP_PRODUCERS: u64 = 16;

/// Open HTTP connections are served to the end. Their publishes must not delay the stop.
#[test]
fn sigterm_under_http_load_is_not_put_off() {
    let _machine = whole_machine();
    let mut broker = Broker::start(2, &[]);
    let address = broker.http_addr();
    let producers: Vec<_> = (0..HTTP_PRODUCERS)
        .map(|_| thread::spawn(move || publish_over_http(address)))
        .collect();
    let is_loaded = wait_until(TIMEOUT, || {
        let topic = broker.topic_stats("load").unwrap_or_default();
        topic["message_count"].as_u64() > Some(BATCHES_MIN)
    });
    assert!(is_loaded, "the producers are at work");
    let before = Instant::now();
    stop(&mut broker);
    let elapsed = before.elapsed();
    assert!(elapsed < STOP_MAX, "the stop took {elapsed:?}");
    let oks: u64 = producers
        .into_iter()
        .map(|producer| producer.join().expect("a producer does not panic"))
        .sum();
    eprintln!("lifecycle: {oks} OKs over HTTP, stopped in {elapsed:?}");
    broker.restart();
    let topic = broker.topic("load");
    assert!(topic["depth"].as_u64() >= Some(oks), "{oks} OKs: {topic}");
}

/// Publishes over one connection until the broker is gone or refuses. Returns the number of OKs.
fn publish_over_http(address: SocketAddr) -> u64 {
    let mut stream = TcpStream::connect(address).expect("the broker listens");
    let request = "POST /pub?topic=load HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx";
    let mut oks = 0;
    let mut buffer = [0; 4096];
    loop {
        let mut response = Vec::new();
        if stream.write_all(request.as_bytes()).is_err() {
            return oks;
        }
        while !response.ends_with(b"\r\n\r\nOK") {
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => return oks,
                Ok(bytes) => response.extend_from_slice(&buffer[..bytes]),
            }
            if response.ends_with(b"{\"message\":\"EXITING\"}") {
                return oks;
            }
        }
        oks += 1;
    }
}

const PRODUCERS: u64 = 3;
const BATCHES_MIN: u64 = 400;
const BATCH: u64 = 20;
/// The most commands without an answer.
const AHEAD: u64 = 8;

fn load_topic(number: u64) -> String {
    format!("load-{number}")
}

/// Publishes until the broker is gone. Returns the number of batches with OK and the number of sent
/// batches. Batch n goes to topic n modulo `topics`.
fn produce(address: SocketAddr, name: u64, topics: u64, oks: &AtomicU64) -> (u64, u64) {
    let mut client = Client::connect(address);
    let mut answered = 0;
    let mut sent = 0;
    loop {
        while sent < answered + AHEAD {
            let bodies: Vec<String> = (0..BATCH)
                .map(|index| format!("{name} {}", sent * BATCH + index))
                .collect();
            // The batch counts as sent before the write, because a failed write may have delivered
            // it.
            sent += 1;
            let topic = load_topic((sent - 1) % topics);
            if client.try_send(&Client::mpub(&topic, &bodies)).is_err() {
                return (answered, sent);
            }
        }
        match client.try_frame() {
            Ok(Some(frame)) if frame.data == b"OK" => {
                answered += 1;
                oks.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Some(frame)) if frame.is_heartbeat() => {}
            Ok(Some(frame)) => {
                let text = frame.text();
                assert!(text.ends_with("failed exiting"), "{text}");
                return (answered, sent);
            }
            Ok(None) | Err(_) => return (answered, sent),
        }
    }
}

/// Consumes one topic until the broker is gone. Returns the finished messages. Near the end, it
/// leaves every third message in flight.
fn consume(address: SocketAddr, topic: &str, is_near: &AtomicBool) -> BTreeSet<String> {
    let mut client = Client::connect(address);
    client.subscribe(topic, "channel");
    client.ready(100);
    let mut finished = BTreeSet::new();
    let mut count: u64 = 0;
    while let Ok(Some(frame)) = client.try_frame() {
        if frame.kind != FrameType::Message {
            continue;
        }
        let message = Message::parse(&frame.data).expect("whole");
        count += 1;
        // The first few messages stay in flight from the start.
        if count <= 5 || count.is_multiple_of(3) && is_near.load(Ordering::Relaxed) {
            continue;
        }
        finished.insert(message.text());
        let fin = [b"FIN ".as_slice(), &message.id, b"\n"].concat();
        if client.try_send(&fin).is_err() {
            break;
        }
    }
    finished
}

fn stop_under_load(signal: &str, shards: usize, topics: u64) {
    let _machine = whole_machine();
    let mut broker = Broker::start(shards, &[]);
    for number in 0..topics {
        broker.create(&load_topic(number), "channel");
    }
    let address = broker.tcp_addr();
    let oks = Arc::new(AtomicU64::new(0));
    let is_near = Arc::new(AtomicBool::new(false));
    let producers: Vec<_> = (0..PRODUCERS)
        .map(|name| {
            let oks = oks.clone();
            thread::spawn(move || produce(address, name, topics, &oks))
        })
        .collect();
    let consumer = thread::spawn({
        let is_near = is_near.clone();
        move || consume(address, &load_topic(0), &is_near)
    });
    let is_loaded = wait_until(TIMEOUT, || oks.load(Ordering::Relaxed) > BATCHES_MIN);
    assert!(is_loaded, "only {} OKs", oks.load(Ordering::Relaxed));
    is_near.store(true, Ordering::Relaxed);
    let before = Instant::now();
    broker.signal(signal);
    let status = broker.wait();
    let elapsed = before.elapsed();
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(elapsed < STOP_MAX, "the stop took {elapsed:?}");
    let log = broker.log();
    assert!(
        log.trim_end().ends_with("INFO: NSQ: bye"),
        "the last line of a clean stop"
    );

    // These are, for each topic, the messages that must arrive and those that may arrive.
    let mut owed = vec![BTreeSet::new(); topics as usize];
    let mut possible = owed.clone();
    for (name, producer) in producers.into_iter().enumerate() {
        let (answered, sent) = producer.join().expect("a producer does not panic");
        for batch in 0..sent {
            let topic = (batch % topics) as usize;
            let bodies = (0..BATCH).map(|index| format!("{name} {}", batch * BATCH + index));
            possible[topic].extend(bodies.clone());
            if batch < answered {
                owed[topic].extend(bodies);
            }
        }
    }
    let finished = consumer.join().expect("the consumer does not panic");
    owed[0].retain(|body| !finished.contains(body));
    let count: usize = owed.iter().map(BTreeSet::len).sum();
    eprintln!(
        "lifecycle: {count} owed, {} finished, stopped in {elapsed:?}",
        finished.len()
    );

    broker.restart();
    let mut attempts_max = 0;
    for (number, mut owed) in owed.into_iter().enumerate() {
        let mut consumer = broker.consumer(&load_topic(number as u64), "channel", 500);
        while !owed.is_empty() {
            let Some(message) = consumer.message_within(TIMEOUT) else {
                panic!(
                    "{} OK'd messages of topic {number} are lost: {owed:?}",
                    owed.len()
                );
            };
            let body = message.text();
            assert!(
                possible[number].contains(&body),
                "{body} was never published there"
            );
            owed.remove(&body);
            attempts_max = attempts_max.max(message.attempts);
            consumer.finish(&message.id);
        }
    }
    assert_eq!(
        attempts_max, 2,
        "a message in flight at the stop comes as a second attempt"
    );
}

#[test]
fn attempts_of_messages_in_flight_are_kept() {
    let mut broker = Broker::start(2, &[]);
    let mut client = broker.client();
    for number in 0..5u8 {
        client.publish("attempts", &[number]);
    }
    client.subscribe("attempts", "channel");
    client.ready(10);
    let mut messages = Vec::new();
    for _ in 0..5 {
        messages.push(client.message());
    }
    // Message n has n + 1 attempts at the stop, and message 4 is finished.
    messages.sort_by_key(|message| message.body[0]);
    client.finish(&messages[4].id);
    for (number, message) in messages[..4].iter().enumerate() {
        for attempts in 1..=number {
            client.requeue(&message.id, 0);
            let again = client.message();
            assert_eq!(
                (again.id, usize::from(again.attempts)),
                (message.id, attempts + 1)
            );
        }
    }
    stop(&mut broker);
    drop(client);
    broker.restart();
    let again = take(&broker, "attempts", "channel", 4);
    for message in again {
        let before = &messages[usize::from(message.body[0])];
        assert_eq!(
            message.attempts,
            u16::from(message.body[0]) + 2,
            "{:?}",
            message.body
        );
        assert_eq!(
            (message.id, message.timestamp),
            (before.id, before.timestamp)
        );
    }
    expect_depth(&broker, "attempts", "channel", 0);
}

/// nsqd delivers deferred messages at once after a restart, whereas ringq keeps their deadline.
#[test]
fn deferred_messages_keep_their_time_over_a_restart() {
    let mut broker = Broker::start(2, &[]);
    broker.create("deferred", "channel");
    let mut client = broker.client();
    client.publish("deferred", b"requeued");
    client.subscribe("deferred", "channel");
    client.ready(1);
    let message = client.message();
    let start = Instant::now();
    client.requeue(&message.id, 6000);
    client.publish_deferred("deferred", 7000, b"published");
    broker.wait_for_channel("deferred", "channel", &[("deferred_count", 2)]);
    // The wait takes a part of the deferral. So the test sees a deferral that begins again after
    // the restart.
    thread::sleep(Duration::from_secs(3).saturating_sub(start.elapsed()));
    stop(&mut broker);
    drop(client);
    let restarted = start.elapsed();
    broker.restart();
    let mut client = broker.consumer("deferred", "channel", 10);
    for (body, attempts, due) in [(&b"requeued"[..], 2, 6000), (b"published", 1, 7000)] {
        let message = client.message();
        let elapsed = start.elapsed();
        assert_eq!(
            (message.body.as_slice(), message.attempts),
            (body, attempts)
        );
        // The deadline survives exactly to the millisecond, and so do the clocks of two runs.
        let due = Duration::from_millis(due);
        assert!(
            elapsed + Duration::from_millis(20) > due,
            "too early: {elapsed:?}, due {due:?}"
        );
        assert!(
            elapsed < restarted + due,
            "as if deferred anew: {elapsed:?}, due {due:?}, started again at {restarted:?}"
        );
        client.finish(&message.id);
    }
}

/// A checkpoint that is written 58 minutes from now is what a wall clock leaves that was 58 minutes ahead.
#[test]
fn a_start_with_a_wall_clock_that_is_behind_delays_no_message_and_says_so() {
    let mut broker = Broker::start(1, &[]);
    broker.create("deferred", "channel");
    let mut client = broker.client();
    client.publish_deferred("deferred", 3_500_000, b"x");
    let due = SystemTime::now() + Duration::from_secs(3500);
    stop(&mut broker);
    let checkpoint = broker.data_path().join("deferred.log/checkpoint");
    let file = fs::File::options().append(true).open(checkpoint);
    file.and_then(|file| file.set_modified(due - Duration::from_secs(2)))
        .expect("the checkpoint gets another time");
    broker.restart();
    broker.wait_for_log("1 deferred messages were due too far ahead");
    assert_eq!(take(&broker, "deferred", "channel", 1)[0].body, b"x");
}

#[test]
fn the_log_tells_the_life_of_the_broker() {
    let mut broker = Broker::start(2, &[]);
    broker.create("told", "listener");
    let mut client = broker.client();
    client.identify(r#"{"client_id":"cid","hostname":"hn","user_agent":"ua/1"}"#);
    client.subscribe("told", "listener");
    client.send(b"FIN 0123456789abcdef\nCLS\nRDY 1\n");
    client.expect_error("E_FIN_FAILED FIN 0123456789abcdef failed ID not in flight");
    client.expect_response("CLOSE_WAIT");
    let address = client.local_addr();
    let mut wrong = broker.client();
    wrong.send(b"pub\n");
    wrong.expect_error("E_INVALID invalid command pub");
    let wrong = wrong.local_addr();
    let probe = Client::connect_without_magic(broker.tcp_addr());
    let silent = probe.local_addr();
    drop(probe);
    broker.wait_for_log("ERROR: failed to read protocol version - EOF");
    let mut old = Client::connect_without_magic(broker.tcp_addr());
    old.send(b"  V1");
    old.expect_error("E_BAD_PROTOCOL");
    broker.wait_for_log("bad protocol magic '  V1'");
    drop(client);
    broker.wait_for_log(&format!("INFO: PROTOCOL(V2): [{address}] exiting ioloop"));
    broker.admin("/channel/delete?topic=told&channel=listener");
    broker.admin("/topic/delete?topic=told");
    broker.create("left", "alone");
    let (tcp, http) = (broker.tcp_addr(), broker.http_addr());
    stop(&mut broker);
    let log = broker.log();
    let complaints = log.matches("ERROR: client(").count();
    assert_eq!(
        complaints, 2,
        "a client that leaves in order, or that the broker closes, causes no ERROR line: {log}"
    );
    assert!(
        !log.contains(&format!("[{}] exiting", silent)),
        "a client that never sent the magic has no loop to exit: {log}"
    );
    let expected = [
        "INFO: nsqd v1.3.0 (built w/".to_owned(),
        "INFO: ID: ".to_owned(),
        format!("INFO: TCP: listening on {tcp}"),
        format!("INFO: HTTP: listening on {http}"),
        "INFO: TOPIC(told): created".to_owned(),
        "INFO: TOPIC(told): new channel(listener)".to_owned(),
        "INFO: 200 POST /topic/create?topic=told (127.0.0.1:".to_owned(),
        format!("INFO: TCP: new client({address})"),
        format!("INFO: CLIENT({address}): desired protocol magic '  V2'"),
        format!(
            "INFO: [{address}] IDENTIFY: {{ClientID:cid Hostname:hn HeartbeatInterval:0 \
             OutputBufferSize:0 OutputBufferTimeout:0 FeatureNegotiation:false TLSv1:false \
             Deflate:false DeflateLevel:0 Snappy:false SampleRate:0 UserAgent:ua/1 MsgTimeout:0 \
             TopologyRegion: TopologyZone:}}"
        ),
        format!(
            "ERROR: [{address}] - E_FIN_FAILED FIN 0123456789abcdef failed ID not in flight - ID \
             not in flight"
        ),
        format!(
            "INFO: PROTOCOL(V2): [{address}] ignoring RDY after CLS in state ClientStateV2Closing"
        ),
        format!("INFO: PROTOCOL(V2): [{address}] exiting messagePump"),
        format!("ERROR: [{wrong}] - E_INVALID invalid command pub"),
        format!("INFO: PROTOCOL(V2): [{wrong}] exiting ioloop"),
        format!("ERROR: client({wrong}) - E_INVALID invalid command pub"),
        format!("INFO: PROTOCOL(V2): [{wrong}] exiting messagePump"),
        "INFO: TOPIC(told): deleting channel listener".to_owned(),
        "INFO: CHANNEL(listener): deleting".to_owned(),
        "INFO: TOPIC(told): deleting".to_owned(),
        format!("INFO: TCP: closing {tcp}"),
        format!("INFO: HTTP: closing {http}"),
        "INFO: NSQ: closing topics".to_owned(),
        "INFO: TOPIC(left): closing".to_owned(),
        "INFO: CHANNEL(alone): closing".to_owned(),
        "INFO: NSQ: stopping subsystems".to_owned(),
        "INFO: NSQ: bye".to_owned(),
    ];
    let missing: Vec<&String> = expected
        .iter()
        .filter(|line| !log.contains(*line))
        .collect();
    assert!(missing.is_empty(), "missing in the log: {missing:#?}");
    // Every line has nsqd's form: prefix, date, time, level.
    for line in log.lines() {
        let words: Vec<&str> = line.splitn(5, ' ').collect();
        assert_eq!(words[0], "[nsqd]", "{line}");
        assert_eq!((words[1].len(), words[2].len()), (10, 15), "{line}");
        let levels = ["DEBUG:", "INFO:", "WARNING:", "ERROR:", "FATAL:"];
        assert!(levels.contains(&words[3]), "{line}");
    }
}

#[test]
fn at_level_debug_every_command_has_a_line() {
    let broker = Broker::start(1, &[]);
    let level = |level: &[u8]| {
        http(broker.http_addr(), "PUT", "/config/log_level", level).expect_status(200)
    };
    let mut client = broker.client();
    let address = client.local_addr();
    client.publish("quiet", b"x");
    level(b"debug");
    client.identify(r#"{"client_id":"cid"}"#);
    client.subscribe("told", "listener");
    client.ready(1);
    client.send(b"NOP\n");
    client.publish("told", b"x");
    client.take();
    client.send(b"wrong one\n");
    client.expect_error("E_INVALID invalid command wrong");
    for line in [
        "PROTOCOL(V2): [{a}] [IDENTIFY]",
        "PROTOCOL(V2): [{a}] {ClientID:cid Hostname: ",
        "PROTOCOL(V2): [{a}] [SUB told listener]",
        "[{a}] state rdy:    0 inflt:    0",
        "PROTOCOL(V2): [{a}] [RDY 1]",
        "[{a}] state rdy:    1 inflt:    0",
        "PROTOCOL(V2): [{a}] [NOP]",
        "PROTOCOL(V2): [{a}] [PUB told]",
        "PROTOCOL(V2): [{a}] [FIN ",
        "PROTOCOL(V2): [{a}] [wrong one]",
    ] {
        broker.wait_for_log(&format!(
            "DEBUG: {}",
            line.replace("{a}", &address.to_string())
        ));
    }
    assert!(
        !broker.log().contains("[PUB quiet]"),
        "not before it was asked for"
    );
    level(b"error");
    let mut late = broker.client();
    late.publish("late", b"x");
    late.send(b"wrong\n");
    late.expect_error("E_INVALID invalid command wrong");
    let late = late.local_addr();
    broker.wait_for_log(&format!("ERROR: client({late}) - E_INVALID"));
    assert!(
        !broker.log().contains(&format!("new client({late})")),
        "below the level"
    );
}

// --- metadata

fn metadata(data_path: &Path) -> String {
    std::fs::read_to_string(data_path.join("nsqd.dat")).unwrap_or_default()
}

#[track_caller]
fn expect_metadata(broker: &Broker, expected: &str) {
    let is_written = wait_until(TIMEOUT, || metadata(broker.data_path()) == expected);
    assert!(
        is_written,
        "{}\ninstead of\n{expected}",
        metadata(broker.data_path())
    );
}

#[test]
fn nsqd_dat_is_written_byte_for_byte() {
    let mut broker = Broker::start(2, &[]);
    assert_eq!(
        metadata(broker.data_path()),
        r#"{"topics":null,"version":"1.3.0"}"#
    );
    let mode = std::fs::metadata(broker.data_path().join("nsqd.dat"))
        .expect("there")
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    broker.admin("/topic/create?topic=orders");
    expect_metadata(
        &broker,
        r#"{"topics":[{"name":"orders","paused":false,"channels":null}],"version":"1.3.0"}"#,
    );
    broker.create("orders", "billing");
    broker.create("gone#ephemeral", "billing");
    broker.create("orders", "gone#ephemeral");
    let with = |topic: bool, channel: bool| {
        format!(
            "{{\"topics\":[{{\"name\":\"orders\",\"paused\":{topic},\"channels\":[{{\"name\":\
             \"billing\",\"paused\":{channel}}}]}}],\"version\":\"1.3.0\"}}"
        )
    };
    expect_metadata(&broker, &with(false, false));
    // The broker answers a pause after the write.
    broker.admin("/topic/pause?topic=orders");
    assert_eq!(metadata(broker.data_path()), with(true, false));
    broker.admin("/channel/pause?topic=orders&channel=billing");
    assert_eq!(metadata(broker.data_path()), with(true, true));
    broker.admin("/topic/unpause?topic=orders");
    assert_eq!(metadata(broker.data_path()), with(false, true));
    // A pause that changes nothing writes nothing: its answer would wait for the disk. The changes before may be written
    // once more.
    let file = || std::fs::metadata(broker.data_path().join("nsqd.dat")).expect("there");
    let version = || (file().ino(), file().modified().expect("a time"));
    let writes_nothing = || {
        let before = version();
        for target in [
            "/topic/pause?topic=nosuch",
            "/channel/unpause?topic=orders&channel=nosuch",
        ] {
            broker.post(target, b"").expect_status(404);
        }
        version() == before
    };
    assert!(wait_until(TIMEOUT, writes_nothing));
    stop(&mut broker);
    assert_eq!(metadata(broker.data_path()), with(false, true));
    let left = contents(broker.data_path());
    assert!(
        left.iter()
            .all(|(path, _)| path.extension().is_none_or(|extension| extension != "tmp")),
        "no temporary file is left"
    );
}

#[test]
fn paused_stays_paused_and_ephemeral_is_gone() {
    for restart_shards in [2, 3] {
        let mut broker = Broker::start(2, &[]);
        broker.create("paused-topic", "channel");
        broker.create("paused-channel", "channel");
        broker.create("paused-channel", "other");
        broker.create("gone#ephemeral", "channel");
        broker.create("paused-topic", "gone#ephemeral");
        broker.admin("/topic/pause?topic=paused-topic");
        broker.admin("/channel/pause?topic=paused-channel&channel=channel");
        let mut producer = broker.client();
        for topic in ["paused-topic", "paused-channel", "gone#ephemeral"] {
            producer.publish(topic, b"x");
        }
        expect_depth(&broker, "paused-channel", "other", 1);
        stop(&mut broker);
        broker.restart_with(restart_shards, &[]);
        let stats = broker.stats();
        let topics = stats["topics"].as_array().expect("an array");
        let names: BTreeSet<&str> = topics
            .iter()
            .filter_map(|topic| topic["topic_name"].as_str())
            .collect();
        assert_eq!(
            names,
            BTreeSet::from(["paused-channel", "paused-topic"]),
            "{stats}"
        );
        let topic = broker.topic("paused-topic");
        assert_eq!(
            (&topic["paused"], &topic["depth"]),
            (&true.into(), &1.into()),
            "{topic}"
        );
        assert_eq!(
            topic["channels"].as_array().map(Vec::len),
            Some(1),
            "{topic}"
        );
        assert_eq!(topic["channels"][0]["paused"], false, "{topic}");
        let paused = |channel| {
            let channel = broker.channel("paused-channel", channel);
            (channel["paused"] == true, channel["depth"].as_u64())
        };
        assert_eq!(paused("channel"), (true, Some(1)));
        assert_eq!(paused("other"), (false, Some(1)));
        let mut consumer = broker.consumer("paused-channel", "channel", 1);
        consumer.expect_silence(Duration::from_millis(300));
        broker.admin("/channel/unpause?topic=paused-channel&channel=channel");
        assert_eq!(consumer.message().body, b"x");
        let left = contents(broker.data_path());
        let ephemeral: Vec<_> = left
            .iter()
            .filter(|(path, _)| path.to_string_lossy().contains("ephemeral"))
            .collect();
        assert!(
            ephemeral.is_empty(),
            "ephemeral topics leave files: {ephemeral:?}"
        );
    }
}

// --- the next start

#[test]
fn another_number_of_shards_finds_everything() {
    const TOPICS: usize = 12;
    let mut broker = Broker::start(1, &[]);
    let topic = |number: usize| format!("topic-{number}");
    for number in 0..TOPICS {
        broker.create(&topic(number), "first");
        broker.create(&topic(number), "second");
    }
    let mut expected: Vec<BTreeSet<String>> = vec![BTreeSet::new(); TOPICS];
    for (round, shards) in [5, 2, 1, 3].into_iter().enumerate() {
        let mut producer = broker.client();
        for (number, expected) in expected.iter_mut().enumerate() {
            let bodies: Vec<String> = (0..20).map(|index| format!("{round} {index}")).collect();
            producer.publish_many(&topic(number), &bodies);
            expected.extend(bodies);
            expect_depth(&broker, &topic(number), "first", expected.len() as u64);
        }
        // Some messages on one channel are finished, so the ranges differ between the channels.
        for (number, _) in expected.iter().enumerate().take(3) {
            expect_depth(
                &broker,
                &topic(number),
                "second",
                if round == 0 { 20 } else { 30 },
            );
            take(
                &broker,
                &topic(number),
                "second",
                if round == 0 { 10 } else { 20 },
            );
        }
        stop(&mut broker);
        broker.restart_with(shards, &[]);
    }
    for (number, expected) in expected.iter().enumerate() {
        expect_depth(&broker, &topic(number), "first", 80);
        expect_depth(
            &broker,
            &topic(number),
            "second",
            if number < 3 { 10 } else { 80 },
        );
        let got = take(&broker, &topic(number), "first", 80);
        let got: BTreeSet<String> = got.iter().map(|message| message.text()).collect();
        assert_eq!(got, *expected);
    }
}

#[test]
fn a_backlog_of_200_000_messages_is_there_at_once() {
    const COUNT: u64 = 200_000;
    const BATCH: u64 = 1000;
    let _machine = whole_machine();
    let mut broker = Broker::start(2, &[]);
    broker.create("backlog", "channel");
    let mut producer = broker.client();
    for batch in 0..COUNT / BATCH {
        let bodies: Vec<String> = (0..BATCH)
            .map(|index| format!("{:0100}", batch * BATCH + index))
            .collect();
        producer.publish_many("backlog", &bodies);
    }
    expect_depth(&broker, "backlog", "channel", COUNT);
    let (mut stopped, mut started) = (Duration::MAX, Duration::MAX);
    let first = Instant::now();
    while started >= START_MAX && first.elapsed() < STARTS {
        let before = Instant::now();
        stop(&mut broker);
        stopped = before.elapsed();
        assert!(stopped < STOP_MAX, "the stop took {stopped:?}");
        let before = Instant::now();
        broker.restart();
        started = started.min(before.elapsed());
    }
    assert!(started < START_MAX, "the quickest start took {started:?}");
    let stats = broker.channel("backlog", "channel");
    assert_eq!(stats["depth"], COUNT, "{stats}");
    let before = Instant::now();
    let mut consumer = broker.consumer("backlog", "channel", 2500);
    let mut seen = vec![false; COUNT as usize];
    let mut first = None;
    let mut fins = Vec::new();
    for count in 0..COUNT {
        let message = consumer.message();
        first.get_or_insert(before.elapsed());
        let number: usize = std::str::from_utf8(&message.body)
            .expect("digits")
            .parse()
            .expect("digits");
        assert!(
            !std::mem::replace(&mut seen[number], true),
            "{number} came twice"
        );
        fins.extend_from_slice(b"FIN ");
        fins.extend_from_slice(&message.id);
        fins.push(b'\n');
        if count % 500 == 499 {
            consumer.send(&fins);
            fins.clear();
        }
    }
    let first = first.expect("there were some");
    let served = before.elapsed();
    eprintln!(
        "lifecycle: stopped in {stopped:?}, started in {started:?}, first after {first:?}, all \
         after {served:?}"
    );
    expect_depth(&broker, "backlog", "channel", 0);
}

#[test]
fn a_second_instance_is_refused_while_the_first_runs() {
    let mut first = Broker::start(1, &[]);
    first.create("locked", "channel");
    let second = Launch::new(1, &[]).at(first.data_path());
    let exit = match second.clone().try_start() {
        Err(exit) => exit,
        Ok(_) => panic!("two brokers on one data path"),
    };
    assert_eq!(exit.code(), 1, "{exit}");
    let why = format!(
        "failed to instantiate nsqd - failed to lock data-path: cannot flock directory {} - \
         resource temporarily unavailable (possibly in use by another instance of nsqd)\n",
        first.data_path().display()
    );
    assert!(exit.stderr.ends_with(&why), "{exit}");
    first.client().publish("locked", b"x");
    // The lock is held from the signal to the end, because it is released last.
    first.sigterm();
    let (sender, receiver) = mpsc::channel();
    let waiter = thread::spawn(move || {
        let start = Instant::now();
        let broker = loop {
            match second.clone().try_start() {
                Ok(broker) => break broker,
                Err(exit) => assert_eq!(exit.code(), 1, "{exit}"),
            }
            assert!(start.elapsed() < TIMEOUT, "the data path stays locked");
        };
        sender
            .send(broker.channel_stats("locked", "channel"))
            .expect("awaited");
    });
    let status = first.wait();
    assert!(status.success(), "{status}");
    let stats = receiver
        .recv_timeout(TIMEOUT)
        .expect("a second broker")
        .expect("restored");
    assert_eq!(stats["depth"], 1, "{stats}");
    waiter.join().expect("checked");
}

// --- deletion

#[test]
fn a_topic_that_is_made_again_never_repeats_an_id() {
    let mut broker = Broker::start(2, &[]);
    let mut ids = BTreeSet::new();
    let mut last = None;
    for round in 0..30 {
        broker.create("again", "channel");
        let mut producer = broker.client();
        let bodies: Vec<String> = (0..50).map(|index| format!("{round} {index}")).collect();
        producer.publish_many("again", &bodies);
        let mut messages = take(&broker, "again", "channel", 50);
        messages.sort_by_key(|message| message.id);
        for message in &messages {
            let body = String::from_utf8_lossy(&message.body);
            assert!(
                body.starts_with(&format!("{round} ")),
                "{body} is from before the deletion"
            );
            assert!(ids.insert(message.id), "an id is repeated in round {round}");
            assert!(last < Some(message.id), "ids grow, even after a deletion");
        }
        last = messages.last().map(|message| message.id);
        broker.admin("/topic/delete?topic=again");
        if round % 10 == 9 {
            stop(&mut broker);
            broker.restart();
            assert!(broker.topic_stats("again").is_none(), "deleted is deleted");
        }
    }
}

#[test]
fn deleting_leaves_nothing_on_disk() {
    let mut broker = Broker::start(2, &[]);
    let mut producer = broker.client();
    for round in 0..3 {
        for number in 0..5 {
            let topic = format!("leftover-{number}");
            broker.create(&topic, "one");
            broker.create(&topic, "two");
            producer.publish_many(&topic, &vec![vec![b'x'; 5000]; 400]);
            expect_depth(&broker, &topic, "two", 400);
            take(&broker, &topic, "one", 20);
        }
        assert!(contents(broker.data_path()).len() > 5, "logs are files");
        // A deleted channel does not return with its old messages.
        broker.admin("/channel/delete?topic=leftover-0&channel=two");
        if round == 1 {
            stop(&mut broker);
            broker.restart();
            producer = broker.client();
            assert!(
                broker.channel_stats("leftover-0", "two").is_none(),
                "it came back"
            );
        }
        broker.create("leftover-0", "two");
        expect_depth(&broker, "leftover-0", "two", 0);
        for number in 0..5 {
            broker.admin(&format!("/topic/delete?topic=leftover-{number}"));
        }
        let names = || -> Vec<String> {
            let all = contents(broker.data_path());
            all.iter()
                .map(|(path, _)| path.display().to_string())
                .collect()
        };
        let only = broker.data_path().join("nsqd.dat").display().to_string();
        let is_clean = wait_until(TIMEOUT, || names() == [only.clone()]);
        assert!(is_clean, "left behind in round {round}: {:?}", names());
        expect_metadata(&broker, r#"{"topics":null,"version":"1.3.0"}"#);
    }
    stop(&mut broker);
    broker.restart();
    assert_eq!(broker.stats()["topics"].as_array().map(Vec::len), Some(0));
}

/// As in nsqd, USR1, USR2, PIPE and WINCH have no effect, and QUIT ends the broker at once.
/// Unlike nsqd, ringq loses no message.
#[test]
fn other_signals_do_what_they_do_to_nsqd() {
    let mut broker = Broker::start(1, &[]);
    for signal in ["USR1", "USR2", "PIPE", "WINCH"] {
        broker.signal(signal);
    }
    broker.create("kept", "channel");
    broker.post("/pub?topic=kept", b"body").expect_status(200);
    broker.signal("QUIT");
    let status = broker.wait();
    assert_eq!(status.to_string(), "exit status: 2");
    let log = broker.log();
    assert!(!log.contains("NSQ: bye"), "it ended cleanly:\n{log}");
    broker.restart();
    expect_depth(&broker, "kept", "channel", 1);
}

/// As in nsqd, a broker that is started with SIGHUP ignored, as by nohup, outlives its terminal.
#[test]
fn a_hangup_after_nohup_does_not_end_the_broker() {
    let mut broker = Launch::new(1, &[]).via(vec!["nohup".to_owned()]).start();
    broker.signal("HUP");
    broker.post("/pub?topic=kept", b"body").expect_status(200);
    stop(&mut broker);
}

/// The kernel closes a dead process's ring some milliseconds after its descriptors. Until then, the
/// ring's sockets are open: a listener in the ring would accept connections and reset them.
#[test]
fn connections_are_refused_once_a_killed_broker_is_gone() {
    const ROUNDS: usize = 10;
    const WINDOW: Duration = Duration::from_millis(20);
    for round in 0..ROUNDS {
        let mut broker = Broker::start_on("127.0.23.5", 2, &[]);
        let addresses = [broker.tcp_addr(), broker.http_addr()];
        broker.kill9();
        let killed = Instant::now();
        while killed.elapsed() < WINDOW {
            for address in addresses {
                let refused = TcpStream::connect(address).map_err(|error| error.kind());
                assert!(
                    matches!(refused, Err(ErrorKind::ConnectionRefused)),
                    "round {round}, {address}, {:?} after the end: {refused:?}",
                    killed.elapsed()
                );
            }
        }
    }
}
