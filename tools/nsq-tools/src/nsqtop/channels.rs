//! The rows of channels.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::row::{Cell, Column, Pair, Row, number, oldest, text, worst_latency};
use super::sample::Sample;
use crate::doctor::{ChannelSample, Flow, NodeSample, diagnose, duration, short};

pub(super) const COLUMNS: &[Column] = &[
    text("CHANNEL", 16),
    number("IN/S"),
    number("OUT/S"),
    number("DEPTH"),
    number("INFLT"),
    number("DEFER"),
    number("E2E"),
    number("AGE"),
    number("CONNS"),
    text("DOCTOR", 12),
];

/// The channels of a sample by topic and channel.
type Channels<'a> = BTreeMap<(&'a str, &'a str), ChannelSample<'a>>;

pub(super) fn rows(pair: Pair<'_>) -> Vec<Row> {
    let before = pair.before.map(channels_of).unwrap_or_default();
    let nothing = ChannelSample::default();
    channels_of(pair.after)
        .iter()
        .map(|(name, after)| row(*name, before.get(name).unwrap_or(&nothing), after, pair))
        .collect()
}

fn channels_of(sample: &Sample) -> Channels<'_> {
    let mut channels = Channels::new();
    for (address, figures) in &sample.nodes {
        for topic in &figures.stats.topics {
            for channel in &topic.channels {
                let name = (topic.topic_name.as_str(), channel.channel_name.as_str());
                let node = NodeSample {
                    topic_depth: topic.depth,
                    is_topic_paused: topic.paused,
                    channel: Cow::Borrowed(channel),
                };
                let nodes = &mut channels.entry(name).or_default().nodes;
                nodes.insert(address.clone(), node);
            }
        }
    }
    channels
}

fn row(
    (topic, channel): (&str, &str),
    before: &ChannelSample<'_>,
    after: &ChannelSample<'_>,
    pair: Pair<'_>,
) -> Row {
    let elapsed = pair.elapsed();
    let flow = Flow::between(before, after, elapsed);
    let rate = |rate: f64| Cell::Number((!elapsed.is_zero()).then_some(rate));
    let stats = || after.nodes.values().map(|node| node.channel.as_ref());
    let latency = worst_latency(stats().map(|channel| &channel.e2e_processing_latency));
    let age = oldest(stats().map(|channel| channel.oldest_unfinished_ms));
    let (sentence, is_problem) = match elapsed.is_zero() {
        true => ("waiting for a second sample".to_owned(), false),
        false => {
            let diagnosis = diagnose(before, after, elapsed);
            (diagnosis.to_string(), diagnosis.is_problem())
        }
    };
    let name = format!("{topic}/{channel}");
    let sum = |figure: fn(&crate::cluster::ChannelStats) -> i64| stats().map(figure).sum::<i64>();
    let connections = sum(|channel| channel.client_count);
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
