//! The figures of nsqd's `/stats?format=json`, as types.
//!
//! A field that an older nsqd does not have gets its default. `null` has the same meaning as an
//! absent field.

use serde::{Deserialize, Deserializer};

/// The figures of one nsqd.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeStats {
    /// The version of nsqd.
    #[serde(deserialize_with = "null_as_default")]
    pub version: String,
    /// `OK`, or `NOK - ` and the reason.
    #[serde(deserialize_with = "null_as_default")]
    pub health: String,
    /// The start of the process, in seconds since the Unix epoch.
    pub start_time: i64,
    /// The topics that were asked for.
    #[serde(deserialize_with = "null_as_default")]
    pub topics: Vec<TopicStats>,
    /// The connections that have published.
    #[serde(deserialize_with = "null_as_default")]
    pub producers: Vec<ClientStats>,
}

/// The figures of one topic on one nsqd. Counts begin with the process.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TopicStats {
    /// The topic's name.
    #[serde(deserialize_with = "null_as_default")]
    pub topic_name: String,
    /// The channels that were asked for.
    #[serde(deserialize_with = "null_as_default")]
    pub channels: Vec<ChannelStats>,
    /// Messages that wait in the topic itself.
    pub depth: i64,
    /// The part of `depth` that is not in memory.
    pub backend_depth: i64,
    /// Messages accepted.
    pub message_count: i64,
    /// Body bytes of the accepted messages.
    pub message_bytes: i64,
    /// The age of the oldest message of `depth`, in milliseconds. NSQ's own nsqd does not say it.
    pub oldest_unfinished_ms: Option<u64>,
    /// The number of the shard that has the topic. NSQ's own nsqd has no shards.
    pub shard: Option<u64>,
    /// True if the topic gives no messages to its channels.
    pub paused: bool,
    /// The end of the pause, in milliseconds since 1970. Only ringq's nsqd has the terms of pauses.
    pub pause_until_ms: Option<i64>,
    /// The reason of the pause.
    #[serde(deserialize_with = "null_as_default")]
    pub pause_note: String,
    /// The name of the one who has paused.
    #[serde(deserialize_with = "null_as_default")]
    pub paused_by: String,
    /// The latency from publish to FIN, over all channels.
    #[serde(deserialize_with = "null_as_default")]
    pub e2e_processing_latency: LatencyStats,
}

/// The figures of one channel on one nsqd. Counts begin with the process.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ChannelStats {
    /// The channel's name.
    #[serde(deserialize_with = "null_as_default")]
    pub channel_name: String,
    /// Messages that wait for a consumer.
    pub depth: i64,
    /// The part of `depth` that is not in memory.
    pub backend_depth: i64,
    /// Messages that consumers have and have not finished.
    pub in_flight_count: i64,
    /// Messages that are not due yet.
    pub deferred_count: i64,
    /// Messages that the channel has got from its topic.
    pub message_count: i64,
    /// Messages that consumers gave back.
    pub requeue_count: i64,
    /// Messages whose time in flight ran out.
    pub timeout_count: i64,
    /// Subscribed clients.
    pub client_count: i64,
    /// The subscribed clients, if they were asked for.
    #[serde(deserialize_with = "null_as_default")]
    pub clients: Vec<ClientStats>,
    /// The age of the oldest message that is not finished, in milliseconds. NSQ's own nsqd does not
    /// say it.
    pub oldest_unfinished_ms: Option<u64>,
    /// The deliveries of this message that have failed. Only ringq's nsqd says it, and leaves it out without one.
    pub oldest_failed_attempts: i64,
    /// The topic that gets the channel's dead letters. Empty without a rule, and for NSQ's own nsqd.
    #[serde(deserialize_with = "null_as_default")]
    pub dead_letter_topic: String,
    /// True if the channel delivers no messages.
    pub paused: bool,
    /// The end of the pause, in milliseconds since 1970. Only ringq's nsqd has the terms of pauses.
    pub pause_until_ms: Option<i64>,
    /// The reason of the pause.
    #[serde(deserialize_with = "null_as_default")]
    pub pause_note: String,
    /// The name of the one who has paused.
    #[serde(deserialize_with = "null_as_default")]
    pub paused_by: String,
    /// The latency from publish to FIN.
    #[serde(deserialize_with = "null_as_default")]
    pub e2e_processing_latency: LatencyStats,
}

/// The figures of one connection.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClientStats {
    /// The name that the client gave itself.
    #[serde(deserialize_with = "null_as_default")]
    pub client_id: String,
    /// The name of the client's machine.
    #[serde(deserialize_with = "null_as_default")]
    pub hostname: String,
    /// `ip:port` of the client's end of the connection.
    #[serde(deserialize_with = "null_as_default")]
    pub remote_address: String,
    /// 0 new, 3 subscribed, 4 closing.
    pub state: i64,
    /// The RDY count in force.
    pub ready_count: i64,
    /// Messages that this client has and has not finished.
    pub in_flight_count: i64,
    /// Messages sent to this client.
    pub message_count: i64,
    /// Messages that this client finished.
    pub finish_count: i64,
    /// Messages that this client gave back.
    pub requeue_count: i64,
    /// The time of the connection, in seconds since the Unix epoch.
    pub connect_ts: i64,
    /// Library and version.
    #[serde(deserialize_with = "null_as_default")]
    pub user_agent: String,
    /// The messages that this client published, by topic.
    #[serde(deserialize_with = "null_as_default")]
    pub pub_counts: Vec<PubCount>,
    /// True if the connection is encrypted.
    pub tls: bool,
}

/// The messages that one connection published to one topic.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PubCount {
    /// The topic.
    #[serde(deserialize_with = "null_as_default")]
    pub topic: String,
    /// The number of messages.
    pub count: i64,
}

/// The latency from publish to FIN, if nsqd measures it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct LatencyStats {
    /// The number of messages that were measured.
    pub count: i64,
    /// The percentiles that nsqd was started with. Empty if nsqd does not measure.
    #[serde(deserialize_with = "null_as_default")]
    pub percentiles: Vec<Percentile>,
}

/// One percentile of a latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Percentile {
    /// The quantile, in (0, 1].
    pub quantile: f64,
    /// Nanoseconds.
    pub value: f64,
}

/// Reads a value, and takes `null` for the default.
pub(super) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
