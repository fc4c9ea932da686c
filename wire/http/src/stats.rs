//! The figures of nsqd's `/stats?format=json`.

use crate::lenient::lenient;

lenient! {
    /// nsqd's `/stats`.
    pub struct Stats {
        /// The version of nsqd.
        pub version: String,
        /// The topics.
        pub topics: Vec<TopicStats>,
        /// `OK`, or the reason why the nsqd takes no messages.
        pub health: String,
        /// The start of the nsqd, in seconds since 1970.
        pub start_time: i64,
        /// The connections that have published, unless the request leaves clients out.
        pub producers: Vec<ClientStats>,
    }
}

lenient! {
    /// A topic in nsqd's `/stats`.
    pub struct TopicStats {
        /// The name.
        pub topic_name: String,
        /// The channels.
        pub channels: Vec<ChannelStats>,
        /// Messages that no channel has yet.
        pub depth: i64,
        /// The part of the depth beyond nsqd's `--mem-queue-size`. The original nsqd has this part on disk.
        pub backend_depth: i64,
        /// Messages since the start of the nsqd.
        pub message_count: i64,
        /// Bytes of messages since the start of the nsqd.
        pub message_bytes: i64,
        /// Messages that were refused since the start of the nsqd, as on a full disk. Only ringq's nsqd has it.
        pub refused_count: i64,
        /// True if the topic is paused.
        pub paused: bool,
        /// The end of the pause, in milliseconds since 1970. Only ringq's nsqd has limits of pauses.
        pub pause_until_ms: Option<i64>,
        /// The reason of the pause.
        pub pause_note: String,
        /// The name of the admin who has paused it.
        pub paused_by: String,
        /// The time until which emptied messages can come back, in milliseconds since 1970. Only ringq's
        /// nsqd has it.
        pub undo_until_ms: Option<i64>,
        /// The number of these messages.
        pub undo_message_count: i64,
        /// The latency of all channels.
        pub e2e_processing_latency: LatencyStats,
        /// The age of the oldest message that is owed, in milliseconds. Only ringq's nsqd has it.
        pub oldest_unfinished_ms: Option<i64>,
        /// The number of the shard that has the topic. Only ringq's nsqd has shards.
        pub shard: Option<u64>,
        /// Messages that came again and were not stored. Only a topic with a rule of `--dedup` has this figure and the next ones:
        /// some of them with the key `publisher`, and the others with the keys `body` and `json:`.
        pub dedup_duplicate_count: Option<i64>,
        /// Messages without a number, or with a number below all that is remembered.
        pub dedup_unchecked_count: Option<i64>,
        /// Publishers that are remembered.
        pub dedup_publisher_count: Option<i64>,
        /// The most publishers that can be remembered.
        pub dedup_publisher_count_max: Option<i64>,
        /// Publishers that were forgotten for others.
        pub dedup_publisher_evicted_count: Option<i64>,
        /// Duplicates that were recognised by their fingerprint alone.
        pub dedup_unverified_count: Option<i64>,
        /// Messages that have no key.
        pub dedup_keyless_count: Option<i64>,
        /// Messages that were stored and whose keys are not remembered.
        pub dedup_unremembered_count: Option<i64>,
        /// Keys that are remembered.
        pub dedup_key_count: Option<i64>,
        /// The most keys that can be remembered.
        pub dedup_key_count_max: Option<i64>,
        /// Bytes of the tables of keys.
        pub dedup_memory_bytes: Option<i64>,
        /// Bytes of all tables of keys, when all of them exist.
        pub dedup_memory_bytes_max: Option<i64>,
        /// Times that the system refused memory for keys.
        pub dedup_memory_refused_count: Option<i64>,
        /// The time back to which the topic remembers, in milliseconds.
        pub dedup_reach_ms: Option<i64>,
    }
}

lenient! {
    /// A channel in nsqd's `/stats`.
    pub struct ChannelStats {
        /// The name.
        pub channel_name: String,
        /// Messages that wait.
        pub depth: i64,
        /// The part of the depth beyond nsqd's `--mem-queue-size`. The original nsqd has this part on disk.
        pub backend_depth: i64,
        /// Messages that consumers have and have not finished.
        pub in_flight_count: i64,
        /// Messages that are not due yet.
        pub deferred_count: i64,
        /// Messages since the start of the nsqd.
        pub message_count: i64,
        /// Messages to consumers in the nsqd's zone.
        pub zone_local_msg_count: i64,
        /// Messages to consumers in the nsqd's region, but in another zone.
        pub region_local_msg_count: i64,
        /// Messages to other consumers.
        pub global_msg_count: i64,
        /// Requeues.
        pub requeue_count: i64,
        /// Timeouts.
        pub timeout_count: i64,
        /// The number of clients. nsqds before 1.0 leave it out.
        pub client_count: Option<i64>,
        /// The clients, unless the request leaves them out.
        pub clients: Option<Vec<ClientStats>>,
        /// True if the channel is paused.
        pub paused: bool,
        /// The end of the pause, in milliseconds since 1970. Only ringq's nsqd has limits of pauses.
        pub pause_until_ms: Option<i64>,
        /// The reason of the pause.
        pub pause_note: String,
        /// The name of the admin who has paused it.
        pub paused_by: String,
        /// The time until which emptied messages can come back, in milliseconds since 1970. Only ringq's
        /// nsqd has it.
        pub undo_until_ms: Option<i64>,
        /// The number of these messages.
        pub undo_message_count: i64,
        /// The latency.
        pub e2e_processing_latency: LatencyStats,
        /// The age of the oldest message that is owed, in milliseconds. Only ringq's nsqd has it.
        pub oldest_unfinished_ms: Option<i64>,
        /// The deliveries of this message that have failed. Only ringq's nsqd has it, and leaves it out without one.
        pub oldest_failed_attempts: i64,
        /// The topic that gets the channel's dead letters, or an empty text. Only ringq's nsqd has dead letters.
        pub dead_letter_topic: String,
        /// Bytes of the files that have messages of the channel. Only ringq's nsqd has this and the next ones, if it is
        /// asked.
        pub disk_bytes: Option<i64>,
        /// The part of these bytes that nobody else needs.
        pub disk_alone_bytes: i64,
        /// The first channels that need the other part.
        pub disk_shared_with: Vec<String>,
        /// The number of all channels that need the other part.
        pub disk_shared_count: i64,
        /// True if the topic itself needs the other part.
        pub disk_shared_with_topic: bool,
    }
}

impl ChannelStats {
    /// Returns the number of clients, which nsqds before 1.0 only list.
    #[must_use]
    pub fn count_clients(&self) -> i64 {
        let listed = || self.clients.as_ref().map_or(0, Vec::len);
        self.client_count
            .unwrap_or_else(|| i64::try_from(listed()).unwrap_or(i64::MAX))
    }
}

lenient! {
    /// A client of a channel in nsqd's `/stats`, or a producer.
    pub struct ClientStats {
        /// The client's address.
        pub remote_address: String,
        /// The version of the protocol.
        pub version: String,
        /// The client's own name.
        pub client_id: String,
        /// The name of the client's machine.
        pub hostname: String,
        /// The client library.
        pub user_agent: String,
        /// The time of the connection, in seconds since 1970.
        pub connect_ts: i64,
        /// Messages that the client has and has not finished.
        pub in_flight_count: i64,
        /// The RDY of the client: the most messages that it may have in flight.
        pub ready_count: i64,
        /// Finished messages.
        pub finish_count: i64,
        /// Requeued messages.
        pub requeue_count: i64,
        /// Messages that were sent to the client.
        pub message_count: i64,
        /// The percentage of messages that the client wants, or 0 for all.
        pub sample_rate: i64,
        /// True if the connection is compressed with deflate.
        pub deflate: bool,
        /// True if the connection is compressed with snappy.
        pub snappy: bool,
        /// True if the client has authenticated itself.
        pub authed: bool,
        /// The name by which the auth server knows the client.
        pub auth_identity: String,
        /// The page about this name.
        pub auth_identity_url: String,
        /// The client's zone.
        pub topology_zone: String,
        /// The client's region.
        pub topology_region: String,
        /// True if the connection uses TLS.
        pub tls: bool,
        /// The cipher suite of TLS.
        pub tls_cipher_suite: String,
        /// The version of TLS.
        pub tls_version: String,
        /// The protocol that TLS has negotiated.
        pub tls_negotiated_protocol: String,
        /// True if both sides have agreed on this protocol.
        pub tls_negotiated_protocol_is_mutual: bool,
        /// The messages that the client has published, by topic.
        pub pub_counts: Vec<PubCount>,
    }
}

lenient! {
    /// The messages that a client has published to a topic.
    pub struct PubCount {
        /// The topic.
        pub topic: String,
        /// The number of messages since the connection.
        pub count: i64,
    }
}

lenient! {
    /// The latency from publish to finish, as one nsqd reports it.
    pub struct LatencyStats {
        /// The number of messages.
        pub count: i64,
        /// The percentiles, if the nsqd has any configured.
        pub percentiles: Option<Vec<Percentile>>,
    }
}

lenient! {
    /// One percentile of a latency.
    pub struct Percentile {
        /// The quantile, between 0 and 1.
        pub quantile: f64,
        /// The latency in nanoseconds.
        pub value: f64,
    }
}
