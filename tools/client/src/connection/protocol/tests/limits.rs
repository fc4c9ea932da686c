//! An nsqd that sends heartbeats and nothing else.

use super::*;

#[test]
fn heartbeats_that_pile_up_get_one_answer() {
    let mut pair = Pair::new(settings(|_| {}));
    pair.respond(b"OK");
    pair.expect_opened();
    pair.said();
    for _ in 0..1000 {
        pair.say(encode::HEARTBEAT);
        assert!(pair.connection.next_event().unwrap().is_none());
    }
    // nsqd took a part of the answer. What is left cannot be the answer to a later heartbeat.
    assert_eq!(pair.connection.unsent(pair.now).unwrap(), b"NOP\n");
    pair.connection.sent(1, pair.now);
    for _ in 0..1000 {
        pair.say(encode::HEARTBEAT);
        assert!(pair.connection.next_event().unwrap().is_none());
    }
    assert_eq!(pair.said(), b"OP\nNOP\n");
    pair.say(encode::HEARTBEAT);
    assert!(pair.connection.next_event().unwrap().is_none());
    assert_eq!(pair.said(), b"NOP\n");
}

/// The answers wait in front of TLS, which has sealed the first one, and nsqd takes nothing.
#[test]
fn heartbeats_that_pile_up_under_tls_get_two_answers_at_most() {
    let certificates = Certificates::new();
    let mut pair = Pair::new(Settings {
        tls_v1: true,
        tls: Some(certificates.client()),
        ..settings(|_| {})
    });
    pair.said();
    pair.respond(br#"{"tls_v1":true}"#);
    assert!(pair.connection.next_event().unwrap().is_none());
    pair.upgrades.push(certificates.server());
    pair.shake_hands();
    pair.respond(b"OK");
    pair.expect_opened();
    for _ in 0..1000 {
        pair.say(encode::HEARTBEAT);
        assert!(pair.connection.next_event().unwrap().is_none());
        assert!(!pair.connection.unsent(pair.now).unwrap().is_empty());
    }
    assert_eq!(pair.said(), b"NOP\nNOP\n");
}

#[test]
fn heartbeats_alone_do_not_prolong_the_handshake() {
    let mut pair = Pair::new(settings(|_| {}));
    let began_at = pair.now;
    for _ in 0..4 {
        assert!(pair.connection.handle_timeout(pair.now).is_ok());
        pair.say(encode::HEARTBEAT);
        assert!(pair.connection.next_event().unwrap().is_none());
        pair.said();
        pair.now += Duration::from_secs(14);
    }
    // A connection that opens has no such limit any more. This one does not open.
    let deadline = pair.connection.deadline().unwrap();
    assert_eq!((deadline - began_at).as_secs(), 60);
    let error = pair.connection.handle_timeout(deadline).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to connect - the handshake was not over within 60s"
    );
}
