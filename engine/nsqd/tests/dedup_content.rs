//! `--dedup` with `body` and `json:`, over the real protocol and real restarts.

use crate::support::{Broker, Client, Random, TIMEOUT, wait_until};
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

fn number(broker: &Broker, topic: &str, key: &str) -> u64 {
    let stats = broker.topic(topic);
    stats[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key} in {stats}"))
}

fn stored(broker: &Broker, topic: &str) -> u64 {
    number(broker, topic, "message_count")
}

fn duplicates(broker: &Broker, topic: &str) -> u64 {
    number(broker, topic, "dedup_duplicate_count")
}

/// Returns the numbers of messages that were stored, and that were recognised.
fn counts(broker: &Broker, topic: &str) -> (u64, u64) {
    (stored(broker, topic), duplicates(broker, topic))
}

/// Consumes and finishes the messages of a channel until `count` have come, and returns their bodies.
fn consume(broker: &Broker, topic: &str, count: usize) -> Vec<String> {
    let mut consumer = broker.consumer(topic, "ch", 100);
    let mut bodies = Vec::new();
    while bodies.len() < count {
        let message = consumer.take();
        bodies.push(message.text());
    }
    broker.wait_for_channel(topic, "ch", &[("depth", 0), ("in_flight_count", 0)]);
    consumer.close_wait();
    bodies
}

#[test]
fn every_way_to_publish() {
    let broker = Broker::start(2, &["--dedup=t*=body,window=10000", "--dedup=j*=json:/id"]);
    let mut one = broker.client();
    let mut two = broker.client();
    // Topics of both shards, so that some publishes are forwarded.
    for topic in ["t1", "t2", "t3", "t4"] {
        one.publish(topic, b"a");
        two.publish(topic, b"a");
        one.publish_deferred(topic, 10, b"a");
        two.publish_deferred(topic, 10, b"b");
        one.publish_many(topic, &["a", "b", "c", "c"]);
        two.publish_many(topic, &["a", "b", "c"]);
        for (path, body) in [("pub", "c"), ("pub", "d"), ("mpub", "d\ne\nd\ne")] {
            let target = format!("/{path}?topic={topic}");
            let reply = broker.post(&target, body.as_bytes());
            assert_eq!(reply.expect_status(200).text(), "OK");
        }
        broker
            .post(&format!("/pub?topic={topic}&defer=5"), b"e")
            .expect_status(200);
        assert_eq!(counts(&broker, topic), (5, 13));
        let mut bodies = consume(&broker, topic, 5);
        bodies.sort();
        assert_eq!(bodies, ["a", "b", "c", "d", "e"]);
    }
    for body in [
        r#"{"id":7,"n":1}"#,
        r#"{"n":2,"id":7}"#,
        r#"{"id":"7"}"#,
        "no JSON",
        "no JSON",
    ] {
        one.publish("j1", body.as_bytes());
    }
    assert_eq!(counts(&broker, "j1"), (4, 1));
    assert_eq!(number(&broker, "j1", "dedup_keyless_count"), 2);
    let metrics = broker.get("/metrics").expect_status(200).text();
    for line in [
        "nsqd_topic_dedup_duplicates_total{topic=\"t1\"} 13",
        "nsqd_topic_dedup_duplicates_total{topic=\"j1\"} 1",
        "nsqd_topic_dedup_keyless_total{topic=\"j1\"} 2",
        "nsqd_topic_dedup_keys{topic=\"j1\"} 2",
    ] {
        let has_line = metrics.lines().any(|it| it == line);
        assert!(has_line, "{line} in {metrics}");
    }
    let plain = broker.topic("t1");
    assert!(plain["dedup_memory_bytes"].as_u64() <= plain["dedup_memory_bytes_max"].as_u64());
}

/// Two copies on many connections at the same time: one of them is stored.
#[test]
fn copies_that_come_at_the_same_time() {
    let broker = Broker::start(2, &["--dedup=*=body,window=100000"]);
    let address = broker.tcp_addr();
    std::thread::scope(|scope| {
        for offset in 0..4 {
            scope.spawn(move || {
                let mut client = Client::connect(address);
                for number in 0..500 {
                    let number = (number + offset * 100) % 500;
                    client.publish("topic", format!("message {number}").as_bytes());
                }
            });
        }
    });
    assert_eq!(counts(&broker, "topic"), (500, 1500));
}

#[test]
fn a_kill_forgets_no_message_that_the_log_has() {
    let mut broker = Broker::start(1, &["--dedup=t=body,window=10000"]);
    let bodies: Vec<String> = (0..3000).map(|it| format!("order {it}")).collect();
    let mut producer = broker.client();
    for part in bodies.chunks(500) {
        producer.publish_many("t", part);
    }
    for _ in 0..3 {
        broker.kill9();
        broker.restart();
        let mut producer = broker.client();
        producer.publish_many("t", &bodies);
        assert_eq!(counts(&broker, "t"), (0, 3000));
    }
    assert_eq!(consume(&broker, "t", 3000).len(), 3000);
}

/// Most messages are finished, and their segments were used again. So only the file has their keys.
#[test]
fn a_clean_restart_keeps_the_keys_of_finished_messages() {
    let mut broker = Broker::start(2, &["--dedup=t=body,window=10m"]);
    let bodies: Vec<String> = (0..20_000).map(|it| format!("{it:0500}")).collect();
    let mut producer = broker.client();
    let mut consumer = broker.consumer("t", "ch", 500);
    for part in bodies.chunks(500) {
        producer.publish_many("t", part);
        for _ in part {
            consumer.take();
        }
    }
    consumer.close_wait();
    for _ in 0..2 {
        assert!(broker.sigterm_and_wait().success());
        assert!(broker.data_path().join("t.log/keys").exists());
        assert!(segment_bytes(&broker) < 5_000_000, "of 10,000,000 bytes");
        broker.restart();
        let mut producer = broker.client();
        for part in bodies.chunks(1000) {
            producer.publish_many("t", part);
        }
        assert_eq!(counts(&broker, "t"), (0, 20_000));
        assert!(number(&broker, "t", "dedup_unverified_count") > 10_000);
    }
}

/// Bytes of the segments of topic `t`.
fn segment_bytes(broker: &Broker) -> u64 {
    let entries = fs::read_dir(broker.data_path().join("t.log")).expect("the log is there");
    let entries = entries.map(|entry| entry.expect("readable"));
    let segments = entries.filter(|it| it.file_name().to_string_lossy().ends_with(".segment"));
    segments
        .map(|it| it.metadata().expect("readable").len())
        .sum()
}

/// After a while, the keys are in the file even if the process is killed.
#[test]
fn keys_are_saved_from_time_to_time() {
    let mut broker = Broker::start(1, &["--dedup=t=body", "--sync-timeout=100ms"]);
    let mut producer = broker.client();
    producer.publish_many("t", &["a", "b", "c"]);
    consume(&broker, "t", 3);
    let file = broker.data_path().join("t.log/keys");
    assert!(wait_until(TIMEOUT.max(Duration::from_secs(60)), || file.exists()));
    broker.kill9();
    broker.restart();
    broker.client().publish_many("t", &["a", "b", "c", "d"]);
    assert_eq!(counts(&broker, "t"), (1, 3));
}

#[test]
fn a_damaged_file_costs_duplicates_and_no_start() {
    let mut broker = Broker::start(1, &["--dedup=t=body"]);
    broker.client().publish_many("t", &["a", "b"]);
    consume(&broker, "t", 2);
    broker.sigterm_and_wait();
    let file = broker.data_path().join("t.log/keys");
    let mut bytes = fs::read(&file).expect("a stop writes the file");
    let last = bytes.len() - 6;
    bytes[last] ^= 1;
    fs::write(&file, &bytes).expect("the file can be written");
    broker.restart();
    broker.wait_for_log("its file of keys does not agree with its CRC");
    assert!(broker.data_path().join("t.log/keys.damaged").exists());
    let mut producer = broker.client();
    producer.publish_many("t", &["a", "b"]);
    producer.publish_many("t", &["a", "b"]);
    // The log may have the messages, although they are finished.
    assert_eq!(stored(&broker, "t") + duplicates(&broker, "t"), 4);
    assert!(duplicates(&broker, "t") >= 2);
    // Leftovers of a crash go, and the next stop writes a new file.
    fs::write(broker.data_path().join("t.log/keys.new-0123"), b"half").expect("writable");
    broker.sigterm_and_wait();
    assert!(file.exists());
    broker.restart();
    assert!(!broker.data_path().join("t.log/keys.new-0123").exists());
}

/// A backlog beyond memory: the first copies are in cold segments, so their fingerprints decide.
#[test]
fn messages_in_cold_segments_are_recognised() {
    let broker = Broker::start(
        1,
        &[
            "--dedup=t=body,window=100000",
            "--mem-queue-size=0",
            "--max-msg-size=200000",
        ],
    );
    let mut random = Random::new(5);
    let bodies: Vec<Vec<u8>> = (0..600)
        .map(|_| {
            (0..100_000 / 8)
                .flat_map(|_| random.next().to_le_bytes())
                .collect()
        })
        .collect();
    let mut producer = broker.client();
    for body in &bodies {
        producer.publish("t", body);
    }
    for body in &bodies {
        producer.publish("t", body);
    }
    assert_eq!(counts(&broker, "t"), (600, 600));
    assert!(number(&broker, "t", "dedup_unverified_count") > 100);
}

#[test]
fn empty_and_pause_keep_the_keys_and_delete_forgets_them() {
    let broker = Broker::start(1, &["--dedup=t=body"]);
    let mut producer = broker.client();
    producer.publish("t", b"a");
    broker.admin("/topic/pause?topic=t");
    producer.publish("t", b"a");
    broker.admin("/topic/empty?topic=t");
    producer.publish("t", b"a");
    assert_eq!(counts(&broker, "t"), (1, 2));
    broker.admin("/topic/delete?topic=t");
    producer.publish("t", b"a");
    assert_eq!(counts(&broker, "t"), (1, 0));
}

/// With `--sync-every=1`, many producers repeat what they have not got an answer for, while the broker is killed.
/// Each message is there once.
#[test]
fn retries_over_kills_are_stored_once() {
    let mut broker = Broker::start(2, &["--dedup=t=json:/n,window=100000", "--sync-every=1"]);
    let mut random = Random::new(11);
    let total = 600;
    let mut acknowledged = 0;
    while acknowledged < total {
        let mut producer = broker.client();
        let until = (acknowledged + 100 + random.below(100)).min(total);
        while acknowledged < until {
            let last = (acknowledged + 1 + random.below(9)).min(total);
            let bodies: Vec<String> = (acknowledged..last)
                .map(|it| format!("{{\"n\":{it}}}"))
                .collect();
            producer.send(&Client::mpub("t", &bodies));
            if random.one_in(10) {
                // The outcome is unknown: the next round publishes the same messages again.
                break;
            }
            producer.expect_ok();
            acknowledged = last;
        }
        broker.kill9();
        broker.restart();
    }
    let bodies = consume(&broker, "t", total as usize);
    let different: BTreeSet<&String> = bodies.iter().collect();
    assert_eq!((bodies.len(), different.len()), (600, 600));
}

/// The operator saw copies after a change of the rule, and no line said why.
#[test]
fn a_rule_with_another_key_says_that_the_saved_keys_do_not_count() {
    let mut broker = Broker::start(1, &["--dedup=t=json:/id"]);
    broker.client().publish("t", br#"{"id":1,"n":1}"#);
    broker.sigterm_and_wait();
    let said = "TOPIC(t): its keys were saved by a rule of --dedup with the key json:/id, and the key is body now";
    broker.restart();
    assert!(!broker.log().contains(said));
    broker.sigterm_and_wait();
    broker.restart_with(1, &["--dedup=t=body"]);
    broker.wait_for_log(said);
    let mut producer = broker.client();
    // The first message is still in the log, so its body is known.
    producer.publish("t", br#"{"id":1,"n":1}"#);
    assert_eq!(counts(&broker, "t"), (0, 1));
    producer.publish("t", br#"{"id":1,"n":2}"#);
    assert_eq!(counts(&broker, "t"), (1, 1));
}

/// A pattern matches as many topics as there come, and nobody was told what their memory may add up to.
#[test]
fn a_start_says_what_the_rules_may_take() {
    let mut broker = Broker::start(1, &["--dedup=t*=body", "--dedup=p=publisher"]);
    let line = |pattern: &str, bytes: u64, topics: u64| {
        let remembered = match pattern {
            "p" => "the last 1024 numbers of each publisher, of at most 2978 publishers",
            _ => "the bodies of the last 2m0s, if these are at most 733999 messages",
        };
        format!(
            "--dedup: a topic of the pattern {pattern} remembers {remembered}; it takes at most {bytes} bytes of memory \
             for the rule, and up to as much again while it is saved; topics now: {topics}"
        )
    };
    broker.wait_for_log(&line("t*", 16 << 20, 0));
    let mut producer = broker.client();
    for topic in 0..20 {
        producer.publish(&format!("t{topic}"), b"a");
    }
    drop(producer);
    broker.sigterm_and_wait();
    broker.restart();
    broker.wait_for_log(&line("t*", 16 << 20, 20));
    broker.wait_for_log(&line("p", 1 << 20, 0));
    broker.client().publish("t19", b"a");
    assert_eq!(duplicates(&broker, "t19"), 1);
}
