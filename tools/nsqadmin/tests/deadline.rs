//! Servers that hang: all are asked at the same moment, and each has a deadline of its own.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use crate::support::Admin;
use parking_lot::Mutex;
use serde_json::json;
use test_support::daemon::Daemon;
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
        let mut open = open.lock();
        open.now += 1;
        open.all += 1;
        open.most = open.most.max(open.now);
    }
    let mut bytes = [0; 1024];
    while socket.read(&mut bytes).is_ok_and(|count| count > 0) {}
    open.lock().now -= 1;
}

/// No time is measured: with one request after the other, one connection would be open at a time.
#[test]
fn nodes_that_hang_are_asked_at_the_same_moment_and_each_is_named() {
    let open = Arc::new(Mutex::new(Open::default()));
    let addresses: Vec<SocketAddr> = (0..SERVERS).map(|_| hanging_server(&open)).collect();
    let flags = ["--live-interval=0", "--http-client-request-timeout=5s"];
    let admin = Admin::start_direct(addresses.iter().copied(), &flags);
    let message = admin.get("/api/topics").expect_status(502).message();
    for address in addresses {
        assert!(message.contains(&format!("http://{address}/")), "{message}");
    }
    assert_eq!(
        message.matches("no answer in time").count(),
        SERVERS,
        "{message}"
    );
    assert_eq!(
        open.lock().most,
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
    let flags = ["--live-interval=50ms", "--http-client-request-timeout=1s"];
    let admin = Admin::start_direct([living.address, hanging], &flags);
    let count = || {
        let requests = living.requests();
        let stats = requests.iter();
        stats.filter(|it| it.target().starts_with("/stats")).count()
    };
    assert!(wait_until(TIMEOUT, || open.lock().all > 0));
    // The living server, too, may miss its deadline on a busy machine. Few collections come before the next question then.
    let (mut asked, mut before, mut most) = (open.lock().all, count(), 0_usize);
    let mut messages = Vec::new();
    let is_new = wait_until(TIMEOUT, || {
        let live = admin.json("/api/live");
        messages.extend(live["message"].as_str().map(str::to_owned));
        let all = open.lock().all;
        if all > asked {
            let now = count();
            // Two questions since the last look are two windows.
            if all == asked + 1 {
                most = most.max(now - before);
            }
            (asked, before) = (all, now);
        }
        most >= 10
    });
    assert!(is_new, "at most {most} between two questions");
    let url = format!("Get \"http://{hanging}/info\"");
    messages.retain(|message| message.contains(&url));
    assert!(!messages.is_empty());
    for message in messages {
        let silent = format!("{url}: no answer in time");
        assert!(message.contains(&silent), "{message}");
        let pause = "; it is not asked again for ";
        assert!(message.contains(pause), "{message}");
    }
}

/// The figures of all nsqds were those of before for as long as the only nsqlookupd hung, and for 20 s more.
#[test]
fn an_nsqlookupd_that_hangs_does_not_make_the_figures_of_nsqds_old() {
    let lookupd = Daemon::nsqlookupd(&[]);
    let nsqd = Daemon::nsqd_at(&[&lookupd], &[]);
    nsqd.create_channel("t", "c");
    let admin = Admin::start_at(
        &[&lookupd],
        &["--live-interval=50ms", "--http-client-request-timeout=2s"],
    );
    let depth_is = |depth: i64| {
        move |live: &serde_json::Value| live["topics"][0]["channel_depth"] == json!(depth)
    };
    nsqd.publish("t", &["x"]);
    admin.wait_for("/api/live", depth_is(1));
    lookupd.signal("STOP");
    // The question hangs, and later it has failed and is not repeated.
    let says = format!(
        "WARNING: the figures are those of the nsqds that were known before, because nsqadmin failed to query any nsqlookupd: \
         Get \"http://{}/nodes\": no answer in time",
        lookupd.http
    );
    let message =
        |live: &serde_json::Value| live["message"].as_str().unwrap_or_default().to_owned();
    let told = admin.wait_for("/api/live", |live| message(live).starts_with(&says));
    nsqd.publish("t", &["y"]);
    let is_new = depth_is(2);
    let live = admin.wait_for("/api/live", |live| {
        is_new(live) && message(live).starts_with(&says)
    });
    assert!(live["time"].as_i64() > told["time"].as_i64(), "{live}");
    // The list of what needs attention is made in the meantime, too.
    let attention = admin.wait_for("/api/live/attention", |attention| {
        let concerns = attention["concerns"].as_array().into_iter().flatten();
        let mut lookupds = concerns.filter_map(|concern| concern["lookupd"].as_str());
        lookupds.any(|address| *address == lookupd.http.to_string())
    });
    assert!(attention["time"].as_i64() > Some(0), "{attention}");
    nsqd.publish("t", &["z"]);
    admin.wait_for("/api/live", depth_is(3));
    lookupd.signal("CONT");
    admin.wait_for("/api/live", |live| message(live).is_empty());
}

/// Without a deadline, an nsqlookupd that hung ended the figures for good, also after the operator had named another.
#[test]
fn an_nsqlookupd_that_hangs_can_be_replaced() {
    let open = Arc::new(Mutex::new(Open::default()));
    let lookupds = [(); 2].map(|()| Daemon::nsqlookupd(&[]));
    let nsqd = Daemon::nsqd_at(&[&lookupds[0], &lookupds[1]], &[]);
    nsqd.create_channel("t", "c");
    let admin = Admin::start_at(
        &[&lookupds[0]],
        &["--live-interval=50ms", "--http-client-request-timeout=0s"],
    );
    admin.wait_for("/api/live/topics/t", |_| true);
    let name = |address: SocketAddr| {
        let addresses = json!([address.to_string()]).to_string();
        let put = admin.ask("PUT", "/config/nsqlookupd_http_addresses", &[], &addresses);
        put.expect_status(200);
    };
    name(hanging_server(&open));
    assert!(wait_until(TIMEOUT, || open.lock().all > 0));
    let other = Daemon::nsqd_at(&[&lookupds[1]], &[]);
    name(lookupds[1].http);
    admin.wait_for("/api/live", |live| {
        let nodes = live["nodes"].as_array().into_iter().flatten();
        let mut names = nodes.filter_map(|node| node["node"].as_str());
        names.any(|node| *node == other.http.to_string())
    });
}

/// Returns a listener that accepts nothing and whose queue is full, with the connections that fill the queue. The kernel drops
/// further attempts to connect without an answer, as a firewall does.
fn full_listener() -> (TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut queue = Vec::new();
    loop {
        match TcpStream::connect_timeout(&address, Duration::from_secs(2)) {
            Ok(stream) => queue.push(stream),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
                // The standard library lets 128 connections wait.
                assert!(queue.len() > 100, "only {} wait", queue.len());
                return (listener, queue);
            }
        }
        assert!(queue.len() < 900, "the queue does not become full");
    }
}

/// Without `--http-client-connect-timeout`, only the kernel's own timeout would end the attempt, half a minute or more later and
/// in other words.
#[test]
fn a_node_that_takes_no_connections_is_left_after_the_connect_timeout() {
    let (listener, _queue) = full_listener();
    let address = listener.local_addr().unwrap();
    let flags = [
        "--live-interval=0",
        "--http-client-connect-timeout=300ms",
        "--http-client-request-timeout=0s",
    ];
    let admin = Admin::start_direct([address], &flags);
    let message = admin.get("/api/topics").expect_status(502).message();
    let says = "no connection in time (--http-client-connect-timeout";
    assert!(message.contains(says), "{message}");
    assert!(message.contains(&address.to_string()), "{message}");
}
