//! The figures of a topic's gate in /stats.

use serde::Serialize;

/// The messages that a topic has recognised by their publisher and number, and the publishers that it remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NumberStats {
    /// Messages that were answered with OK and not stored again.
    #[serde(rename = "dedup_duplicate_count")]
    pub duplicate_count: u64,
    /// Messages that were stored although the topic could not tell whether it had stored them before.
    #[serde(rename = "dedup_unchecked_count")]
    pub unchecked_count: u64,
    /// Publishers that the topic remembers.
    #[serde(rename = "dedup_publisher_count")]
    pub publisher_count: u64,
    /// The most publishers that the topic remembers.
    #[serde(rename = "dedup_publisher_count_max")]
    pub publisher_count_max: u64,
    /// Publishers that were forgotten to make room for others.
    #[serde(rename = "dedup_publisher_evicted_count")]
    pub evicted_count: u64,
}

/// The messages that a topic has recognised by their content, and the keys that it remembers. Counts are since the
/// start of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KeyStats {
    /// Messages that were answered with OK and not stored again.
    #[serde(rename = "dedup_duplicate_count")]
    pub duplicate_count: u64,
    /// The duplicates whose first copy was not in memory any more, so that the fingerprint decided.
    #[serde(rename = "dedup_unverified_count")]
    pub unverified_count: u64,
    /// Messages that were stored because they have no key.
    #[serde(rename = "dedup_keyless_count")]
    pub keyless_count: u64,
    /// Messages that were stored, and whose keys are not remembered, because their batch was too large, the system
    /// refused the memory, or another key has the same fingerprint.
    #[serde(rename = "dedup_unremembered_count")]
    pub unremembered_count: u64,
    /// Keys that the topic remembers.
    #[serde(rename = "dedup_key_count")]
    pub key_count: u64,
    /// The most keys that the topic remembers.
    #[serde(rename = "dedup_key_count_max")]
    pub key_count_max: u64,
    /// Bytes of the tables of keys.
    #[serde(rename = "dedup_memory_bytes")]
    pub memory_bytes: u64,
    /// Bytes of the tables of keys when all are there.
    #[serde(rename = "dedup_memory_bytes_max")]
    pub memory_bytes_max: u64,
    /// The number of times that the system refused memory for keys.
    #[serde(rename = "dedup_memory_refused_count")]
    pub memory_refused_count: u64,
    /// The time back to which the topic remembers keys, in milliseconds.
    #[serde(rename = "dedup_reach_ms")]
    pub reach_ms: u64,
}
