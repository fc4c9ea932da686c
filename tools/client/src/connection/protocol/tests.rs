mod limits;

use std::time::Duration;

use upgrade::Upgrade;

use super::super::settings::Subscription;
use super::*;
use crate::config::Config;
use crate::tests::tls::Certificates;

/// A connection, and the part of an nsqd that the test plays.
struct Pair {
    connection: Protocol,
    now: Instant,
    /// nsqd's side of the upgrades.
    upgrades: Upgrades,
}

impl Pair {
    fn new(settings: Settings) -> Pair {
        let now = Instant::now();
        Pair {
            connection: Protocol::new(Arc::new(settings), "127.0.0.1", now),
            now,
            upgrades: Upgrades::default(),
        }
    }

    /// Returns what the client sends, opened.
    fn said(&mut self) -> Vec<u8> {
        let mut plain = Vec::new();
        loop {
            let bytes = self.connection.unsent(self.now).unwrap().to_vec();
            if bytes.is_empty() {
                return plain;
            }
            self.connection.sent(bytes.len(), self.now);
            let mut rest = &bytes[..];
            let mut opened = vec![0; 1 << 20];
            let length = self.upgrades.open(&mut rest, &mut opened).unwrap();
            plain.extend_from_slice(&opened[..length]);
        }
    }

    /// Sends the client bytes as they are.
    fn say_raw(&mut self, bytes: &[u8]) {
        self.connection.receive_space().extend_from_slice(bytes);
        self.connection.received(self.now);
    }

    fn seal(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.upgrades.seal(&[IoSlice::new(bytes)]).unwrap();
        let sealed = self.upgrades.unsent().to_vec();
        self.upgrades.drop_sent(sealed.len());
        sealed
    }

    fn say(&mut self, bytes: &[u8]) {
        let sealed = self.seal(bytes);
        self.say_raw(&sealed);
    }

    fn respond(&mut self, data: &[u8]) {
        let mut frame = Vec::new();
        encode::response(&mut frame, data);
        self.say(&frame);
    }

    fn fail(&mut self, text: &str) {
        let mut frame = Vec::new();
        frame.extend_from_slice(&u32::try_from(text.len() + 4).unwrap().to_be_bytes());
        frame.extend_from_slice(&[0, 0, 0, 1]);
        frame.extend_from_slice(text.as_bytes());
        self.say(&frame);
    }

    /// Moves handshake bytes of TLS until there are none.
    fn shake_hands(&mut self) {
        for _ in 0..10 {
            assert_eq!(self.said(), b"");
            let answer = self.upgrades.unsent().to_vec();
            self.upgrades.drop_sent(answer.len());
            if answer.is_empty() {
                return;
            }
            self.say_raw(&answer);
            assert!(self.connection.next_event().unwrap().is_none());
        }
        panic!("the handshake does not end");
    }

    fn expect_opened(&mut self) {
        assert!(matches!(
            self.connection.next_event(),
            Ok(Some(Event::Opened))
        ));
        assert!(self.connection.is_open());
    }

    fn failure(&mut self) -> ConnectionError {
        self.connection
            .next_event()
            .expect_err("the handshake fails")
    }
}

fn settings(change: impl FnOnce(&mut Config)) -> Settings {
    let mut config = Config {
        client_id: "host-a".into(),
        hostname: "host-a.example".into(),
        user_agent: "test/1".into(),
        ..Config::default()
    };
    change(&mut config);
    Settings::new(&config, None).unwrap()
}

fn consumer_settings() -> Settings {
    Settings {
        subscription: Some(Subscription {
            topic: "t".into(),
            channel: "c".into(),
        }),
        ..settings(|_| {})
    }
}

/// Checks the bytes with which a connection begins.
fn check_identify(change: fn(&mut Config), expected: &str) {
    let mut pair = Pair::new(settings(change));
    let said = pair.said();
    let mut bytes = b"  V2IDENTIFY\n".to_vec();
    bytes.extend_from_slice(&u32::try_from(expected.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(expected.as_bytes());
    assert_eq!(
        String::from_utf8_lossy(&said),
        String::from_utf8_lossy(&bytes)
    );
}

#[test]
fn identify_has_all_fields() {
    check_identify(
        |config| config.heartbeat_interval = None,
        r#"{"client_id":"host-a","deflate":false,"deflate_level":6,"feature_negotiation":true,"heartbeat_interval":-1,"hostname":"host-a.example","long_id":"host-a.example","msg_timeout":0,"output_buffer_size":16384,"output_buffer_timeout":250,"sample_rate":0,"short_id":"host-a","snappy":false,"tls_v1":false,"topology_region":"","topology_zone":"","user_agent":"test/1"}"#,
    );
}

#[test]
fn identify_has_the_values_of_the_options() {
    check_identify(
        |config| {
            for (option, value) in [
                ("client_id", "me"),
                ("hostname", "here"),
                ("user_agent", "mine/2"),
                ("heartbeat_interval", "1500ms"),
                ("msg_timeout", "90s"),
                ("sample_rate", "42"),
                ("topology_region", "eu-1"),
                ("topology_zone", "b"),
                ("output_buffer_size", "64"),
                ("output_buffer_timeout", "1250us"),
                ("deflate", "true"),
                ("deflate_level", "9"),
            ] {
                config.set(option, value).expect(option);
            }
        },
        r#"{"client_id":"me","deflate":true,"deflate_level":9,"feature_negotiation":true,"heartbeat_interval":1500,"hostname":"here","long_id":"here","msg_timeout":90000,"output_buffer_size":64,"output_buffer_timeout":1,"sample_rate":42,"short_id":"me","snappy":false,"tls_v1":false,"topology_region":"eu-1","topology_zone":"b","user_agent":"mine/2"}"#,
    );
    check_identify(
        |config| {
            config.output_buffer_size = None;
            config.output_buffer_timeout = None;
            config.snappy = true;
        },
        r#"{"client_id":"host-a","deflate":false,"deflate_level":6,"feature_negotiation":true,"heartbeat_interval":30000,"hostname":"host-a.example","long_id":"host-a.example","msg_timeout":0,"output_buffer_size":-1,"output_buffer_timeout":-1,"sample_rate":0,"short_id":"host-a","snappy":true,"tls_v1":false,"topology_region":"","topology_zone":"","user_agent":"test/1"}"#,
    );
}

#[test]
fn an_ok_negotiates_nothing() {
    let mut pair = Pair::new(settings(|_| {}));
    pair.said();
    pair.respond(b"OK");
    pair.expect_opened();
    assert_eq!(pair.connection.negotiated().max_rdy_count, 2500);
    assert_eq!(pair.said(), b"");
}

#[test]
fn a_consumer_subscribes_and_waits_for_the_answer() {
    let mut pair = Pair::new(consumer_settings());
    pair.said();
    pair.respond(br#"{"max_rdy_count":100,"version":"1.3.0","msg_timeout":60000,"unknown":[1]}"#);
    assert!(pair.connection.next_event().unwrap().is_none());
    assert_eq!(pair.said(), b"SUB t c\n");
    assert!(!pair.connection.is_open());
    pair.respond(b"OK");
    pair.expect_opened();
    let negotiated = pair.connection.negotiated();
    assert_eq!(negotiated.max_rdy_count, 100);
    assert_eq!(negotiated.msg_timeout, Duration::from_secs(60));
    assert_eq!(negotiated.version, "1.3.0");
}

#[test]
fn a_step_that_nsqd_refuses_is_an_error() {
    let producer = || settings(|config| config.auth_secret = "sesame".into());
    for (settings, answer, refusal, text) in [
        (
            producer(),
            None,
            "E_BAD_BODY IDENTIFY heartbeat interval (100) is invalid",
            "failed to IDENTIFY - ",
        ),
        (
            consumer_settings(),
            Some("{}"),
            "E_BAD_CHANNEL SUB channel name \"c\" is not valid",
            "failed to SUB - ",
        ),
        (
            producer(),
            Some(r#"{"auth_required":true}"#),
            "E_UNAUTHORIZED AUTH No authorizations found",
            "auth failed - ",
        ),
    ] {
        let mut pair = Pair::new(settings);
        if let Some(answer) = answer {
            pair.respond(answer.as_bytes());
            assert!(pair.connection.next_event().unwrap().is_none());
        }
        pair.fail(refusal);
        assert_eq!(pair.failure().to_string(), format!("{text}{refusal}"));
    }
    let mut pair = Pair::new(settings(|_| {}));
    pair.respond(br#"{"auth_required":true}"#);
    let text = pair.failure().to_string();
    assert!(text.starts_with("Auth Required"), "{text}");
}

#[test]
fn auth_sends_the_secret_and_keeps_the_answer() {
    let mut pair = Pair::new(settings(|config| config.auth_secret = "sesame".into()));
    pair.said();
    pair.respond(br#"{"auth_required":true}"#);
    assert!(pair.connection.next_event().unwrap().is_none());
    assert_eq!(pair.said(), b"AUTH\n\0\0\0\x06sesame");
    pair.respond(br#"{"identity":"me","identity_url":"http://me","permission_count":2}"#);
    pair.expect_opened();
    let auth = pair.connection.negotiated().authorization.clone().unwrap();
    assert_eq!((auth.identity.as_str(), auth.permission_count), ("me", 2));
}

#[test]
fn tls_that_the_server_refuses_is_an_error() {
    let certificates = Certificates::new();
    let mut pair = Pair::new(Settings {
        tls_v1: true,
        tls: Some(certificates.client()),
        ..settings(|config| config.auth_secret = "sesame".into())
    });
    pair.said();
    pair.respond(br#"{"auth_required":true,"tls_v1":false}"#);
    assert!(matches!(pair.failure(), ConnectionError::TlsRefused));
    assert_eq!(pair.said(), b"", "no secret in plain text");
}

#[test]
fn an_upgrade_that_was_not_asked_for_is_an_error() {
    for (answer, name) in [
        (br#"{"tls_v1":true}"#.as_slice(), "TLS"),
        (br#"{"snappy":true}"#, "snappy"),
        (br#"{"deflate":true}"#, "deflate"),
    ] {
        let mut pair = Pair::new(settings(|_| {}));
        pair.respond(answer);
        assert!(pair.failure().to_string().contains(name));
    }
}

#[test]
fn a_compression_that_the_server_refuses_is_left_out() {
    let mut pair = Pair::new(settings(|config| config.snappy = true));
    pair.respond(br#"{"snappy":false}"#);
    pair.expect_opened();
}

/// Opens a connection through TLS, if `tls`, then through the compression, if there is one, then AUTH. Each OK comes
/// through the new layer. `together` sends an OK and what follows in one read.
fn upgrade_all(tls: bool, compression: Option<&str>, together: bool) {
    let certificates = Certificates::new();
    let mut pair = Pair::new(Settings {
        tls_v1: tls,
        tls: tls.then(|| certificates.client()),
        ..settings(|config| {
            config.auth_secret = "sesame".into();
            config.snappy = compression == Some("snappy");
            config.deflate = compression == Some("deflate");
        })
    });
    assert!(pair.said().starts_with(b"  V2IDENTIFY\n"));
    let answer = format!(
        r#"{{"auth_required":true,"tls_v1":{tls},"snappy":{},"deflate":{},"deflate_level":3}}"#,
        compression == Some("snappy"),
        compression == Some("deflate")
    );
    let mut first = Vec::new();
    encode::response(&mut first, answer.as_bytes());
    let layer = compression.map(|name| match name {
        "snappy" => Upgrade::snappy(),
        _ => Upgrade::deflate(3),
    });
    if tls {
        pair.say(&first);
        assert!(pair.connection.next_event().unwrap().is_none());
        pair.upgrades.push(certificates.server());
        pair.shake_hands();
        first = encode::OK.to_vec();
    }
    let mut sealed = pair.seal(&first);
    if let Some(layer) = layer {
        pair.upgrades.push(layer);
        if !together {
            pair.say_raw(&sealed);
            assert!(pair.connection.next_event().unwrap().is_none());
            sealed.clear();
        }
        sealed.extend(pair.seal(encode::OK));
    }
    pair.say_raw(&sealed);
    assert!(pair.connection.next_event().unwrap().is_none());
    assert_eq!(pair.said(), b"AUTH\n\0\0\0\x06sesame");
    pair.respond(b"{}");
    pair.expect_opened();
    // The open connection uses all layers in both directions.
    pair.say(encode::HEARTBEAT);
    assert!(pair.connection.next_event().unwrap().is_none());
    pair.connection.send(&mut b"RDY 1\n".to_vec());
    assert_eq!(pair.said(), b"NOP\nRDY 1\n");
    let body = vec![b'x'; 300_000];
    pair.respond(&body);
    match pair.connection.next_event() {
        Ok(Some(Event::Response(data))) => assert_eq!(data, body),
        other => panic!("{other:?}"),
    }
}

#[test]
fn upgrades_come_in_order_and_each_is_confirmed() {
    for tls in [false, true] {
        for compression in [None, Some("snappy"), Some("deflate")] {
            for together in [false, true] {
                upgrade_all(tls, compression, together);
            }
        }
    }
}

#[test]
fn a_certificate_of_another_authority_is_refused_with_an_alert() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let mut pair = Pair::new(Settings {
        tls_v1: true,
        tls: Some(others.client()),
        ..settings(|_| {})
    });
    pair.said();
    pair.respond(br#"{"tls_v1":true}"#);
    assert!(pair.connection.next_event().unwrap().is_none());
    pair.upgrades.push(certificates.server());
    assert_eq!(pair.said(), b"");
    let answer = pair.upgrades.unsent().to_vec();
    pair.say_raw(&answer);
    let error = pair.failure().to_string();
    assert!(error.starts_with("upgrade failed - TLS: "), "{error}");
    assert!(
        !pair.connection.unsent(pair.now).unwrap().is_empty(),
        "nsqd gets an alert"
    );
}

#[test]
fn errors_of_an_open_connection_are_events() {
    let mut pair = Pair::new(settings(|_| {}));
    pair.respond(b"OK");
    pair.expect_opened();
    pair.fail("E_FIN_FAILED FIN 1 failed ID not in flight");
    pair.fail("E_BAD_TOPIC PUB topic name \"\" is not valid");
    let mut fatal = Vec::new();
    while let Some(event) = pair.connection.next_event().unwrap() {
        match event {
            Event::Error(error) => fatal.push((error.code().to_owned(), error.is_fatal())),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        fatal,
        [
            ("E_FIN_FAILED".to_owned(), false),
            ("E_BAD_TOPIC".to_owned(), true)
        ]
    );
}

#[test]
fn silence_ends_the_connection_and_heartbeats_keep_it() {
    let mut pair = Pair::new(settings(|config| {
        config.read_timeout = Duration::from_secs(60);
    }));
    pair.said();
    assert_eq!(pair.connection.unsent(pair.now).unwrap(), b"");
    pair.respond(b"OK");
    pair.expect_opened();
    for _ in 0..5 {
        pair.now += Duration::from_secs(59);
        pair.connection.handle_timeout(pair.now).unwrap();
        pair.say(encode::HEARTBEAT);
        assert!(pair.connection.next_event().unwrap().is_none());
        assert_eq!(pair.said(), b"NOP\n");
    }
    let deadline = pair.connection.deadline().unwrap();
    assert_eq!(deadline, pair.now + Duration::from_secs(60));
    let error = pair.connection.handle_timeout(deadline).unwrap_err();
    assert!(matches!(error, ConnectionError::ReadTimeout(_)), "{error}");
}

#[test]
fn without_heartbeats_only_the_handshake_is_limited() {
    let mut pair = Pair::new(settings(|config| config.heartbeat_interval = None));
    pair.said();
    assert_eq!(pair.connection.unsent(pair.now).unwrap(), b"");
    assert!(pair.connection.deadline().is_some());
    pair.respond(b"OK");
    pair.expect_opened();
    assert_eq!(pair.connection.deadline(), None);
}

/// A pause of an nsqd of 1.5 s ended a connection whose heartbeats came.
#[test]
fn a_slow_nsqd_that_sends_heartbeats_is_not_gone() {
    let mut pair = Pair::new(settings(|_| {}));
    let second = Duration::from_secs(1);
    pair.said();
    assert_eq!(pair.connection.unsent(pair.now).unwrap(), b"");
    pair.respond(b"OK");
    pair.expect_opened();
    let began_at = pair.now;
    pair.connection.send(&mut vec![b'\n'; 1000]);
    pair.connection.unsent(pair.now).unwrap();
    // The heartbeat is due after 30 s, and then there is the write timeout of 1 s.
    pair.now = began_at + 30 * second;
    pair.connection.handle_timeout(pair.now).unwrap();
    pair.say(encode::HEARTBEAT);
    assert!(pair.connection.next_event().unwrap().is_none());
    assert_eq!(pair.connection.deadline(), Some(began_at + 60 * second));
    pair.now = began_at + 59 * second;
    pair.connection.handle_timeout(pair.now).unwrap();
    pair.say(encode::HEARTBEAT);
    assert!(pair.connection.next_event().unwrap().is_none());
    // An nsqd that only sends heartbeats is given up after the read timeout of 60 s.
    pair.now = began_at + 60 * second;
    assert!(matches!(
        pair.connection.handle_timeout(pair.now),
        Err(ConnectionError::WriteTimeout(_))
    ));
    // Each byte that is taken begins the time anew.
    pair.connection.sent(1, pair.now);
    pair.connection.unsent(pair.now).unwrap();
    pair.connection.handle_timeout(pair.now).unwrap();
}

#[test]
fn a_write_that_makes_no_progress_ends_the_connection() {
    let mut pair = Pair::new(settings(|config| {
        config.write_timeout = Duration::from_secs(1);
    }));
    let length = pair.connection.unsent(pair.now).unwrap().len();
    pair.now += Duration::from_millis(900);
    pair.connection.handle_timeout(pair.now).unwrap();
    pair.connection.sent(length / 2, pair.now);
    pair.connection.unsent(pair.now).unwrap();
    pair.now += Duration::from_millis(900);
    pair.connection.handle_timeout(pair.now).unwrap();
    pair.now += Duration::from_millis(100);
    assert!(matches!(
        pair.connection.handle_timeout(pair.now),
        Err(ConnectionError::WriteTimeout(_))
    ));
}
