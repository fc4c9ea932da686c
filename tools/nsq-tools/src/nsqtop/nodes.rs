//! The rows of nodes.

use super::row::{Cell, Column, Pair, Row, number, text};
use super::sample::{NodeFigures, problem};
use crate::cluster::Failure;
use nsq_doctor::duration;
use nsq_http::ChannelStats;

pub(super) const COLUMNS: &[Column] = &[
    text("NODE", 14),
    text("VERSION", 7),
    number("SHARDS"),
    number("IN/S"),
    number("B/S"),
    number("DEPTH"),
    number("INFLT"),
    number("CONNS"),
    number("TOPICS"),
    number("UP"),
    text("HEALTH", 6),
];

pub(super) fn rows(pair: Pair<'_>) -> Vec<Row> {
    let nodes = pair.after.nodes.iter();
    let failures = pair.after.failures.iter();
    nodes
        .map(|(address, figures)| row(address, figures, pair))
        .chain(failures.map(row_without_figures))
        .collect()
}

/// Returns the row of a node that does not answer.
fn row_without_figures(failure: &Failure) -> Row {
    let cells = COLUMNS.iter().map(|column| match column.title {
        "NODE" => Cell::text(&failure.address),
        "HEALTH" => Cell::text("away"),
        _ if column.is_text => Cell::text("-"),
        _ => Cell::Number(None),
    });
    Row {
        key: failure.address.clone(),
        cells: cells.collect(),
        detail: problem(failure).replace(char::is_control, "?"),
        is_problem: true,
    }
}

fn row(address: &str, figures: &NodeFigures, pair: Pair<'_>) -> Row {
    let stats = &figures.stats;
    let (mut messages, mut bytes) = (0, 0);
    for topic in &stats.topics {
        let (more_messages, more_bytes) = pair.arrived(address, topic);
        messages += more_messages;
        bytes += more_bytes;
    }
    let channels = || stats.topics.iter().flat_map(|topic| &topic.channels);
    let sum = |figure: fn(&ChannelStats) -> i64| channels().map(figure).sum::<i64>();
    let in_topics: i64 = stats.topics.iter().map(|topic| topic.depth).sum();
    let up = (pair.after.unix_seconds - stats.start_time).max(0) as f64;
    let connections = sum(ChannelStats::count_clients) + stats.producers.len() as i64;
    let is_healthy = stats.health == "OK";
    // The value of `--shards`: 0 stands for as many shards as the node has cores.
    let shards = figures.shards.filter(|shards| *shards > 0);
    let shard_text = match figures.shards {
        Some(0) => "a shard for each core".to_owned(),
        Some(1) => "1 shard".to_owned(),
        Some(count) => format!("{count} shards"),
        None => "no shards: not ringq's nsqd".to_owned(),
    };
    let detail = format!(
        "{address}: nsqd {}, {shard_text}, {} channels, up for {}, health: {}",
        stats.version,
        channels().count(),
        duration(up),
        stats.health
    );
    Row {
        key: address.to_owned(),
        cells: vec![
            Cell::text(address),
            Cell::text(&stats.version),
            Cell::Number(shards.map(|shards| shards as f64)),
            Cell::Number(pair.rate(messages)),
            Cell::Number(pair.rate(bytes)),
            Cell::count(in_topics + sum(|channel| channel.depth)),
            Cell::count(sum(|channel| channel.in_flight_count)),
            Cell::count(connections),
            Cell::count(stats.topics.len() as i64),
            Cell::Seconds(Some(up)),
            Cell::text(&stats.health),
        ],
        detail: detail.replace(char::is_control, "?"),
        is_problem: !is_healthy,
    }
}
