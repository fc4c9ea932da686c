//! A stand-in for a large cluster: an nsqlookupd, and three nsqds that all have the same 10,000 topics with two channels
//! each. Real nsqds of this size would need a minute to register their topics, and another one to remove their files.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use test_support::http_server::{Answer, HttpServer};

/// The topics. Each node has all of them.
const TOPICS: usize = 10_000;

/// One of so many topics has a backlog that nobody consumes.
const BACKLOGS: usize = 100;

/// A consumer that keeps up.
const CONSUMER: &str = r#"{"client_id":"c","hostname":"h","remote_address":"10.0.0.9:1","ready_count":100,"connect_ts":1}"#;

/// The nsqds answer nothing. The large answers keep a processor busy, so the nsqds give none until a check wants them
/// (`GET /switch?to=idle`).
const SILENT: u8 = 0;
/// The counters stand still.
const IDLE: u8 = 1;
/// All topics get messages all the time.
const BUSY: u8 = 2;

/// Starts the stand-in, and returns its nsqlookupd.
pub(crate) fn start() -> HttpServer {
    let state = Arc::new(AtomicU8::new(SILENT));
    let ports: Vec<u16> = (0..3)
        .map(|node| nsqd(node, state.clone()).address.port())
        .collect();
    let names: Vec<String> = (0..TOPICS).map(name).collect();
    let topics = json!({"topics": names}).to_string();
    let producers = ports.iter().map(|port| {
        json!({
            "broadcast_address": "127.0.0.1", "hostname": "h", "remote_address": "127.0.0.1:1", "http_port": port, "tcp_port": 1,
            "version": "1.3.0", "topics": names, "tombstones": vec![false; TOPICS],
        })
    });
    let producers: Vec<_> = producers.collect();
    let nodes = json!({"producers": producers}).to_string();
    let without_topics = producers.into_iter().map(|mut producer| {
        producer["topics"].take();
        producer["tombstones"].take();
        producer
    });
    let of_a_topic = json!({
        "channels": ["archive", "billing"], "producers": without_topics.collect::<Vec<_>>(),
    });
    let of_a_topic = of_a_topic.to_string();
    HttpServer::start(move |request, _| {
        let to = |next| {
            state.store(next, Ordering::Relaxed);
            "OK".into()
        };
        match request.path() {
            "/topics" => topics.as_str().into(),
            "/nodes" => nodes.as_str().into(),
            "/lookup" => of_a_topic.as_str().into(),
            "/switch" if request.target().ends_with("idle") => to(IDLE),
            "/switch" if request.target().ends_with("busy") => to(BUSY),
            "/switch" => to(SILENT),
            _ => Answer::not_found(),
        }
    })
}

fn nsqd(node: usize, state: Arc<AtomicU8>) -> HttpServer {
    HttpServer::start(
        move |request, _| match (request.path(), state.load(Ordering::Relaxed)) {
            ("/stats", SILENT) => Answer::new(503, r#"{"message":"BUSY"}"#),
            ("/stats", state) => stats(node, state == BUSY).as_str().into(),
            ("/info", _) => json!({"version": "1.3.0"}).into(),
            _ => Answer::not_found(),
        },
    )
}

fn stats(node: usize, is_busy: bool) -> String {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = since_1970.unwrap_or_default().as_millis();
    let mut out = String::from("{\"health\":\"OK\",\"topics\":[");
    for number in 0..TOPICS {
        let count = if is_busy {
            millis * (number as u128 % 50 + 1) / 1000
        } else {
            number as u128
        };
        let (depth, oldest, clients) = if number % BACKLOGS == node {
            (7, millis % 1_000_000 + number as u128, "")
        } else {
            (0, 0, CONSUMER)
        };
        let separator = if number > 0 { "," } else { "" };
        let name = name(number);
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "{separator}{{\"topic_name\":\"{name}\",\"depth\":0,\"message_count\":{count},\"paused\":false,\"channels\":["
        );
        for (index, channel) in ["archive", "billing"].iter().enumerate() {
            let separator = if index > 0 { "," } else { "" };
            let _ = write!(
                out,
                "{separator}{{\"channel_name\":\"{channel}\",\"depth\":{depth},\"in_flight_count\":0,\"deferred_count\":0,\
                 \"message_count\":{count},\"requeue_count\":0,\"timeout_count\":0,\"client_count\":{},\"clients\":[{clients}],\
                 \"paused\":false,\"oldest_unfinished_ms\":{oldest}}}",
                usize::from(!clients.is_empty())
            );
        }
        out.push_str("]}");
    }
    out.push_str("],\"producers\":[]}");
    out
}

fn name(number: usize) -> String {
    format!("topic-{number:05}")
}
