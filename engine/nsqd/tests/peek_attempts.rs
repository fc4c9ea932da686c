//! Peeks of the messages with the most attempts, wherever in the channel they are.

use crate::support::peeks::{all, bodies, broker_with_channel, peek, state};
use crate::support::{Broker, Client, TIMEOUT, wait_until};
use serde_json::json;

const HOUR_MS: u64 = 3_600_000;

/// Takes messages, and has the one with this body requeued and delivered again.
fn take_and_retry(broker: &Broker, count: u32, retried: &str) -> Client {
    let mut consumer = broker.consumer("t", "c", count);
    for _ in 0..count {
        let message = consumer.message();
        if message.body == retried.as_bytes() {
            consumer.requeue(&message.id, 0);
        }
    }
    let again = consumer.message();
    assert_eq!((&*again.body, again.attempts), (retried.as_bytes(), 2));
    consumer
}

/// A look at the first 100 messages in flight, deferred and requeued did not find it.
#[test]
fn the_only_retried_message_is_found_behind_hundreds_of_others() {
    let broker = broker_with_channel(&[]);
    let mut producer = broker.client();
    let numbers: Vec<String> = (0..500).map(|number| format!("m {number:03}")).collect();
    producer.publish_many("t", &numbers);
    let _consumer = take_and_retry(&broker, 500, "m 333");
    for _ in 0..300 {
        producer.publish_deferred("t", HOUR_MS, b"later");
    }
    let all_deferred = || {
        let stats = broker.channel_stats("t", "c");
        stats.is_some_and(|it| it["deferred_count"] == 300)
    };
    assert!(wait_until(TIMEOUT, all_deferred));
    let before = state(&broker);
    let of = |rest: &str| peek(&broker, &format!("/channel/peek?topic=t&channel=c&{rest}"));
    let best = of("from=attempts&limit=3");
    assert_eq!(bodies(&best), ["m 333", "m 000", "m 001"]);
    assert_eq!(all(&best, "attempts"), [2, 1, 1]);
    assert_eq!(best["messages"][0]["state"], "in_flight");
    assert_eq!(
        (
            &best["scanned_messages"],
            &best["ended_by"],
            best.get("next")
        ),
        (&json!(800), &json!("end"), None)
    );
    // Only the bodies of messages that may be among the best are copied.
    assert!(best["scanned_bytes"].as_u64().expect("a number") < 300 * 50);
    let found = of("from=attempts&limit=2&contains=m%20499");
    assert_eq!(
        (bodies(&found), all(&found, "attempts")),
        (vec!["m 499"], vec![&json!(1)])
    );
    assert_eq!(state(&broker), before);
}

#[test]
fn the_most_attempts_are_searched_within_the_budget_and_then_from_there_on() {
    let broker = broker_with_channel(&["--max-rdy-count=30000"]);
    let mut producer = broker.client();
    for first in (0..21_000).step_by(1000) {
        let numbers: Vec<String> = (first..first + 1000)
            .map(|number| number.to_string())
            .collect();
        producer.publish_many("t", &numbers);
    }
    let _consumer = take_and_retry(&broker, 21_000, "20500");
    let target = "/channel/peek?topic=t&channel=c&from=attempts&limit=1";
    let first = peek(&broker, target);
    assert_eq!(all(&first, "attempts"), [1]);
    assert_eq!(
        (&first["scanned_messages"], &first["ended_by"]),
        (&json!(20_000), &json!("budget"))
    );
    let next = first["next"].as_str().expect("there is more");
    let second = peek(&broker, &format!("{target}&cursor={next}"));
    assert_eq!(
        (bodies(&second), all(&second, "attempts")),
        (vec!["20500"], vec![&json!(2)])
    );
    assert_eq!(
        (&second["scanned_messages"], &second["ended_by"]),
        (&json!(1000), &json!("end"))
    );
}

/// Bodies of 200 kB: the answer has those with the most attempts, and not the first ones that fit.
#[test]
fn the_most_attempts_win_when_not_all_bodies_fit() {
    let broker = broker_with_channel(&[]);
    let mut producer = broker.client();
    let filling = "x".repeat(200_000);
    for number in 0..40 {
        producer.publish("t", format!("{number:02} {filling}").as_bytes());
    }
    let _consumer = take_and_retry(&broker, 40, &format!("39 {filling}"));
    let target = "/channel/peek?topic=t&channel=c&from=attempts&limit=100&max_body=262144";
    let answer = peek(&broker, target);
    let shown = bodies(&answer);
    // 4 MiB of bodies are shown, and one may exceed them.
    assert_eq!(
        (shown.len(), &shown[0][..2], &shown[1][..2]),
        (21, "39", "00")
    );
    assert_eq!(
        (&answer["ended_by"], answer.get("next")),
        (&json!("end"), None)
    );
}
