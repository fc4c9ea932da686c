//! The rows of channels.

use std::collections::BTreeMap;

use nsq_doctor::{ChannelSample, Flow, NodeSample, diagnose, duration, short, uptime};
use nsq_http::ChannelStats;

use super::row::{Cell, Column, Pair, Row, number, oldest, text, worst_latency};
use super::sample::Sample;

pub(super) const COLUMNS: &[Column] = &[
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

pub(super) fn rows(pair: Pair<'_>) -> Vec<Row> {
    let before = pair.before.map(channels_of).unwrap_or_default();
    let nothing = ChannelSample::default();
    channels_of(pair.after)
        .iter()
        .map(|(name, after)| {
            let before = before.get(name).map(|channel| &channel.sample);
            row(*name, before.unwrap_or(&nothing), after, pair)
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

fn row(
    (topic, channel): (&str, &str),
    before: &ChannelSample,
    after: &Channel<'_>,
    pair: Pair<'_>,
) -> Row {
    let elapsed = pair.elapsed();
    let flow = Flow::between(before, &after.sample, elapsed);
    let rate = |rate: f64| Cell::Number((!elapsed.is_zero()).then_some(rate));
    let stats = || after.stats.iter();
    let latency = worst_latency(stats().map(|channel| &channel.e2e_processing_latency));
    let age = oldest(stats().map(|channel| channel.oldest_unfinished_ms));
    let (sentence, is_problem) = if elapsed.is_zero() {
        ("waiting for a second sample".to_owned(), false)
    } else {
        let diagnosis = diagnose(before, &after.sample, elapsed);
        (diagnosis.to_string(), diagnosis.is_problem())
    };
    let name = format!("{topic}/{channel}");
    let sum = |figure: fn(&ChannelStats) -> i64| stats().map(|stats| figure(stats)).sum::<i64>();
    let connections = sum(ChannelStats::count_clients);
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
    Row {
        cells: vec![
            Cell::text(&name),
            rate(flow.arrivals),
            rate(flow.finishes),
            Cell::count(flow.depth),
            Cell::count(sum(|channel| channel.in_flight_count)),
            Cell::count(sum(|channel| channel.deferred_count)),
            rate(flow.requeues),
            Cell::Seconds(latency),
            Cell::Seconds(age),
            Cell::count(connections),
            Cell::text(&sentence),
        ],
        key: name,
        detail,
        is_problem,
    }
}
