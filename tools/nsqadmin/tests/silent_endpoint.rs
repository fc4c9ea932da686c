//! An endpoint of notifications that accepts connections and never answers: acts do not wait for it, and the log says which
//! notifications it does not get.

use std::net::{SocketAddr, TcpListener};

use crate::support::Admin;
use serde_json::json;
use test_support::http_server::HttpServer;
use test_support::{TIMEOUT, wait_until};

/// The notifications that may wait for the endpoint.
const WAITING_MAX: usize = 1000;

/// The topics of the node. One order may touch as many.
const TOPICS: usize = 500;

/// Starts a server that accepts connections and never answers.
fn silent_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The thread ends with the process of the test. The connections stay open until then.
    std::thread::spawn(move || listener.incoming().flatten().collect::<Vec<_>>());
    address
}

/// Starts an nsqd with many topics. It carries out every act.
fn nsqd_with_topics() -> HttpServer {
    let topics =
        (0..TOPICS).map(|number| json!({"topic_name": format!("t{number}"), "channels": []}));
    let stats = json!({"topics": topics.collect::<Vec<_>>()}).to_string();
    HttpServer::start(move |request, _| match request.path() {
        "/info" => r#"{"broadcast_address":"n","http_port":1}"#.into(),
        "/stats" => stats.as_str().into(),
        _ => "".into(),
    })
}

/// Starts an nsqadmin of this node, whose endpoint is silent.
fn admin(nsqd: &HttpServer, timeout: &str) -> Admin {
    let endpoint = format!("--notification-http-endpoint=http://{}/x", silent_server());
    let timeout = format!("--http-client-request-timeout={timeout}");
    Admin::start_direct([nsqd.address], &[&endpoint, &timeout, "--live-interval=0"])
}

/// Pauses all topics with one order.
fn pause_all(admin: &Admin) {
    let order = json!({"action": "pause", "of": "topics", "show": "all"});
    let done = admin.order(&[], order).expect_status(200).json();
    assert_eq!(done["message"], "");
    assert_eq!(done["results"].as_array().map(Vec::len), Some(TOPICS));
}

/// Without a deadline, the endpoint would hold up for ever whoever waits for it. Each dropped notification had a log line.
#[test]
fn acts_do_not_wait_for_it_and_the_log_says_what_is_dropped() {
    let nsqd = nsqd_with_topics();
    let mut admin = admin(&nsqd, "0s");
    for _ in 0..4 {
        pause_all(&admin);
    }
    // One notification is under way, and as many wait as may.
    let dropped = 4 * TOPICS - WAITING_MAX - 1;
    let metrics = admin.get("/metrics").text();
    let line = format!("nsqadmin_notifications_total{{result=\"dropped\"}} {dropped}\n");
    assert!(metrics.contains(&line), "{metrics}");
    assert!(metrics.contains("nsqadmin_notifications_total{result=\"sent\"} 0\n"));
    admin.wait_for_log("is dropped: the endpoint is too slow, and 1000 notifications wait for it");
    admin.signal("TERM");
    assert!(admin.wait().success());
    let log = admin.log();
    assert_eq!(log.matches("is dropped: ").count(), 1, "{log}");
    let told = format!("failed to POST notification - {dropped} were dropped: ");
    assert_eq!(log.matches(&told).count(), 1, "{log}");
    let waiting = "WARNING: 1000 notifications still waited for the endpoint, and are not sent";
    assert_eq!(log.matches(waiting).count(), 1, "{log}");
}

#[test]
fn the_next_notification_has_its_turn_after_the_deadline() {
    let nsqd = nsqd_with_topics();
    let admin = admin(&nsqd, "1s");
    for topic in ["t0", "t1"] {
        // The node, too, may miss the deadline. An act that fails is not told.
        let is_paused = || {
            let paused = admin.post(&format!("/api/topics/{topic}"), r#"{"action":"pause"}"#);
            paused.status == 200
        };
        assert!(wait_until(TIMEOUT, is_paused), "{topic}");
    }
    let has_failed = || {
        let metrics = admin.get("/metrics").text();
        metrics.contains("nsqadmin_notifications_total{result=\"failed\"} 2\n")
    };
    assert!(wait_until(TIMEOUT, has_failed));
    admin.wait_for_log("ERROR: failed to POST notification - ");
}
