//! `nsq_to_http` with several topics, a real nsqd and a real HTTP server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::tool::{QUICK, Tool};
use test_support::daemon::Daemon;
use test_support::http_server::{Answer, HttpServer, Received};

const CHANNEL: &str = "nsq_to_http";

/// Starts an nsqd with these messages in the topics `t` and `u`.
fn nsqd(of_t: &[&str], of_u: &[&str]) -> Daemon {
    Daemon::nsqd(&[])
        .with_messages("t", CHANNEL, of_t)
        .with_messages("u", CHANNEL, of_u)
}

fn start(nsqd: &Daemon, args: impl AsRef<str>) -> Tool {
    let args = format!("-topic=t -nsqd-tcp-address={} {}", nsqd.tcp, args.as_ref());
    Tool::start("nsq_to_http", args)
}

fn wait_for_answers(nsqd: &Daemon) {
    for topic in ["t", "u"] {
        nsqd.wait_for_answers(topic, CHANNEL);
    }
}

/// Returns the target and the body of each request, in order of the bodies.
fn sorted(requests: &[Received]) -> Vec<(String, String)> {
    let requests = requests.iter();
    let mut found: Vec<_> = requests
        .map(|request| (request.target().to_owned(), request.text()))
        .collect();
    found.sort_by(|(_, a), (_, b)| a.cmp(b));
    found
}

/// Only the last topic was consumed, without a word.
#[test]
fn the_messages_of_all_topics_go_to_the_same_address() {
    let nsqd = nsqd(&["t1", "t2"], &["u1"]);
    let server = HttpServer::start(|_, _| Answer::status(200));
    let post = format!("-post={}", server.url("/hook?a=b"));
    let mut tool = start(&nsqd, format!("-topic=u {post} -status-every=3"));
    let requests = server.wait_for(3);
    wait_for_answers(&nsqd);
    // Each topic goes on by itself.
    nsqd.publish("u", &["u2"]);
    server.wait_for(4);
    wait_for_answers(&nsqd);
    tool.stop();
    // The times are those of the messages of all topics.
    let log = tool.log();
    assert_eq!(
        log.matches("[aggregate]: finished 3 - ").count(),
        1,
        "{log}"
    );
    let expected = ["t1", "t2", "u1"].map(|body| ("/hook?a=b".to_owned(), body.to_owned()));
    assert_eq!(sorted(&requests), expected);
    for topic in ["t", "u"] {
        assert_eq!(nsqd.figure(topic, CHANNEL, "requeue_count"), 0);
    }
}

#[test]
fn the_number_of_requests_counts_all_topics_and_a_stop_waits_for_them() {
    let nsqd = nsqd(&["t1", "t2", "t3"], &["u1", "u2", "u3"]);
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let server = HttpServer::start({
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        move |_, _| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(500));
            now.fetch_sub(1, Ordering::SeqCst);
            Answer::status(200)
        }
    });
    let post = format!("-post={}", server.url("/"));
    let args = format!("-topic=u -n=2 -max-in-flight=3 {post}");
    let mut tool = start(&nsqd, &args);
    server.wait_for(1);
    // Each topic has as many messages in flight as the flag says.
    for topic in ["t", "u"] {
        nsqd.wait_for_figure(topic, CHANNEL, "depth", 0);
    }
    tool.stop();
    wait_for_answers(&nsqd);
    assert_eq!(
        (server.requests().len(), most.load(Ordering::SeqCst)),
        (6, 2)
    );
    for topic in ["t", "u"] {
        assert_eq!(nsqd.figure(topic, CHANNEL, "requeue_count"), 0);
    }
}

#[test]
fn a_multicast_repeats_only_what_failed_of_each_topic() {
    let nsqd = nsqd(&["t1"], &["u1"]);
    let first = HttpServer::start(|_, _| Answer::status(200));
    let second = HttpServer::start(|_, before| Answer::status([500, 500, 200][before.min(2)]));
    let posts = [&first, &second].map(|server| format!("-post={}", server.url("/")));
    let args = format!("-topic=u {} {} -mode=multicast", posts[0], posts[1]);
    let mut tool = start(&nsqd, format!("{args} {QUICK}"));
    second.wait_for(4);
    wait_for_answers(&nsqd);
    tool.stop();
    let bodies: Vec<String> = sorted(&first.requests())
        .into_iter()
        .map(|(_, b)| b)
        .collect();
    assert_eq!(bodies, ["t1", "u1"]);
    assert_eq!(second.requests().len(), 4);
}
