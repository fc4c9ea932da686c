//! The answers of nsqds and nsqlookupds, as far as nsqadmin reads them.
//!
//! Old versions leave out fields, and Go programs write `null` for an empty list. Both mean the
//! default. Unknown fields are ignored. A field of a wrong type is an error of that one answer.

use serde::{Deserialize, Deserializer};

/// Reads `null` as the default.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Declares a struct whose fields may be missing or `null`.
macro_rules! lenient {
    ($(#[$outer:meta])* pub struct $name:ident { $($(#[$inner:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$outer])*
        #[derive(Clone, Debug, Default, PartialEq, Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($(#[$inner])* #[serde(deserialize_with = "or_default")] pub $field: $type,)*
        }
    };
}

lenient! {
    /// nsqlookupd's `/topics`.
    pub struct Topics {
        /// The names of the topics.
        pub topics: Vec<String>,
    }
}

lenient! {
    /// nsqlookupd's `/channels`.
    pub struct Channels {
        /// The names of the channels.
        pub channels: Vec<String>,
    }
}

lenient! {
    /// nsqlookupd's `/lookup`.
    pub struct Lookup {
        /// The names of the topic's channels.
        pub channels: Vec<String>,
        /// The nsqds that have the topic.
        pub producers: Vec<Producer>,
    }
}

lenient! {
    /// nsqlookupd's `/nodes`.
    pub struct Nodes {
        /// The nsqds.
        pub producers: Vec<Producer>,
    }
}

lenient! {
    /// An nsqd: an entry of an nsqlookupd, or nsqd's own `/info`.
    pub struct Producer {
        /// The address from which the nsqd has connected to the nsqlookupd.
        pub remote_address: String,
        /// The name of the nsqd's machine.
        pub hostname: String,
        /// The address that the nsqd tells to its clients.
        pub broadcast_address: String,
        /// The port of the protocol, as the nsqd has told it: any number.
        pub tcp_port: i64,
        /// The port of HTTP, as the nsqd has told it: any number. A wrong one is the failure of this nsqd alone.
        pub http_port: i64,
        /// The version of nsqd.
        pub version: String,
        /// The start of the nsqd in seconds since 1970, in `/info`.
        pub start_time: i64,
        /// The version of ringq, in `/info`. Only ringq's nsqd has it.
        pub ringq_version: Option<String>,
        /// The zone, or an empty text.
        pub topology_zone: String,
        /// The region, or an empty text.
        pub topology_region: String,
        /// The topics, in `/nodes`.
        pub topics: Vec<String>,
        /// A flag for each topic: true if the topic is tombstoned there. The list may be shorter
        /// than that of the topics.
        pub tombstones: Vec<bool>,
    }
}

lenient! {
    /// nsqd's `/stats`.
    pub struct Stats {
        /// The topics.
        pub topics: Vec<Topic>,
        /// `OK`, or the reason why the nsqd takes no messages.
        pub health: String,
        /// The start of the nsqd, in seconds since 1970.
        pub start_time: i64,
        /// The connections that have published, unless the request leaves clients out.
        pub producers: Vec<Client>,
    }
}

lenient! {
    /// A topic in nsqd's `/stats`.
    pub struct Topic {
        /// The name.
        pub topic_name: String,
        /// The channels.
        pub channels: Vec<Channel>,
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
        pub e2e_processing_latency: Latency,
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
    pub struct Channel {
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
        pub clients: Option<Vec<Client>>,
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
        pub e2e_processing_latency: Latency,
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

lenient! {
    /// A client of a channel in nsqd's `/stats`, or a producer.
    pub struct Client {
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
    pub struct Latency {
        /// The number of messages.
        pub count: i64,
        /// The percentiles, if the nsqd has any configured.
        pub percentiles: Option<Vec<Quantile>>,
    }
}

lenient! {
    /// One percentile of a latency.
    pub struct Quantile {
        /// The quantile, between 0 and 1.
        pub quantile: f64,
        /// The latency in nanoseconds.
        pub value: f64,
    }
}

/// An answer in the form of NSQ before 1.0.
#[derive(Deserialize)]
struct Envelope<T> {
    data: T,
}

/// Reads an answer, with or without the envelope of NSQ before 1.0.
///
/// # Errors
/// The reason why the answer is not understood.
pub fn read<T: for<'de> Deserialize<'de>>(body: &[u8]) -> Result<T, String> {
    // Go replaces bytes that are not UTF-8.
    let text = String::from_utf8_lossy(body);
    let parsed = match text.trim_start().starts_with("{\"status_code\":") {
        true => serde_json::from_str::<Envelope<T>>(&text).map(|envelope| envelope.data),
        false => serde_json::from_str(&text),
    };
    parsed.map_err(|error| format!("the answer is not understood: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_fields_and_null_mean_the_default() {
        let stats: Stats = read(
            br#"{"topics":[{"topic_name":"t","channels":null,"depth":null},
                {"channels":[{"channel_name":"c","clients":[{}]}]}],"x":1}"#,
        )
        .unwrap();
        assert_eq!(stats.topics[0].topic_name, "t");
        assert_eq!(stats.topics[0].e2e_processing_latency, Latency::default());
        let channel = &stats.topics[1].channels[0];
        assert_eq!(channel.clients.as_ref().map(Vec::len), Some(1));
        assert_eq!(channel.client_count, None);
        assert_eq!(
            read::<Stats>(b"{\"topics\":null}").unwrap(),
            Stats::default()
        );
    }

    /// Any client of nsqlookupd can register such an nsqd.
    #[test]
    fn a_wrong_port_of_one_nsqd_hides_no_other() {
        let answer = br#"{"producers":[{"http_port":70000,"tcp_port":-1},{"http_port":4151}]}"#;
        let ports = read::<Nodes>(answer).unwrap().producers;
        let ports: Vec<i64> = ports.iter().map(|producer| producer.http_port).collect();
        assert_eq!(ports, [70_000, 4151]);
    }

    #[test]
    fn the_envelope_of_old_versions_is_opened() {
        let old = br#"{"status_code":200,"status_txt":"OK","data":{"topics":["a"]}}"#;
        assert_eq!(read::<Topics>(old).unwrap().topics, ["a"]);
    }

    #[test]
    fn integers_are_exact_and_other_types_are_errors() {
        let topic: Topic = read(br#"{"message_count":9007199254740993}"#).unwrap();
        assert_eq!(topic.message_count, 9_007_199_254_740_993);
        for body in [
            &b"{\"depth\":\"1\"}"[..],
            b"[",
            b"",
            b"{\"channels\":[1]}",
            b"7",
        ] {
            let error = read::<Topic>(body).unwrap_err();
            assert!(
                error.starts_with("the answer is not understood: "),
                "{error}"
            );
        }
        let text: Topics = read(b"{\"topics\":[\"\xff\"]}").unwrap();
        assert_eq!(text.topics, ["\u{fffd}"]);
    }
}
