//! Peeks of what was published last, whoever has the messages.

mod support;

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::peeks::{
    all, bodies, broker_with_channel, cold_segments, peek, state, with_cold_messages,
};
use support::{Broker, Client, TIMEOUT, wait_until};

fn publish_and_finish(producer: &mut Client, consumer: &mut Client, names: &[String]) {
    producer.publish_many("t", names);
    for _ in names {
        let message = consumer.message();
        consumer.finish(&message.id);
    }
}

/// A look at the messages that wait shows none of them.
#[test]
fn what_was_published_is_shown_although_consumers_keep_up() {
    let broker = broker_with_channel(&[]);
    let mut producer = Client::connect(broker.tcp_addr());
    let mut consumer = Client::connect(broker.tcp_addr());
    consumer.subscribe("t", "c");
    consumer.ready(100);
    let names = |letter: &str, count: u32| -> Vec<String> {
        (0..count)
            .map(|number| format!("{letter}{number}"))
            .collect()
    };
    publish_and_finish(&mut producer, &mut consumer, &names("a", 5));
    let is_finished =
        || peek(&broker, "/topic/peek?topic=t&from=published")["messages"][0]["finished"] == true;
    assert!(wait_until(TIMEOUT, is_finished));
    let waiting = peek(&broker, "/channel/peek?topic=t&channel=c&from=newest");
    assert!(bodies(&waiting).is_empty());
    let before = state(&broker);
    let first = peek(&broker, "/topic/peek?topic=t&from=published&limit=4");
    assert_eq!(bodies(&first), ["a4", "a3", "a2", "a1"]);
    assert_eq!(all(&first, "state"), ["published"; 4]);
    assert_eq!(all(&first, "finished"), [true; 4]);
    assert_eq!(all(&first, "attempts"), [&Value::Null; 4]);
    assert!(all(&first, "timestamp").iter().all(|at| at.is_u64()));
    let newest = first["newest"].as_str().expect("an id").to_owned();
    assert_eq!(first["messages"][0]["id"], newest.as_str());
    assert_eq!(
        (&first["ended_by"], first.get("unscanned_messages")),
        (&json!("limit"), None)
    );
    let next = first["next"].as_str().expect("there is more");
    let rest = peek(
        &broker,
        &format!("/topic/peek?topic=t&from=published&cursor={next}"),
    );
    assert_eq!(
        (bodies(&rest), &rest["ended_by"]),
        (vec!["a0"], &json!("end"))
    );
    assert_eq!(state(&broker), before);

    // Messages that came since, and how many of them were not gone through.
    let since = |limit: u32| {
        let target = format!("/topic/peek?topic=t&from=published&since={newest}&limit={limit}");
        peek(&broker, &target)
    };
    let nothing = since(10);
    assert_eq!(
        (bodies(&nothing).len(), &nothing["unscanned_messages"]),
        (0, &json!(0))
    );
    assert_eq!(nothing["newest"], newest.as_str());
    publish_and_finish(&mut producer, &mut consumer, &names("b", 50));
    let some = since(3);
    assert_eq!(
        (
            bodies(&some),
            &some["unscanned_messages"],
            &some["ended_by"]
        ),
        (vec!["b49", "b48", "b47"], &json!(47), &json!("limit"))
    );
    let all_of_them = since(100);
    assert_eq!(
        (
            bodies(&all_of_them).len(),
            &all_of_them["unscanned_messages"],
            &all_of_them["ended_by"]
        ),
        (50, &json!(0), &json!("end"))
    );
    // Messages that a filter has rejected were gone through.
    let found = peek(
        &broker,
        &format!("/topic/peek?topic=t&from=published&since={newest}&contains=b17"),
    );
    assert_eq!(
        (
            bodies(&found),
            &found["unscanned_messages"],
            &found["scanned_messages"]
        ),
        (vec!["b17"], &json!(0), &json!(50))
    );
}

/// A topic that is made again has seqs far behind those of its predecessor.
#[test]
fn messages_since_an_id_of_a_deleted_topic_are_those_of_the_new_one() {
    let broker = broker_with_channel(&[]);
    let mut producer = Client::connect(broker.tcp_addr());
    producer.publish("t", b"old");
    let old = peek(&broker, "/topic/peek?topic=t&from=published");
    let newest = old["newest"].as_str().expect("an id").to_owned();
    broker.post("/topic/delete?topic=t", b"").expect_status(200);
    producer.publish_many("t", &["new 0", "new 1", "new 2"]);
    let answer = peek(
        &broker,
        &format!("/topic/peek?topic=t&from=published&since={newest}&limit=1"),
    );
    assert_eq!(
        (bodies(&answer), &answer["unscanned_messages"]),
        (vec!["new 2"], &json!(2))
    );
}

#[test]
fn a_topic_without_messages_has_an_end_that_later_messages_are_behind() {
    let broker = broker_with_channel(&[]);
    let answer = peek(&broker, "/topic/peek?topic=t&from=published");
    let newest = answer["newest"].as_str().expect("an id").to_owned();
    assert_eq!(bodies(&answer), [""; 0]);
    let mut producer = Client::connect(broker.tcp_addr());
    producer.publish_many("t", &["0", "1", "2"]);
    let answer = peek(
        &broker,
        &format!("/topic/peek?topic=t&from=published&since={newest}&limit=2"),
    );
    assert_eq!(
        (bodies(&answer), &answer["unscanned_messages"]),
        (vec!["2", "1"], &json!(1))
    );
}

#[test]
fn what_was_published_ends_where_memory_ends() {
    let broker = Broker::start(1, &["--mem-queue-size=1"]);
    with_cold_messages(&broker, 90);
    let oldest = peek(
        &broker,
        "/channel/peek?topic=t&channel=c&limit=1&max_body=4",
    );
    let id = oldest["messages"][0]["id"].as_str().expect("an id");
    let before = cold_segments(&broker);
    let answer = peek(
        &broker,
        &format!("/topic/peek?topic=t&from=published&since={id}&limit=100&max_body=4"),
    );
    let shown = bodies(&answer);
    let expected: Vec<String> = (0..90).rev().map(|number| format!("{number:04}")).collect();
    assert!(!shown.is_empty() && shown.len() < 89, "{}", shown.len());
    assert_eq!(shown, expected[..shown.len()]);
    let scanned = answer["scanned_messages"].as_u64().expect("a number");
    assert_eq!(answer["unscanned_messages"], 89 - scanned);
    assert!(cold_segments(&broker) >= before, "a peek loads nothing");
}

/// Nothing of a peek grows with the number of channels.
#[test]
fn a_topic_with_thousands_of_channels_shows_what_was_published() {
    let broker = Broker::start(1, &[]);
    broker.post("/topic/create?topic=t", b"").expect_status(200);
    let mut producer = Client::connect(broker.tcp_addr());
    for channel in 0..2000 {
        broker
            .post(&format!("/channel/create?topic=t&channel=c{channel}"), b"")
            .expect_status(200);
    }
    producer.publish_many("t", &vec!["0123456789"; 20_000]);
    let began = Instant::now();
    let answer = peek(
        &broker,
        "/topic/peek?topic=t&from=published&contains=nothing",
    );
    let took = began.elapsed();
    println!("{took:?} for {} messages", answer["scanned_messages"]);
    let is_late = answer["scanned_messages"] != 20_000;
    // The time budget ends a search, too: on a busy machine after fewer messages.
    assert!(!is_late || took >= Duration::from_secs(2), "{answer}");
    let one = peek(&broker, "/topic/peek?topic=t&from=published&limit=1");
    assert_eq!(all(&one, "finished"), [&Value::Null]);
}
