//! KEDA's scaler takes the depth of a channel that is not paused. It takes the depth of the topic
//! if the topic lacks the channel, and nothing if the broker lacks the topic.

use serde::Deserialize;

use super::{GO, Poller, Scene};

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
fn keda_scales_by_depth() {
    let scene = Scene::start(&[]);
    let headers = [GO[0], "Accept: application/json; charset=utf-8", GO[1]];
    let mut keda = Poller::connect(&scene.broker, &headers);
    assert_eq!(depth(&mut keda, "orders", "billing"), 4);
    assert_eq!(depth(&mut keda, "orders", "audit"), 0, "it is paused");
    assert_eq!(depth(&mut keda, "orders", "none"), 0, "the topic is empty");
    assert_eq!(depth(&mut keda, "live#ephemeral", "any"), 2);
    assert_eq!(depth(&mut keda, "returns", "refunds"), 1);
    assert_eq!(depth(&mut keda, "unknown", "any"), 0);
    let resumed = "/channel/unpause?topic=orders&channel=audit";
    scene.broker.post(resumed, b"").expect_status(200);
    assert_eq!(depth(&mut keda, "orders", "audit"), 9);
}
