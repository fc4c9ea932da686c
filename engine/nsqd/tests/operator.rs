//! Actions of operators that nsqd does not have: pauses that end by themselves, and an undo of empty.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::{Broker, Launch, TIMEOUT, Tmpfs, wait_until};
use serde_json::Value;

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("after 1970").as_millis() as u64
}

/// The keys of a pause in an entry of /stats.
fn terms(stats: &Value) -> [Option<&Value>; 3] {
    ["pause_until_ms", "pause_note", "paused_by"].map(|key| stats.get(key))
}

#[test]
fn a_pause_with_a_time_ends_by_itself_also_after_a_restart() {
    let mut broker = Broker::start(2, &[]);
    broker.create("orders", "billing");
    let _consumer = broker.consumer("orders", "billing", 1);
    let before = unix_ms();
    broker.admin("/channel/pause?topic=orders&channel=billing&for=10s&note=a+repair&by=J%C3%B6rg");
    broker.admin("/topic/pause?topic=orders&note=later");
    let stats = broker.channel("orders", "billing");
    let until = stats["pause_until_ms"].as_u64().expect("a number");
    assert!((before + 10_000..=unix_ms() + 10_000).contains(&until));
    assert_eq!(
        (&stats["pause_note"], &stats["paused_by"]),
        (&"a repair".into(), &"Jörg".into())
    );
    let topic = broker.topic("orders");
    assert_eq!(terms(&topic), [None, Some(&"later".into()), None]);
    // nsqd.dat is that of nsqd, byte for byte.
    let metadata = std::fs::read_to_string(broker.data_path().join("nsqd.dat")).expect("text");
    assert!(
        metadata.starts_with(
            r#"{"topics":[{"name":"orders","paused":true,"channels":[{"name":"billing","paused":true}]}],"version""#
        ),
        "{metadata}"
    );

    broker.sigterm_and_wait();
    broker.restart();
    let stats = broker.channel("orders", "billing");
    assert!(
        stats["pause_until_ms"] == until || unix_ms() >= until,
        "{stats}"
    );
    broker.admin("/topic/unpause?topic=orders");
    let topic = broker.topic("orders");
    assert_eq!(terms(&topic), [None; 3]);
    let mut consumer = broker.consumer("orders", "billing", 1);
    broker.post("/pub?topic=orders", b"x").expect_status(200);
    let message = consumer.message_within(TIMEOUT).expect("the pause ends");
    assert!(unix_ms() >= until, "the pause ended too early");
    consumer.finish(&message.id);
    broker.wait_for_log("channel billing is unpaused, the time of the pause is over");
    let stats = broker.channel("orders", "billing");
    assert_eq!(
        (&stats["paused"], terms(&stats)),
        (&false.into(), [None; 3])
    );
    let is_written = wait_until(TIMEOUT, || {
        let metadata = std::fs::read_to_string(broker.data_path().join("nsqd.dat"));
        metadata
            .expect("text")
            .contains(r#"{"name":"billing","paused":false}"#)
    });
    assert!(is_written, "nsqd.dat still has the pause");
}

#[test]
fn a_bad_parameter_changes_nothing_and_says_what_is_wrong() {
    let broker = Broker::start(1, &[]);
    broker.create("t", "c");
    for (parameter, code) in [
        ("for=10", "INVALID_FOR"),
        ("for=0s", "INVALID_FOR"),
        ("for=721h", "INVALID_FOR"),
        ("note=a%0Ab", "INVALID_NOTE"),
        ("by=%00", "INVALID_BY"),
    ] {
        for target in ["/topic/pause?topic=t", "/channel/pause?topic=t&channel=c"] {
            let answer = broker.post(&format!("{target}&{parameter}"), b"");
            assert_eq!(answer.status, 400, "{parameter}");
            let answer: Value = serde_json::from_slice(&answer.body).expect("JSON");
            assert_eq!(answer["message"], code);
            assert!(
                answer["reason"]
                    .as_str()
                    .is_some_and(|reason| reason.len() > 20)
            );
        }
    }
    assert_eq!(broker.topic("t")["paused"], false);
    assert_eq!(broker.channel("t", "c")["paused"], false);
    // A pause that ends leaves an unlimited one alone that came later.
    let target = "/channel/pause?topic=t&channel=c";
    broker.admin(&format!("{target}&for=1s"));
    broker.admin(target);
    std::thread::sleep(Duration::from_millis(1500));
    let stats = broker.channel("t", "c");
    assert_eq!((&stats["paused"], terms(&stats)), (&true.into(), [None; 3]));
}

/// Empties a channel with an undo of five minutes.
fn empty_with_undo(broker: &Broker, topic: &str, channel: &str) {
    broker.admin(&format!(
        "/channel/empty?topic={topic}&channel={channel}&undo=5m"
    ));
}

/// Takes the bodies that a channel has, and finishes them. Fails if a message comes twice.
fn take_all(broker: &Broker, topic: &str, channel: &str, count: usize) -> Vec<u32> {
    let mut consumer = broker.consumer(topic, channel, 100);
    let mut taken = BTreeSet::new();
    while taken.len() < count {
        let message = consumer.message();
        let body = u32::from_le_bytes(message.body[..4].try_into().expect("a number"));
        assert!(taken.insert(body), "{body} came twice");
        consumer.finish(&message.id);
    }
    let none = ["depth", "in_flight_count", "deferred_count"].map(|key| (key, 0));
    broker.wait_for_channel(topic, channel, &none);
    taken.into_iter().collect()
}

fn publish(broker: &Broker, topic: &str, numbers: std::ops::Range<u32>) {
    let mut producer = broker.client();
    let bodies: Vec<Vec<u8>> = numbers
        .map(|number| [&number.to_le_bytes()[..], &[b'x'; 200]].concat())
        .collect();
    for part in bodies.chunks(500) {
        producer.publish_many(topic, part);
    }
}

#[test]
fn an_emptied_channel_comes_back_also_after_restarts() {
    let mut broker = Broker::start(2, &["--mem-queue-size=100", "--msg-timeout=1m"]);
    broker.create("orders", "billing");
    broker.create("orders", "audit");
    publish(&broker, "orders", 0..20_000);
    let mut producer = broker.client();
    producer.publish_deferred(
        "orders",
        1000,
        &[&20_000_u32.to_le_bytes()[..], b"later"].concat(),
    );
    let mut consumer = broker.consumer("orders", "billing", 5);
    let held: Vec<_> = (0..5).map(|_| consumer.message()).collect();
    consumer.ready(0);
    consumer.finish(&held[0].id);
    let is_finished = wait_until(TIMEOUT, || {
        let stats = broker.channel("orders", "billing");
        let [depth, deferred] = ["depth", "deferred_count"].map(|key| stats[key].as_u64());
        depth
            .zip(deferred)
            .map(|(depth, deferred)| depth + deferred)
            == Some(19_996)
            && stats["in_flight_count"] == 4
    });
    assert!(is_finished, "{}", broker.channel("orders", "billing"));
    empty_with_undo(&broker, "orders", "billing");
    consumer.finish(&held[1].id);
    let answer = consumer.frame_after_heartbeats().text();
    assert!(answer.starts_with("E_FIN_FAILED"), "{answer}");
    let stats = broker.channel("orders", "billing");
    assert_eq!(
        (&stats["depth"], &stats["undo_message_count"]),
        (&0.into(), &20_000.into())
    );
    assert!(stats["undo_disk_bytes"].as_u64() >= Some(20_000 * 200));
    let until = stats["undo_until_ms"].as_u64().expect("a number");
    assert!((1..=300_000).contains(&until.saturating_sub(unix_ms())));
    drop(consumer);
    // The other channel finishes all messages, so only the undo holds the segments.
    assert_eq!(take_all(&broker, "orders", "audit", 20_001).len(), 20_001);

    broker.sigterm_and_wait();
    broker.restart();
    let stats = broker.channel("orders", "billing");
    assert_eq!(stats["undo_message_count"], 20_000);
    publish(&broker, "orders", 30_000..30_010);
    // The answer came when a checkpoint had the undo, so a crash does not end the undo.
    broker.kill9();
    broker.restart();
    let target = "/channel/unempty?topic=orders&channel=billing";
    broker.admin(target);
    broker.kill9();
    broker.restart();
    let answer = broker.post(target, b"");
    assert_eq!(answer.status, 404);
    test_support::assert_like(answer.text(), "…UNDO_NOT_FOUND…");
    let taken = take_all(&broker, "orders", "billing", 20_010);
    let expected: Vec<u32> = (0..=20_000).chain(30_000..30_010).collect();
    let finished = u32::from_le_bytes(held[0].body[..4].try_into().expect("a number"));
    let expected: Vec<u32> = expected.into_iter().filter(|it| *it != finished).collect();
    assert_eq!(taken, expected);
}

#[test]
fn a_second_empty_frees_the_disk_and_bad_requests_empty_nothing() {
    let broker = Broker::start(1, &[]);
    broker.create("t", "c");
    broker.admin("/topic/create?topic=e%23ephemeral");
    publish(&broker, "t", 0..10);
    for (target, status, code) in [
        (
            "/channel/empty?topic=t&channel=c&undo=1",
            400,
            "INVALID_UNDO",
        ),
        (
            "/channel/empty?topic=t&channel=c&undo=25h",
            400,
            "INVALID_UNDO",
        ),
        ("/topic/empty?topic=t&undo=1", 400, "INVALID_UNDO"),
        ("/topic/unempty?topic=t", 404, "UNDO_NOT_FOUND"),
        ("/topic/unempty?topic=u", 404, "TOPIC_NOT_FOUND"),
        (
            "/topic/empty?topic=e%23ephemeral&undo=1m",
            400,
            "UNDO_OF_EPHEMERAL",
        ),
        ("/channel/unempty?topic=t&channel=c", 404, "UNDO_NOT_FOUND"),
        (
            "/channel/unempty?topic=t&channel=d",
            404,
            "CHANNEL_NOT_FOUND",
        ),
        ("/channel/unempty?topic=u&channel=c", 404, "TOPIC_NOT_FOUND"),
    ] {
        let answer = broker.post(target, b"");
        let text = answer.text();
        assert_eq!(answer.status, status, "{target}: {text}");
        assert!(text.contains(code), "{target}: {text}");
    }
    assert_eq!(broker.channel("t", "c")["depth"], 10);
    empty_with_undo(&broker, "t", "c");
    assert_eq!(broker.channel("t", "c")["undo_message_count"], 10);
    broker.admin("/channel/empty?topic=t&channel=c");
    assert!(broker.channel("t", "c").get("undo_message_count").is_none());
    let answer = broker.post("/channel/unempty?topic=t&channel=c", b"");
    assert_eq!(answer.status, 404);
    // The time ends an undo, too.
    publish(&broker, "t", 0..10);
    broker.admin("/channel/empty?topic=t&channel=c&undo=1s");
    broker.wait_for_log(
        "the messages that channel c was emptied of are dropped, the time of the undo is over",
    );
    assert!(broker.channel("t", "c").get("undo_until_ms").is_none());
}

#[test]
fn an_emptied_topic_comes_back_also_after_restarts() {
    let mut broker = Broker::start(2, &["--mem-queue-size=100"]);
    let done = |broker: &Broker, target: &str| {
        broker.admin(target);
    };
    done(&broker, "/topic/create?topic=orders");
    publish(&broker, "orders", 0..5000);
    done(&broker, "/topic/empty?topic=orders&undo=5m");
    let stats = broker.topic("orders");
    assert_eq!(
        (&stats["depth"], &stats["undo_message_count"]),
        (&0.into(), &5000.into())
    );
    assert!(stats["undo_disk_bytes"].as_u64() >= Some(5000 * 200));
    // The answer came when a checkpoint had the undo, so a crash does not end the undo.
    broker.kill9();
    broker.restart();
    assert_eq!(broker.topic("orders")["undo_message_count"], 5000);
    done(&broker, "/topic/unempty?topic=orders");
    assert_eq!(broker.topic("orders")["depth"], 5000);
    broker.kill9();
    broker.restart();
    let stats = broker.topic("orders");
    assert_eq!(stats["depth"], 5000);
    assert!(stats.get("undo_message_count").is_none());
    let answer = broker.post("/topic/unempty?topic=orders", b"");
    assert_eq!(answer.status, 404);
    // Channels that were made after the empty get the messages, too.
    done(&broker, "/topic/empty?topic=orders&undo=5m");
    done(
        &broker,
        "/channel/create?topic=orders&channel=live%23ephemeral",
    );
    let answer = broker.post("/topic/unempty?topic=orders", b"");
    assert_eq!(answer.status, 409);
    assert!(answer.text().contains("UNDO_NEEDS_CHANNEL"));
    broker.create("orders", "billing");
    publish(&broker, "orders", 5000..5010);
    done(&broker, "/topic/unempty?topic=orders");
    let expected: Vec<u32> = (0..5010).collect();
    assert_eq!(take_all(&broker, "orders", "billing", 5010), expected);
    // The time ends an undo, and so does an empty without one.
    done(&broker, "/topic/pause?topic=orders");
    publish(&broker, "orders", 0..10);
    done(&broker, "/topic/empty?topic=orders&undo=5m");
    done(&broker, "/topic/empty?topic=orders");
    assert!(broker.topic("orders").get("undo_message_count").is_none());
    publish(&broker, "orders", 0..10);
    done(&broker, "/topic/empty?topic=orders&undo=1s");
    broker.wait_for_log(
        "the messages that the topic was emptied of are dropped, the time of the undo is over",
    );
    assert!(broker.topic("orders").get("undo_message_count").is_none());
}

/// The undo of a topic of another shard kept the disk full, for a day at most, and publishes were refused.
#[test]
fn a_full_disk_ends_the_undos_of_all_shards() {
    let Some(tmpfs) = Tmpfs::mount("24m") else {
        return;
    };
    let data_path = tmpfs.path().join("data");
    std::fs::create_dir(&data_path).expect("the disk is empty");
    let broker = Launch::new(2, &["--sync-timeout=50ms"])
        .at(data_path)
        .start();
    let names: Vec<String> = (0..20).map(|number| format!("t{number}")).collect();
    names.iter().for_each(|name| broker.create(name, "c"));
    let shard = |name: &str| broker.topic(name)["shard"].clone();
    let idle = &names[0];
    let busy = names.iter().find(|name| shard(name) != shard(idle));
    let busy = busy.expect("20 topics have two shards");
    let body = vec![b'x'; 100_000];
    let publish = |topic: &str| {
        let target = format!("/pub?topic={topic}");
        broker.post(&target, &body).status == 200
    };
    for _ in 0..100 {
        assert!(publish(idle));
    }
    empty_with_undo(&broker, idle, "c");
    assert!(wait_until(TIMEOUT, || !publish(busy)), "the disk has 24 MB");
    broker.wait_for_log("the disk has no room, so the 100 messages that channel c was emptied of");
    assert!(wait_until(TIMEOUT, || publish(busy)), "the undo is gone");
}
