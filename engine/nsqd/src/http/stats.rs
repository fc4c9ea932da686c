//! `/stats`, a snapshot as JSON or as text; `/topics` and `/info`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine_rules::stats::{MemoryStats, StatsFilter, StatsSnapshot};
use http::StatusCode;

use super::{HttpBroker, health_text};
use crate::process::Info;
use program::http::{Query, Reply};
use program::version::{NSQ_VERSION, RINGQ_VERSION};
use wire::go_json::to_string;
use wire::json_object;

mod text;

/// The parameters of a request for statistics.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    filter: StatsFilter,
    is_json: bool,
    include_memory: bool,
}

impl Wanted {
    pub(super) fn from_query(query: &Query<'_>) -> Wanted {
        Wanted {
            filter: StatsFilter {
                topic: query.get_filter("topic"),
                channel: query.get_filter("channel"),
                include_clients: query.get_switch("include_clients", true),
                include_disk: query.get_switch("include_disk", false),
                include_logs: false,
                include_histograms: false,
            },
            is_json: query.get("format") == Some("json"),
            include_memory: query.get_switch("include_mem", true),
        }
    }
}

/// A snapshot and what is shown beside it.
struct View<'a> {
    info: &'a Info,
    health: String,
    is_draining: bool,
    snapshot: StatsSnapshot,
    wanted: Wanted,
    /// The topic that is asked for does not exist. nsqd then shows no list, not an empty one.
    is_topic_unknown: bool,
}

pub(super) async fn stats(broker: &HttpBroker, wanted: Wanted) -> Reply {
    let mut snapshot = broker.stats(&wanted.filter).await;
    snapshot.sort();
    let is_topic_unknown = wanted.filter.topic.is_some() && snapshot.topics.is_empty();
    if wanted.filter.channel.is_some() {
        snapshot.topics.retain(|topic| !topic.channels.is_empty());
    }
    if !wanted.filter.include_clients || is_topic_unknown {
        snapshot.producers.clear();
    }
    show_one_pub_count(&mut snapshot, &wanted.filter);
    let health = health_text(&broker.shared().health.get());
    let view = View {
        info: broker.info(),
        health,
        is_draining: broker.shared().drain.is_draining(),
        snapshot,
        wanted,
        is_topic_unknown,
    };
    if view.wanted.is_json {
        Reply::json(StatusCode::OK, view.json())
    } else {
        Reply::text(view.text(SystemTime::now()))
    }
}

/// Leaves each client the one publish count that nsqd shows: that of the wanted topic, or of any topic if none is wanted.
fn show_one_pub_count(snapshot: &mut StatsSnapshot, filter: &StatsFilter) {
    let topics = snapshot.topics.iter_mut();
    let channels = topics.flat_map(|topic| &mut topic.channels);
    let consumers = channels.flat_map(|channel| channel.clients.iter_mut().flatten());
    for client in consumers.chain(&mut snapshot.producers) {
        let counts = &mut client.pub_counts;
        counts.retain(|count| filter.wants_topic(&count.topic));
        counts.truncate(1);
    }
}

impl View<'_> {
    fn json(&self) -> String {
        let memory = self.wanted.include_memory.then_some(&self.snapshot.memory);
        // nsqd has no field `draining`. It is left out, like others, when it says nothing.
        to_string(&json_object! {
            version: NSQ_VERSION,
            health: &self.health,
            #[serde(flatten)]
            draining: self.is_draining.then(|| json_object! { draining: true }),
            start_time: unix_seconds(self.info.start_time),
            topics: (!self.is_topic_unknown).then_some(&self.snapshot.topics),
            #[serde(flatten)]
            memory: memory.map(|memory| json_object! { memory }),
            producers: Some(&self.snapshot.producers).filter(|list| !list.is_empty()),
        })
    }
}

/// Returns the names of all topics, sorted, in the form of nsqlookupd's `/topics`.
pub(super) async fn topics(broker: &HttpBroker) -> Reply {
    let mut names = broker.topic_names().await;
    names.sort_unstable();
    Reply::json(StatusCode::OK, to_string(&json_object! { topics: names }))
}

pub(super) fn info(info: &Info) -> Reply {
    let config = &info.config;
    let answer = json_object! {
        version: NSQ_VERSION,
        broadcast_address: &config.broadcast_address,
        hostname: config.options.hostname(),
        http_port: info.ports.http,
        tcp_port: info.ports.tcp,
        start_time: unix_seconds(info.start_time),
        max_heartbeat_interval: nanos(config.heartbeat_interval_max),
        max_output_buffer_size: config.output_buffer_bytes_max,
        max_output_buffer_timeout: nanos(config.output_buffer_timeout_max),
        max_deflate_level: config.deflate_level_max,
        topology_zone: &config.topology_zone,
        topology_region: &config.topology_region,
        ringq_version: RINGQ_VERSION,
    };
    Reply::json(StatusCode::OK, to_string(&answer))
}

fn unix_seconds(at: SystemTime) -> i64 {
    let seconds = at
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The figures by their names, in the order in which they are shown.
pub(crate) fn memory_fields(memory: &MemoryStats) -> [(&'static str, u64); 9] {
    [
        ("heap_objects", memory.heap_objects),
        ("heap_idle_bytes", memory.heap_idle_bytes),
        ("heap_in_use_bytes", memory.heap_in_use_bytes),
        ("heap_released_bytes", memory.heap_released_bytes),
        ("gc_pause_usec_100", memory.gc_pause_usec_100),
        ("gc_pause_usec_99", memory.gc_pause_usec_99),
        ("gc_pause_usec_95", memory.gc_pause_usec_95),
        ("next_gc_bytes", memory.next_gc_bytes),
        ("gc_total_runs", memory.gc_total_runs),
    ]
}

#[cfg(test)]
mod tests;
