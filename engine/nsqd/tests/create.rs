//! `--create`: topics and channels that always exist.

use std::fs;

use crate::support::{Broker, TIMEOUT, wait_until};

fn channels(broker: &Broker, topic: &str) -> Vec<String> {
    let stats = broker.topic(topic);
    let channels = stats["channels"].as_array().expect("a list").clone();
    let names = channels.iter().map(|it| it["channel_name"].as_str());
    names.map(|name| name.expect("text").to_owned()).collect()
}

#[test]
fn what_is_listed_exists_from_the_start_on() {
    let flags = [
        "--create=orders/billing",
        "--create=audit",
        "--create=orders/archive",
    ];
    // Topics of all shards.
    let more: Vec<String> = (0..8).map(|n| format!("--create=t{n}/c")).collect();
    let args: Vec<&str> = flags
        .into_iter()
        .chain(more.iter().map(|it| &**it))
        .collect();
    let mut broker = Broker::start(2, &args);
    assert_eq!(channels(&broker, "orders"), ["archive", "billing"]);
    assert_eq!(channels(&broker, "audit"), [] as [&str; 0]);
    for n in 0..8 {
        assert_eq!(channels(&broker, &format!("t{n}")), ["c"]);
    }
    broker.wait_for_log("INFO: TOPIC(audit): made what --create lists");
    let mut producer = broker.client();
    producer.publish("orders", b"x");
    let depth = |broker: &Broker| broker.channel("orders", "billing")["depth"].clone();
    assert_eq!(depth(&broker), 1);
    // A restart finds them, and makes nothing.
    broker.kill9();
    broker.restart();
    assert_eq!(channels(&broker, "orders"), ["archive", "billing"]);
    assert_eq!(depth(&broker), 1);
    assert!(!broker.log().contains("--create"), "{}", broker.log());
}

#[test]
fn what_is_listed_is_made_again_after_its_deletion() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("nsqd.toml");
    fs::write(&file, "create = [\"orders/billing\", \"audit\"]\n").expect("a file");
    let mut broker = Broker::start(2, &[&format!("--config={}", file.display())]);
    let mut producer = broker.client();
    let depth = || broker.channel("orders", "billing")["depth"].clone();
    for path in [
        "/channel/delete?topic=orders&channel=billing",
        "/topic/delete?topic=orders",
    ] {
        producer.publish("orders", b"x");
        let mut consumer = broker.subscribe("orders", "billing");
        assert_eq!(depth(), 1);
        broker.admin(path);
        consumer.expect_close();
        assert_eq!(depth(), 0, "{path}");
        producer.publish("orders", b"y");
        assert_eq!(depth(), 1, "{path}");
        let path = "/channel/empty?topic=orders&channel=billing";
        broker.admin(path);
    }
    let line = "TOPIC(orders): made what --create lists";
    let made = || broker.log().matches(line).count();
    wait_until(TIMEOUT, || made() >= 3);
    assert_eq!(made(), 3);
    broker.admin("/channel/create?topic=orders&channel=other");
    broker.admin("/channel/delete?topic=orders&channel=other");
    assert_eq!(channels(&broker, "orders"), ["billing"]);
    // The deletion of a topic survives a crash, and so does its successor.
    producer.publish("orders", b"z");
    broker.kill9();
    broker.restart();
    let stats = broker.channel("orders", "billing");
    assert_eq!(stats["depth"], 1);
}
