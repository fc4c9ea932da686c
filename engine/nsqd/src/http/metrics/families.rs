//! The metrics. docs/reference/metrics.md lists them, and a test compares the two.

use super::Figures;
use engine_rules::LATENCY_BOUNDS_NS;
use engine_rules::stats::{
    ChannelStats, ClientStats, KeyStats, LatencyStats, LogStats, NumberStats, ShardStats,
    TopicStats,
};
use program::metrics::{Exposition, Family, Kind, Number, append_process, push_label};
use program::version::{NSQ_VERSION, RINGQ_VERSION};
use std::time::Duration;

/// A metric of each thing of a kind, and how it is read. `None`: the thing does not have the metric.
pub(super) struct Row<T> {
    pub(super) family: Family,
    read: fn(&T) -> Option<Number>,
}

const fn counter<T>(
    name: &'static str,
    help: &'static str,
    read: fn(&T) -> Option<Number>,
) -> Row<T> {
    let family = Family::new(name, Kind::Counter, help);
    Row { family, read }
}

const fn gauge<T>(
    name: &'static str,
    help: &'static str,
    read: fn(&T) -> Option<Number>,
) -> Row<T> {
    let family = Family::new(name, Kind::Gauge, help);
    Row { family, read }
}

fn some(value: impl Into<Number>) -> Option<Number> {
    Some(value.into())
}

fn seconds(duration: Duration) -> Option<Number> {
    some(duration.as_secs_f64())
}

fn milliseconds(count: u64) -> Option<Number> {
    some(count as f64 / 1000.0)
}

fn of_log(topic: &TopicStats, read: fn(&LogStats) -> u64) -> Option<Number> {
    topic.log.as_ref().map(|log| read(log).into())
}

/// Reads a figure of a topic whose `--dedup` rule has the key `publisher`.
fn of_numbers(topic: &TopicStats, read: fn(&NumberStats) -> u64) -> Option<Number> {
    topic.numbers.as_ref().map(|numbers| read(numbers).into())
}

/// Reads a figure of a topic whose `--dedup` rule has the key `body` or `json:`.
fn of_keys(topic: &TopicStats, read: fn(&KeyStats) -> u64) -> Option<Number> {
    topic.keys.as_ref().map(|keys| read(keys).into())
}

/// The metrics of a topic.
#[rustfmt::skip]
pub(super) const TOPIC: &[Row<TopicStats>] = &[
    counter("nsqd_topic_messages_total", "Messages that the topic accepted.", |it| some(it.message_count)),
    counter("nsqd_topic_message_bytes_total", "Bytes of the bodies of these messages.", |it| some(it.message_bytes)),
    counter("nsqd_topic_refused_messages_total", "Messages that were refused because the log of the topic took none, as on a full disk.", |it| some(it.refused_count)),
    gauge("nsqd_topic_depth", "Messages that wait in the topic itself, for a channel or for the end of a pause.", |it| some(it.depth)),
    gauge("nsqd_topic_backend_depth", "The part of nsqd_topic_depth beyond --mem-queue-size.", |it| some(it.backend_depth)),
    gauge("nsqd_topic_oldest_unfinished_seconds", "Age of the oldest message that waits in the topic itself; 0 without messages.", |it| milliseconds(it.oldest_unfinished_ms)),
    counter("nsqd_topic_unclaimed_dropped_messages_total", "Messages that were dropped because no channel owned them (--unclaimed-messages).", |it| some(it.unclaimed_dropped_count)),
    gauge("nsqd_topic_paused", "1 if the topic is paused, otherwise 0.", |it| some(it.paused)),
    gauge("nsqd_topic_channels", "Channels of the topic that the request asks for.", |it| some(it.channels.len() as u64)),
    gauge("nsqd_topic_shard", "Number of the shard that has the topic.", |it| some(u64::from(it.shard))),
    gauge("nsqd_topic_disk_bytes", "Bytes of the segment files of the topic, those without messages included.", |it| of_log(it, |log| log.disk_bytes)),
    gauge("nsqd_topic_memory_bytes", "Bytes of the segments of the topic that are in memory, those without messages included.", |it| of_log(it, |log| log.memory_bytes)),
    gauge("nsqd_topic_segments", "Segments of the topic that hold messages.", |it| of_log(it, |log| log.segment_count)),
    gauge("nsqd_topic_cold_segments", "The part of nsqd_topic_segments that is on disk and not in memory.", |it| of_log(it, |log| log.cold_segment_count)),
    counter("nsqd_topic_damaged_messages_total", "Messages lost to damaged files, as found by this run and its start.", |it| of_log(it, |log| log.damaged_count)),
    counter("nsqd_topic_syncs_total", "Syncs of the topic that have ended well.", |it| of_log(it, |log| log.sync_count)),
    counter("nsqd_topic_sync_seconds_total", "Time from request to answer of these syncs, the time in the keeper's queue included.", |it| it.log.as_ref().and_then(|log| seconds(log.sync_time))),
    counter("nsqd_topic_dedup_duplicates_total", "Messages that were answered with OK and not stored again, for topics with --dedup.", |it| of_numbers(it, |numbers| numbers.duplicate_count).or(of_keys(it, |keys| keys.duplicate_count))),
    counter("nsqd_topic_dedup_unchecked_total", "Messages that were stored although the topic could not tell whether it had stored them before, for topics with --dedup=...=publisher.", |it| of_numbers(it, |numbers| numbers.unchecked_count)),
    gauge("nsqd_topic_dedup_publishers", "Publishers that the topic remembers, for topics with --dedup=...=publisher.", |it| of_numbers(it, |numbers| numbers.publisher_count)),
    gauge("nsqd_topic_dedup_publishers_max", "The most publishers that the topic remembers, for topics with --dedup=...=publisher.", |it| of_numbers(it, |numbers| numbers.publisher_count_max)),
    counter("nsqd_topic_dedup_evicted_publishers_total", "Publishers that were forgotten to make room for others, for topics with --dedup=...=publisher.", |it| of_numbers(it, |numbers| numbers.evicted_count)),
    counter("nsqd_topic_dedup_unverified_total", "The duplicates that were recognised by their fingerprint alone, for topics with --dedup=...=body or json:.", |it| of_keys(it, |keys| keys.unverified_count)),
    counter("nsqd_topic_dedup_keyless_total", "Messages that were stored because they have no key, for topics with --dedup=...=json:.", |it| of_keys(it, |keys| keys.keyless_count)),
    counter("nsqd_topic_dedup_unremembered_total", "Messages that were stored, and whose keys are not remembered, for topics with --dedup=...=body or json:.", |it| of_keys(it, |keys| keys.unremembered_count)),
    gauge("nsqd_topic_dedup_keys", "Keys that the topic remembers, for topics with --dedup=...=body or json:.", |it| of_keys(it, |keys| keys.key_count)),
    gauge("nsqd_topic_dedup_keys_max", "The most keys that the topic remembers, for topics with --dedup=...=body or json:.", |it| of_keys(it, |keys| keys.key_count_max)),
    gauge("nsqd_topic_dedup_memory_bytes", "Bytes of the tables of keys, for topics with --dedup=...=body or json:.", |it| of_keys(it, |keys| keys.memory_bytes)),
    gauge("nsqd_topic_dedup_memory_max_bytes", "Bytes of the tables of keys when all are there, for topics with --dedup=...=body or json:.", |it| of_keys(it, |keys| keys.memory_bytes_max)),
    counter("nsqd_topic_dedup_memory_refused_total", "Times that the system refused memory for keys, for topics with --dedup=...=body or json:.", |it| of_keys(it, |keys| keys.memory_refused_count)),
    gauge("nsqd_topic_dedup_reach_seconds", "The time back to which the topic remembers keys, for topics with --dedup=...=body or json:.", |it| it.keys.as_ref().and_then(|keys| milliseconds(keys.reach_ms))),
];

/// The metrics of a channel.
#[rustfmt::skip]
pub(super) const CHANNEL: &[Row<ChannelStats>] = &[
    counter("nsqd_channel_messages_total", "Messages that the channel got from its topic.", |it| some(it.counters.message_count)),
    gauge("nsqd_channel_depth", "Messages that wait, dead letters included. Messages in flight and deferred messages do not count.", |it| some(it.depth)),
    gauge("nsqd_channel_backend_depth", "The part of nsqd_channel_depth beyond --mem-queue-size.", |it| some(it.backend_depth)),
    gauge("nsqd_channel_in_flight_messages", "Messages that consumers have and have not finished.", |it| some(it.in_flight_count)),
    gauge("nsqd_channel_deferred_messages", "Messages that are not due yet.", |it| some(it.deferred_count)),
    gauge("nsqd_channel_oldest_unfinished_seconds", "Age of the oldest message that is not finished: waiting, in flight, requeued or deferred; 0 without messages.", |it| milliseconds(it.oldest_unfinished_ms)),
    gauge("nsqd_channel_oldest_failed_attempts", "Deliveries of this message that have failed: requeued or timed out; 0 also if thousands of messages are requeued or deferred.", |it| some(it.oldest_failed_attempts)),
    counter("nsqd_channel_requeues_total", "Messages that consumers requeued.", |it| some(it.counters.requeue_count)),
    counter("nsqd_channel_timeouts_total", "Messages whose time in flight ran out.", |it| some(it.counters.timeout_count)),
    counter("nsqd_channel_dead_letters_total", "Messages that went to the dead-letter topic, for channels with a rule (--dead-letter).", |it| it.dead_letters.as_ref().map(|dead| dead.count.into())),
    gauge("nsqd_channel_dead_letters_waiting", "Messages that are to go to the dead-letter topic, for channels with a rule.", |it| it.dead_letters.as_ref().map(|dead| dead.waiting_count.into())),
    gauge("nsqd_channel_clients", "Consumers of the channel.", |it| some(it.client_count)),
    gauge("nsqd_channel_paused", "1 if the channel is paused, otherwise 0.", |it| some(it.paused)),
];

/// The metrics of a consumer.
#[rustfmt::skip]
pub(super) const CLIENT: &[Row<ClientStats>] = &[
    gauge("nsqd_client_ready_count", "RDY count of the consumer.", |it| some(it.ready_count)),
    gauge("nsqd_client_in_flight_messages", "Messages that the consumer has and has not finished.", |it| some(it.in_flight_count)),
    counter("nsqd_client_messages_total", "Messages that were sent to the consumer, redeliveries included.", |it| some(it.counters.message_count)),
    counter("nsqd_client_finishes_total", "Messages that the consumer finished.", |it| some(it.counters.finish_count)),
    counter("nsqd_client_requeues_total", "Messages that the consumer requeued.", |it| some(it.counters.requeue_count)),
    gauge("nsqd_client_connect_time_seconds", "Unix time at which the consumer connected.", |it| some(it.connect_ts.max(0) as u64)),
];

/// The metrics of a shard.
#[rustfmt::skip]
pub(super) const SHARD: &[Row<ShardStats>] = &[
    gauge("nsqd_shard_topics", "Topics of the shard.", |it| some(it.topic_count)),
    gauge("nsqd_shard_connections", "Connections of NSQ clients that the shard serves.", |it| some(it.connection_count)),
    counter("nsqd_shard_turns_total", "Turns of the shard.", |it| some(it.turn_count)),
    counter("nsqd_shard_cpu_seconds_total", "CPU time of the shard's thread. Its rate is the load of the shard: 1 is a whole core.", |it| seconds(it.cpu_time)),
];

/// The metrics of the node.
#[rustfmt::skip]
pub(super) const NODE: &[Row<Figures>] = &[
    gauge("nsqd_healthy", "1 if all topics take messages, otherwise 0; /ping says why.", |it| some(it.is_healthy)),
    gauge("nsqd_draining", "1 in a drain, otherwise 0.", |it| some(it.is_draining)),
    gauge("nsqd_data_path_size_bytes", "Size of the file system of --data-path.", |it| it.disk.map(|disk| disk.size_bytes.into())),
    gauge("nsqd_data_path_available_bytes", "Bytes that nsqd may still use in the file system of --data-path.", |it| it.disk.map(|disk| disk.available_bytes.into())),
];

pub(super) const BUILD: Family = Family::new(
    "nsqd_build_info",
    Kind::Gauge,
    "1; the labels have the versions of NSQ and of ringq.",
);
pub(super) const DELIVERIES: Family = Family::new(
    "nsqd_channel_deliveries_total",
    Kind::Counter,
    "Deliveries to consumers by their distance, if --enable-experiment counts them.",
);
pub(super) const TOPIC_LATENCY: Family = Family::new(
    "nsqd_topic_e2e_latency_seconds",
    Kind::Summary,
    "Quantiles of the time from publish to FIN over all channels, in the window; NaN without samples.",
);
pub(super) const CHANNEL_LATENCY: Family = Family::new(
    "nsqd_channel_e2e_latency_seconds",
    Kind::Summary,
    "Quantiles of the time from publish to FIN, in the window; NaN without samples.",
);
pub(super) const LATENCY_SAMPLES: Family = Family::new(
    "nsqd_channel_e2e_latency_samples",
    Kind::Gauge,
    "Messages in the window of nsqd_channel_e2e_latency_seconds.",
);
pub(super) const LATENCY_HISTOGRAM: Family = Family::new(
    "nsqd_channel_publish_to_finish_seconds",
    Kind::Histogram,
    "Time from publish to FIN of the messages that were finished, for nsqds with --e2e-processing-latency-percentile.",
);

/// Writes all metrics.
pub(super) fn append(out: &mut Exposition, figures: &Figures) {
    append_node(out, figures);
    append_process(out, figures.info.start_time);
    let shards = figures.shards.iter();
    let shards = shards.map(|it| (with_label("", "shard", &it.shard.to_string()), it));
    append_rows(out, SHARD, &shards.collect::<Vec<_>>());
    let topics = figures.snapshot.topics.iter();
    let topics = topics.map(|it| (with_label("", "topic", &it.topic_name), it));
    let topics: Vec<Labelled<'_, TopicStats>> = topics.collect();
    append_rows(out, TOPIC, &topics);
    let latencies = topics
        .iter()
        .map(|(labels, topic)| (labels, &topic.e2e_processing_latency));
    append_latencies(out, TOPIC_LATENCY, latencies);
    let (mut channels, mut clients) = (Vec::new(), Vec::new());
    for (labels, topic) in &topics {
        for channel in &topic.channels {
            let labels = with_label(labels, "channel", &channel.channel_name);
            for client in channel.clients.iter().flatten() {
                // The address tells apart consumers that call themselves the same.
                let labels = with_label(&labels, "client_id", &client.client_id);
                let labels = with_label(&labels, "hostname", &client.hostname);
                let labels = with_label(&labels, "remote_address", &client.remote_address);
                clients.push((labels, client));
            }
            channels.push((labels, channel));
        }
    }
    append_channels(out, &channels);
    append_rows(out, CLIENT, &clients);
}

/// A thing and its labels as they are written.
type Labelled<'a, T> = (String, &'a T);

fn append_rows<T>(out: &mut Exposition, rows: &[Row<T>], things: &[Labelled<'_, T>]) {
    for row in rows {
        out.begin(row.family);
        for (labels, thing) in things {
            if let Some(value) = (row.read)(thing) {
                out.sample(labels, value);
            }
        }
    }
}

fn append_node(out: &mut Exposition, figures: &Figures) {
    let labels = with_label("", "version", NSQ_VERSION);
    out.begin(BUILD);
    out.sample(&with_label(&labels, "ringq_version", RINGQ_VERSION), 1);
    append_rows(out, NODE, &[(String::new(), figures)]);
}

fn append_channels(out: &mut Exposition, channels: &[Labelled<'_, ChannelStats>]) {
    append_rows(out, CHANNEL, channels);
    out.begin(DELIVERIES);
    for (labels, channel) in channels {
        let counts = [
            ("zone", channel.counters.zone_local_msg_count),
            ("region", channel.counters.region_local_msg_count),
            ("global", channel.counters.global_msg_count),
        ];
        if counts.iter().any(|(_, count)| *count > 0) {
            for (locality, count) in counts {
                out.sample(&with_label(labels, "locality", locality), count);
            }
        }
    }
    let latencies = channels
        .iter()
        .map(|(labels, channel)| (labels, &channel.e2e_processing_latency));
    append_latencies(out, CHANNEL_LATENCY, latencies.clone());
    out.begin(LATENCY_SAMPLES);
    for (labels, latency) in latencies {
        if !latency.percentiles.is_empty() {
            out.sample(labels, latency.count);
        }
    }
    append_histograms(out, channels);
}

fn append_histograms(out: &mut Exposition, channels: &[Labelled<'_, ChannelStats>]) {
    let bounds = LATENCY_BOUNDS_NS.map(|bound| bound as f64 / 1e9);
    out.begin(LATENCY_HISTOGRAM);
    for (labels, channel) in channels {
        if let Some(histogram) = &channel.e2e_histogram {
            let counts: Vec<u64> = histogram.cumulative().collect();
            out.histogram(labels, &bounds, &counts, histogram.sum_seconds());
        }
    }
}

fn append_latencies<'a>(
    out: &mut Exposition,
    family: Family,
    latencies: impl Iterator<Item = (&'a String, &'a LatencyStats)>,
) {
    out.begin(family);
    for (labels, latency) in latencies {
        // Two samples with one label would spoil the whole answer, and the flag may name a quantile twice.
        let mut quantiles: Vec<f64> = Vec::new();
        for percentile in &latency.percentiles {
            if quantiles.contains(&percentile.quantile) {
                continue;
            }
            quantiles.push(percentile.quantile);
            let labels = with_label(labels, "quantile", &percentile.quantile.to_string());
            let value = match latency.count {
                0 => f64::NAN,
                _ => percentile.value / 1e9,
            };
            out.sample(&labels, value);
        }
    }
}

/// Returns the labels with another one behind them.
fn with_label(labels: &str, name: &str, value: &str) -> String {
    let mut labels = labels.to_owned();
    push_label(&mut labels, name, value);
    labels
}
