//! The grace of new topics: if an nsqlookupd could not say which channels a topic has elsewhere, a channel that is made
//! soon gets the messages from before.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use diskq::{DataPathLock, OsFiles};
use diskq_import::{ExportOptions, Metadata};

use crate::support::{Answer, Broker, Lookupd, TIMEOUT, serve_http, wait_until};

/// Nobody listens there.
const UNREACHABLE: &str = "--lookupd-tcp-address=127.0.0.1:1";

fn bodies(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("message {n}")).collect()
}

/// Consumes and finishes `count` messages of a channel.
fn consume(broker: &Broker, channel: &str, count: usize) {
    let mut client = broker.consumer("t", channel, 2500);
    let mut got = BTreeSet::new();
    while got.len() < count {
        let message = client.take();
        got.insert(message.text());
    }
    assert_eq!(got, bodies(count).into_iter().collect());
    client.close_wait();
}

/// Publishes messages to a new topic, all of which a channel finishes.
fn publish_and_consume(broker: &Broker, count: usize) {
    let mut producer = broker.client();
    producer.publish_many("t", &bodies(count));
    consume(broker, "a", count);
}

/// Makes a channel and returns its depth.
fn depth_of_new(broker: &Broker, channel: &str) -> u64 {
    let path = format!("/channel/create?topic=t&channel={channel}");
    broker.admin(&path);
    let stats = broker.channel("t", channel);
    stats["depth"].as_u64().expect("a number")
}

#[test]
fn a_channel_that_comes_late_gets_all_messages_of_a_new_topic() {
    for args in [&[UNREACHABLE][..], &[UNREACHABLE, "--sync-every=1"]] {
        let broker = Broker::start(2, args);
        publish_and_consume(&broker, 1000);
        broker.wait_for_log("so a channel that is made within --new-topic-grace gets all messages");
        // Statistics are as usual.
        let stats = broker.topic("t");
        assert_eq!(
            (&stats["depth"], &stats["message_count"]),
            (&0.into(), &1000.into())
        );
        assert_eq!(stats["channels"][0]["depth"], 0);
        consume(&broker, "b", 1000);
        assert_eq!(depth_of_new(&broker, "c"), 1000);
        assert_eq!(depth_of_new(&broker, "d#ephemeral"), 0);
        // An operator drops the messages.
        broker.admin("/topic/empty?topic=t");
        assert_eq!(depth_of_new(&broker, "e"), 0);
        assert_eq!(depth_of_new(&broker, "c"), 1000);
    }
}

#[test]
fn a_channel_that_was_deleted_does_not_get_its_messages_back() {
    let broker = Broker::start(1, &[UNREACHABLE]);
    publish_and_consume(&broker, 10);
    broker.admin("/channel/delete?topic=t&channel=a");
    assert_eq!(depth_of_new(&broker, "a"), 0);
    assert_eq!(depth_of_new(&broker, "b"), 10);
    broker.admin("/topic/delete?topic=t");
    publish_and_consume(&broker, 5);
    assert_eq!(depth_of_new(&broker, "b"), 5);
}

#[test]
fn deferred_messages_stay_deferred() {
    let broker = Broker::start(1, &[UNREACHABLE]);
    let mut producer = broker.client();
    producer.publish_deferred("t", 3_000_000, b"later");
    producer.publish("t", b"now");
    assert_eq!(depth_of_new(&broker, "a"), 1);
    assert_eq!(depth_of_new(&broker, "b"), 1);
    for channel in ["a", "b"] {
        let stats = broker.channel("t", channel);
        assert_eq!(stats["deferred_count"], 1, "{channel}");
        assert_eq!(stats["message_count"], 2, "{channel}");
    }
}

/// A later channel gets only later messages, as with the original.
#[test]
fn without_grace_a_later_channel_gets_nothing() {
    let lookupd = Lookupd::start(&[]);
    let reachable = format!("--lookupd-tcp-address={}", lookupd.address());
    for args in [
        &[][..],
        &[UNREACHABLE, "--new-topic-grace=0"],
        &[&reachable],
    ] {
        let broker = Broker::start(1, args);
        if args.contains(&&*reachable) {
            broker.wait_for_log("peer info");
        }
        publish_and_consume(&broker, 10);
        assert_eq!(depth_of_new(&broker, "b"), 0, "{args:?}");
    }
}

#[test]
fn the_grace_ends() {
    let broker = Broker::start(1, &[UNREACHABLE, "--new-topic-grace=1s"]);
    publish_and_consume(&broker, 10);
    thread::sleep(Duration::from_secs(1));
    assert_eq!(depth_of_new(&broker, "b"), 0);
}

/// One of two nsqlookupds does not answer at first.
#[test]
fn a_channel_is_found_by_asking_again() {
    let is_ready = Arc::new(AtomicBool::new(false));
    let ready = is_ready.clone();
    let http = serve_http(move |_| {
        if ready.load(Ordering::SeqCst) {
            Answer::new(200, r#"{"channels":["elsewhere","deleted"]}"#)
        } else {
            Answer::new(500, "not yet")
        }
    });
    let bad = Lookupd::start_with_http(http.port());
    let good = Lookupd::start(&["known"]);
    let flags = [&bad, &good].map(|it| format!("--lookupd-tcp-address={}", it.address()));
    let args = ["--new-topic-grace=60s", &flags[0], &flags[1]];
    let broker = Broker::start(1, &args);
    for lookupd in [&bad, &good] {
        broker.wait_for_log(&format!("LOOKUPD({}): peer info", lookupd.address()));
    }
    publish_and_consume(&broker, 10);
    let depth = |channel: &str| Some(broker.channel_stats("t", channel)?["depth"].clone());
    assert_eq!(depth("known"), Some(10.into()));
    assert_eq!(depth("elsewhere"), None);
    assert_eq!(depth_of_new(&broker, "deleted"), 10);
    broker.admin("/channel/delete?topic=t&channel=deleted");
    is_ready.store(true, Ordering::SeqCst);
    assert!(wait_until(TIMEOUT, || depth("elsewhere").is_some()));
    assert_eq!(depth("elsewhere"), Some(10.into()));
    // It was deleted here, so an answer does not bring it back.
    assert_eq!(depth("deleted"), None);
    good.wait_for("REGISTER t elsewhere");
    // Only the first question has lines in the log.
    assert_eq!(
        broker.log().matches("failed to query nsqlookupd").count(),
        1
    );
}

#[test]
fn the_grace_keeps_so_many_bytes() {
    let broker = Broker::start(1, &[UNREACHABLE, "--new-topic-grace-bytes=50000"]);
    let mut producer = broker.client();
    broker.admin("/topic/create?topic=t");
    assert_eq!(depth_of_new(&broker, "a"), 0);
    for _ in 0..200 {
        producer.publish("t", &[0; 950]);
    }
    let line = broker.wait_for_log("--new-topic-grace-bytes");
    assert!(line.contains("WARNING: TOPIC(t): "), "{line}");
    assert_eq!(depth_of_new(&broker, "b"), 50);
    assert_eq!(broker.log().matches("--new-topic-grace-bytes").count(), 1);
}

#[test]
fn the_grace_survives_a_restart() {
    let args = [UNREACHABLE, "--new-topic-grace=1h"];
    let mut broker = Broker::start(2, &args);
    publish_and_consume(&broker, 100);
    broker.kill9();
    broker.restart();
    assert_eq!(depth_of_new(&broker, "b"), 100);
    assert!(broker.sigterm_and_wait().success());
    broker.restart();
    assert_eq!(depth_of_new(&broker, "c"), 100);
    // A channel that was there is not a new one.
    assert_eq!(depth_of_new(&broker, "b"), 100);
    assert!(broker.sigterm_and_wait().success());
    broker.restart_with(2, &[UNREACHABLE, "--new-topic-grace=0"]);
    assert_eq!(depth_of_new(&broker, "d"), 0);
}

/// Publishes `count` messages of 1000 bytes with header and slot, one by one.
fn publish_large(broker: &Broker, count: usize) {
    let mut producer = broker.client();
    for _ in 0..count {
        producer.publish("t", &[0; 950]);
    }
}

/// Regression: messages that nsqd left to a channel counted as messages of the grace. They are the newest of the log, so
/// the grace let all of its own messages go.
#[test]
fn messages_taken_over_from_nsqd_do_not_count_in_the_grace() {
    let original = tempfile::tempdir().expect("a temporary directory can be made");
    let mut source = Broker::start(1, &[]);
    let target = "/channel/create?topic=t&channel=billing";
    source.admin("/topic/create?topic=t");
    source.admin(target);
    publish_large(&source, 100);
    assert!(source.sigterm_and_wait().success());
    let lock = DataPathLock::acquire(source.data_path()).expect("the broker has ended");
    let metadata = Metadata::load(source.data_path()).expect("nsqd.dat is there");
    let options = ExportOptions {
        file_bytes_max: 1 << 20,
    };
    let exported = diskq_import::export(
        &OsFiles,
        source.data_path(),
        original.path(),
        &metadata,
        &options,
    );
    exported.expect("the messages can be exported");
    drop(lock);

    let flags = [
        UNREACHABLE,
        "--new-topic-grace=1h",
        "--new-topic-grace-bytes=50000",
    ];
    let mut broker = Broker::start(1, &flags);
    broker.admin("/topic/create?topic=t");
    assert_eq!(depth_of_new(&broker, "a"), 0);
    publish_large(&broker, 20);
    assert!(broker.sigterm_and_wait().success());
    for entry in std::fs::read_dir(original.path()).expect("the export can be listed") {
        let file = entry.expect("the export can be listed");
        let copy = broker.data_path().join(file.file_name());
        std::fs::copy(file.path(), copy).expect("a file can be copied");
    }
    broker.restart();
    broker.wait_for_log("TAKEOVER: topic t: 100 messages");
    publish_large(&broker, 1);
    let depth = |channel: &str| {
        let stats = broker.channel("t", channel);
        stats["depth"].as_u64().expect("a number")
    };
    let late = depth_of_new(&broker, "late");
    // The channel of nsqd has its own messages, and those of the grace in which it was made.
    assert_eq!((late, depth("a"), depth("billing")), (21, 21, 121));
}
