//! Programs that find brokers by nsqlookupd: nsqadmin, nsq_stat and the tools of NSQ itself.

use serde::Deserialize;

use super::{GO, Poller, Scene};
use crate::ringq_lookupd::Lookupd;
use crate::support::{Broker, TIMEOUT, http, wait_until};

const BROADCAST: &str = "--broadcast-address=127.0.0.1";
const ACCEPT_V1: [&str; 3] = [GO[0], "Accept: application/vnd.nsq; version=1.0", GO[1]];

/// An entry of `/lookup` and `/nodes`. nsqadmin ends itself if a topic has no element of `tombstones`.
#[derive(Deserialize)]
struct Producer {
    remote_address: String,
    hostname: String,
    broadcast_address: String,
    tcp_port: u16,
    http_port: u16,
    version: String,
    #[serde(default)]
    topics: Vec<String>,
    #[serde(default)]
    tombstones: Vec<bool>,
}

#[derive(Deserialize)]
struct Producers {
    producers: Vec<Producer>,
}

#[derive(Deserialize)]
struct Topics {
    topics: Vec<String>,
}

#[derive(Deserialize)]
struct Channels {
    channels: Vec<String>,
}

/// A scene whose broker is registered, also with the topics of its clients.
fn registered_scene(lookupd: &Lookupd) -> Scene {
    let scene = Scene::start(&[&lookupd.flag(), BROADCAST]);
    wait_for_channel(lookupd, "returns", "refunds");
    scene
}

fn wait_for_channel(lookupd: &Lookupd, topic: &str, channel: &str) {
    let target = format!("/channels?topic={topic}");
    let is_registered = wait_until(TIMEOUT, || {
        let answer = http(lookupd.server.http_address(), "GET", &target, b"");
        answer.text().contains(channel)
    });
    assert!(is_registered, "the broker has not registered {topic}");
}

fn expect_broker(producer: &Producer, broker: &Broker) {
    assert_eq!(producer.broadcast_address, "127.0.0.1");
    assert_eq!(producer.tcp_port, broker.tcp_addr().port());
    assert_eq!(producer.http_port, broker.http_addr().port());
    assert_eq!(producer.version, "1.3.0");
    assert!(!producer.hostname.is_empty());
    assert!(producer.remote_address.starts_with("127.0.0.1:"));
}

#[test]
fn nsqadmin_and_the_tools_find_topics_channels_and_brokers() {
    let lookupd = Lookupd::local(&[]);
    let scene = registered_scene(&lookupd);
    let mut nsqadmin = Poller::connect_to(lookupd.server.http_address(), &ACCEPT_V1);

    let found: Topics = nsqadmin.decode("/topics");
    assert_eq!(found.topics, ["live#ephemeral", "orders", "returns"]);
    let found: Channels = nsqadmin.decode("/channels?topic=orders");
    assert_eq!(found.channels, ["audit", "billing"]);
    let found: Channels = nsqadmin.decode("/channels?topic=unknown");
    assert_eq!(found.channels, [""; 0]);

    // nsq_stat, nsq_to_file, nsq_tail and the others ask for a topic.
    let found: Producers = nsqadmin.decode("/lookup?topic=orders");
    let [producer] = &found.producers[..] else {
        panic!("{} producers", found.producers.len());
    };
    expect_broker(producer, &scene.broker);
    let answer = nsqadmin.ask("/lookup?topic=unknown");
    assert_eq!(answer.text(), r#"{"message":"TOPIC_NOT_FOUND"}"#);
    assert_eq!(answer.status, 404);
    // Client libraries take an answer without this header for one of NSQ before 1.0.
    let marker = answer.header("x-nsq-content-type");
    assert_eq!(marker, Some("nsq; version=1.0"));

    // nsqadmin takes a topic off a broker with a tombstone, and then deletes the topic there.
    let mut tombstones = Vec::new();
    let node = format!("127.0.0.1:{}", scene.broker.http_addr().port());
    let target = format!("/topic/tombstone?topic=returns&node={node}");
    http(lookupd.server.http_address(), "POST", &target, b"").expect_status(200);
    let found: Producers = nsqadmin.decode("/nodes");
    for producer in &found.producers {
        expect_broker(producer, &scene.broker);
        let pairs = producer.topics.iter().zip(&producer.tombstones);
        tombstones.extend(pairs.map(|(topic, is_set)| (topic.as_str(), *is_set)));
    }
    tombstones.sort_unstable();
    let expected = [
        ("live#ephemeral", false),
        ("orders", false),
        ("returns", true),
    ];
    assert_eq!(tombstones, expected);
    let found: Producers = nsqadmin.decode("/lookup?topic=returns");
    assert!(found.producers.is_empty());
}
