//! `--unclaimed-messages`: what happens to the messages of topics without channels.

use crate::support::{Broker, TIMEOUT, wait_until};

fn depth(broker: &Broker, topic: &str) -> u64 {
    let stats = broker.topic(topic);
    stats["depth"].as_u64().expect("a number")
}

fn dropped(broker: &Broker, topic: &str) -> Option<u64> {
    let stats = broker.topic(topic);
    stats.get("unclaimed_dropped_count")?.as_u64()
}

#[test]
fn topics_without_channels_have_bounds_by_their_names() {
    let bodies: Vec<[u8; 50]> = (0..1000).map(|n| [n as u8; 50]).collect();
    let mut broker = Broker::start(
        2,
        &[
            "--unclaimed-messages=metrics.keep=keep",
            "--unclaimed-messages=metrics.*=drop",
            "--unclaimed-messages=logs.*=bytes:10000",
            "--unclaimed-messages=*.old=age:1s",
        ],
    );
    let mut producer = broker.client();
    for topic in ["metrics.keep", "metrics.cpu", "logs.a", "web.old", "orders"] {
        for part in bodies.chunks(100) {
            producer.publish_many(topic, part);
        }
    }
    for topic in ["metrics.keep", "orders"] {
        assert_eq!(
            (depth(&broker, topic), dropped(&broker, topic)),
            (1000, None)
        );
    }
    assert_eq!(depth(&broker, "metrics.cpu"), 0);
    assert_eq!(dropped(&broker, "metrics.cpu"), Some(1000));
    // 50 bytes of header and slot, and 50 bytes of body.
    let kept = depth(&broker, "logs.a");
    assert!((90..=100).contains(&kept), "{kept}");
    assert_eq!(dropped(&broker, "logs.a"), Some(1000 - kept));
    assert!(wait_until(TIMEOUT, || depth(&broker, "web.old") == 0));
    broker.wait_for_log(
        "WARNING: TOPIC(logs.a): messages that no channel owns are dropped (--unclaimed-messages)",
    );

    broker.sigterm_and_wait();
    broker.restart();
    assert_eq!(depth(&broker, "logs.a"), kept);
    assert_eq!(depth(&broker, "orders"), 1000);
    // The first channel gets the newest messages, and loses none from then on.
    let mut consumer = broker.subscribe("logs.a", "ch");
    broker.client().publish_many("logs.a", &bodies);
    consumer.ready(100);
    for expected in bodies[1000 - kept as usize..].iter().chain(&bodies) {
        let message = consumer.message();
        assert_eq!(message.body, expected);
        consumer.finish(&message.id);
    }
    assert_eq!(dropped(&broker, "logs.a"), None);
}
