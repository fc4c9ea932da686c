//! The rows of shards: the topics of one core of a node.

use std::collections::BTreeMap;

use super::row::{Cell, Column, Pair, Row, number, text};
use nsq_doctor::short;
use nsq_http::{ChannelStats, TopicStats};

pub(super) const COLUMNS: &[Column] = &[
    text("NODE", 14),
    number("SHARD"),
    number("TOPICS"),
    number("IN/S"),
    number("B/S"),
    number("DEPTH"),
    number("INFLT"),
    number("DEFER"),
    number("CONNS"),
    text("BUSIEST TOPIC", 13),
];

pub(super) fn rows(pair: Pair<'_>) -> Vec<Row> {
    let mut shards: BTreeMap<(&str, u64), Vec<&TopicStats>> = BTreeMap::new();
    for (address, figures) in &pair.after.nodes {
        for topic in &figures.stats.topics {
            if let Some(shard) = topic.shard {
                shards.entry((&**address, shard)).or_default().push(topic);
            }
        }
    }
    let shards = shards.into_iter();
    shards
        .map(|((address, shard), topics)| row(address, shard, &topics, pair))
        .collect()
}

fn row(address: &str, shard: u64, topics: &[&TopicStats], pair: Pair<'_>) -> Row {
    let (mut messages, mut bytes) = (0, 0);
    let mut busiest: Option<(i64, &str)> = None;
    for topic in topics {
        let (more_messages, more_bytes) = pair.arrived(address, topic);
        messages += more_messages;
        bytes += more_bytes;
        if busiest.is_none_or(|(most, _)| more_messages > most) {
            busiest = Some((more_messages, &topic.topic_name));
        }
    }
    let channels = || topics.iter().flat_map(|topic| &topic.channels);
    let sum = |figure: fn(&ChannelStats) -> i64| channels().map(figure).sum::<i64>();
    let in_topics: i64 = topics.iter().map(|topic| topic.depth).sum();
    let busiest = busiest.filter(|(most, _)| *most > 0);
    let name = busiest.map_or("", |(_, name)| name);
    let detail = match (busiest, pair.rate(1)) {
        (Some((most, name)), Some(per_message)) => format!(
            "Shard {shard} of {address}: {name} has {}/s of the {}/s that arrive",
            short(most as f64 * per_message),
            short(messages as f64 * per_message)
        ),
        _ => format!("Shard {shard} of {address}: nothing arrives"),
    };
    Row {
        key: format!("{address} {shard:>6}"),
        cells: vec![
            Cell::text(address),
            Cell::Number(Some(shard as f64)),
            Cell::count(topics.len() as i64),
            Cell::Number(pair.rate(messages)),
            Cell::Number(pair.rate(bytes)),
            Cell::count(in_topics + sum(|channel| channel.depth)),
            Cell::count(sum(|channel| channel.in_flight_count)),
            Cell::count(sum(|channel| channel.deferred_count)),
            Cell::count(sum(ChannelStats::count_clients)),
            Cell::text(name),
        ],
        detail: detail.replace(char::is_control, "?"),
        is_problem: false,
    }
}
