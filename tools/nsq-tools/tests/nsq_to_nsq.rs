//! `nsq_to_nsq` with real nsqds at both ends.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::tool::consumed::texts;
use crate::tool::{QUICK, Tool};
use test_support::daemon::Daemon;
use test_support::dead_port::DeadPort;
use test_support::{TIMEOUT, wait_until};

const CHANNEL: &str = "nsq_to_nsq";

/// Starts an nsqd whose topic `t` has these messages for the tool.
fn source(messages: &[&[u8]]) -> Daemon {
    Daemon::nsqd(&[]).with_messages("t", CHANNEL, messages)
}

/// Starts an nsqd whose topic `t` keeps its messages for the test.
fn destination() -> Daemon {
    let nsqd = Daemon::nsqd(&[]);
    nsqd.create_channel("t", "c");
    nsqd
}

fn start(source: &Daemon, destinations: &[&Daemon], args: impl AsRef<str>) -> Tool {
    let destinations = destinations.iter();
    let destinations = destinations.map(|to| format!("-destination-nsqd-tcp-address={} ", to.tcp));
    let destinations: String = destinations.collect();
    let (source, args) = (source.tcp, args.as_ref());
    Tool::start(
        "nsq_to_nsq",
        format!("-topic=t -nsqd-tcp-address={source} {destinations} {args}"),
    )
}

/// Waits until all messages have their answers, and stops the tool.
fn finish(source: &Daemon, tool: &mut Tool) {
    source.wait_for_answers("t", CHANNEL);
    tool.stop();
}

/// Publishes the numbers of `range`, a line each.
fn publish_numbers(source: &Daemon, range: std::ops::Range<usize>) {
    let lines: String = range.map(|n| format!("{n}\n")).collect();
    source
        .post("/mpub?topic=t", lines.as_bytes())
        .expect_status(200);
}

#[test]
fn a_required_value_passes_drops_or_requeues() {
    let inputs: [&[u8]; 8] = [
        br#"{"a":2.0}"#,
        br#"{"a":"2"}"#,
        br#"{"a":3}"#,
        b"{}",
        b"not json",
        br#"{"a":true}"#,
        br#"{"A":2}"#,
        br#"{"a": 2e0}"#,
    ];
    let (source, destination) = (source(&inputs), destination());
    let args = "-require-json-field=a -require-json-value=2";
    let mut tool = start(&source, &[&destination], args);
    let mut found = texts(&destination, "t", 3);
    found.sort();
    assert_eq!(found, [r#"{"a": 2e0}"#, r#"{"a":"2"}"#, r#"{"a":2.0}"#]);
    // `{}` and `{"A":2}` wait for their next delivery.
    source.wait_for_figure("t", CHANNEL, "deferred_count", 2);
    source.wait_for_figure("t", CHANNEL, "in_flight_count", 0);
    tool.wait_for_log("ERROR: missing field to check required value");
    tool.wait_for_log("ERROR: Unable to decode json: not json");
    tool.wait_for_log("backing off");
    tool.stop();
    assert_eq!(destination.figure("t", "c", "message_count"), 3);
}

#[test]
fn a_dead_destination_costs_one_failure() {
    for mode in ["-mode=hostpool", "-mode=epsilon-greedy"] {
        let source = source(&[b"0", b"1", b"2", b"3", b"4"]);
        let mut destinations = [destination(), destination()];
        destinations[0].kill();
        let args = format!("{mode} -max-in-flight=1 {QUICK}");
        let mut tool = start(&source, &destinations.each_ref(), &args);
        finish(&source, &mut tool);
        let mut found = texts(&destinations[1], "t", 5);
        found.sort();
        assert_eq!(found, ["0", "1", "2", "3", "4"]);
        assert_eq!(source.figure("t", CHANNEL, "requeue_count"), 1, "{mode}");
    }
}

/// A destination may be away for longer than the attempts after which other tools give a message up.
#[test]
fn no_message_is_given_up_while_the_destination_is_away() {
    let (source, mut destination) = (source(&[b"kept"]), destination());
    destination.kill();
    let mut tool = start(&source, &[&destination], QUICK);
    let has_failed = || source.figure("t", CHANNEL, "requeue_count") > 8;
    assert!(wait_until(TIMEOUT, has_failed));
    destination.restart();
    assert_eq!(texts(&destination, "t", 1), ["kept"]);
    finish(&source, &mut tool);
}

/// The connection ends with each refused message. A small message that was sent alone locked the tool for ever, and those
/// behind a refused one came 90 s later. Each try made the consumer back off, and counted as a failure of the destination.
#[test]
fn many_messages_that_the_destination_refuses_hold_up_no_other() {
    const SMALL: usize = 10_000;
    const LARGE: usize = 100;
    let source = source(&[]);
    let destination = Daemon::nsqd(&["-max-msg-size=1000"]);
    destination.create_channel("t", "c");
    let large = "x".repeat(2000);
    let lines: String = (0..SMALL)
        .map(|n| match n % (SMALL / LARGE) {
            0 => format!("{n}\n{large}\n"),
            _ => format!("{n}\n"),
        })
        .collect();
    source
        .post("/mpub?topic=t", lines.as_bytes())
        .expect_status(200);
    let mut tool = start(&source, &[&destination], "");
    let mut found = texts(&destination, "t", SMALL);
    found.sort_by_key(|body| body.parse::<usize>().expect("a small message"));
    let expected: Vec<String> = (0..SMALL).map(|n| n.to_string()).collect();
    assert_eq!(found, expected);
    source.wait_for_figure("t", CHANNEL, "deferred_count", LARGE as i64);
    let log = tool.log();
    assert!(log.contains("of 2000 bytes stays in t: "), "{log}");
    assert!(!log.contains("backing off"), "{log}");
    tool.stop();
    assert_eq!(source.figure("t", CHANNEL, "deferred_count"), LARGE as i64);
}

/// Returns the numbers that a destination has.
fn numbers(destination: &Daemon) -> BTreeSet<usize> {
    let depth = destination.figure("t", "c", "depth") as usize;
    let texts = texts(destination, "t", depth);
    let numbers = texts.iter().map(|text| text.parse().expect("a number"));
    numbers.collect()
}

/// Kills the destination while messages are on their way, again and again.
#[test]
fn no_message_is_lost_when_the_destination_is_killed() {
    let source = source(&[]);
    let mut destination = destination();
    let args = format!("-status-every=0 {QUICK}");
    let mut tool = start(&source, &[&destination], &args);
    for round in 0..3 {
        publish_numbers(&source, round * 3000..(round + 1) * 3000);
        // The count begins again with each restart.
        let has_some = || destination.figure("t", "c", "message_count") > 0;
        assert!(wait_until(TIMEOUT, has_some));
        destination.restart();
    }
    finish(&source, &mut tool);
    assert_eq!(numbers(&destination), (0..9000).collect());
}

#[test]
fn no_message_is_lost_when_the_tool_is_killed() {
    let (source, destination) = (Daemon::nsqd(&["--msg-timeout=2s"]), destination());
    source.create_channel("t", CHANNEL);
    publish_numbers(&source, 0..30_000);
    for _ in 0..3 {
        let copied = || destination.figure("t", "c", "message_count");
        let before = copied();
        let mut tool = start(&source, &[&destination], "-status-every=0");
        let is_copying = || copied() > before + 100 || source.figure("t", CHANNEL, "depth") == 0;
        assert!(wait_until(TIMEOUT, is_copying), "{}", tool.log());
        tool.signal("KILL");
        tool.wait();
    }
    let mut tool = start(&source, &[&destination], "-status-every=0");
    finish(&source, &mut tool);
    assert_eq!(numbers(&destination), (0..30_000).collect());
}

#[test]
fn a_stop_waits_for_the_confirmations() {
    for signal in ["TERM", "INT"] {
        let (source, destination) = (source(&[]), destination());
        publish_numbers(&source, 0..50_000);
        let mut tool = start(
            &source,
            &[&destination],
            "-status-every=0 -max-in-flight=500",
        );
        let has_some = || destination.figure("t", "c", "message_count") > 500;
        assert!(wait_until(TIMEOUT, has_some));
        tool.signal(signal);
        assert_eq!(tool.wait().code(), Some(0), "{}", tool.log());
        // Each message is at one end, and none at both.
        source.wait_for_figure("t", CHANNEL, "in_flight_count", 0);
        let left =
            source.figure("t", CHANNEL, "depth") + source.figure("t", CHANNEL, "deferred_count");
        assert_eq!(left + destination.figure("t", "c", "message_count"), 50_000);
        assert_eq!(source.figure("t", CHANNEL, "requeue_count"), 0);
    }
}

/// Returns the key of each message `{"user":...}` at each destination.
fn users(destination: &Daemon) -> BTreeSet<u64> {
    let depth = destination.figure("t", "c", "depth") as usize;
    let texts = texts(destination, "t", depth);
    let user = |text: &String| {
        let value: serde_json::Value = serde_json::from_str(text).expect("JSON");
        value["user"]["id"].as_u64().expect("a number")
    };
    texts.iter().map(user).collect()
}

#[test]
fn messages_with_the_same_key_go_to_the_same_destination() {
    let source = source(&[]);
    let mut destinations = [destination(), destination(), destination()];
    let lines: String = (0..900)
        .map(|n| format!("{{\"n\":{n},\"user\":{{\"id\":{}}}}}\n", n % 90))
        .collect();
    let args = format!("-key-json-field=/user/id -whitelist-json-field=user {QUICK}");
    source
        .post("/mpub?topic=t", lines.as_bytes())
        .expect_status(200);
    let mut tool = start(&source, &destinations.each_ref(), &args);
    finish(&source, &mut tool);
    let before = destinations.each_ref().map(users);
    let union: BTreeSet<u64> = before.iter().flatten().copied().collect();
    assert_eq!(union, (0..90).collect());
    assert_eq!(
        before.iter().map(BTreeSet::len).sum::<usize>(),
        90,
        "{before:?}"
    );
    assert!(before.iter().all(|users| users.len() > 10), "{before:?}");

    // The keys of a dead destination go to others, and no other key moves.
    destinations[0].kill();
    source
        .post("/mpub?topic=t", lines.as_bytes())
        .expect_status(200);
    let mut tool = start(&source, &destinations.each_ref(), &args);
    finish(&source, &mut tool);
    for place in [1, 2] {
        let after = users(&destinations[place]);
        assert!(after.is_superset(&before[place]), "{after:?}");
        assert!(
            after
                .difference(&before[place])
                .all(|user| before[0].contains(user))
        );
    }

    // The keys come back with their destination.
    destinations[0].restart();
    source
        .post("/mpub?topic=t", lines.as_bytes())
        .expect_status(200);
    let mut tool = start(&source, &destinations.each_ref(), &args);
    finish(&source, &mut tool);
    assert_eq!(destinations.each_ref().map(users), before);
}

/// Nobody heard of a wrong address before the first message, which may come hours later.
#[test]
fn a_destination_that_cannot_be_reached_has_a_warning_at_the_start() {
    let (source, destination) = (source(&[]), destination());
    let dead = DeadPort::bind();
    let flag = format!("-destination-nsqd-tcp-address={}", dead.address);
    let mut tool = start(&source, &[&destination], &flag);
    let line = tool.wait_for_log("its messages come again until it can: ");
    let warning = format!(
        " WARNING: the destination {} cannot be reached now, and ",
        dead.address
    );
    assert!(line.contains(&warning), "{line}");
    // The other destination gets its messages.
    source.publish("t", &["one", "two", "three"]);
    assert_eq!(texts(&destination, "t", 1).len(), 1);
    tool.stop();
}

/// Each message that failed had a line: tens of thousands in some seconds. Then the line with their number named no topic.
#[test]
fn messages_that_fail_have_one_line_a_second() {
    let (source, destination) = (source(&[]), destination());
    publish_numbers(&source, 0..150);
    let dead = DeadPort::bind();
    let flag = format!("-destination-nsqd-tcp-address={}", dead.address);
    let args = format!("{QUICK} {flag} -mode=round-robin");
    let begun = Instant::now();
    let mut tool = start(&source, &[&destination], &args);
    destination.wait_for_figure("t", "c", "depth", 150);
    let line = tool.wait_for_log(" more like it within a second");
    assert!(line.contains(&format!(" [t/{CHANNEL}] ")), "{line}");
    tool.stop();
    let requeued = source.figure("t", CHANNEL, "requeue_count");
    let log = tool.log();
    let lines = log.matches("Handler returned error").count() as u64;
    let seconds = begun.elapsed().as_secs() + 1;
    let text = format!("{lines} lines for {requeued} failures in {seconds} s");
    assert!(lines <= seconds + 1 && (lines as i64) < requeued, "{text}");
}
