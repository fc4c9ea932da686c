//! The figures of `/stats` as plain values: snapshots that a shard takes of its topics, channels and
//! clients, and the filter that says which of them are asked for.
//!
//! Every shard answers a [`StatsFilter`] with one [`StatsSnapshot`]; the shell merges them
//! ([`StatsSnapshot::merge`]). The topic, the channel and the client own their
//! counters, which are copied out. The fields and their order are those of nsqd's JSON. Fields
//! that nsqd lacks come last, except for `unclaimed_dropped_count`.

use crate::ids::{ClientId, TopicKey};
use crate::latency::{LatencyHistogram, Sum};
pub use crate::latency::{LatencyStats, Percentile};
pub use diskq_log::LogStats;
pub use engine_dedup::{KeyStats, NumberStats};
use serde::Serialize;
use std::time::Duration;
use wire::go_json::is_default;

/// The topics and channels that a snapshot is to hold.
///
/// A shard returns every topic that [`StatsFilter::wants_topic`] accepts. A topic without a channel of the wanted name
/// is returned with an empty channel list. So the answer distinguishes an unknown topic (`null`) from a known topic
/// without the channel (`[]`), as nsqd does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatsFilter {
    /// Only the topic of this name.
    pub topic: Option<String>,
    /// Only channels of this name, in whatever topic.
    pub channel: Option<String>,
    /// True if [`ChannelStats::clients`] and [`StatsSnapshot::producers`] are to be filled.
    pub include_clients: bool,
    /// True if [`ChannelStats::disk`] is to be filled, if a topic and a channel are given. The cost grows with the number
    /// of segments and of channels.
    pub include_disk: bool,
    /// True if [`TopicStats::log`] is to be filled. The cost grows with the number of segments.
    pub include_logs: bool,
    /// True if [`ChannelStats::e2e_histogram`] is to be filled.
    pub include_histograms: bool,
}

impl StatsFilter {
    /// Returns whether a topic belongs in the snapshot.
    pub fn wants_topic(&self, name: &str) -> bool {
        self.topic.as_deref().is_none_or(|wanted| wanted == name)
    }

    /// Returns whether a channel belongs in the snapshot.
    pub fn wants_channel(&self, name: &str) -> bool {
        self.channel.as_deref().is_none_or(|wanted| wanted == name)
    }
}

/// A shard's answer, or the answer of all shards together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatsSnapshot {
    /// The wanted topics.
    pub topics: Vec<TopicStats>,
    /// Every connection that has published at least once, whatever the filter's topic is; empty
    /// when clients are not asked for.
    pub producers: Vec<ClientStats>,
    /// The process, not the shard. Left at its default by shards.
    pub memory: MemoryStats,
}

impl StatsSnapshot {
    /// Joins the snapshots of all shards and sorts the result. Each topic lives on exactly one shard, so no topics have
    /// to be combined. nsqd sorts topics and channels by the bytes of their names.
    pub fn merge(parts: impl IntoIterator<Item = StatsSnapshot>) -> StatsSnapshot {
        let mut merged = StatsSnapshot::default();
        for part in parts {
            merged.topics.extend(part.topics);
            merged.producers.extend(part.producers);
        }
        merged.sort();
        merged
    }

    /// Puts topics and channels in the order in which they are shown.
    pub fn sort(&mut self) {
        self.topics.sort_by(|a, b| a.topic_name.cmp(&b.topic_name));
        for topic in &mut self.topics {
            topic
                .channels
                .sort_by(|a, b| a.channel_name.cmp(&b.channel_name));
        }
    }
}

/// A snapshot that a shard takes in slices, with its other work in between. Each topic is of one moment, unless it has
/// more channels than a slice.
#[derive(Debug, Default)]
pub struct UnfinishedSnapshot {
    /// The topics that are left, the next one last.
    pub(crate) topics: Vec<TopicKey>,
    /// The topic that is at the end of `snapshot`, if some of its channels are left.
    pub(crate) divided: Option<DividedTopic>,
    /// The connections that are left, the next one last: consumers of the channel at the end of `snapshot`, or producers.
    pub(crate) clients: Vec<ClientId>,
    /// True behind the last topic, where the producers follow.
    pub(crate) has_all_topics: bool,
    pub(crate) filter: StatsFilter,
    /// The result so far.
    pub(crate) snapshot: StatsSnapshot,
}

/// A topic of a snapshot whose channels come in several slices.
#[derive(Debug)]
pub(crate) struct DividedTopic {
    pub(crate) key: TopicKey,
    /// The last channel that the snapshot has. `None` before the first one.
    pub(crate) after: Option<Box<str>>,
    /// The latencies of the channels so far. `None`: no channel measures them.
    pub(crate) latency: Option<Sum>,
}

impl UnfinishedSnapshot {
    /// Returns the snapshot.
    pub fn finish(self) -> StatsSnapshot {
        self.snapshot
    }
}

/// One topic. Counters start with the process, depths do not.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TopicStats {
    /// The topic's name, with `#ephemeral` if it has it.
    pub topic_name: String,
    /// The wanted channels.
    pub channels: Vec<ChannelStats>,
    /// Messages that wait in the topic itself, for a channel or for the end of a pause.
    pub depth: u64,
    /// The part of `depth` beyond `--mem-queue-size`, which nsqd would have on disk. 0 for an ephemeral topic.
    pub backend_depth: u64,
    /// Messages accepted.
    pub message_count: u64,
    /// Body bytes of the accepted messages.
    pub message_bytes: u64,
    /// Messages that were dropped because no channel owned them.
    #[serde(skip_serializing_if = "is_default")]
    pub unclaimed_dropped_count: u64,
    /// True if the flow from topic to channels is stopped.
    pub paused: bool,
    /// The latency from publish to FIN, over all channels.
    pub e2e_processing_latency: LatencyStats,
    /// The age of the oldest message of `depth`, in milliseconds since its publish. 0 without messages.
    pub oldest_unfinished_ms: u64,
    /// The number of the shard that the topic belongs to.
    pub shard: u32,
    /// Messages that were refused because the topic's log took none, as on a full disk.
    #[serde(skip_serializing_if = "is_default")]
    pub refused_count: u64,
    /// The terms of the pause.
    #[serde(flatten)]
    pub pause: PauseStats,
    /// The messages that the topic was emptied of. `None`: none can be brought back.
    #[serde(flatten)]
    pub undo: Option<UndoStats>,
    /// The messages that the topic has recognised by their publisher and number. `None` if the topic has no rule for
    /// that.
    #[serde(flatten)]
    pub numbers: Option<NumberStats>,
    /// The messages that the topic has recognised by their content. `None` if the topic has no rule for that.
    #[serde(flatten)]
    pub keys: Option<KeyStats>,
    /// The log; `None` when not asked for. Not in the JSON.
    #[serde(skip)]
    pub log: Option<LogStats>,
}

/// One shard. Counters start with the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardStats {
    /// The number of the shard, from 0.
    pub shard: u32,
    /// Topics of the shard.
    pub topic_count: u64,
    /// Connections of NSQ clients that the shard serves.
    pub connection_count: u64,
    /// Turns so far.
    pub turn_count: u64,
    /// CPU time of the shard's thread so far.
    pub cpu_time: Duration,
}

/// One channel.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ChannelStats {
    /// The channel's name, with `#ephemeral` if it has it.
    pub channel_name: String,
    /// Messages ready to be delivered: neither in flight nor deferred.
    pub depth: u64,
    /// The part of `depth` beyond `--mem-queue-size`, which nsqd would have on disk. 0 for an ephemeral channel.
    pub backend_depth: u64,
    /// Delivered and not yet answered, also by clients that are gone by now.
    pub in_flight_count: u64,
    /// Messages that are not due yet.
    pub deferred_count: u64,
    /// The counters.
    #[serde(flatten)]
    pub counters: ChannelCounters,
    /// Subscribed clients; right also when `clients` is not asked for.
    pub client_count: u64,
    /// The subscribed clients; `None` when not asked for.
    pub clients: Option<Vec<ClientStats>>,
    /// True if delivery is stopped.
    pub paused: bool,
    /// The latency from publish to FIN.
    pub e2e_processing_latency: LatencyStats,
    /// The age of the oldest message that is not finished, in milliseconds since its publish: waiting, in flight,
    /// requeued or deferred. 0 without messages.
    pub oldest_unfinished_ms: u64,
    /// The deliveries of this message that have failed: requeued or timed out. 0 also if the number is not known, because
    /// thousands of messages are requeued or deferred.
    #[serde(skip_serializing_if = "is_default")]
    pub oldest_failed_attempts: u64,
    /// The terms of the pause.
    #[serde(flatten)]
    pub pause: PauseStats,
    /// The messages that the channel was emptied of. `None`: none can be brought back.
    #[serde(flatten)]
    pub undo: Option<UndoStats>,
    /// The part of the log that the channel keeps on disk. `None` if nobody has asked, or the topic is too large to say it at
    /// once.
    #[serde(flatten)]
    pub disk: Option<DiskUse>,
    /// The dead letters. `None` if the channel has no rule for them.
    #[serde(flatten)]
    pub dead_letters: Option<DeadLetterStats>,
    /// The latencies of all messages that the channel has finished in this run. `None` when not asked for or not
    /// measured, and before the first message. Not in the JSON.
    #[serde(skip)]
    pub e2e_histogram: Option<Box<LatencyHistogram>>,
}

/// The counters of a channel, since the start of the process. The channel itself counts here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChannelCounters {
    /// Messages that reached the channel from its topic; a requeue is not one more.
    pub message_count: u64,
    /// Deliveries to a client in the node's own zone.
    #[serde(skip_serializing_if = "is_default")]
    pub zone_local_msg_count: u64,
    /// Deliveries to a client in the node's own region.
    #[serde(skip_serializing_if = "is_default")]
    pub region_local_msg_count: u64,
    /// All other deliveries.
    #[serde(skip_serializing_if = "is_default")]
    pub global_msg_count: u64,
    /// REQ commands that found their message.
    pub requeue_count: u64,
    /// Messages put back because their time in flight ran out.
    pub timeout_count: u64,
}

/// The words of an operator about a pause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PauseStats {
    /// The time at which the pause ends by itself, in Unix milliseconds. 0: the pause has no end.
    #[serde(rename = "pause_until_ms", skip_serializing_if = "is_default")]
    pub until_ms: u64,
    /// The reason. Empty: none was given.
    #[serde(rename = "pause_note", skip_serializing_if = "is_default")]
    pub note: String,
    /// The name of the operator. Empty: none was given.
    #[serde(rename = "paused_by", skip_serializing_if = "is_default")]
    pub by: String,
}

/// The messages that a topic or channel was emptied of, while they can be brought back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UndoStats {
    /// The time at which they are dropped, in Unix milliseconds.
    #[serde(rename = "undo_until_ms")]
    pub until_ms: u64,
    /// Number of messages.
    #[serde(rename = "undo_message_count")]
    pub message_count: u64,
    /// Bytes of the segments of the log that have such messages. Others may need these segments, too.
    #[serde(rename = "undo_disk_bytes")]
    pub disk_bytes: u64,
}

/// The part of a topic's log that a channel keeps on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DiskUse {
    /// Bytes of the files that have messages of the channel.
    #[serde(rename = "disk_bytes")]
    pub bytes: u64,
    /// The part of `bytes` that nobody else needs: what an empty of the channel frees.
    #[serde(rename = "disk_alone_bytes")]
    pub alone_bytes: u64,
    /// The names of channels that need files of `bytes`, too. The first ones, in the order of their names.
    #[serde(rename = "disk_shared_with")]
    pub shared_with: Vec<String>,
    /// The number of all such channels.
    #[serde(rename = "disk_shared_count")]
    pub shared_count: u64,
    /// True if the topic itself needs some of them: messages wait in it, or can be brought back.
    #[serde(rename = "disk_shared_with_topic")]
    pub is_shared_with_topic: bool,
}

/// The messages of a channel that have reached their attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeadLetterStats {
    /// The dead-letter topic.
    #[serde(rename = "dead_letter_topic")]
    pub topic: String,
    /// Messages that went to the dead-letter topic.
    #[serde(rename = "dead_letter_count")]
    pub count: u64,
    /// Messages that are to go there, also those that are on their way. They are part of the depth.
    #[serde(rename = "dead_letter_waiting_count")]
    pub waiting_count: u64,
}

/// One connection, as a consumer of a channel or as a producer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClientStats {
    /// From IDENTIFY; before it the peer's IP address.
    pub client_id: String,
    /// From IDENTIFY; before it the peer's IP address.
    pub hostname: String,
    /// The protocol.
    pub version: ProtocolVersion,
    /// `ip:port`.
    pub remote_address: String,
    /// 0 new, 3 subscribed, 4 closing: nsqd's numbers.
    pub state: u8,
    /// The RDY count in force.
    pub ready_count: u64,
    /// Delivered to this client and not yet answered.
    pub in_flight_count: u64,
    /// The counters.
    #[serde(flatten)]
    pub counters: ConsumerCounters,
    /// The time at which the connection was accepted, in seconds since the Unix epoch.
    pub connect_ts: i64,
    /// Per cent of messages wanted; 0 means all.
    pub sample_rate: u8,
    /// True if the connection is compressed with deflate.
    pub deflate: bool,
    /// True if the connection is compressed with snappy.
    pub snappy: bool,
    /// From IDENTIFY.
    pub user_agent: String,
    /// The answer of the auth server.
    #[serde(flatten)]
    pub auth: AuthStats,
    /// From IDENTIFY.
    pub topology_zone: String,
    /// From IDENTIFY.
    pub topology_region: String,
    /// The messages that this connection published, one entry per topic. nsqd shows at most one entry, which depends on
    /// the filter. The shell chooses that entry.
    #[serde(skip_serializing_if = "is_default")]
    pub pub_counts: Vec<PubCount>,
    /// The encryption.
    #[serde(flatten)]
    pub tls: TlsStats,
}

/// The counters of a consumer. The connection itself counts here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ConsumerCounters {
    /// Messages sent to it, redeliveries included.
    pub message_count: u64,
    /// FIN commands that found their message.
    pub finish_count: u64,
    /// REQ commands that found their message.
    pub requeue_count: u64,
}

/// What an auth server says of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AuthStats {
    /// True if the auth server has granted something.
    #[serde(skip_serializing_if = "is_default")]
    pub authed: bool,
    /// The name of the client.
    #[serde(rename = "auth_identity", skip_serializing_if = "is_default")]
    pub identity: String,
    /// A URL with more about the client.
    #[serde(rename = "auth_identity_url", skip_serializing_if = "is_default")]
    pub identity_url: String,
}

/// The encryption of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TlsStats {
    /// True if the connection is encrypted.
    pub tls: bool,
    /// Name of the cipher suite, empty without TLS.
    #[serde(rename = "tls_cipher_suite")]
    pub cipher_suite: String,
    /// `TLS1.2` and the like, empty without TLS.
    #[serde(rename = "tls_version")]
    pub version: String,
    /// Empty: nsqd negotiates no protocol.
    #[serde(rename = "tls_negotiated_protocol")]
    pub negotiated_protocol: &'static str,
    /// True if the connection is encrypted: nsqd calls the protocol mutual on every TLS connection.
    #[serde(rename = "tls_negotiated_protocol_is_mutual")]
    pub negotiated_protocol_is_mutual: bool,
}

/// The protocol of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum ProtocolVersion {
    /// The only one.
    #[default]
    V2,
}

/// Messages that one connection published to one topic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PubCount {
    /// The topic.
    pub topic: String,
    /// Messages. A publish to a topic of another shard counts when it is forwarded, even if that shard refuses it.
    pub count: u64,
}

/// nsqd's memory figures. Most speak of Go's collector and stay 0 here; the keys are kept because
/// dashboards read them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryStats {
    /// Live objects on the heap.
    pub heap_objects: u64,
    /// Bytes held by the process without use.
    pub heap_idle_bytes: u64,
    /// Bytes in use.
    pub heap_in_use_bytes: u64,
    /// Bytes given back to the system.
    pub heap_released_bytes: u64,
    /// Longest pause for collection.
    pub gc_pause_usec_100: u64,
    /// 99th percentile of those pauses.
    pub gc_pause_usec_99: u64,
    /// 95th percentile of those pauses.
    pub gc_pause_usec_95: u64,
    /// Heap size at which the next collection starts.
    pub next_gc_bytes: u64,
    /// Collections so far.
    pub gc_total_runs: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str, channels: &[&str]) -> TopicStats {
        let channels = channels
            .iter()
            .map(|name| ChannelStats {
                channel_name: name.to_string(),
                ..Default::default()
            })
            .collect();
        TopicStats {
            topic_name: name.to_string(),
            channels,
            ..Default::default()
        }
    }

    #[test]
    fn merge_puts_topics_and_channels_in_byte_order() {
        let one = StatsSnapshot {
            topics: vec![topic("b", &["z", "a"])],
            ..Default::default()
        };
        let two = StatsSnapshot {
            topics: vec![topic("a", &[]), topic("B", &[])],
            producers: vec![ClientStats::default()],
            ..Default::default()
        };
        let merged = StatsSnapshot::merge([one, two]);
        assert_eq!(
            merged.topics,
            [topic("B", &[]), topic("a", &[]), topic("b", &["a", "z"])]
        );
        assert_eq!(merged.producers.len(), 1);
    }

    #[test]
    fn an_absent_filter_wants_everything() {
        let all = StatsFilter::default();
        assert!(all.wants_topic("t") && all.wants_channel("c"));
        let some = StatsFilter {
            topic: Some("t".into()),
            channel: Some("c".into()),
            ..all
        };
        assert!(some.wants_topic("t") && !some.wants_topic("T"));
        assert!(some.wants_channel("c") && !some.wants_channel(""));
    }
}
