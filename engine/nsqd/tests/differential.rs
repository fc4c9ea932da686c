//! Sends the same bytes to the original nsqd and to ours (`test_support::differential`).

mod auth_server;
mod normal;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::{Broker, Client, FrameType, Launch, Message};
use test_support::differential::{self, Addresses, Daemon, Frame, FrameKind, Suite, Words, show};

/// The directory of the cases.
const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/differential");
const SHARDS: usize = 2;
/// Largest difference between the clock of a message and ours.
const CLOCK_ERROR_MAX: Duration = Duration::from_secs(60);
/// Errors that do not end the connection.
const NOT_FATAL: [&[u8]; 3] = [b"E_FIN_FAILED", b"E_REQ_FAILED", b"E_TOUCH_FAILED"];

#[test]
fn ours_answers_what_the_original_answered() {
    let auth = auth_server::serve().to_string();
    differential::run::<Client>(&Suite {
        package: "engine",
        cases: CASES,
        original: "NSQD_ORIGINAL",
        normal: normal::normal,
        start: &|flags, program| start(flags, program, &auth),
    });
}

fn start(flags: &[String], program: Option<&Path>, auth: &str) -> Result<Box<dyn Daemon>, String> {
    let flags: Vec<String> = flags
        .iter()
        .map(|flag| flag.replace("{auth}", auth))
        .collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let launch = Launch {
        program: program.map(Path::to_path_buf),
        ..Launch::new(SHARDS, &flags)
    };
    match launch.try_start() {
        Ok(broker) => Ok(Box::new(broker)),
        Err(exit) => Err(exit.stderr),
    }
}

impl Daemon for Broker {
    fn addresses(&self) -> Addresses {
        Addresses {
            tcp: self.tcp_addr(),
            http: self.http_addr(),
        }
    }
}

impl differential::Client for Client {
    fn connect(address: SocketAddr) -> Client {
        Client::connect(address)
    }

    fn connect_without_magic(address: SocketAddr) -> Client {
        Client::connect_without_magic(address)
    }

    fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        Client::try_send(self, bytes)
    }

    fn close_write(&mut self) {
        Client::close_write(self);
    }

    fn set_read_timeout(&mut self, timeout: Duration) {
        Client::set_read_timeout(self, timeout);
    }

    fn next_frame(&mut self, words: &mut Words) -> io::Result<Option<Frame>> {
        let Some(frame) = self.try_frame()? else {
            return Ok(None);
        };
        let text = match frame.kind {
            FrameType::Response => format!("response {}", words.show(&frame.data)),
            FrameType::Error => format!("error {}", words.show(&frame.data)),
            FrameType::Message => match Message::parse(&frame.data) {
                Some(message) => show_message(&message, words),
                None => format!("message too short {}", show(&frame.data)),
            },
        };
        let goes_on = NOT_FATAL.iter().any(|code| frame.data.starts_with(code));
        let kind = match frame.kind {
            FrameType::Response if frame.data == b"_heartbeat_" => FrameKind::Heartbeat,
            FrameType::Error if !goes_on => FrameKind::Fatal,
            _ => FrameKind::Ordinary,
        };
        Ok(Some(Frame { text, kind }))
    }
}

fn show_message(message: &Message, words: &mut Words) -> String {
    let id = match std::str::from_utf8(&message.id) {
        Ok(id) if id.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f')) => {
            words.names.name(id)
        }
        _ => format!("bad id {}", show(&message.id)),
    };
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("the clock is set");
    let sent = Duration::from_nanos(message.timestamp.try_into().unwrap_or(0));
    let clock = match now.abs_diff(sent) {
        error if error > CLOCK_ERROR_MAX => " at a wrong time",
        _ => "",
    };
    let attempts = message.attempts;
    let body = words.show(&message.body);
    format!("message {id} attempts={attempts}{clock} {body}")
}
