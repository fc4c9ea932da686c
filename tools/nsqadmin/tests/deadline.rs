//! Servers that hang: all are asked at the same moment, and each has a deadline of its own.

mod support;

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::{Value, json};
use support::Admin;
use test_support::original_nsqd;

/// The number of servers. One that is asked after another's deadline would double the time of an answer.
const SERVERS: usize = 12;

/// Counts the connections that are open, over all servers that hang.
#[derive(Default)]
struct Open {
    now: usize,
    most: usize,
}

/// Starts a server that accepts connections and never answers. It reads until the client closes the connection.
fn hanging_server(open: &Arc<Mutex<Open>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let open = Arc::clone(open);
    // The thread ends with the process of the test.
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let open = Arc::clone(&open);
            std::thread::spawn(move || hold(socket, &open));
        }
    });
    address
}

fn hold(mut socket: TcpStream, open: &Mutex<Open>) {
    {
        let mut open = open.lock().unwrap();
        open.now += 1;
        open.most = open.most.max(open.now);
    }
    let mut bytes = [0; 1024];
    while socket.read(&mut bytes).is_ok_and(|count| count > 0) {}
    open.lock().unwrap().now -= 1;
}

fn flags(addresses: impl Iterator<Item = SocketAddr>, timeout: &str) -> Vec<String> {
    let nodes = addresses.map(|address| format!("--nsqd-http-address={address}"));
    let own = ["--live-interval=0", timeout].map(str::to_owned);
    nodes.chain(own).collect()
}

/// No time is measured: with one request after the other, one connection would be open at a time.
#[test]
fn nodes_that_hang_are_asked_at_the_same_moment_and_each_is_named() {
    let open = Arc::new(Mutex::new(Open::default()));
    let addresses: Vec<SocketAddr> = (0..SERVERS).map(|_| hanging_server(&open)).collect();
    let flags = flags(
        addresses.iter().copied(),
        "--http-client-request-timeout=3s",
    );
    let admin = Admin::try_start(&flags, None).unwrap();
    let refused = admin.get("/api/topics").expect_status(502).json();
    let message = refused["message"].as_str().unwrap();
    for address in addresses {
        assert!(message.contains(&format!("http://{address}/")), "{message}");
    }
    assert_eq!(
        message.matches("no answer in time").count(),
        SERVERS,
        "{message}"
    );
    assert_eq!(
        open.lock().unwrap().most,
        SERVERS,
        "connections that were open at once"
    );
}

/// The pause after a collection was four times its duration, so the figures of all nodes were 25 s old while one node
/// hung for its deadline of 5 s.
#[test]
fn a_node_that_hangs_does_not_make_the_figures_of_the_others_old() {
    let topics = json!([{"topic_name": "t", "channels": []}]);
    let living = original_nsqd::start(topics);
    let hanging = hanging_server(&Arc::default());
    let admin = Admin::start(&[
        &format!("--nsqd-http-address={}", living.address),
        &format!("--nsqd-http-address={hanging}"),
        "--live-interval=50ms",
        "--http-client-request-timeout=2s",
    ]);
    let time = |live: &Value| live["time"].as_i64().unwrap_or_default();
    let seconds_of_collections = || {
        let metrics = admin.get("/metrics").expect_status(200).text();
        let name = "nsqadmin_collection_seconds_total ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        let seconds: Option<f64> = line.and_then(|value| value.parse().ok());
        seconds.unwrap_or_else(|| panic!("no {name}: {metrics}"))
    };
    let begun = Instant::now();
    let mut last = 0;
    for _ in 0..4 {
        let live = admin.wait_for("/api/live", |live| time(live) > last);
        last = time(&live);
    }
    // The rest of the time is pauses. Before, these were four fifths of it.
    let share = seconds_of_collections() / begun.elapsed().as_secs_f64();
    assert!(share > 0.5, "collections take {share} of the time");
}
