//! KEDA's scaler takes the depth of a channel that is not paused. It takes the depth of the topic
//! if the topic lacks the channel, and nothing if the broker lacks the topic. It finds the brokers
//! of a topic by all nsqlookupds, and takes the sum of their depths.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde::Deserialize;

use super::{GO, Poller, Scene};
use crate::ringq_lookupd::Lookupd;
use crate::support::{Broker, TIMEOUT, wait_until};

/// The headers of a question to nsqlookupd, in Go's order.
const ACCEPT_JSON: [&str; 3] = [GO[0], "Accept: application/json; charset=utf-8", GO[1]];

#[derive(Deserialize)]
struct Found {
    producers: Vec<Producer>,
}

#[derive(Deserialize)]
struct Producer {
    http_port: u16,
    broadcast_address: String,
}

#[derive(Deserialize)]
struct Stats {
    topics: Option<Vec<Topic>>,
}

#[derive(Deserialize)]
struct Topic {
    topic_name: String,
    depth: i64,
    channels: Vec<Channel>,
}

#[derive(Deserialize)]
struct Channel {
    channel_name: String,
    depth: i64,
    paused: bool,
}

fn depth(keda: &mut Poller, topic: &str, channel: &str) -> i64 {
    let topic_query = topic.replace('#', "%23");
    let stats: Stats = keda.decode(&format!(
        "/stats?format=json&include_clients=false&include_mem=false&topic={topic_query}"
    ));
    let mut depth = 0;
    for found in stats.topics.unwrap_or_default() {
        assert_eq!(found.topic_name, topic, "only the topic asked for");
        let mut channels = found.channels.iter();
        depth += match channels.find(|found| found.channel_name == channel) {
            None => found.depth,
            Some(channel) if channel.paused => 0,
            Some(channel) => channel.depth,
        };
    }
    depth
}

#[test]
fn keda_scales_by_the_depth_of_a_broker() {
    let scene = Scene::start(&[]);
    let mut keda = Poller::connect(&scene.broker, &GO);
    assert_eq!(depth(&mut keda, "orders", "billing"), 4);
    assert_eq!(depth(&mut keda, "orders", "audit"), 0, "it is paused");
    assert_eq!(depth(&mut keda, "orders", "none"), 0, "the topic is empty");
    assert_eq!(depth(&mut keda, "live#ephemeral", "any"), 2);
    assert_eq!(depth(&mut keda, "returns", "refunds"), 1);
    assert_eq!(depth(&mut keda, "unknown", "any"), 0);
    let resumed = "/channel/unpause?topic=orders&channel=audit";
    scene.broker.admin(resumed);
    assert_eq!(depth(&mut keda, "orders", "audit"), 9);
}

/// Returns the HTTP addresses of the brokers that have a topic. An nsqlookupd that does not know the topic says so with
/// 404, and any other answer than 200 is an error.
fn brokers(lookupds: &[&Lookupd], topic: &str) -> BTreeSet<SocketAddr> {
    let mut brokers = BTreeSet::new();
    for lookupd in lookupds {
        let mut keda = Poller::connect_to(lookupd.server.http_address(), &ACCEPT_JSON);
        let answer = keda.ask(&format!("/lookup?topic={}", topic.replace('#', "%23")));
        if answer.status == 404 {
            continue;
        }
        let answer = answer.expect_status(200);
        let found: Found = serde_json::from_slice(&answer.body).expect("an answer of nsqlookupd");
        let producers = found.producers.iter();
        let address = |producer: &Producer| {
            let text = format!("{}:{}", producer.broadcast_address, producer.http_port);
            text.parse::<SocketAddr>().expect("an IP address")
        };
        brokers.extend(producers.map(address));
    }
    brokers
}

/// Returns the sum over all brokers.
fn depth_of_all(lookupds: &[&Lookupd], topic: &str, channel: &str) -> i64 {
    let brokers = brokers(lookupds, topic);
    let depths = brokers.iter().map(|address| {
        let mut keda = Poller::connect_to(*address, &GO);
        depth(&mut keda, topic, channel)
    });
    depths.sum()
}

#[test]
fn keda_scales_by_the_depth_of_all_brokers_that_nsqlookupds_name() {
    let lookupds = [0; 2].map(|_| Lookupd::local(&[]));
    let flags = lookupds.each_ref().map(Lookupd::flag);
    let [first, second] = &lookupds;
    // Only the second nsqlookupd knows the other broker.
    let other = Broker::start(1, &[&flags[1], "--broadcast-address=127.0.0.1"]);
    let scene = Scene::start(&[&flags[0], &flags[1], "--broadcast-address=127.0.0.1"]);
    for target in [
        "/channel/create?topic=orders&channel=billing",
        "/channel/create?topic=parcels&channel=labels",
    ] {
        other.post(&target.replace("channel/create", "topic/create"), b"");
        other.admin(target);
    }
    other
        .post("/mpub?topic=orders", b"1\n2\n3")
        .expect_status(200);
    other.post("/pub?topic=parcels", b"1").expect_status(200);
    let both = [scene.broker.http_addr(), other.http_addr()];
    let are_found = wait_until(TIMEOUT, || {
        brokers(&[first, second], "orders") == BTreeSet::from(both)
            && brokers(&[first], "orders").contains(&both[0])
            && !brokers(&[second], "live#ephemeral").is_empty()
            && !brokers(&[second], "parcels").is_empty()
    });
    assert!(are_found, "{:?}", brokers(&[first, second], "orders"));

    let all = [first, second];
    assert_eq!(depth_of_all(&all, "orders", "billing"), 4 + 3);
    assert_eq!(depth_of_all(&[first], "orders", "billing"), 4);
    assert_eq!(depth_of_all(&all, "orders", "audit"), 3, "paused, missing");
    assert_eq!(depth_of_all(&all, "live#ephemeral", "any"), 2);
    assert_eq!(depth_of_all(&all, "unknown", "any"), 0);
    // The first nsqlookupd answers 404, and the second one counts.
    assert_eq!(brokers(&[first], "parcels"), BTreeSet::new());
    assert_eq!(depth_of_all(&all, "parcels", "labels"), 1);
    // A topic that lost its brokers is known, and has the depth 0.
    drop(other);
    assert!(wait_until(TIMEOUT, || brokers(&all, "parcels").is_empty()));
    let mut keda = Poller::connect_to(second.server.http_address(), &ACCEPT_JSON);
    let found: Found = keda.decode("/lookup?topic=parcels");
    assert!(found.producers.is_empty());
    assert_eq!(depth_of_all(&all, "parcels", "labels"), 0);
}
