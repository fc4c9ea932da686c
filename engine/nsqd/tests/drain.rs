//! Drains: a node refuses publishes, serves its consumers until no message is left, and ends.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::ringq_lookupd::Lookupd;
use crate::support::{Broker, Client, Launch, TIMEOUT, go_program, http, wait_until};

const MESSAGES: usize = 500;

/// Enough topics that each of two shards has some.
const TOPICS: [&str; 4] = ["orders", "users", "audit", "mail"];

/// Waits until nsqlookupd has so many producers of a topic.
fn wait_for_producers(lookupd: &Lookupd, topic: &str, count: usize) {
    let target = format!("/lookup?topic={topic}");
    let has = || {
        let answer = http(lookupd.server.http_address(), "GET", &target, b"");
        let producers = match answer.status {
            200 => answer.json()["producers"].as_array().map(Vec::len),
            _ => Some(0),
        };
        producers == Some(count)
    };
    assert!(wait_until(TIMEOUT, has), "{topic}: not {count} producers");
}

fn lookupd() -> (Lookupd, String) {
    let lookupd = Lookupd::local(&[]);
    let flag = lookupd.flag();
    (lookupd, flag)
}

fn bodies() -> Vec<String> {
    (0..MESSAGES).map(|n| format!("message {n}")).collect()
}

fn put_drain(broker: &Broker, value: &str) {
    let answer = http(broker.http_addr(), "PUT", "/config/drain", value.as_bytes());
    assert_eq!(answer.expect_status(200).text(), value);
}

/// Finishes all messages of a channel.
fn consume(client: &mut Client, count: usize) -> BTreeSet<String> {
    client.ready(100);
    let mut got = BTreeSet::new();
    while got.len() < count {
        let message = client.take();
        got.insert(message.text());
    }
    got
}

/// Publishes of all kinds get an error, and store nothing.
fn expect_refusals(broker: &Broker) {
    for topic in TOPICS {
        for line in ["PUB", "DPUB"] {
            let mut client = broker.client();
            let defer = if line == "DPUB" { " 1000" } else { "" };
            client.command(&format!("{line} {topic}{defer}"), b"x");
            client.expect_error(&format!(
                "E_{line}_FAILED {line} failed draining, publish to another nsqd"
            ));
            client.expect_close();
        }
        let mut client = broker.client();
        client.send(&Client::mpub(topic, &["x", "y"]));
        client.expect_error("E_MPUB_FAILED MPUB failed draining, publish to another nsqd");
        client.expect_close();
        for path in ["pub", "mpub"] {
            let answer = broker.post(&format!("/{path}?topic={topic}"), b"x");
            let text = answer.expect_status(503).text();
            assert_eq!(text, r#"{"message":"DRAINING"}"#);
        }
    }
}

#[test]
fn a_drain_at_sigterm_ends_when_the_consumers_have_everything() {
    let (lookupd, flag) = lookupd();
    let mut broker = Broker::start(2, &[&flag, "--drain-on-sigterm"]);
    broker.wait_for_log("): peer info {TCPPort:");
    assert!(wait_until(TIMEOUT, || broker.get("/ready").status == 200));
    let mut producer = broker.client();
    let mut consumers = TOPICS.map(|topic| {
        let client = broker.subscribe(topic, "ch");
        producer.publish_many(topic, &bodies());
        client
    });
    for topic in TOPICS {
        wait_for_producers(&lookupd, topic, 1);
    }
    broker.sigterm();
    broker.wait_for_log("INFO: DRAIN: begins (SIGTERM)");
    let owed = TOPICS.len() * MESSAGES;
    broker.wait_for_log(&format!(
        "INFO: DRAIN: publishes are refused - {owed} messages are owed: {owed} waiting"
    ));
    let ready = broker.get("/ready").expect_status(503).text();
    assert_eq!(ready, "NOK - draining");
    assert_eq!(broker.get("/ping").expect_status(200).text(), "OK");
    assert_eq!(broker.stats()["draining"], true);
    expect_refusals(&broker);
    // A topic leaves nsqlookupd when it has no message. The others stay, so that their consumers come.
    for (index, topic) in TOPICS.iter().enumerate() {
        assert_eq!(consume(&mut consumers[index], MESSAGES).len(), MESSAGES);
        if index + 1 < TOPICS.len() {
            wait_for_producers(&lookupd, topic, 0);
            wait_for_producers(&lookupd, TOPICS[index + 1], 1);
        }
    }
    assert_eq!(broker.wait().code(), Some(0));
    test_support::assert_like(
        broker.log(),
        "…INFO: DRAIN: nothing is owed any more, nsqd ends…",
    );
    broker.restart();
    for topic in TOPICS {
        let stats = broker.channel(topic, "ch");
        assert_eq!(
            (&stats["depth"], &stats["deferred_count"]),
            (&0.into(), &0.into())
        );
    }
}

#[test]
fn a_drain_is_taken_back() {
    let (lookupd, flag) = lookupd();
    let broker = Broker::start(2, &[&flag]);
    broker.wait_for_log("): peer info {TCPPort:");
    for topic in TOPICS {
        broker.client().subscribe(topic, "ch");
    }
    // This message keeps the process alive.
    broker.client().publish("audit", b"x");
    wait_for_producers(&lookupd, "orders", 1);
    put_drain(&broker, "true");
    put_drain(&broker, "true");
    assert_eq!(
        broker.get("/config/drain").expect_status(200).text(),
        "true"
    );
    expect_refusals(&broker);
    wait_for_producers(&lookupd, "orders", 0);
    wait_for_producers(&lookupd, "audit", 1);
    put_drain(&broker, "false");
    broker.get("/ready").expect_status(200);
    assert!(broker.stats().get("draining").is_none());
    for topic in TOPICS {
        wait_for_producers(&lookupd, topic, 1);
        broker.client().publish(topic, b"y");
        broker
            .post(&format!("/pub?topic={topic}"), b"z")
            .expect_status(200);
        let depth = broker.channel(topic, "ch")["depth"].clone();
        assert_eq!(depth, if topic == "audit" { 3 } else { 2 });
    }
    let answer = http(broker.http_addr(), "PUT", "/config/drain", b"perhaps");
    answer.expect_status(400);
}

#[test]
fn a_drain_that_takes_too_long_ends_and_loses_nothing() {
    let mut broker = Broker::start(2, &["--drain-on-sigterm", "--drain-timeout=1s"]);
    let mut producer = broker.client();
    for topic in TOPICS {
        broker.client().subscribe(topic, "ch");
        producer.publish_many(topic, &bodies());
    }
    producer.publish("unread", b"x");
    producer.publish_deferred("orders", 30_000, b"deferred");
    let began = Instant::now();
    let status = broker.sigterm_and_wait();
    assert_eq!(status.code(), Some(0));
    assert!(began.elapsed() >= Duration::from_secs(1));
    let line = broker.wait_for_log("WARNING: DRAIN: --drain-timeout is over");
    for part in [
        "2002 messages are owed",
        "orders/ch has no consumer",
        "unread has no channel",
    ] {
        assert!(line.contains(part), "{line}");
    }
    broker.restart_with(2, &[]);
    for topic in TOPICS {
        let mut client = broker.subscribe(topic, "ch");
        assert_eq!(
            consume(&mut client, MESSAGES),
            bodies().into_iter().collect()
        );
    }
    let orders = broker.channel("orders", "ch");
    assert_eq!(orders["deferred_count"], 1);
    assert_eq!(broker.topic("unread")["depth"], 1);
}

#[test]
fn a_drain_waits_for_deferred_messages() {
    let mut broker = Broker::start(2, &[]);
    let mut client = broker.consumer("orders", "ch", 1);
    let began = Instant::now();
    let mut producer = broker.client();
    producer.publish_deferred("orders", 8000, b"later");
    put_drain(&broker, "true");
    let line = broker.wait_for_log("1 deferred; the last deferred one is due in ");
    let due = (1..=8).any(|seconds| line.contains(&format!("in {seconds} s")));
    assert!(due, "{line}");
    let message = client.message();
    assert!(began.elapsed() >= Duration::from_secs(8));
    thread::sleep(Duration::from_millis(600));
    assert!(!broker.has_ended(), "a message is in flight");
    client.finish(&message.id);
    assert_eq!(broker.wait().code(), Some(0));
}

/// A consumer with go-nsq that comes in the middle of a drain finds the node by nsqlookupd.
#[test]
fn a_consumer_with_go_nsq_finds_a_node_that_is_drained() {
    let Some(mut command) = go_program("consumer", "1.21") else {
        return;
    };
    let (lookupd, flag) = lookupd();
    let mut broker = Broker::start(2, &[&flag]);
    broker.wait_for_log("): peer info {TCPPort:");
    broker.client().subscribe("orders", "ch");
    broker.client().publish_many("orders", &bodies());
    wait_for_producers(&lookupd, "orders", 1);
    put_drain(&broker, "true");
    broker.wait_for_log("DRAIN: publishes are refused - 500 messages are owed");
    let http = lookupd.server.http_address().to_string();
    let mut consumer = command
        .args(["--topic=orders", "--channel=ch", "--lookupd", &http])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it was built");
    let status = broker.wait();
    drop(consumer.stdin.take());
    let output = consumer.wait_with_output().expect("it ends with its input");
    assert_eq!(status.code(), Some(0));
    let text = String::from_utf8(output.stdout).expect("bodies are text");
    let got: BTreeSet<String> = text.lines().map(str::to_owned).collect();
    assert_eq!(got, bodies().into_iter().collect());
}

/// Without the flag, SIGTERM stops a node at once. So does SIGINT, and a second SIGTERM.
#[test]
fn a_stop_does_not_wait_for_messages() {
    for (flags, signals) in [
        (&[][..], &["TERM"][..]),
        (&["--drain-on-sigterm"], &["INT"]),
        (&["--drain-on-sigterm"], &["TERM", "TERM"]),
    ] {
        let mut broker = Launch::new(2, flags).start();
        broker.client().subscribe("orders", "ch");
        broker.client().publish("orders", b"x");
        let (last, first) = signals.split_last().expect("there is one");
        for signal in first {
            broker.signal(signal);
            broker.wait_for_log("DRAIN: publishes are refused - 1 messages are owed");
        }
        broker.signal(last);
        assert_eq!(broker.wait().code(), Some(0));
        assert_eq!(broker.log().contains("DRAIN"), !first.is_empty());
        broker.restart();
        let stats = broker.channel("orders", "ch");
        assert_eq!(stats["depth"], 1);
    }
}
