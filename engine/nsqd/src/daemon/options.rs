//! Derives the options of the broker's rules and of its logs from the flags.

use crate::config::{Config, Rules, TlsRequired};
use diskq::LogOptions;
use engine_rules::{
    BrokerOptions, GraceOptions, LatencyOptions, ShardId, TopicOptions, Topology, has_publishers,
};
use program::version::NSQ_VERSION;
use wire::identify::ServerSettings;

/// Bytes of a backlog that stay in memory whatever --mem-queue-size says: of the topics of a shard
/// together, and of each. A consumer that far behind is served without the disk.
const RESIDENT_SHARD_BYTES: u64 = 64 * 1024 * 1024;
const RESIDENT_TOPIC_BYTES: u64 = 32 * 1024 * 1024;

/// Segments do not grow beyond this size, even if --max-bytes-per-file allows more: preparing a larger one takes the
/// keeper longer than the one before lasts.
const SEGMENT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// nsqd's default counts the messages that overflowed to disk, a few. Here every message is on disk,
/// and 2500 of them may be a millisecond's worth: unless an operator asks for another number, syncs go
/// by --sync-timeout alone (measured: docs/decisions/0009-syncs.md).
const SYNC_EVERY_DEFAULT: u64 = 2500;

/// Returns the options of a shard's broker. Each run has its own `seed`.
pub(super) fn broker_options(
    config: &Config,
    rules: Rules,
    shard: ShardId,
    shards: u32,
    seed: u64,
) -> BrokerOptions {
    let wide = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    BrokerOptions {
        shard,
        shards,
        limits: config.limits(),
        server: ServerSettings {
            version: NSQ_VERSION.to_owned(),
            max_rdy_count: wide(config.rdy_count_max),
            msg_timeout: config.msg_timeout,
            msg_timeout_max: config.msg_timeout_max,
            heartbeat_interval_max: config.heartbeat_interval_max,
            output_buffer_timeout: config.output_buffer_timeout,
            output_buffer_timeout_min: config.output_buffer_timeout_min,
            output_buffer_timeout_max: config.output_buffer_timeout_max,
            output_buffer_size_max: wide(config.output_buffer_bytes_max),
            deflate_level_max: i64::from(config.deflate_level_max),
            tls_available: config.has_certificate(),
            snappy_available: config.snappy,
            deflate_available: config.deflate,
            tls_required: config.tls_required != TlsRequired::No,
            auth_required: !config.auth_http_addresses.is_empty(),
            takes_numbers: has_publishers(&rules.dedup),
            topology_region: config.topology_region.clone(),
            topology_zone: config.topology_zone.clone(),
        },
        topic: TopicOptions {
            log: log_options(config, seed),
            mem_queue_size: config.mem_queue_count,
            group_commit: config.sync_every == 1,
            latency: latency_options(config),
            grace: GraceOptions {
                period: config.new_topic_grace,
                bytes_max: config.new_topic_grace_bytes,
            },
            dead_letters: rules.dead_letters,
            unclaimed: rules.unclaimed,
            dedup: rules.dedup,
        },
        resident_bytes: RESIDENT_SHARD_BYTES,
        turn_entries: engine_rules::TURN_ENTRIES,
        dead_letter_bytes: engine_rules::DEAD_LETTER_BYTES,
        channel_consumers_max: config.channel_consumers_max,
        asks_for_channels: config
            .lookupd_tcp_addresses
            .as_ref()
            .is_some_and(|addresses| !addresses.is_empty()),
        required: rules.required,
        topology: topology(config),
        seed: seed.wrapping_add(u64::from(shard.0)),
    }
}

fn latency_options(config: &Config) -> Option<LatencyOptions> {
    let percentiles = &config.e2e_percentiles;
    (!percentiles.is_empty()).then(|| LatencyOptions {
        percentiles: percentiles.as_slice().into(),
        window: config.e2e_window,
    })
}

fn topology(config: &Config) -> Option<Topology> {
    let is_experiment = |name: &String| name == "topology-aware-consumption";
    config
        .experiments
        .iter()
        .any(is_experiment)
        .then(|| Topology {
            zone: config.topology_zone.clone(),
            region: config.topology_region.clone(),
        })
}

/// Returns the options of a topic's log.
fn log_options(config: &Config, seed: u64) -> LogOptions {
    let segment_bytes_max = segment_bytes_max(config);
    let defaults = LogOptions::default();
    LogOptions {
        node: config.node_id,
        segment_bytes_steady: defaults.segment_bytes_steady.min(segment_bytes_max),
        segment_bytes_max,
        resident_messages: config.mem_queue_count,
        resident_bytes_min: RESIDENT_TOPIC_BYTES,
        sync_every: match config.sync_every {
            0 | SYNC_EVERY_DEFAULT => u64::MAX,
            messages => messages,
        },
        sync_timeout: config.sync_timeout,
        process_seed: seed,
        ..defaults
    }
}

/// The largest segment of a log.
pub(super) fn segment_bytes_max(config: &Config) -> u32 {
    config.file_bytes_max.clamp(64 * 1024, SEGMENT_BYTES_MAX) as u32
}
