//! Peeks of a broker, and what they are compared with.

use super::{Broker, Client, TIMEOUT, wait_until};
use serde_json::Value;

/// Returns the answer to a peek.
pub fn peek(broker: &Broker, target: &str) -> Value {
    broker.get(target).expect_status(200).json()
}

/// Returns a field of each message.
pub fn all<'a>(answer: &'a Value, field: &str) -> Vec<&'a Value> {
    let messages = answer["messages"].as_array().expect("messages");
    messages.iter().map(|message| &message[field]).collect()
}

/// Returns the bodies, which are texts.
pub fn bodies(answer: &Value) -> Vec<&str> {
    let bodies = all(answer, "body").into_iter();
    bodies.map(|body| body.as_str().expect("a text")).collect()
}

/// A broker with the topic `t` and the channel `c`.
pub fn broker_with_channel(args: &[&str]) -> Broker {
    let broker = Broker::start(1, args);
    broker.create("t", "c");
    broker
}

/// The statistics without what changes by itself.
pub fn state(broker: &Broker) -> Value {
    let mut stats = broker.stats();
    for topic in stats["topics"].as_array_mut().expect("topics") {
        topic["oldest_unfinished_ms"].take();
        for channel in topic["channels"].as_array_mut().expect("channels") {
            channel["oldest_unfinished_ms"].take();
        }
    }
    stats
}

/// Makes a backlog beyond memory: a topic keeps some MiB of it there.
pub fn with_cold_messages(broker: &Broker, count: u32) {
    broker.create("t", "c");
    let mut producer = broker.client();
    let filling = "x".repeat(900_000);
    for number in 0..count {
        producer.publish("t", format!("{number:04} {filling}").as_bytes());
    }
    drop(producer);
    // The broker notices the end of the producer's connection some time later.
    let is_ready = || cold_segments(broker) > 0 && broker.stats()["producers"].is_null();
    assert!(wait_until(TIMEOUT, is_ready), "{}", broker.log());
}

/// Returns the number of segments that are on disk and not in memory.
pub fn cold_segments(broker: &Broker) -> u32 {
    let metrics = broker.get("/metrics?topic=t").expect_status(200).text();
    let mut lines = metrics.lines();
    let line = lines.find(|line| line.starts_with("nsqd_topic_cold_segments{"));
    let value = line.and_then(|line| line.rsplit(' ').next());
    value
        .and_then(|value| value.parse().ok())
        .expect("the metric is there")
}
