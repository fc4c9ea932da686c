//! The rows of connections: consumers, and producers that have published.

use std::collections::BTreeMap;

use super::row::{Cell, Column, Pair, Row, number, text};
use super::sample::{NodeFigures, Sample};
use nsq_doctor::{duration, grown};
use nsq_http::ClientStats;

pub(super) const COLUMNS: &[Column] = &[
    text("CLIENT", 12),
    text("ADDRESS", 15),
    text("READS, WRITES", 14),
    number("RDY"),
    number("INFLT"),
    number("MSG/S"),
    number("FIN/S"),
    number("REQ/S"),
    number("SINCE"),
];

/// One connection as a consumer of a channel, or as a producer.
struct Connection<'a> {
    client: &'a ClientStats,
    /// `topic/channel` of a consumer, `>topic` of a producer.
    does: String,
    /// Messages sent to a consumer, or published by a producer.
    messages: i64,
}

pub(super) fn rows(pair: Pair<'_>) -> Vec<Row> {
    let before = pair.before.map(connections).unwrap_or_default();
    let after = connections(pair.after);
    let rows = after.iter();
    rows.map(|(key, now)| row(key, before.get(key), now, pair))
        .collect()
}

/// Returns the connections of all nodes, each with a key.
fn connections(sample: &Sample) -> BTreeMap<String, Connection<'_>> {
    let mut connections = BTreeMap::new();
    for (address, figures) in &sample.nodes {
        for connection in connections_of(figures) {
            let client = connection.client;
            let key = format!("{} {} {address}", connection.does, client.remote_address);
            connections.insert(key, connection);
        }
    }
    connections
}

fn connections_of(figures: &NodeFigures) -> impl Iterator<Item = Connection<'_>> {
    let topics = figures.stats.topics.iter();
    let consumers = topics.flat_map(|topic| {
        topic.channels.iter().flat_map(|channel| {
            channel.clients.iter().flatten().map(|client| Connection {
                client,
                does: format!("{}/{}", topic.topic_name, channel.channel_name),
                messages: client.message_count,
            })
        })
    });
    let producers = figures.stats.producers.iter().flat_map(|client| {
        client.pub_counts.iter().map(move |count| Connection {
            client,
            does: format!(">{}", count.topic),
            messages: count.count,
        })
    });
    consumers.chain(producers)
}

fn row(key: &str, before: Option<&Connection<'_>>, now: &Connection<'_>, pair: Pair<'_>) -> Row {
    let client = now.client;
    let rate = |earlier: Option<i64>, later: i64| {
        // All messages of a new connection belong to this time.
        let count = grown(earlier.unwrap_or(0), later);
        Cell::Number(pair.rate(count))
    };
    let earlier = |figure: fn(&ClientStats) -> i64| before.map(|before| figure(before.client));
    let is_consumer = !now.does.starts_with('>');
    let connected = (pair.after.unix_seconds - client.connect_ts).max(0) as f64;
    let of_consumer = |cell: Cell| {
        if is_consumer {
            cell
        } else {
            Cell::Number(None)
        }
    };
    let node = key.rsplit(' ').next().unwrap_or_default();
    let encryption = if client.tls { ", TLS" } else { "" };
    // A client need not say what it is called, and where it runs.
    let named = |before: &str, name: &str| match name {
        "" => String::new(),
        name => format!("{before}{name}"),
    };
    let detail = format!(
        "{}{} at {node}{}{encryption}, connected for {}",
        client.client_id,
        named(" on ", &client.hostname),
        named(", ", &client.user_agent),
        duration(connected)
    );
    Row {
        key: key.to_owned(),
        cells: vec![
            Cell::text(&client.client_id),
            Cell::text(&client.remote_address),
            Cell::text(&now.does),
            of_consumer(Cell::count(client.ready_count)),
            of_consumer(Cell::count(client.in_flight_count)),
            rate(before.map(|before| before.messages), now.messages),
            of_consumer(rate(earlier(|c| c.finish_count), client.finish_count)),
            of_consumer(rate(earlier(|c| c.requeue_count), client.requeue_count)),
            Cell::Seconds(Some(connected)),
        ],
        detail: detail.replace(char::is_control, "?"),
        is_problem: is_consumer && client.ready_count == 0,
    }
}
