//! Servers that hang: all are asked at the same moment, and each has a deadline of its own.

mod support;

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::json;
use support::Admin;
use test_support::{TIMEOUT, original_nsqd, wait_until};

/// The number of servers. One that is asked after another's deadline would double the time of an answer.
const SERVERS: usize = 12;

/// Counts the connections of servers that hang: those that are open, the most at once, and all.
#[derive(Default)]
struct Open {
    now: usize,
    most: usize,
    all: usize,
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
        open.all += 1;
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

/// A server slower than the deadline got the next question as soon as the last one had timed out, and so worked for nsqadmin
/// all the time. No time is measured: the server has its second question after four times the wait for the first answer, and
/// the figures of the others are new many times in between.
#[test]
fn a_node_that_hangs_is_left_out_for_a_while_and_the_figures_of_the_others_stay_new() {
    let topics = json!([{"topic_name": "t", "channels": []}]);
    let living = original_nsqd::start(topics);
    let open = Arc::new(Mutex::new(Open::default()));
    let hanging = hanging_server(&open);
    let admin = Admin::start(&[
        &format!("--nsqd-http-address={}", living.address),
        &format!("--nsqd-http-address={hanging}"),
        "--live-interval=50ms",
        "--http-client-request-timeout=1s",
    ]);
    let count = || {
        let requests = living.requests();
        let stats = requests.iter();
        stats.filter(|it| it.target().starts_with("/stats")).count()
    };
    assert!(wait_until(TIMEOUT, || open.lock().unwrap().all > 0));
    let before = count();
    let mut messages = Vec::new();
    assert!(wait_until(TIMEOUT, || {
        let live = admin.json("/api/live");
        messages.extend(live["message"].as_str().map(str::to_owned));
        open.lock().unwrap().all > 1
    }));
    let collections = count() - before;
    assert!(collections >= 10, "{collections} between two questions");
    messages.retain(|message| !message.is_empty());
    assert!(!messages.is_empty());
    for message in messages {
        let url = format!("Get \"http://{hanging}/info\": no answer in time");
        assert!(message.contains(&url), "{message}");
        let pause = "; it is not asked again for ";
        assert!(message.contains(pause), "{message}");
    }
}
