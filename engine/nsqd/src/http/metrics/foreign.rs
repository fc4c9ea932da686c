//! The metrics under the names of programs that were in use before: lovoo/nsq_exporter,
//! adamweiner/nsqd-prometheus-exporter, and telegraf's nsq input with telegraf's output for Prometheus. Names, labels and
//! units are theirs.

use std::time::UNIX_EPOCH;

use super::Figures;
use engine_rules::stats::{ChannelStats, ClientStats, LatencyStats, TopicStats};
use program::metrics::{Exposition, Family, Kind, Number, push_label};
use program::version::NSQ_VERSION;

/// A metric without the prefix of its kind, and how it is read.
struct Row<T> {
    family: Family,
    read: fn(&T) -> Number,
}

const fn exported<T>(name: &'static str, help: &'static str, read: fn(&T) -> Number) -> Row<T> {
    let family = Family::new(name, Kind::Gauge, help);
    Row { family, read }
}

/// telegraf writes no type and no meaning of its own.
const fn gathered<T>(name: &'static str, read: fn(&T) -> Number) -> Row<T> {
    let family = Family::new(name, Kind::Untyped, "Telegraf collected metric");
    Row { family, read }
}

/// The exporter takes the first percentile for the 99th, the second for the 95th, and nanoseconds as they are.
fn percentile(latency: &LatencyStats, index: usize) -> Number {
    latency
        .percentiles
        .get(index)
        .map_or(0.0, |it| it.value)
        .into()
}

#[rustfmt::skip]
const EXPORTED_TOPIC: &[Row<TopicStats>] = &[
    exported("nsq_topic_channel_count", "Number of channels", |it| (it.channels.len() as u64).into()),
    exported("nsq_topic_depth", "Queue depth", |it| it.depth.into()),
    exported("nsq_topic_backend_depth", "Queue backend depth", |it| it.backend_depth.into()),
    exported("nsq_topic_e2e_latency_99_percentile", "Queue e2e latency 99th percentile", |it| percentile(&it.e2e_processing_latency, 0)),
    exported("nsq_topic_e2e_latency_95_percentile", "Queue e2e latency 95th percentile", |it| percentile(&it.e2e_processing_latency, 1)),
    exported("nsq_topic_message_count", "Queue message count", |it| it.message_count.into()),
];

#[rustfmt::skip]
const EXPORTED_CHANNEL: &[Row<ChannelStats>] = &[
    exported("nsq_channel_client_count", "Number of clients", |it| it.client_count.into()),
    exported("nsq_channel_depth", "Queue depth", |it| it.depth.into()),
    exported("nsq_channel_backend_depth", "Queue backend depth", |it| it.backend_depth.into()),
    exported("nsq_channel_message_count", "Queue message count", |it| it.message_count.into()),
    exported("nsq_channel_in_flight_count", "In flight count", |it| it.in_flight_count.into()),
    exported("nsq_channel_e2e_latency_99p", "e2e latency 99th percentile", |it| percentile(&it.e2e_processing_latency, 0)),
    exported("nsq_channel_e2e_latency_95p", "e2e latency 95th percentile", |it| percentile(&it.e2e_processing_latency, 1)),
    exported("nsq_channel_deferred_count", "Deferred count", |it| it.deferred_count.into()),
    exported("nsq_channel_requeue_count", "Requeue Count", |it| it.requeue_count.into()),
    exported("nsq_channel_timeout_count", "Timeout count", |it| it.timeout_count.into()),
];

#[rustfmt::skip]
const EXPORTED_CLIENT: &[Row<ClientStats>] = &[
    exported("nsq_client_state", "State of client", |it| u64::from(it.state).into()),
    exported("nsq_client_finish_count", "Finish count", |it| it.finish_count.into()),
    exported("nsq_client_message_count", "Queue message count", |it| it.message_count.into()),
    exported("nsq_client_ready_count", "Ready count", |it| it.ready_count.into()),
    exported("nsq_client_in_flight_count", "In flight count", |it| it.in_flight_count.into()),
    exported("nsq_client_requeue_count", "Requeue count", |it| it.requeue_count.into()),
    exported("nsq_client_connect_ts", "Connect timestamp", |it| (it.connect_ts.max(0) as u64).into()),
    exported("nsq_client_sample_rate", "Sample Rate", |it| u64::from(it.sample_rate).into()),
];

#[rustfmt::skip]
const SCRAPED_TOPIC: &[Row<TopicStats>] = &[
    exported("nsqd_depth", "Queue depth", |it| it.depth.into()),
    exported("nsqd_backend_depth", "Queue backend depth", |it| it.backend_depth.into()),
    exported("nsqd_channel_count", "Number of channels", |it| (it.channels.len() as u64).into()),
];

#[rustfmt::skip]
const SCRAPED_CHANNEL: &[Row<ChannelStats>] = &[
    exported("nsqd_depth", "Queue depth", |it| it.depth.into()),
    exported("nsqd_backend_depth", "Queue backend depth", |it| it.backend_depth.into()),
    exported("nsqd_in_flight_count", "In flight count", |it| it.in_flight_count.into()),
    exported("nsqd_timeout_count_total", "Timeout count", |it| it.timeout_count.into()),
    exported("nsqd_requeue_count_total", "Requeue count", |it| it.requeue_count.into()),
    exported("nsqd_deferred_count_total", "Deferred count", |it| it.deferred_count.into()),
    exported("nsqd_message_count_total", "Total message count", |it| it.message_count.into()),
    exported("nsqd_client_count", "Number of clients", |it| it.client_count.into()),
];

#[rustfmt::skip]
const GATHERED_TOPIC: &[Row<TopicStats>] = &[
    gathered("nsq_topic_depth", |it| it.depth.into()),
    gathered("nsq_topic_backend_depth", |it| it.backend_depth.into()),
    gathered("nsq_topic_message_count", |it| it.message_count.into()),
    gathered("nsq_topic_channel_count", |it| (it.channels.len() as u64).into()),
];

#[rustfmt::skip]
const GATHERED_CHANNEL: &[Row<ChannelStats>] = &[
    gathered("nsq_channel_depth", |it| it.depth.into()),
    gathered("nsq_channel_backend_depth", |it| it.backend_depth.into()),
    gathered("nsq_channel_inflight_count", |it| it.in_flight_count.into()),
    gathered("nsq_channel_deferred_count", |it| it.deferred_count.into()),
    gathered("nsq_channel_message_count", |it| it.message_count.into()),
    gathered("nsq_channel_requeue_count", |it| it.requeue_count.into()),
    gathered("nsq_channel_timeout_count", |it| it.timeout_count.into()),
    gathered("nsq_channel_client_count", |it| it.client_count.into()),
];

#[rustfmt::skip]
const GATHERED_CLIENT: &[Row<ClientStats>] = &[
    gathered("nsq_client_ready_count", |it| it.ready_count.into()),
    gathered("nsq_client_inflight_count", |it| it.in_flight_count.into()),
    gathered("nsq_client_message_count", |it| it.message_count.into()),
    gathered("nsq_client_finish_count", |it| it.finish_count.into()),
    gathered("nsq_client_requeue_count", |it| it.requeue_count.into()),
];

/// Writes the metrics of nsq_exporter: topics and channels, and clients if the request asks for them.
pub(super) fn append_nsq_exporter(out: &mut Exposition, figures: &Figures) {
    let topics = &figures.snapshot.topics;
    append(out, EXPORTED_TOPIC, || {
        topics.iter().map(|topic| {
            let labels = [
                ("topic", &*topic.topic_name),
                ("paused", word(topic.paused)),
            ];
            (labelled(&labels), topic)
        })
    });
    append(out, EXPORTED_CHANNEL, || {
        channels(figures).map(|(topic, channel)| {
            let labels = [
                ("topic", topic),
                ("channel", &*channel.channel_name),
                ("paused", word(channel.paused)),
            ];
            (labelled(&labels), channel)
        })
    });
    append(out, EXPORTED_CLIENT, || {
        clients(figures).map(|(topic, channel, client)| {
            let labels = [
                ("topic", topic),
                ("channel", channel),
                ("deflate", word(client.deflate)),
                ("snappy", word(client.snappy)),
                ("tls", word(client.tls)),
                ("client_id", &*client.client_id),
                ("hostname", &*client.hostname),
                ("version", "V2"),
                ("remote_address", &*client.remote_address),
            ];
            (labelled(&labels), client)
        })
    });
}

/// Writes the metrics of nsqd-prometheus-exporter. Topics and channels share some families, and the label `type` tells
/// them apart.
pub(super) fn append_nsqd_prometheus_exporter(out: &mut Exposition, figures: &Figures) {
    let started = figures.info.start_time.duration_since(UNIX_EPOCH);
    let started = started.unwrap_or_default().as_secs().to_string();
    let health = if figures.is_healthy { "OK" } else { "NOK" };
    let info = exported::<Figures>("nsqd_info", "nsqd info", |_| 1_u64.into());
    append(out, &[info], || {
        let labels = [
            ("health", health),
            ("start_time", &started),
            ("version", NSQ_VERSION),
        ];
        std::iter::once((labelled(&labels), figures))
    });
    let topics: Vec<(String, &TopicStats)> = figures
        .snapshot
        .topics
        .iter()
        .map(|topic| {
            let labels = [
                ("type", "topic"),
                ("topic", &*topic.topic_name),
                ("paused", word(topic.paused)),
            ];
            (labelled(&labels), topic)
        })
        .collect();
    let channels: Vec<(String, &ChannelStats)> = channels(figures)
        .map(|(topic, channel)| {
            let labels = [
                ("type", "channel"),
                ("topic", topic),
                ("paused", word(channel.paused)),
                ("channel", &*channel.channel_name),
            ];
            (labelled(&labels), channel)
        })
        .collect();
    let own = |name| {
        SCRAPED_CHANNEL
            .iter()
            .find(move |row| row.family.name == name)
    };
    for row in SCRAPED_TOPIC {
        out.begin(row.family);
        for (labels, topic) in &topics {
            out.sample(labels, (row.read)(topic));
        }
        if let Some(row) = own(row.family.name) {
            for (labels, channel) in &channels {
                out.sample(labels, (row.read)(channel));
            }
        }
    }
    let is_shared = |name| SCRAPED_TOPIC.iter().any(|row| row.family.name == name);
    for row in SCRAPED_CHANNEL {
        if !is_shared(row.family.name) {
            append(out, std::slice::from_ref(row), || channels.iter().cloned());
        }
    }
}

/// Writes the metrics of telegraf. Its `server_host` is the address that telegraf is told; here it is the announced one.
pub(super) fn append_telegraf(out: &mut Exposition, figures: &Figures) {
    let info = &figures.info;
    let host = format!("{}:{}", info.config.broadcast_address, info.announced.http);
    let server = [("server_host", &*host), ("server_version", NSQ_VERSION)];
    let servers = [
        gathered::<Figures>("nsq_server_server_count", |it| it.is_healthy.into()),
        gathered("nsq_server_topic_count", |it| {
            (it.snapshot.topics.len() as u64).into()
        }),
    ];
    append(out, &servers, || {
        std::iter::once((labelled(&server), figures))
    });
    let with_server = |labels: &[(&str, &str)]| labelled(&[&server[..], labels].concat());
    append(out, GATHERED_TOPIC, || {
        let topics = figures.snapshot.topics.iter();
        topics.map(|topic| (with_server(&[("topic", &topic.topic_name)]), topic))
    });
    append(out, GATHERED_CHANNEL, || {
        channels(figures).map(|(topic, channel)| {
            let labels = [("topic", topic), ("channel", &*channel.channel_name)];
            (with_server(&labels), channel)
        })
    });
    append(out, GATHERED_CLIENT, || {
        clients(figures).map(|(topic, channel, client)| {
            let labels = [
                ("topic", topic),
                ("channel", channel),
                ("client_id", &*client.client_id),
                ("client_hostname", &*client.hostname),
                ("client_version", "V2"),
                ("client_address", &*client.remote_address),
                ("client_user_agent", &*client.user_agent),
                ("client_tls", word(client.tls)),
                ("client_snappy", word(client.snappy)),
                ("client_deflate", word(client.deflate)),
            ];
            (with_server(&labels), client)
        })
    });
}

fn append<'a, T: 'a, I: Iterator<Item = (String, &'a T)>>(
    out: &mut Exposition,
    rows: &[Row<T>],
    things: impl Fn() -> I,
) {
    let things: Vec<_> = things().collect();
    for row in rows {
        out.begin(row.family);
        for (labels, thing) in &things {
            out.sample(labels, (row.read)(thing));
        }
    }
}

fn channels(figures: &Figures) -> impl Iterator<Item = (&str, &ChannelStats)> {
    let topics = figures.snapshot.topics.iter();
    topics.flat_map(|topic| {
        let channels = topic.channels.iter();
        channels.map(|channel| (&*topic.topic_name, channel))
    })
}

fn clients(figures: &Figures) -> impl Iterator<Item = (&str, &str, &ClientStats)> {
    channels(figures).flat_map(|(topic, channel)| {
        let clients = channel.clients.iter();
        clients.map(move |client| (topic, &*channel.channel_name, client))
    })
}

fn labelled(labels: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        push_label(&mut text, name, value);
    }
    text
}

fn word(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}
