//! Peeks of what was published last, whoever has the messages.

use crate::support::peeks::{
    all, bodies, broker_with_channel, cold_segments, peek, state, with_cold_messages,
};
use crate::support::{Broker, Client, TIMEOUT, wait_until};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn publish_and_finish(producer: &mut Client, consumer: &mut Client, names: &[String]) {
    producer.publish_many("t", names);
    for _ in names {
        let _message = consumer.take();
    }
}

/// Peeks what was published to the topic `t`. `rest` are further parameters, each behind an `&`.
fn published(broker: &Broker, rest: &str) -> Value {
    peek(broker, &format!("/topic/peek?topic=t&from=published{rest}"))
}

fn number(value: &Value) -> usize {
    let number = value.as_u64().expect("a number");
    usize::try_from(number).expect("a small number")
}

/// A look at the messages that wait shows none of them.
#[test]
fn what_was_published_is_shown_although_consumers_keep_up() {
    let broker = broker_with_channel(&[]);
    let mut producer = broker.client();
    let mut consumer = broker.consumer("t", "c", 100);
    let names = |letter: &str, count: u32| -> Vec<String> {
        (0..count)
            .map(|number| format!("{letter}{number}"))
            .collect()
    };
    publish_and_finish(&mut producer, &mut consumer, &names("a", 5));
    let is_finished = || published(&broker, "")["messages"][0]["finished"] == true;
    assert!(wait_until(TIMEOUT, is_finished));
    let waiting = peek(&broker, "/channel/peek?topic=t&channel=c&from=newest");
    assert!(bodies(&waiting).is_empty());
    let before = state(&broker);
    let first = published(&broker, "&limit=4");
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
    let rest = published(&broker, &format!("&cursor={next}"));
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
    let found = published(&broker, &format!("&since={newest}&contains=b17"));
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
    let mut producer = broker.client();
    producer.publish("t", b"old");
    let old = published(&broker, "");
    let newest = old["newest"].as_str().expect("an id").to_owned();
    broker.admin("/topic/delete?topic=t");
    producer.publish_many("t", &["new 0", "new 1", "new 2"]);
    let answer = published(&broker, &format!("&since={newest}&limit=1"));
    assert_eq!(
        (bodies(&answer), &answer["unscanned_messages"]),
        (vec!["new 2"], &json!(2))
    );
}

/// The answer said that nothing was missed, because the messages of before the start were neither counted nor in memory.
#[test]
fn nobody_knows_how_many_messages_a_restart_has_hidden() {
    let mut broker = broker_with_channel(&[]);
    let mut producer = broker.client();
    producer.publish("t", b"seen");
    let seen = published(&broker, "");
    let since = |answer: &Value| {
        let newest = answer["newest"].as_str().expect("an id");
        format!("/topic/peek?topic=t&from=published&since={newest}")
    };
    producer.publish_many("t", &["hidden"; 100]);
    broker.kill9();
    broker.restart();
    let mut producer = broker.client();
    producer.publish_many("t", &["0", "1", "2"]);
    let answer = peek(&broker, &since(&seen));
    assert_eq!(bodies(&answer), ["2", "1", "0"]);
    assert_eq!(answer.get("unscanned_messages"), None);
    // The next look begins in this process.
    producer.publish_many("t", &["3", "4"]);
    let answer = peek(&broker, &format!("{}&limit=1", since(&answer)));
    assert_eq!(answer["unscanned_messages"], 1);
}

/// A topic that was made again, and has no message yet.
#[test]
fn nobody_knows_how_many_messages_a_deleted_topic_had() {
    let broker = broker_with_channel(&[]);
    let mut producer = broker.client();
    producer.publish("t", b"old");
    let old = published(&broker, "");
    let newest = old["newest"].as_str().expect("an id").to_owned();
    for act in ["delete", "create"] {
        broker.admin(&format!("/topic/{act}?topic=t"));
    }
    let answer = published(&broker, &format!("&since={newest}"));
    assert_eq!(
        (bodies(&answer).len(), answer.get("unscanned_messages")),
        (0, None)
    );
}

#[test]
fn a_topic_without_messages_has_an_end_that_later_messages_are_behind() {
    let broker = broker_with_channel(&[]);
    let answer = published(&broker, "");
    let newest = answer["newest"].as_str().expect("an id").to_owned();
    assert_eq!(bodies(&answer), [""; 0]);
    let mut producer = broker.client();
    producer.publish_many("t", &["0", "1", "2"]);
    let answer = published(&broker, &format!("&since={newest}&limit=2"));
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
    let answer = published(&broker, &format!("&since={id}&limit=100&max_body=4"));
    let shown = bodies(&answer);
    let expected: Vec<String> = (0..90).rev().map(|number| format!("{number:04}")).collect();
    assert!(!shown.is_empty() && shown.len() < 89, "{}", shown.len());
    assert_eq!(shown, expected[..shown.len()]);
    let scanned = answer["scanned_messages"].as_u64().expect("a number");
    assert_eq!(answer["unscanned_messages"], 89 - scanned);
    assert!(cold_segments(&broker) >= before, "a peek loads nothing");
}

/// A tail asks again and again for what was published since its last look. What consumers have taken and finished in the
/// meantime is shown or counted, and nothing comes twice.
#[test]
fn a_tail_misses_nothing_that_consumers_take_at_once() {
    const LOOKS: usize = 40;
    const BATCH: usize = 30;
    let broker = broker_with_channel(&[]);
    let mut producer = broker.client();
    let mut consumer = broker.consumer("t", "c", 100);
    let start = published(&broker, "");
    let mut newest = start["newest"].as_str().expect("an id").to_owned();
    let (mut shown, mut unseen) = (Vec::new(), 0);
    let mut look = |limit: usize| {
        let target = format!("/topic/peek?topic=t&from=published&since={newest}&limit={limit}");
        let answer = peek(&broker, &target);
        newest = answer["newest"].as_str().expect("an id").to_owned();
        let of_look: Vec<usize> = bodies(&answer)
            .iter()
            .map(|body| body.parse().expect("a number"))
            .collect();
        unseen += number(&answer["unscanned_messages"]);
        shown.extend(of_look.into_iter().rev());
        shown.len() + unseen
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..LOOKS * BATCH {
                let _message = consumer.take();
            }
        });
        for number in 0..LOOKS {
            let numbers = number * BATCH..(number + 1) * BATCH;
            let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
            producer.publish_many("t", &numbers);
            // Some looks show everything, and others leave out ten messages.
            let limit = [BATCH, BATCH - 10][number % 2];
            assert_eq!(look(limit), (number + 1) * BATCH, "after look {number}");
        }
    });
    assert_eq!(look(100), LOOKS * BATCH, "nothing comes after the last");
    assert!(shown.is_sorted_by(|a, b| a < b), "{shown:?}");
    assert_eq!(unseen, LOOKS / 2 * 10);
    let newest = (LOOKS * BATCH - 1).to_string();
    let is_finished = || {
        let answer = published(&broker, "&limit=100");
        let states = all(&answer, "finished");
        // Segments whose messages are finished may be gone.
        bodies(&answer).first() == Some(&newest.as_str()) && states.iter().all(|it| **it == true)
    };
    assert!(wait_until(TIMEOUT, is_finished), "consumers took all");
}

/// Nothing of a peek grows with the number of channels, and all that was published is found, whether or not a channel has
/// finished it.
#[test]
fn a_topic_with_thousands_of_channels_shows_what_was_published() {
    const MESSAGES: usize = 20_000;
    let broker = broker_with_channel(&[]);
    broker.admin("/topic/create?topic=many");
    for channel in 0..2000 {
        broker.admin(&format!("/channel/create?topic=many&channel=c{channel}"));
    }
    let mut producer = broker.client();
    let mut bodies_published = vec!["0123456789".to_owned(); MESSAGES];
    bodies_published[0] = "the first needle".to_owned();
    bodies_published[7_000] = "a needle inside".to_owned();
    for topic in ["t", "many"] {
        producer.publish_many(topic, &bodies_published);
    }
    // One of the channels has finished the first messages.
    let mut consumer = broker.consumer("many", "c7", 1);
    for _ in 0..10 {
        let _message = consumer.take();
    }
    // A search for what only the oldest messages have. A busy machine ends a look after its time, and the next one goes on.
    let search = |topic: &str| {
        let target = format!("/topic/peek?topic={topic}&from=published&contains=needle");
        let (mut found, mut scanned, mut place) = (Vec::new(), 0, String::new());
        let began = Instant::now();
        loop {
            let answer = peek(&broker, &format!("{target}{place}"));
            found.extend(bodies(&answer).iter().map(ToString::to_string));
            scanned += number(&answer["scanned_messages"]);
            match answer["next"].as_str() {
                Some(next) => place = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(scanned, MESSAGES, "{topic}");
        assert_eq!(found, ["a needle inside", "the first needle"], "{topic}");
        began.elapsed()
    };
    // Both are measured in turn until they have had a quiet moment.
    let (mut one, mut many) = (Duration::MAX, Duration::MAX);
    let is_near = (0..30).any(|turn| {
        one = one.min(search("t"));
        many = many.min(search("many"));
        turn >= 2 && many < one * 5 + Duration::from_millis(20)
    });
    println!("{MESSAGES} messages: {one:?} with one channel, {many:?} with 2,000");
    assert!(is_near, "{one:?} {many:?}");
    let newest = peek(&broker, "/topic/peek?topic=many&from=published&limit=1");
    assert_eq!(all(&newest, "finished"), [&Value::Null]);
}
