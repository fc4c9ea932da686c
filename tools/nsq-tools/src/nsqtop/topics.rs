//! The rows of topics.

use std::collections::BTreeMap;

use super::row::{Cell, Column, Pair, Row, number, oldest, text, worst_latency};
use nsq_doctor::grown;
use nsq_http::{ChannelStats, TopicStats};

pub(super) const COLUMNS: &[Column] = &[
    text("TOPIC", 16),
    number("IN/S"),
    number("B/S"),
    number("DEPTH"),
    number("MSGS"),
    number("CHANS"),
    number("NODES"),
    number("CONNS"),
    number("E2E"),
    number("AGE"),
    text("STATE", 6),
];

pub(super) fn rows(pair: Pair<'_>) -> Vec<Row> {
    let mut topics: BTreeMap<&str, Vec<(&str, &TopicStats)>> = BTreeMap::new();
    for (address, figures) in &pair.after.nodes {
        for topic in &figures.stats.topics {
            let nodes = topics.entry(&topic.topic_name).or_default();
            nodes.push((address, topic));
        }
    }
    let topics = topics.into_iter();
    topics
        .map(|(name, nodes)| row(name, &nodes, pair))
        .collect()
}

fn row(name: &str, nodes: &[(&str, &TopicStats)], pair: Pair<'_>) -> Row {
    let (mut messages, mut bytes) = (0, 0);
    for (address, topic) in nodes {
        let before = pair.node_before(address).and_then(|figures| {
            let mut topics = figures.stats.topics.iter();
            topics.find(|known| known.topic_name == name)
        });
        if let Some(before) = before {
            messages += grown(before.message_count, topic.message_count);
            bytes += grown(before.message_bytes, topic.message_bytes);
        }
    }
    let stats = || nodes.iter().map(|(_, topic)| *topic);
    let sum = |figure: fn(&TopicStats) -> i64| Cell::count(stats().map(figure).sum());
    let mut channels: Vec<&str> = stats()
        .flat_map(|topic| &topic.channels)
        .map(|channel| channel.channel_name.as_str())
        .collect();
    channels.sort_unstable();
    channels.dedup();
    let is_paused = stats().any(|topic| topic.paused);
    let waits = stats().any(|topic| topic.depth > 0);
    let (state, detail) = match (is_paused, channels.is_empty()) {
        (true, _) => ("paused", "Paused: channels get no messages. ".to_owned()),
        (false, true) if waits => (
            "no channel",
            "No channel: messages wait for the first channel. ".to_owned(),
        ),
        _ => ("", String::new()),
    };
    let channel_names = if channels.is_empty() {
        "none".to_owned()
    } else {
        channels.join(", ")
    };
    let addresses: Vec<&str> = nodes.iter().map(|(address, _)| *address).collect();
    Row {
        key: name.to_owned(),
        cells: vec![
            Cell::text(name),
            Cell::Number(pair.rate(messages)),
            Cell::Number(pair.rate(bytes)),
            sum(|topic| topic.depth),
            sum(|topic| topic.message_count),
            Cell::count(channels.len() as i64),
            Cell::count(nodes.len() as i64),
            sum(|topic| topic.channels.iter().map(ChannelStats::count_clients).sum()),
            Cell::Seconds(worst_latency(
                stats().map(|topic| &topic.e2e_processing_latency),
            )),
            Cell::Seconds(oldest(stats().flat_map(ages))),
            Cell::text(state),
        ],
        detail: format!(
            "{detail}Channels: {channel_names}. Nodes: {}",
            addresses.join(", ")
        ),
        is_problem: !state.is_empty(),
    }
}

/// Returns the ages of the oldest messages of a topic and its channels.
fn ages(topic: &TopicStats) -> impl Iterator<Item = Option<i64>> {
    let channels = topic
        .channels
        .iter()
        .map(|channel| channel.oldest_unfinished_ms);
    channels.chain([topic.oldest_unfinished_ms])
}
