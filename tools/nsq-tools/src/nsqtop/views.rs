//! [`View`]: the kinds of things that are shown, each with its columns, and the rows that two samples make.

use std::collections::BTreeMap;

use nsq_doctor::{ChannelSample, Flow, NodeSample, diagnose, duration, grown, short, uptime};
use nsq_http::{ChannelStats, ClientStats, TopicStats};

use super::sample::{NodeFigures, Sample, problem};
use super::table::{
    Cell, Column, Filter, Pair, Row, Sort, Table, number, oldest, text, worst_latency,
};
use crate::cluster::Failure;

/// The names of the views, in the order of [`VIEWS`].
pub(super) const NAMES: &[&str] = &["channels", "topics", "clients", "nodes", "shards"];

/// The kind of things that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// A row for each channel.
    Channels,
    /// A row for each topic.
    Topics,
    /// A row for each connection.
    Clients,
    /// A row for each nsqd.
    Nodes,
    /// A row for each shard that has a topic.
    Shards,
}

/// All views, in the order of their keys and of the enum.
pub(super) const VIEWS: [View; 5] = [
    View::Channels,
    View::Topics,
    View::Clients,
    View::Nodes,
    View::Shards,
];

type MakeRows = fn(Pair<'_>) -> Vec<Row>;

impl View {
    /// Returns the view of a name in `--view`.
    pub(super) fn of_name(name: &str) -> View {
        let place = NAMES.iter().position(|known| *known == name);
        VIEWS[place.expect("the table of flags accepts no other name")]
    }

    /// Returns the name.
    pub(super) fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// Returns the columns, the one that sorts the rows before the user chooses, and the function that makes the rows.
    fn parts(self) -> (&'static [Column], &'static str, MakeRows) {
        match self {
            View::Channels => (CHANNEL_COLUMNS, "DEPTH", channel_rows),
            View::Topics => (TOPIC_COLUMNS, "IN/S", topic_rows),
            View::Clients => (CLIENT_COLUMNS, "INFLT", client_rows),
            View::Nodes => (NODE_COLUMNS, "NODE", node_rows),
            View::Shards => (SHARD_COLUMNS, "IN/S", shard_rows),
        }
    }

    /// Returns the columns.
    pub(super) fn columns(self) -> &'static [Column] {
        self.parts().0
    }

    /// Returns the order before the user chooses one.
    pub(super) fn usual_sort(self) -> Sort {
        let (_, title, _) = self.parts();
        let sort = self.sort_by_name(title);
        sort.expect("the view has this column")
    }

    /// Returns the order by the column with this heading, in any case. A minus in front reverses the
    /// order.
    ///
    /// # Errors
    /// There is no such column. The error is the reason for the user.
    pub(super) fn sort_by_name(self, name: &str) -> Result<Sort, String> {
        let (title, is_reversed) = match name.strip_prefix('-') {
            Some(rest) => (rest, true),
            None => (name, false),
        };
        let columns = self.columns();
        let column = columns
            .iter()
            .position(|column| column.title.eq_ignore_ascii_case(title));
        let column = column.ok_or_else(|| {
            let titles: Vec<String> = columns.iter().map(|c| c.title.to_lowercase()).collect();
            let titles = titles.join(", ");
            format!(
                "--sort: the view {} has no column {title:?}; its columns are {titles}",
                self.name()
            )
        })?;
        Ok(Sort {
            column,
            is_reversed,
        })
    }

    /// Returns what two samples show, in the rows that `filter` chooses.
    pub(super) fn table(self, pair: Pair<'_>, filter: &Filter, sort: Sort) -> Table {
        let (columns, _, rows) = self.parts();
        Table::new(columns, rows(pair), filter, sort)
    }
}

const CHANNEL_COLUMNS: &[Column] = &[
    text("CHANNEL", 14),
    number("IN/S"),
    number("OUT/S"),
    number("DEPTH"),
    number("INFLT"),
    number("DEFER"),
    number("REQ/S"),
    number("E2E"),
    number("AGE"),
    number("CONNS"),
    text("DOCTOR", 11),
];

/// One channel: the figures of each node, and what the doctor needs of them.
#[derive(Default)]
struct Channel<'a> {
    stats: Vec<&'a ChannelStats>,
    sample: ChannelSample,
}

/// The channels of a sample by topic and channel.
type Channels<'a> = BTreeMap<(&'a str, &'a str), Channel<'a>>;

fn channel_rows(pair: Pair<'_>) -> Vec<Row> {
    let before = pair.before.map(channels_of).unwrap_or_default();
    let nothing = ChannelSample::default();
    channels_of(pair.after)
        .iter()
        .map(|(name, after)| {
            let before = before.get(name).map(|channel| &channel.sample);
            channel_row(*name, before.unwrap_or(&nothing), after, pair)
        })
        .collect()
}

fn channels_of(sample: &Sample) -> Channels<'_> {
    let now = sample.unix_seconds.saturating_mul(1000);
    let mut channels = Channels::new();
    let mut dead_letters = BTreeMap::new();
    for (address, figures) in &sample.nodes {
        for topic in &figures.stats.topics {
            for stats in &topic.channels {
                let name = (topic.topic_name.as_str(), stats.channel_name.as_str());
                let channel = channels.entry(name).or_default();
                dead_letters
                    .entry(stats.dead_letter_topic.as_str())
                    .or_insert_with(|| format!("{}/{}", name.0, name.1));
                let nodes = &mut channel.sample.nodes;
                let mut node = NodeSample::of(topic, stats, now);
                node.uptime = uptime(figures.stats.start_time, sample.unix_seconds);
                nodes.insert(address.clone(), node);
                channel.stats.push(stats);
            }
        }
    }
    for ((topic, _), channel) in &mut channels {
        channel.sample.dead_letters_of = dead_letters.get(topic).cloned();
    }
    channels
}

fn channel_row(
    (topic, channel): (&str, &str),
    before: &ChannelSample,
    after: &Channel<'_>,
    pair: Pair<'_>,
) -> Row {
    let elapsed = pair.elapsed();
    let flow = Flow::between(before, &after.sample, elapsed);
    let rate = |rate: f64| Cell::Number((!elapsed.is_zero()).then_some(rate));
    let stats = || after.stats.iter();
    let (sentence, is_problem) = if elapsed.is_zero() {
        ("waiting for a second sample".to_owned(), false)
    } else {
        let diagnosis = diagnose(before, &after.sample, elapsed);
        (diagnosis.to_string(), diagnosis.is_problem())
    };
    let name = format!("{topic}/{channel}");
    let sum =
        |figure: fn(&ChannelStats) -> i64| Cell::count(stats().map(|stats| figure(stats)).sum());
    // Without a finished message, there is no such time.
    let time = flow
        .seconds_in_flight()
        .map(|time| format!(", {} a message", duration(time)))
        .unwrap_or_default();
    let detail = format!(
        "{sentence}. RDY {}{time}, {} requeued/s, {} timed out/s",
        short(flow.ready as f64),
        short(flow.requeues),
        short(flow.timeouts),
    );
    let cells = vec![
        Cell::text(&name),
        rate(flow.arrivals),
        rate(flow.finishes),
        Cell::count(flow.depth),
        sum(|channel| channel.in_flight_count),
        sum(|channel| channel.deferred_count),
        rate(flow.requeues),
        Cell::Seconds(worst_latency(
            stats().map(|channel| &channel.e2e_processing_latency),
        )),
        Cell::Seconds(oldest(stats().map(|channel| channel.oldest_unfinished_ms))),
        sum(ChannelStats::count_clients),
        Cell::text(&sentence),
    ];
    Row::new(name, cells, &detail, is_problem)
}

const TOPIC_COLUMNS: &[Column] = &[
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

fn topic_rows(pair: Pair<'_>) -> Vec<Row> {
    let mut topics: BTreeMap<&str, Vec<(&str, &TopicStats)>> = BTreeMap::new();
    for (address, figures) in &pair.after.nodes {
        for topic in &figures.stats.topics {
            let nodes = topics.entry(&topic.topic_name).or_default();
            nodes.push((address, topic));
        }
    }
    let topics = topics.into_iter();
    topics
        .map(|(name, nodes)| topic_row(name, &nodes, pair))
        .collect()
}

fn topic_row(name: &str, nodes: &[(&str, &TopicStats)], pair: Pair<'_>) -> Row {
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
    let detail = format!(
        "{detail}Channels: {channel_names}. Nodes: {}",
        addresses.join(", ")
    );
    let cells = vec![
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
    ];
    Row::new(name.to_owned(), cells, &detail, !state.is_empty())
}

/// Returns the ages of the oldest messages of a topic and its channels.
fn ages(topic: &TopicStats) -> impl Iterator<Item = Option<i64>> {
    let channels = topic
        .channels
        .iter()
        .map(|channel| channel.oldest_unfinished_ms);
    channels.chain([topic.oldest_unfinished_ms])
}

const CLIENT_COLUMNS: &[Column] = &[
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

fn client_rows(pair: Pair<'_>) -> Vec<Row> {
    let before = pair.before.map(connections).unwrap_or_default();
    let after = connections(pair.after);
    let rows = after.iter();
    rows.map(|(key, now)| client_row(key, before.get(key), now, pair))
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

fn client_row(
    key: &str,
    before: Option<&Connection<'_>>,
    now: &Connection<'_>,
    pair: Pair<'_>,
) -> Row {
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
    let cells = vec![
        Cell::text(&client.client_id),
        Cell::text(&client.remote_address),
        Cell::text(&now.does),
        of_consumer(Cell::count(client.ready_count)),
        of_consumer(Cell::count(client.in_flight_count)),
        rate(before.map(|before| before.messages), now.messages),
        of_consumer(rate(earlier(|c| c.finish_count), client.finish_count)),
        of_consumer(rate(earlier(|c| c.requeue_count), client.requeue_count)),
        Cell::Seconds(Some(connected)),
    ];
    let is_problem = is_consumer && client.ready_count == 0;
    Row::new(key.to_owned(), cells, &detail, is_problem)
}

/// The figures of some topics of a node, summed.
#[derive(Default)]
struct Totals<'a> {
    /// The messages that arrived, a second.
    messages: Option<f64>,
    /// The bytes that arrived, a second.
    bytes: Option<f64>,
    depth: i64,
    in_flight: i64,
    deferred: i64,
    /// The connections of consumers.
    connections: i64,
    /// The topic in which most messages arrived, and their number.
    busiest: (i64, &'a str),
}

impl<'a> Totals<'a> {
    fn of(address: &str, topics: impl IntoIterator<Item = &'a TopicStats>, pair: Pair<'_>) -> Self {
        let mut totals = Totals::default();
        let (mut messages, mut bytes) = (0, 0);
        for topic in topics {
            let (more_messages, more_bytes) = pair.arrived(address, topic);
            messages += more_messages;
            bytes += more_bytes;
            if more_messages > totals.busiest.0 {
                totals.busiest = (more_messages, &topic.topic_name);
            }
            totals.depth += topic.depth;
            for channel in &topic.channels {
                totals.depth += channel.depth;
                totals.in_flight += channel.in_flight_count;
                totals.deferred += channel.deferred_count;
                totals.connections += channel.count_clients();
            }
        }
        totals.messages = pair.rate(messages);
        totals.bytes = pair.rate(bytes);
        totals
    }
}

const NODE_COLUMNS: &[Column] = &[
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

fn node_rows(pair: Pair<'_>) -> Vec<Row> {
    let nodes = pair.after.nodes.iter();
    let failures = pair.after.failures.iter();
    nodes
        .map(|(address, figures)| node_row(address, figures, pair))
        .chain(failures.map(row_without_figures))
        .collect()
}

/// Returns the row of a node that does not answer.
fn row_without_figures(failure: &Failure) -> Row {
    let cells = NODE_COLUMNS.iter().map(|column| match column.title {
        "NODE" => Cell::text(&failure.address),
        "HEALTH" => Cell::text("away"),
        _ if column.is_text => Cell::text("-"),
        _ => Cell::Number(None),
    });
    let key = failure.address.clone();
    Row::new(key, cells.collect(), &problem(failure), true)
}

fn node_row(address: &str, figures: &NodeFigures, pair: Pair<'_>) -> Row {
    let stats = &figures.stats;
    let totals = Totals::of(address, &stats.topics, pair);
    let up = (pair.after.unix_seconds - stats.start_time).max(0) as f64;
    // The value of `--shards`: 0 stands for as many shards as the node has cores.
    let shards = figures.shards.filter(|shards| *shards > 0);
    let shard_text = match figures.shards {
        Some(0) => "a shard for each core".to_owned(),
        Some(1) => "1 shard".to_owned(),
        Some(count) => format!("{count} shards"),
        None => "no shards: not ringq's nsqd".to_owned(),
    };
    let channels: usize = stats.topics.iter().map(|topic| topic.channels.len()).sum();
    let detail = format!(
        "{address}: nsqd {}, {shard_text}, {channels} channels, up for {}, health: {}",
        stats.version,
        duration(up),
        stats.health
    );
    let cells = vec![
        Cell::text(address),
        Cell::text(&stats.version),
        Cell::Number(shards.map(|shards| shards as f64)),
        Cell::Number(totals.messages),
        Cell::Number(totals.bytes),
        Cell::count(totals.depth),
        Cell::count(totals.in_flight),
        Cell::count(totals.connections + stats.producers.len() as i64),
        Cell::count(stats.topics.len() as i64),
        Cell::Seconds(Some(up)),
        Cell::text(&stats.health),
    ];
    Row::new(address.to_owned(), cells, &detail, stats.health != "OK")
}

const SHARD_COLUMNS: &[Column] = &[
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

fn shard_rows(pair: Pair<'_>) -> Vec<Row> {
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
        .map(|((address, shard), topics)| shard_row(address, shard, &topics, pair))
        .collect()
}

fn shard_row(address: &str, shard: u64, topics: &[&TopicStats], pair: Pair<'_>) -> Row {
    let totals = Totals::of(address, topics.iter().copied(), pair);
    let (most, name) = totals.busiest;
    let detail = match (pair.rate(most), totals.messages) {
        (Some(rate), Some(messages)) if most > 0 => format!(
            "Shard {shard} of {address}: {name} has {}/s of the {}/s that arrive",
            short(rate),
            short(messages)
        ),
        _ => format!("Shard {shard} of {address}: nothing arrives"),
    };
    let cells = vec![
        Cell::text(address),
        Cell::Number(Some(shard as f64)),
        Cell::count(topics.len() as i64),
        Cell::Number(totals.messages),
        Cell::Number(totals.bytes),
        Cell::count(totals.depth),
        Cell::count(totals.in_flight),
        Cell::count(totals.deferred),
        Cell::count(totals.connections),
        Cell::text(name),
    ];
    Row::new(format!("{address} {shard:>6}"), cells, &detail, false)
}

#[cfg(test)]
mod tests;
