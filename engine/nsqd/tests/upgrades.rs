//! TLS, snappy and deflate of client connections: every combination, with moves and cuts at any
//! point, and peers that break the formats.

use std::collections::BTreeSet;
use std::fs;
use std::io::{IoSlice, Write};
use std::net::Shutdown;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{
    Broker, Certificates, Client, FrameType, Random, TIMEOUT, Upgrade, assert_like, is_installed,
    rss, run, wait_until, whole_machine,
};
use upgrade::{ClientTls, Upgrades, client_config};

/// Returns every combination except plain text.
fn combinations(certificates: &Certificates) -> Vec<Vec<Upgrade>> {
    let mut compressions = vec![None, Some(Upgrade::Snappy)];
    compressions.extend((1..=9).map(|level| Some(Upgrade::Deflate(level))));
    let mut all = Vec::new();
    for tls in [None, Some(certificates.tls())] {
        for compression in &compressions {
            let upgrades: Vec<Upgrade> =
                tls.clone().into_iter().chain(compression.clone()).collect();
            all.push(upgrades);
        }
    }
    all.retain(|upgrades| !upgrades.is_empty());
    all
}

/// Returns a body of which half compresses well.
fn body(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut body = vec![b'a'; bytes];
    let noise = bytes / 2;
    body[..noise].fill_with(|| random.below(256) as u8);
    body
}

#[test]
fn every_combination_carries_every_size() {
    let _machine = whole_machine();
    let certificates = Certificates::new();
    let broker = certificates.broker(5, &["--max-deflate-level=9"]);
    // The sizes are around those of records, chunks and pieces, and the largest permitted one.
    let sizes = [1, 100, 16_384, 32_769, 65_501, 65_536, 131_072, 1_048_576];
    for (number, upgrades) in combinations(&certificates).iter().enumerate() {
        let topic = format!("combination-{number}");
        let mut producer = broker.client();
        let answer = producer.upgrade(upgrades);
        let mut consumer = broker.client();
        consumer.upgrade(upgrades);
        consumer.subscribe(&topic, "channel");
        consumer.ready(3);
        for upgrade in upgrades {
            for granted in upgrade.json().split(',').filter(|part| !part.is_empty()) {
                assert!(answer.contains(granted), "{granted} in {answer}");
            }
        }
        let mut sent = BTreeSet::new();
        for bytes in sizes {
            let body = body(bytes, bytes as u64);
            producer.publish(&topic, &body);
            sent.insert(body);
        }
        let many: Vec<Vec<u8>> = (0..300)
            .map(|n| format!("message {n}").into_bytes())
            .collect();
        producer.publish_many(&topic, &many);
        sent.extend(many);
        while !sent.is_empty() {
            let message = consumer.message();
            assert!(
                sent.remove(&message.body),
                "{topic}: {} bytes",
                message.body.len()
            );
            consumer.finish(&message.id);
        }
        expect_in_stats(&broker, &topic, upgrades);
    }
}

/// Checks the encoding of a topic's one consumer in /stats.
fn expect_in_stats(broker: &Broker, topic: &str, upgrades: &[Upgrade]) {
    let channel = broker.channel(topic, "channel");
    let client = &channel["clients"][0];
    let has = |wanted: fn(&Upgrade) -> bool| upgrades.iter().any(wanted);
    let tls = has(|upgrade| matches!(upgrade, Upgrade::Tls(_)));
    assert_eq!(client["tls"], tls, "{client}");
    assert_eq!(client["tls_negotiated_protocol_is_mutual"], tls, "{client}");
    assert_eq!(
        client["tls_version"],
        if tls { "TLS1.3" } else { "" },
        "{client}"
    );
    let suite = client["tls_cipher_suite"].as_str().expect("a text");
    assert_eq!(
        suite.starts_with("Unknown 486"),
        tls,
        "a suite of TLS 1.3: {client}"
    );
    assert_eq!(
        client["snappy"],
        has(|upgrade| matches!(upgrade, Upgrade::Snappy)),
        "{client}"
    );
    let deflate = has(|upgrade| matches!(upgrade, Upgrade::Deflate(_)));
    assert_eq!(client["deflate"], deflate, "{client}");
}

#[test]
fn disabled_upgrades_are_not_granted() {
    let certificates = Certificates::new();
    let broker = Broker::start(1, &["--snappy=false", "--max-deflate-level=3"]);
    let mut client = broker.client();
    let answer = client.ask(&[certificates.tls(), Upgrade::Snappy]);
    let start = "\"tls_v1\":false,\"deflate\":false,\"deflate_level\":3,\"max_deflate_level\":3,";
    assert!(answer.contains(start), "{answer}");
    assert!(answer.contains("\"snappy\":false"), "{answer}");
    client.publish("topic", b"in the clear as before");
    let answer = client.upgrade(&[Upgrade::Deflate(9)]);
    assert_like(&answer, "…\"deflate\":true,\"deflate_level\":3,…");
    client.publish("topic", b"compressed");
    // An upgrade is final: another IDENTIFY changes no encoding.
    let answer = client.ask(&[Upgrade::Deflate(3)]);
    assert!(answer.contains("\"deflate\":false"), "{answer}");
    client.publish("topic", b"compressed");

    let broker = Broker::start(1, &["--deflate=false"]);
    let mut client = broker.client();
    // The broker allows only one of the two, so the request is no contradiction.
    let answer = client.ask(&[Upgrade::Snappy, Upgrade::Deflate(6)]);
    assert!(answer.contains("\"snappy\":true") && answer.contains("\"deflate\":false"));

    let broker = Broker::start(1, &[]);
    let mut client = broker.client();
    let both = r#"{"feature_negotiation":true,"snappy":true,"deflate":true}"#;
    client.command("IDENTIFY", both.as_bytes());
    client.expect_error("E_IDENTIFY_FAILED cannot enable both deflate and snappy compression");
    client.expect_close();
}

/// As in nsqd, the bytes that a client sends behind its IDENTIFY, before it can know of the
/// upgrade, are dropped.
#[test]
fn bytes_sent_ahead_of_an_upgrade_are_dropped() {
    let broker = Broker::start(1, &[]);
    let mut client = broker.client();
    let json = r#"{"feature_negotiation":true,"snappy":true}"#;
    let mut ahead = Client::command_with_body("IDENTIFY", json.as_bytes());
    ahead.extend(Client::command_with_body("PUB lost", b"x"));
    client.send(&ahead);
    let answer = client.frame();
    assert_like(answer.text(), "…\"snappy\":true…");
    let mut wire = [0; 28];
    client.read_raw(&mut wire);
    assert!(
        wire.starts_with(b"\xff\x06\x00\x00sNaPpY\x01\x0e\x00\x00"),
        "{wire:?}"
    );
    assert!(
        wire.ends_with(b"\x00\x00\x00\x06\x00\x00\x00\x00OK"),
        "{wire:?}"
    );
    assert!(broker.topic_stats("lost").is_none());
}

#[test]
fn bytes_may_arrive_one_by_one() {
    let certificates = Certificates::new();
    let broker = certificates.broker(3, &[]);
    let cases = [
        vec![certificates.tls()],
        vec![Upgrade::Snappy],
        vec![certificates.tls(), Upgrade::Snappy],
        vec![certificates.tls(), Upgrade::Deflate(6)],
    ];
    for (number, upgrades) in cases.iter().enumerate() {
        // Each client has its own topic: the broker may still count the previous client as a
        // consumer.
        let topic = format!("slow-{number}");
        let mut client = broker.client();
        client.trickle();
        client.upgrade(upgrades);
        let text = body(150, 1);
        client.publish(&topic, &text);
        client.subscribe(&topic, "channel");
        client.ready(1);
        let message = client.message();
        assert_eq!(message.body, text);
        client.finish(&message.id);
    }
}

/// Consumers move to the shard of their topic, and producers after a streak. The commands that they
/// sent ahead move too.
#[test]
fn layers_move_with_their_connection() {
    const TOPICS: usize = 10;
    const STREAK: usize = 40;
    let _machine = whole_machine();
    let certificates = Certificates::new();
    let broker = certificates.broker(5, &[]);
    for (number, upgrades) in [
        vec![certificates.tls()],
        vec![certificates.tls(), Upgrade::Snappy],
        vec![certificates.tls(), Upgrade::Deflate(1)],
        vec![Upgrade::Deflate(6)],
    ]
    .iter()
    .enumerate()
    {
        let topic = |n: usize| format!("moved-{number}-{n}");
        let mut producer = broker.client();
        producer.upgrade(upgrades);
        // Everything is sent at once, so the bytes behind a move have been opened in part when the
        // connection moves.
        let mut ahead = Vec::new();
        for n in 0..TOPICS {
            for count in 0..STREAK {
                let mut text = body(20 + 500 * (count % 7), 3);
                text.extend(format!(" {count}").bytes());
                let line = format!("PUB {}", topic(n));
                ahead.extend(Client::command_with_body(&line, &text));
            }
        }
        producer.send(&ahead);
        (0..TOPICS * STREAK).for_each(|_| producer.expect_ok());
        for n in 0..TOPICS {
            let mut consumer = broker.client();
            consumer.upgrade(upgrades);
            consumer.send(format!("SUB {} channel\nRDY 7\nNOP\n", topic(n)).as_bytes());
            consumer.expect_ok();
            let mut counts = BTreeSet::new();
            for _ in 0..STREAK {
                let message = consumer.message();
                let text = message.text();
                counts.insert(text.rsplit(' ').next().unwrap_or_default().to_owned());
                consumer.finish(&message.id);
            }
            assert_eq!(counts.len(), STREAK, "each message once");
        }
    }
}

/// The answers to other commands, and over HTTP, are recorded (`differential/tls.case`).
#[test]
fn required_tls_comes_before_everything_else() {
    let certificates = Certificates::new();
    for (flag, http_status) in [("--tls-required", 403), ("--tls-required=tcp-https", 200)] {
        let broker = certificates.broker(1, &[flag]);
        let mut client = broker.client();
        client.send(b"PUB topic\n");
        client.expect_error("E_INVALID cannot PUB in current state (TLS required)");
        client.expect_close();
        let mut client = broker.client();
        client.upgrade(&[certificates.tls()]);
        client.publish("topic", b"x");
        // Compression alone does not satisfy the broker.
        let mut client = broker.client();
        client.upgrade(&[Upgrade::Snappy]);
        client.send(b"NOP\n");
        client.expect_error("E_INVALID cannot NOP in current state (TLS required)");
        let answer = broker.get("/ping").expect_status(http_status);
        if http_status == 403 {
            let port = broker.https_addr().port();
            let text = format!("{{\"message\": \"TLS_REQUIRED\", \"https_port\": {port}}}");
            assert_eq!(answer.text(), text);
            let json = Some("application/json; charset=utf-8");
            assert_eq!(answer.header("content-type"), json);
            assert_eq!(
                answer.header("x-nsq-content-type"),
                Some("nsq; version=1.0")
            );
        }
    }
}

#[test]
fn client_certificates_are_judged_by_the_policy() {
    let ours = Certificates::new();
    let strangers = Certificates::new();
    let check = |policy: &str, nothing: bool, stranger: bool, own: bool| {
        let ca = ours.flag("tls-root-ca-file", "ca.pem");
        let policy_flag = format!("--tls-client-auth-policy={policy}");
        let broker = ours.broker(2, &[&ca, &policy_flag]);
        for (upgrade, is_accepted) in [
            (ours.tls(), nothing),
            (ours.tls_with_certificate_of(&strangers), stranger),
            (ours.tls_with_certificate_of(&ours), own),
        ] {
            let mut client = broker.client();
            let result = client.try_upgrade(&[upgrade]);
            assert_eq!(result.is_ok(), is_accepted, "{policy}: {result:?}");
            if is_accepted {
                client.publish("topic", b"x");
            }
        }
        // The policy alone requires TLS.
        let mut client = broker.client();
        client.send(b"NOP\n");
        client.expect_error("E_INVALID cannot NOP in current state (TLS required)");
    };
    check("require", false, true, true);
    check("require-verify", false, false, true);
    check("none-of-these", true, true, true);
}

#[test]
fn a_client_may_refuse_the_certificate() {
    let certificates = Certificates::new();
    let broker = certificates.broker(1, &[]);
    let other = Certificates::new();
    let error = broker
        .client()
        .try_upgrade(&[other.tls()])
        .expect_err("another authority");
    assert!(error.to_string().contains("certificate"), "{error}");
    broker.wait_for_log("- E_IDENTIFY_FAILED IDENTIFY failed TLS: received fatal alert");
    broker.client().upgrade(&[certificates.tls()]);
}

#[test]
fn an_invalid_handshake_is_answered_in_plain_text() {
    let certificates = Certificates::new();
    let broker = certificates.broker(1, &[]);
    let asked = || {
        let mut client = broker.client();
        client.ask(&[certificates.tls(), Upgrade::Snappy]);
        client
    };
    let mut client = asked();
    client.send(b"garbage instead of a handshake");
    let text = "tls: first record does not look like a TLS handshake";
    client.expect_error(&format!("E_IDENTIFY_FAILED IDENTIFY failed {text}"));
    client.expect_close();

    let mut client = asked();
    // The client sends the start of a handshake and ends.
    client.send(&[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]);
    client.close_write();
    client.expect_error("E_IDENTIFY_FAILED IDENTIFY failed EOF");
    client.expect_close();
}

#[test]
fn half_a_handshake_and_silence_end_after_5_s_without_a_heartbeat() {
    let certificates = Certificates::new();
    let broker = certificates.broker(1, &[]);
    let start = Instant::now();
    let mut clients: Vec<Client> = [&b""[..], &[22, 3, 1, 2, 0, 1, 0]]
        .into_iter()
        .map(|sent| {
            let mut client = broker.client();
            let json = r#"{"feature_negotiation":true,"tls_v1":true,"heartbeat_interval":1000}"#;
            client.identify(json);
            client.send(sent);
            client
        })
        .collect();
    for client in &mut clients {
        let frame = client.frame();
        let text = "E_IDENTIFY_FAILED IDENTIFY failed i/o timeout";
        assert_eq!(
            (frame.kind, frame.text().as_str()),
            (FrameType::Error, text)
        );
        client.expect_close();
    }
    assert!(
        start.elapsed() >= Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
}

fn sealed(upgrade: upgrade::Upgrade, plain: &[u8]) -> Vec<u8> {
    let mut upgrades = Upgrades::default();
    upgrades.push(upgrade);
    // The test sends the pieces one after the other, because the whole bomb does not fit into
    // memory.
    for piece in plain.chunks(1 << 20) {
        upgrades
            .seal(&[IoSlice::new(piece)])
            .expect("a buffer takes all");
    }
    upgrades.wire
}

/// A corrupt stream closes the connection without a frame. The commands before the corruption
/// count.
#[test]
fn compressed_garbage_closes_without_an_answer() {
    let broker = Broker::start(1, &[]);
    for (asked, upgrade) in [
        (
            Upgrade::Snappy,
            upgrade::Upgrade::snappy as fn() -> upgrade::Upgrade,
        ),
        (Upgrade::Deflate(6), || upgrade::Upgrade::deflate(6)),
    ] {
        let mut client = broker.client();
        client.upgrade(&[asked]);
        let mut wire = sealed(upgrade(), &Client::command_with_body("PUB topic", b"x"));
        wire.extend([0x7f; 100]);
        client.writer().write_all(&wire).expect("connected");
        client.expect_ok();
        client.expect_close();
    }
    broker.wait_for_log("failed to read command - snappy: ");
    broker.wait_for_log("failed to read command - deflate: ");
    let topic = broker.topic("topic");
    assert_eq!(topic["message_count"], 2);
}

/// Decompression makes the input a thousand times larger. The broker never has more of it in memory
/// than a command needs.
#[test]
fn a_bomb_is_opened_piece_by_piece() {
    let _machine = whole_machine();
    let broker = Broker::start(1, &[]);
    let before = rss(broker.pid()).anonymous_bytes;
    let mut nops = b"NOP\n".repeat(64 << 18);
    assert_eq!(nops.len(), 64 << 20);
    nops.extend(Client::command_with_body("PUB end", b"x"));
    let mut client = broker.client();
    client.upgrade(&[Upgrade::Deflate(6)]);
    let mut wire = sealed(upgrade::Upgrade::deflate(6), &nops);
    assert!(wire.len() < 400_000, "{} bytes", wire.len());
    client.writer().write_all(&wire).expect("connected");
    let mut watched = 0;
    let mut answer = None;
    wait_until(TIMEOUT, || {
        watched = watched.max(rss(broker.pid()).anonymous_bytes);
        answer = client.frame_within(Duration::from_millis(5));
        answer.is_some()
    });
    let answer = answer.expect("the end of the bomb is reached");
    assert_eq!(answer.text(), "OK");
    let grown = watched.saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes for a client of NOPs");

    // The broker refuses a body that is too big by its size, and a line by the size of the buffer.
    for (plain, error) in [
        (
            [&b"PUB topic\n\x7f\xff\xff\xff"[..], &vec![0; 64 << 20]].concat(),
            Some("E_BAD_MESSAGE PUB message too big 2147483647 > 1048576"),
        ),
        (vec![b'x'; 64 << 20], None),
    ] {
        let mut client = broker.client();
        client.upgrade(&[Upgrade::Snappy]);
        wire = sealed(upgrade::Upgrade::snappy(), &plain);
        let mut writer = client.writer();
        // The broker stops reading and closes long before all bytes are sent.
        let sender = std::thread::spawn(move || writer.write_all(&wire));
        match error {
            Some(error) => match client.try_frame() {
                Ok(Some(frame)) => assert_eq!(frame.text(), error),
                // A reset can overtake the frame.
                Ok(None) | Err(_) => {
                    broker.wait_for_log(error);
                }
            },
            None => client.expect_close(),
        }
        // Sending fails unless everything fits into the buffers on the way.
        let _ = sender.join().expect("the sender does not panic");
    }
    let grown = rss(broker.pid()).anonymous_bytes.saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes are left");
}

/// A client sends without end, before AUTH or any publish, what takes long to open: chunks of 8 bytes, large commands
/// that compress to nothing, and TLS. The broker read such a client as long as its socket had more, and neighbours
/// waited for seconds. In a debug build, the broker ends if a poll of a task has no bound.
#[test]
fn input_that_takes_long_to_open_leaves_the_neighbours_their_turn() {
    let _machine = whole_machine();
    let certificates = Certificates::new();
    let broker = certificates.broker(1, &[]);
    let body = format!("{{{}}}", " ".repeat(5_000_000));
    let identify = Client::command_with_body("IDENTIFY", body.as_bytes());
    let kinds = [
        (Upgrade::Snappy, 8),
        (Upgrade::Deflate(6), identify.len()),
        (certificates.tls(), 100_000),
    ];
    for (upgrade, piece_bytes) in kinds {
        let mut client = broker.client();
        client.upgrade(std::slice::from_ref(&upgrade));
        let connection = client.writer();
        let mut seal = match &upgrade {
            Upgrade::Snappy => Some(upgrade::Upgrade::snappy()),
            Upgrade::Deflate(level) => Some(upgrade::Upgrade::deflate(*level)),
            Upgrade::Tls(_) => None,
        }
        .map(|upgrade| {
            let mut upgrades = Upgrades::default();
            upgrades.push(upgrade);
            upgrades
        });
        let (command, mut writer) = (identify.clone(), client.writer());
        let mut send = move || {
            for piece in command.chunks(piece_bytes) {
                match &mut seal {
                    Some(upgrades) => upgrades.seal(&[IoSlice::new(piece)])?,
                    None => client.try_send(piece)?,
                }
            }
            let wire = seal
                .as_mut()
                .map(|upgrades| std::mem::take(&mut upgrades.wire));
            writer.write_all(&wire.unwrap_or_default())
        };
        // Ends with the connection.
        let flood = thread::spawn(move || while send().is_ok() {});
        let mut neighbour = broker.client();
        let mut slowest = Duration::ZERO;
        for _ in 0..300 {
            let start = Instant::now();
            neighbour.publish("neighbour", b"x");
            slowest = slowest.max(start.elapsed());
        }
        eprintln!(
            "upgrades: the slowest of 300 publishes beside{} took {slowest:?}",
            upgrade.json()
        );
        assert!(!flood.is_finished(), "the broker ended the flood");
        connection.shutdown(Shutdown::Both).expect("it is open");
        flood.join().expect("it does not panic");
    }
}

/// A consumer that does not read costs the memory of a piece of encoded output for a short time,
/// and not the memory of its messages.
#[test]
fn a_consumer_that_does_not_read_costs_little() {
    let _machine = whole_machine();
    let certificates = Certificates::new();
    let broker = certificates.broker(1, &[]);
    let mut consumers: Vec<Client> = (0..10)
        .map(|_| {
            let mut consumer = broker.client();
            consumer.identify(r#"{"heartbeat_interval":2000}"#);
            consumer.upgrade(&[certificates.tls()]);
            consumer.subscribe("topic", "channel");
            consumer.ready(2500);
            consumer
        })
        .collect();
    let before = rss(broker.pid()).anonymous_bytes;
    let mut producer = broker.client();
    // A consumer that also sends nothing would be ended for its silence.
    let mut send_nops = || {
        for consumer in &mut consumers {
            let _ = consumer.try_send(b"NOP\n"); // It may be ended already.
        }
    };
    for seed in 0..100 {
        producer.publish("topic", &body(1 << 20, seed));
        send_nops();
    }
    let grown = rss(broker.pid()).anonymous_bytes.saturating_sub(before);
    assert!(grown < 24 << 20, "{grown} bytes for 10 consumers");
    let is_closed = wait_until(TIMEOUT, || {
        send_nops();
        let channel = broker.channel("topic", "channel");
        channel["client_count"] == 0
    });
    assert!(is_closed, "{}", broker.log());
    broker.wait_for_log("messagePump error - i/o timeout");
}

/// A directory with files that `openssl` writes.
struct OpenSsl(tempfile::TempDir);

impl OpenSsl {
    fn new() -> OpenSsl {
        OpenSsl(tempfile::tempdir().expect("a temporary directory can be made"))
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Runs a command line of `openssl` in the directory.
    fn run(&self, line: &str) {
        let mut command = Command::new("openssl");
        command.current_dir(&self.0).args(line.split(' '));
        let exit = run(&mut command, TIMEOUT);
        assert!(exit.status.success(), "{line}: {exit}");
    }
}

/// Keys in the form that OpenSSL writes, and TLS versions that other programs speak.
#[test]
fn openssl_works_with_the_broker() {
    if !is_installed("openssl", "the openssl command") {
        return;
    }
    let files = OpenSsl::new();
    files.run("genpkey -algorithm RSA -out rsa8.pem");
    files.run("rsa -in rsa8.pem -traditional -out rsa1.pem");
    files.run("ecparam -name prime256v1 -genkey -noout -out ec.pem");
    for (key, start) in [
        ("rsa8.pem", "-----BEGIN PRIVATE KEY"),
        ("rsa1.pem", "-----BEGIN RSA PRIVATE KEY"),
        ("ec.pem", "-----BEGIN EC PRIVATE KEY"),
    ] {
        let pem = fs::read_to_string(files.path(key)).expect("openssl wrote it");
        assert!(pem.starts_with(start), "{pem}");
        files.run(&format!(
            "req -x509 -new -key {key} -out cert.pem -subj /CN=ringq -addext subjectAltName=IP:127.0.0.1"
        ));
        let flags = [
            format!("--tls-cert={}", files.path("cert.pem")),
            format!("--tls-key={}", files.path(key)),
            "--https-address=127.0.0.1:0".to_owned(),
        ];
        let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let broker = Broker::start(1, &flags);
        expect_openssl(&broker, "-tls1_2", true);
        expect_openssl(&broker, "-tls1_3", true);
        expect_openssl(&broker, "-tls1_1", false);
        let anyone = client_config(&ClientTls::default()).expect("nothing is read");
        broker.client().upgrade(&[Upgrade::Tls(anyone)]);
        flags.push("--tls-min-version=tls1.3");
        let broker = Broker::start(1, &flags);
        expect_openssl(&broker, "-tls1_2", false);
        expect_openssl(&broker, "-tls1_3", true);
    }
}

/// openssl makes certificates of version 1 from requests without extensions, which Go takes. So does an nsqd that asks for
/// any certificate, and one that verifies them.
#[test]
fn certificates_of_openssl_are_taken_without_extensions() {
    if !is_installed("openssl", "the openssl command") {
        return;
    }
    let files = OpenSsl::new();
    let path = |name: &str| files.path(name);
    let openssl = |line: &str| files.run(line);
    openssl("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj /CN=ca");
    let signed = |name: &str, key: &str| {
        openssl(&format!(
            "req -new {key} -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}"
        ));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -set_serial 7 -days 2 -out {name}.pem"
        ));
    };
    signed("server", "-newkey rsa:2048");
    signed("client", "-newkey ec -pkeyopt ec_paramgen_curve:secp521r1");
    signed("short", "-newkey rsa:1024");
    for policy in ["require", "require-verify"] {
        let flags = [
            format!("--tls-cert={}", path("server.pem")),
            format!("--tls-key={}", path("server.key")),
            format!("--tls-root-ca-file={}", path("ca.pem")),
            format!("--tls-client-auth-policy={policy}"),
            "--https-address=127.0.0.1:0".to_owned(),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let broker = Broker::start(1, &flags);
        for version in ["-tls1_2", "-tls1_3"] {
            for name in ["client", "ca"] {
                let (cert, key) = (path(&format!("{name}.pem")), path(&format!("{name}.key")));
                expect_openssl(&broker, &format!("{version} -cert {cert} -key {key}"), true);
            }
            let (cert, key) = (path("short.pem"), path("short.key"));
            expect_openssl(
                &broker,
                &format!("{version} -cert {cert} -key {key}"),
                false,
            );
        }
        broker.wait_for_log(
            "the certificate of CN=short has an RSA key of 1024 bits, and at least 2048 are needed",
        );
    }
}

/// Sends a request with `openssl s_client` over HTTPS, in one version of TLS.
fn expect_openssl(broker: &Broker, version: &str, is_accepted: bool) {
    let command = format!(
        "printf 'GET /ping HTTP/1.0\\r\\n\\r\\n' | openssl s_client -quiet {version} \
         -cipher DEFAULT@SECLEVEL=0 -connect {}",
        broker.https_addr()
    );
    let exit = run(Command::new("sh").args(["-c", &command]), TIMEOUT);
    if is_accepted {
        assert!(exit.stdout.ends_with("\r\n\r\nOK"), "{version}: {exit}");
    } else {
        assert!(exit.stdout.is_empty(), "{version}: {exit}");
        assert!(exit.stderr.contains(" alert "), "{version}: {exit}");
    }
}
