use std::time::Duration;

use super::*;
use crate::database::Lifetimes;

const ANSWER: &str = r#"{"broadcast_address":"lk","hostname":"h","http_port":4161,"tcp_port":4160,"version":"1.3.0"}"#;
const BODY: &str = r#"{"broadcast_address":"b1","hostname":"h1","tcp_port":4150,"http_port":4151,"version":"1.3.0"}"#;

/// One connection and its database.
struct Stage {
    database: Database,
    session: Session,
    effects: Effects,
    seconds: u64,
}

impl Stage {
    fn new() -> Stage {
        let answer = identify_answer("lk", "h", 4161, None, 4160);
        assert_eq!(&*answer, ANSWER);
        Stage {
            database: Database::new(Lifetimes {
                inactive: Duration::from_secs(300),
                tombstone: Duration::from_secs(45),
            }),
            session: Session::new("1.2.3.4:5".into(), answer),
            effects: Effects::default(),
            seconds: 0,
        }
    }

    fn now(&self) -> Now {
        Now {
            monotonic: Duration::from_secs(self.seconds),
            unix_nanos: 0,
        }
    }

    /// Sends bytes. Returns the answers and the log lines.
    fn send(&mut self, bytes: &[u8]) -> (Vec<String>, Vec<String>) {
        let now = self.now();
        if self.session.receive(bytes) {
            self.session
                .execute(&mut self.database, now, &mut self.effects);
        }
        self.results()
    }

    fn identify(&mut self) -> (Vec<String>, Vec<String>) {
        let size = u32::try_from(BODY.len()).unwrap().to_be_bytes();
        self.send(&[b"  V1IDENTIFY\n", &size[..], BODY.as_bytes()].concat())
    }

    /// Ends the connection and removes the registrations. Returns the answers and the log lines.
    fn end(&mut self, cause: Option<&str>) -> (Vec<String>, Vec<String>) {
        self.session.end(cause, &mut self.effects);
        while !self.session.leave(&mut self.database, &mut self.effects) {}
        self.database.check();
        self.results()
    }

    fn results(&mut self) -> (Vec<String>, Vec<String>) {
        self.database.check();
        let effects = std::mem::take(&mut self.effects);
        let mut answers = Vec::new();
        let mut rest = &effects.output[..];
        while let Some((size, behind)) = rest.split_first_chunk() {
            let (answer, behind) = behind.split_at(u32::from_be_bytes(*size) as usize);
            answers.push(String::from_utf8_lossy(answer).into_owned());
            rest = behind;
        }
        let lines = effects.events.iter();
        let lines = lines.map(|event| format!("{}: {event}", event.level().word()));
        (answers, lines.collect())
    }
}

#[test]
fn a_client_registers_and_leaves() {
    let mut stage = Stage::new();
    let (answers, lines) = stage.identify();
    assert_eq!(answers, [ANSWER]);
    assert_eq!(
        lines,
        [
            "INFO: CLIENT(1.2.3.4:5): desired protocol magic '  V1'",
            "INFO: CLIENT(1.2.3.4:5): IDENTIFY Address:b1 TCP:4150 HTTP:4151 Version:1.3.0",
            "INFO: DB: client(1.2.3.4:5) REGISTER category:client key: subkey:",
        ]
    );
    let (answers, lines) = stage.send(b"REGISTER orders billing\nREGISTER orders billing\n");
    assert_eq!(answers, ["OK", "OK"]);
    assert_eq!(
        lines,
        [
            "INFO: DB: client(1.2.3.4:5) REGISTER category:channel key:orders subkey:billing",
            "INFO: DB: client(1.2.3.4:5) REGISTER category:topic key:orders subkey:",
        ]
    );
    stage.seconds = 15;
    let (_, lines) = stage.send(b"PING\n");
    assert_eq!(lines, ["INFO: CLIENT(1.2.3.4:5): pinged (last ping 15s)"]);
    let (answers, lines) = stage.send(b"UNREGISTER orders\nREGISTER orders\n");
    assert_eq!(answers, ["OK", "OK"]);
    assert_eq!(
        lines,
        [
            "WARNING: client(1.2.3.4:5) unexpected UNREGISTER category:channel key:orders \
             subkey:billing",
            "INFO: DB: client(1.2.3.4:5) UNREGISTER category:topic key:orders subkey:",
            "INFO: DB: client(1.2.3.4:5) REGISTER category:topic key:orders subkey:",
        ]
    );
    let (answers, lines) = stage.end(None);
    assert!(answers.is_empty());
    assert_eq!(
        lines,
        [
            "INFO: PROTOCOL(V1): [1.2.3.4:5] exiting ioloop",
            "INFO: DB: client(1.2.3.4:5) UNREGISTER category:client key: subkey:",
            "INFO: DB: client(1.2.3.4:5) UNREGISTER category:topic key:orders subkey:",
            "ERROR: client(1.2.3.4:5) - EOF",
        ]
    );
    assert_eq!(stage.database.topics().collect::<Vec<_>>(), ["orders"]);
    assert_eq!(
        stage.database.channels("orders").collect::<Vec<_>>(),
        ["billing"]
    );
}

#[test]
fn an_error_ends_the_session() {
    let mut stage = Stage::new();
    stage.identify();
    let (answers, lines) = stage.send(b"REGISTER t\nREGISTER a:b\nREGISTER never\n");
    let error = "E_BAD_TOPIC REGISTER topic name 'a:b' is not valid";
    assert_eq!(answers, ["OK", error]);
    assert_eq!(lines[1..], [format!("ERROR: [1.2.3.4:5] - {error}")]);
    assert!(stage.session.is_over());
    assert!(stage.send(b"REGISTER never\n").0.is_empty());
    let (_, lines) = stage.end(None);
    assert_eq!(lines[0], "INFO: PROTOCOL(V1): [1.2.3.4:5] exiting ioloop");
    assert_eq!(lines[3], format!("ERROR: client(1.2.3.4:5) - {error}"));
    assert_eq!(stage.database.topics().collect::<Vec<_>>(), ["t"]);
}

#[test]
fn a_cause_follows_the_error_in_the_log() {
    let mut stage = Stage::new();
    let (answers, lines) = stage.send(b"  V1IDENTIFY\n\0\0\0\x04nope");
    let error = "E_BAD_BODY IDENTIFY failed to decode JSON body";
    assert_eq!(answers, [error]);
    test_support::assert_like(&lines[1], &format!("ERROR: [1.2.3.4:5] - {error} - …"));
}

#[test]
fn a_cut_body_is_answered() {
    let mut stage = Stage::new();
    stage.send(b"  V1IDENTIFY\n\0\0\0\x04{");
    let (answers, lines) = stage.end(None);
    let error = "E_BAD_BODY IDENTIFY failed to read body";
    assert_eq!(answers, [error]);
    assert_eq!(
        lines,
        [
            format!("ERROR: [1.2.3.4:5] - {error} - unexpected EOF"),
            "INFO: PROTOCOL(V1): [1.2.3.4:5] exiting ioloop".to_string(),
            format!("ERROR: client(1.2.3.4:5) - {error}"),
        ]
    );
}

#[test]
fn other_protocols_are_refused() {
    let mut stage = Stage::new();
    let (answers, lines) = stage.send(b"  V2");
    assert_eq!(answers, ["E_BAD_PROTOCOL"]);
    assert_eq!(
        lines,
        [
            "INFO: CLIENT(1.2.3.4:5): desired protocol magic '  V2'",
            "ERROR: client(1.2.3.4:5) bad protocol magic '  V2'",
        ]
    );
    assert!(stage.session.is_over());
    assert_eq!(stage.end(None), (vec![], vec![]));
}

#[test]
fn an_end_before_the_magic_is_only_logged() {
    let check = |bytes: &[u8], cause: Option<&str>, why: &str| {
        let mut stage = Stage::new();
        stage.send(bytes);
        let line = format!("ERROR: failed to read protocol version - {why}");
        assert_eq!(stage.end(cause), (vec![], vec![line]));
    };
    check(b"", None, "EOF");
    check(b" ", None, "unexpected EOF");
    check(b" ", Some("broken"), "broken");
}

#[test]
fn a_ping_may_come_before_identify() {
    let mut stage = Stage::new();
    let (answers, lines) = stage.send(b"  V1PING\n");
    assert_eq!(answers, ["OK"]);
    assert_eq!(lines.len(), 1, "{lines:?}");
}

#[test]
fn a_stop_is_no_error() {
    let mut stage = Stage::new();
    stage.identify();
    stage.session.stop();
    let (_, lines) = stage.end(None);
    assert_eq!(
        lines,
        [
            "INFO: PROTOCOL(V1): [1.2.3.4:5] exiting ioloop",
            "INFO: DB: client(1.2.3.4:5) UNREGISTER category:client key: subkey:",
        ]
    );
}

#[test]
fn many_registrations_leave_in_slices() {
    let mut stage = Stage::new();
    stage.identify();
    for number in 0..REMOVED_AT_ONCE {
        stage.send(format!("REGISTER t{number} c\n").as_bytes());
    }
    stage.session.end(None, &mut stage.effects);
    let mut calls = 0;
    while !stage.session.leave(&mut stage.database, &mut stage.effects) {
        stage.database.check();
        calls += 1;
    }
    assert_eq!(calls, 2, "a channel and a topic of each");
}
