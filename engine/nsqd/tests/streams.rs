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
    whole_machine,
};

const MESSAGE_BYTES_MAX: i32 = 1_048_576;
const BODY_BYTES_MAX: i32 = 5_242_880;

// --- the table

/// The bytes that a client sends on a new connection, and every frame that it gets.
struct Case {
    sent: Vec<u8>,
    /// True if the client ends its side of the stream.
    half_close: bool,
    /// The expected frames: `+text` is a response, `-text` an error.
    frames: Vec<Vec<u8>>,
    closed: bool,
}

/// A case in which the connection ends after the frames.
fn fatal(sent: impl Into<Vec<u8>>, frames: &[&str]) -> Case {
    let frames = frames
        .iter()
        .map(|frame| frame.as_bytes().to_vec())
        .collect();
    Case {
        sent: sent.into(),
        half_close: false,
        frames,
        closed: true,
    }
}

/// A case in which the connection continues after the frames.
fn alive(sent: impl Into<Vec<u8>>, frames: &[&str]) -> Case {
    Case {
        closed: false,
        ..fatal(sent, frames)
    }
}

/// A case in which the client ends its side of the stream and still gets the answers.
fn cut(sent: impl Into<Vec<u8>>, frames: &[&str]) -> Case {
    Case {
        half_close: true,
        ..fatal(sent, frames)
    }
}

/// Returns `line`, then numbers as 32-bit words, then bytes.
fn bytes(line: &str, words: &[i32], rest: &[u8]) -> Vec<u8> {
    let mut all = line.as_bytes().to_vec();
    for word in words {
        all.extend_from_slice(&word.to_be_bytes());
    }
    all.extend_from_slice(rest);
    all
}

fn check(broker: &Broker, case: &Case) {
    let mut client = Client::connect_without_magic(broker.tcp_addr());
    // A broker may close before it has read a long command, so a failed write does not matter.
    let _ = client.try_send(&case.sent);
    if case.half_close {
        client.close_write();
    }
    let shown = String::from_utf8_lossy(&case.sent[..case.sent.len().min(100)]).into_owned();
    for expected in &case.frames {
        let frame = match client.try_frame() {
            Ok(Some(frame)) => frame,
            other => panic!(
                "{shown:?}: {} was expected, not {other:?}",
                String::from_utf8_lossy(expected)
            ),
        };
        let sign = match frame.kind {
            FrameType::Response => b"+",
            FrameType::Error => b"-",
            FrameType::Message => b"*",
        };
        let got = [&sign[..], &frame.data].concat();
        assert!(
            got == *expected,
            "{shown:?}: {} was expected, not {}",
            String::from_utf8_lossy(&expected[..expected.len().min(200)]),
            String::from_utf8_lossy(&got[..got.len().min(200)])
        );
    }
    if case.closed {
        match client.try_frame() {
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            other => panic!("{shown:?}: the end of the stream was expected, not {other:?}"),
        }
    } else {
        client.send(&Client::command_with_body("PUB alive", b"x"));
        let frame = client.frame_after_heartbeats();
        assert_eq!(
            (frame.kind, frame.data.as_slice()),
            (FrameType::Response, &b"OK"[..]),
            "{shown:?}"
        );
    }
}

fn check_all(cases: Vec<Case>) {
    let broker = Broker::start(2, &[]);
    let neighbour = Neighbour::start(broker.tcp_addr());
    for case in &cases {
        check(&broker, case);
    }
    neighbour.stop();
    wait_for_clients(&broker, 0);
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

const V2: &str = "  V2";

fn v2(rest: &str) -> String {
    format!("{V2}{rest}")
}

#[test]
fn magic() {
    check_all(vec![
        fatal("  V1", &["-E_BAD_PROTOCOL"]),
        fatal("GET / HTTP/1.1\r\n\r\n", &["-E_BAD_PROTOCOL"]),
        fatal([0, 0, 0, 0], &["-E_BAD_PROTOCOL"]),
        fatal([22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3], &["-E_BAD_PROTOCOL"]),
        cut("  V", &[]),
        cut("", &[]),
        cut("  V2", &[]),
        alive("  V2", &[]),
    ]);
}

#[test]
fn lines() {
    let longest = "x".repeat(16_383);
    let too_long = "x".repeat(16_384);
    let raw = [b"  V2".as_slice(), b"\xff\xfe%s\x00X\n"].concat();
    let raw_answer = Case {
        frames: vec![b"-E_INVALID invalid command \xff\xfe%s\x00X".to_vec()],
        ..fatal(raw, &[])
    };
    check_all(vec![
        fatal(v2("\n"), &["-E_INVALID invalid command "]),
        fatal(v2(" NOP\n"), &["-E_INVALID invalid command "]),
        fatal(v2("pub t\n"), &["-E_INVALID invalid command pub"]),
        fatal(v2("NOP\t\n"), &["-E_INVALID invalid command NOP\t"]),
        fatal(v2("NOP\r\r\n"), &["-E_INVALID invalid command NOP\r"]),
        raw_answer,
        fatal(
            v2(&format!("{longest}\n")),
            &[&format!("-E_INVALID invalid command {longest}")],
        ),
        fatal(v2(&too_long), &[]),
        fatal(v2(&format!("{too_long}{too_long}\n")), &[]),
        alive(v2(&format!("NOP {}\n", "x".repeat(16_379))), &[]),
        alive(v2("NOP\r\nNOP x y z\nNOP \n"), &[]),
        cut(v2("NOP"), &[]),
        cut(v2("FOO BAR"), &[]),
        fatal(
            v2("NOP\nNOP\nFOO\nPUB t\n"),
            &["-E_INVALID invalid command FOO"],
        ),
    ]);
}

#[test]
fn pub_errors() {
    let not_read = "-E_BAD_MESSAGE PUB failed to read message body";
    let big = MESSAGE_BYTES_MAX + 1;
    let largest = vec![b'x'; MESSAGE_BYTES_MAX as usize];
    let odd = b"  V2PUB a\"\xff\xc3\xa9\t\x01\x7f\xc2\xa0\n".to_vec();
    check_all(vec![
        fatal(
            v2("PUB\n"),
            &["-E_INVALID PUB insufficient number of parameters"],
        ),
        fatal(
            v2("PUB \n"),
            &["-E_BAD_TOPIC PUB topic name \"\" is not valid"],
        ),
        fatal(
            v2("PUB  t\n"),
            &["-E_BAD_TOPIC PUB topic name \"\" is not valid"],
        ),
        fatal(
            v2("PUB a:b\n"),
            &["-E_BAD_TOPIC PUB topic name \"a:b\" is not valid"],
        ),
        fatal(
            v2("PUB t\r\r\n"),
            &["-E_BAD_TOPIC PUB topic name \"t\\r\" is not valid"],
        ),
        fatal(
            odd,
            &["-E_BAD_TOPIC PUB topic name \"a\\\"\\xffé\\t\\x01\\x7f\\u00a0\" is not valid"],
        ),
        fatal(
            v2(&format!("PUB {}\n", "a".repeat(65))),
            &[&format!(
                "-E_BAD_TOPIC PUB topic name \"{}\" is not valid",
                "a".repeat(65)
            )],
        ),
        fatal(
            v2("PUB #ephemeral\n"),
            &["-E_BAD_TOPIC PUB topic name \"#ephemeral\" is not valid"],
        ),
        cut(v2("PUB t\n"), &[&format!("{not_read} size")]),
        cut(v2("PUB t\n\0\0\0"), &[&format!("{not_read} size")]),
        fatal(
            bytes("  V2PUB t\n", &[0], b""),
            &["-E_BAD_MESSAGE PUB invalid message body size 0"],
        ),
        fatal(
            bytes("  V2PUB t\n", &[-1], b""),
            &["-E_BAD_MESSAGE PUB invalid message body size -1"],
        ),
        fatal(
            bytes("  V2PUB t\n", &[big], b""),
            &["-E_BAD_MESSAGE PUB message too big 1048577 > 1048576"],
        ),
        fatal(
            bytes("  V2PUB t\n", &[i32::MAX], &[0; 100]),
            &["-E_BAD_MESSAGE PUB message too big 2147483647 > 1048576"],
        ),
        cut(bytes("  V2PUB t\n", &[5], b"four"), &[not_read]),
        cut(
            bytes("  V2PUB t\n", &[MESSAGE_BYTES_MAX], b"four"),
            &[not_read],
        ),
        alive(
            bytes("  V2PUB t\n", &[MESSAGE_BYTES_MAX], &largest),
            &["+OK"],
        ),
        alive(bytes("  V2PUB t foo bar\r\n", &[1], b"x"), &["+OK"]),
        alive(
            bytes(&v2(&format!("PUB {}\n", "a".repeat(64))), &[1], b"x"),
            &["+OK"],
        ),
        cut(bytes("  V2PUB t\n", &[1], b"x"), &["+OK"]),
    ]);
}

#[test]
fn mpub_errors() {
    let m = |words: &[i32], rest: &[u8]| bytes("  V2MPUB t\n", words, rest);
    let five = |rest: &[u8]| [&5i32.to_be_bytes()[..], rest].concat();
    let second = [&five(b"first")[..], &0i32.to_be_bytes()].concat();
    check_all(vec![
        fatal(
            v2("MPUB\n"),
            &["-E_INVALID MPUB insufficient number of parameters"],
        ),
        fatal(
            v2("MPUB a:b\n"),
            &["-E_BAD_TOPIC E_BAD_TOPIC MPUB topic name \"a:b\" is not valid"],
        ),
        cut(
            v2("MPUB t\n\0\0"),
            &["-E_BAD_BODY MPUB failed to read body size"],
        ),
        fatal(m(&[0], b""), &["-E_BAD_BODY MPUB invalid body size 0"]),
        fatal(m(&[-1], b""), &["-E_BAD_BODY MPUB invalid body size -1"]),
        fatal(
            m(&[BODY_BYTES_MAX + 1], b""),
            &["-E_BAD_BODY MPUB body too big 5242881 > 5242880"],
        ),
        cut(
            m(&[4], b""),
            &["-E_BAD_BODY MPUB failed to read message count"],
        ),
        fatal(
            m(&[4, 0], b""),
            &["-E_BAD_BODY MPUB invalid message count 0"],
        ),
        fatal(
            m(&[4, -5], b""),
            &["-E_BAD_BODY MPUB invalid message count -5"],
        ),
        fatal(
            m(&[4, 1_048_576], b""),
            &["-E_BAD_BODY MPUB invalid message count 1048576"],
        ),
        cut(
            m(&[4, 1_048_575], b""),
            &["-E_BAD_MESSAGE MPUB failed to read message(0) body size"],
        ),
        fatal(
            m(&[8, 1, 0], b""),
            &["-E_BAD_MESSAGE MPUB invalid message(0) body size 0"],
        ),
        fatal(
            m(&[8, 1, -1], b""),
            &["-E_BAD_MESSAGE MPUB invalid message(0) body size -1"],
        ),
        fatal(
            m(&[17, 2], &second),
            &["-E_BAD_MESSAGE MPUB invalid message(1) body size 0"],
        ),
        fatal(
            m(&[8, 1, MESSAGE_BYTES_MAX + 1], b""),
            &["-E_BAD_MESSAGE MPUB message too big 1048577 > 1048576"],
        ),
        cut(
            m(&[20, 1, 5], b"four"),
            &["-E_BAD_MESSAGE MPUB failed to read message body"],
        ),
        cut(
            m(&[20, 2], &five(b"first")),
            &["-E_BAD_MESSAGE MPUB failed to read message(1) body size"],
        ),
        // The declared body size is checked for its range and then ignored, as in nsqd.
        alive(m(&[1, 1], &five(b"first")), &["+OK"]),
        alive(m(&[1000, 1], &five(b"first")), &["+OK"]),
        fatal(
            m(&[16, 1], &five(b"firstXX\n")),
            &["+OK", "-E_INVALID invalid command XX"],
        ),
        alive(m(&[13, 1], &five(b"first")), &["+OK"]),
    ]);
}

#[test]
fn dpub_errors() {
    let invalid = |text: &str| format!("-E_INVALID DPUB {text}");
    let bad = |text: &str| format!("-E_BAD_MESSAGE DPUB {text}");
    check_all(vec![
        fatal(
            v2("DPUB t\n"),
            &[&invalid("insufficient number of parameters")],
        ),
        fatal(
            v2("DPUB a:b 1\n"),
            &["-E_BAD_TOPIC DPUB topic name \"a:b\" is not valid"],
        ),
        fatal(v2("DPUB t x\n"), &[&invalid("could not parse timeout x")]),
        fatal(v2("DPUB t -1\n"), &[&invalid("could not parse timeout -1")]),
        fatal(
            v2("DPUB t 1.5\n"),
            &[&invalid("could not parse timeout 1.5")],
        ),
        fatal(
            v2("DPUB t 3600001\n"),
            &[&invalid("timeout 3600001 out of range 0-3600000")],
        ),
        cut(
            v2("DPUB t 1\n\0"),
            &[&bad("failed to read message body size")],
        ),
        fatal(
            bytes("  V2DPUB t 1\n", &[0], b""),
            &[&bad("invalid message body size 0")],
        ),
        fatal(
            bytes("  V2DPUB t 1\n", &[MESSAGE_BYTES_MAX + 1], b""),
            &[&bad("message too big 1048577 > 1048576")],
        ),
        cut(
            bytes("  V2DPUB t 1\n", &[5], b"four"),
            &[&bad("failed to read message body")],
        ),
        alive(bytes("  V2DPUB t 3600000\n", &[1], b"x"), &["+OK"]),
        alive(bytes("  V2DPUB t \n", &[1], b"x"), &["+OK"]),
        alive(bytes("  V2DPUB t 0007\n", &[1], b"x"), &["+OK"]),
        alive(bytes("  V2DPUB t 18446744073710\n", &[1], b"x"), &["+OK"]),
        alive(
            bytes("  V2DPUB t 18446744073709551616\n", &[1], b"x"),
            &["+OK"],
        ),
    ]);
}

#[test]
fn sub_rdy_and_cls_errors() {
    let wrong = |command: &str| format!("-E_INVALID cannot {command} in current state");
    let sub = |rest: &str| v2(&format!("SUB s c\n{rest}"));
    let no_heartbeats = br#"{"heartbeat_interval":-1}"#;
    let mut silent = bytes(
        "  V2IDENTIFY\n",
        &[no_heartbeats.len() as i32],
        no_heartbeats,
    );
    silent.extend_from_slice(b"SUB s c\n");
    check_all(vec![
        fatal(
            v2("SUB\n"),
            &["-E_INVALID SUB insufficient number of parameters"],
        ),
        fatal(
            v2("SUB s\n"),
            &["-E_INVALID SUB insufficient number of parameters"],
        ),
        fatal(
            v2("SUB a:b c\n"),
            &["-E_BAD_TOPIC SUB topic name \"a:b\" is not valid"],
        ),
        fatal(
            v2("SUB s a:b\n"),
            &["-E_BAD_CHANNEL SUB channel name \"a:b\" is not valid"],
        ),
        fatal(
            v2("SUB s  c\n"),
            &["-E_BAD_CHANNEL SUB channel name \"\" is not valid"],
        ),
        fatal(
            silent,
            &["+OK", "-E_INVALID cannot SUB with heartbeats disabled"],
        ),
        fatal(sub("SUB s c\n"), &["+OK", &wrong("SUB")]),
        fatal(sub("IDENTIFY\n"), &["+OK", &wrong("IDENTIFY")]),
        fatal(sub("AUTH\n"), &["+OK", &wrong("AUTH")]),
        fatal(v2("RDY 1\n"), &[&wrong("RDY")]),
        fatal(v2("RDY nonsense\n"), &[&wrong("RDY")]),
        fatal(
            sub("RDY x\n"),
            &["+OK", "-E_INVALID RDY could not parse count x"],
        ),
        fatal(
            sub("RDY 2501\n"),
            &["+OK", "-E_INVALID RDY count 2501 out of range 0-2500"],
        ),
        fatal(
            sub("RDY 18446744073709551615\n"),
            &["+OK", "-E_INVALID RDY count -1 out of range 0-2500"],
        ),
        alive(sub("RDY\nRDY \nRDY 2500 x\n"), &["+OK"]),
        fatal(v2("CLS\n"), &[&wrong("CLS")]),
        fatal(sub("CLS\nCLS\n"), &["+OK", "+CLOSE_WAIT", &wrong("CLS")]),
        alive(sub("CLS x\nRDY nonsense\nNOP\n"), &["+OK", "+CLOSE_WAIT"]),
        cut(sub("CLS\n"), &["+OK", "+CLOSE_WAIT"]),
    ]);
}

#[test]
fn message_command_errors() {
    let id = "0123456789abcdef";
    let sub = |rest: &str| v2(&format!("SUB s c\n{rest}"));
    let mut cases = Vec::new();
    for (command, arguments) in [("FIN", ""), ("REQ", " 0"), ("TOUCH", "")] {
        let wrong = format!("-E_INVALID cannot {command} in current state");
        cases.push(fatal(
            v2(&format!("{command} {id}{arguments}\n")),
            &[&wrong],
        ));
        cases.push(fatal(v2(&format!("{command}\n")), &[&wrong]));
        let few = format!("-E_INVALID {command} insufficient number of params");
        cases.push(fatal(sub(&format!("{command}\n")), &["+OK", &few]));
        let bad_id = "-E_INVALID invalid message ID";
        cases.push(fatal(
            sub(&format!("{command} short{arguments}\n")),
            &["+OK", bad_id],
        ));
        cases.push(fatal(
            sub(&format!("{command} {id}0{arguments}\n")),
            &["+OK", bad_id],
        ));
        // Only these errors leave the connection open.
        let line = format!("{command} {id}{arguments}\n");
        let unknown = format!("-E_{command}_FAILED {command} {id} failed ID not in flight");
        cases.push(alive(
            sub(&line.repeat(3)),
            &["+OK", &unknown, &unknown, &unknown],
        ));
        cases.push(alive(
            sub(&format!("CLS\n{line}")),
            &["+OK", "+CLOSE_WAIT", &unknown],
        ));
        // Any sixteen bytes are an id.
        let odd = "!!not-hex-at-al!";
        cases.push(alive(
            sub(&line.replace(id, odd)),
            &["+OK", &unknown.replace(id, odd)],
        ));
    }
    let few = "-E_INVALID REQ insufficient number of params";
    cases.push(fatal(sub(&format!("REQ {id}\n")), &["+OK", few]));
    let bad = "-E_INVALID REQ could not parse timeout -1";
    cases.push(fatal(sub(&format!("REQ {id} -1\n")), &["+OK", bad]));
    let unknown = format!("-E_REQ_FAILED REQ {id} failed ID not in flight");
    cases.push(alive(
        sub(&format!("REQ {id} 99999999\nREQ {id} \n")),
        &["+OK", &unknown, &unknown],
    ));
    check_all(cases);
}

#[test]
fn identify_and_auth_errors() {
    let json = |text: &str| bytes("  V2IDENTIFY\n", &[text.len() as i32], text.as_bytes());
    let invalid = |text: &str| format!("-E_BAD_BODY IDENTIFY {text}");
    let undecodable = invalid("failed to decode JSON body");
    check_all(vec![
        cut(
            v2("IDENTIFY\n\0\0"),
            &[&invalid("failed to read body size")],
        ),
        fatal(
            bytes("  V2IDENTIFY\n", &[0], b""),
            &[&invalid("invalid body size 0")],
        ),
        fatal(
            bytes("  V2IDENTIFY\n", &[-1], b""),
            &[&invalid("invalid body size -1")],
        ),
        fatal(
            bytes("  V2IDENTIFY\n", &[BODY_BYTES_MAX + 1], b""),
            &[&invalid("body too big 5242881 > 5242880")],
        ),
        cut(
            bytes("  V2IDENTIFY\n", &[10], b"{}"),
            &[&invalid("failed to read body")],
        ),
        fatal(json("[]"), &[&undecodable]),
        fatal(json("{\"heartbeat_interval\":1e3}"), &[&undecodable]),
        fatal(json("{} x"), &[&undecodable]),
        fatal(json(&"[".repeat(100_000)), &[&undecodable]),
        fatal(json(&"{\"a\":".repeat(100_000)), &[&undecodable]),
        fatal(
            json("{\"heartbeat_interval\":999}"),
            &[&invalid("heartbeat interval (999) is invalid")],
        ),
        fatal(
            json("{\"msg_timeout\":-1}"),
            &[&invalid("msg timeout (-1) is invalid")],
        ),
        fatal(
            json("{\"sample_rate\":100}"),
            &[&invalid("sample rate (100) is invalid")],
        ),
        alive(json("{}"), &["+OK"]),
        alive(json("null"), &["+OK"]),
        alive(
            [json("{}"), json("{}")[4..].to_vec()].concat(),
            &["+OK", "+OK"],
        ),
        fatal(
            v2("AUTH x\n"),
            &["-E_INVALID AUTH invalid number of parameters"],
        ),
        fatal(
            bytes("  V2AUTH\n", &[6], b"secret"),
            &["-E_AUTH_DISABLED AUTH disabled"],
        ),
        fatal(
            bytes("  V2AUTH\n", &[0], b""),
            &["-E_BAD_BODY AUTH invalid body size 0"],
        ),
        cut(
            bytes("  V2AUTH\n", &[6], b"sec"),
            &["-E_BAD_BODY AUTH failed to read body"],
        ),
    ]);
}

#[test]
fn bad_publishes_store_no_message() {
    let broker = Broker::start(2, &[]);
    check(
        &broker,
        &fatal(
            bytes("  V2PUB bad-pub\n", &[0], b""),
            &["-E_BAD_MESSAGE PUB invalid message body size 0"],
        ),
    );
    check(
        &broker,
        &cut(
            bytes("  V2DPUB bad-dpub 1\n", &[5], b"x"),
            &["-E_BAD_MESSAGE DPUB failed to read message body"],
        ),
    );
    let second = [&5i32.to_be_bytes()[..], b"first", &0i32.to_be_bytes()].concat();
    check(
        &broker,
        &fatal(
            bytes("  V2MPUB bad-mpub\n", &[17, 2], &second),
            &["-E_BAD_MESSAGE MPUB invalid message(1) body size 0"],
        ),
    );
    assert!(
        broker.topic_stats("bad-pub").is_none(),
        "a bad PUB creates no topic"
    );
    assert!(
        broker.topic_stats("bad-dpub").is_none(),
        "a bad DPUB creates no topic"
    );
    // Like nsqd, MPUB creates its topic before it checks the body, and publishes all or nothing.
    let topic = broker
        .topic_stats("bad-mpub")
        .expect("MPUB creates its topic first");
    assert_eq!(
        (&topic["message_count"], &topic["depth"]),
        (&0.into(), &0.into())
    );
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
    let mut all = v2("").into_bytes();
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
                let text = String::from_utf8(message.body).expect("text");
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
    let mut client = Client::connect(broker.tcp_addr());
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
    let mut client = Client::connect(broker.tcp_addr());
    let start = Instant::now();
    client.identify(r#"{"heartbeat_interval":1000}"#);
    let mut writer = client.writer();
    let sender = std::thread::spawn(move || {
        let all = bytes("PUB t\n", &[1000], &[b'x'; 1000]);
        for byte in all {
            if writer.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
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
    let mut client = Client::connect(broker.tcp_addr());
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
    // This is far below the 20 s for which the command arrives in pieces.
    let late = due + Duration::from_secs(10);
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
    let _machine = whole_machine();
    let broker = Broker::start(2, &[]);
    let neighbour = Neighbour::start(broker.tcp_addr());
    let mut idle = Client::connect(broker.tcp_addr());
    idle.identify(r#"{"heartbeat_interval":1000,"msg_timeout":2000}"#);
    idle.subscribe("large", "channel");
    idle.ready(2500);
    let body = vec![b'x'; 100_000];
    let mut producer = Client::connect(broker.tcp_addr());
    for _ in 0..300 {
        producer.publish("large", &body);
    }
    let before = support::rss(broker.pid()).anonymous_bytes;
    // The broker closes the client after at most two intervals (P10). Other consumers of the topic
    // are served.
    let gone = wait_until(TIMEOUT, || {
        broker
            .channel_stats("large", "channel")
            .is_some_and(|channel| channel["client_count"] == 0)
    });
    assert!(
        gone,
        "a client that reads nothing for two heartbeat intervals is closed"
    );
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
    let mut other = Client::connect(broker.tcp_addr());
    other.subscribe("large", "channel");
    other.ready(100);
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
    let _machine = whole_machine();
    let broker = Broker::start(1, &["--msg-timeout=10m"]);
    let body = vec![b'x'; 10_000];
    let mut producer = Client::connect(broker.tcp_addr());
    for _ in 0..25 {
        producer.publish_many("large", &vec![&body; 100]);
    }
    let mut slow = Client::connect(broker.tcp_addr());
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
    let channel = broker
        .channel_stats("large", "channel")
        .expect("it is there");
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
    let mut early = Client::connect(broker.tcp_addr());
    early.identify("{}");
    broker.signal("STOP");
    let newcomers: Vec<_> = (0..NEWCOMERS)
        .map(|_| TcpStream::connect(broker.tcp_addr()).expect("the kernel accepts"))
        .collect();
    early.send(&Client::command_with_body("PUB early", b"x"));
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
    let mut producer = Client::connect(broker.tcp_addr());
    producer.publish("waits", b"known");
    let mut early = Client::connect(broker.tcp_addr());
    early.subscribe("waits", "early");
    early.ready(1);
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
            let mut client = Client::connect(broker.tcp_addr());
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
        let mut client = Client::connect(broker.tcp_addr());
        client.send(&all[..cut_at]);
        if round % 3 == 0 {
            reset(client);
        }
    }
    // Nobody reads these answers, and a reset arrives while the broker writes.
    for _ in 0..20 {
        let mut client = Client::connect(broker.tcp_addr());
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
        let mut client = Client::connect(broker.tcp_addr());
        client.identify(&format!("{{\"{field}\":{text}}}"));
        let line = broker.wait_for_log(&format!("by {field}"));
        let shown = forged.replace('\n', "\\n") + " \\x1b[2J\\u009b31m by";
        assert!(line.contains(&shown), "{line}");
    }
    let mut client = Client::connect(broker.tcp_addr());
    client.send(b"FOO\x1b[31m\r\x07 BAR\n");
    client.expect_error("E_INVALID invalid command FOO\x1b[31m\r\x07");
    let line = broker.wait_for_log("invalid command FOO");
    assert!(
        line.ends_with(r"invalid command FOO\x1b[31m\r\x07"),
        "{line}"
    );
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
