//! `/stats`, a snapshot as JSON or as text; `/topics` and `/info`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine_rules::stats::{ClientStats, MemoryStats, PubCount, StatsFilter, StatsSnapshot};
use http::StatusCode;

use super::{Broker, Info, health_text};
use program::http::{Query, Reply};
use program::version::{NSQ_VERSION, RINGQ_VERSION};
use wire::go_json::{JsonObject, push_array, push_string};

mod json;
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

pub(super) async fn stats<B: Broker>(broker: &B, wanted: Wanted) -> Reply {
    let mut snapshot = broker.stats(&wanted.filter).await;
    snapshot.sort();
    let is_topic_unknown = wanted.filter.topic.is_some() && snapshot.topics.is_empty();
    if wanted.filter.channel.is_some() {
        snapshot.topics.retain(|topic| !topic.channels.is_empty());
    }
    if !wanted.filter.include_clients || is_topic_unknown {
        snapshot.producers.clear();
    }
    let health = health_text(&broker.health());
    let view = View {
        info: broker.info(),
        health,
        is_draining: broker.is_draining(),
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

/// Returns the names of all topics, sorted, in the form of nsqlookupd's `/topics`.
pub(super) async fn topics<B: Broker>(broker: &B) -> Reply {
    let mut names = broker.topic_names().await;
    names.sort_unstable();
    let mut body = String::new();
    let mut object = JsonObject::new(&mut body);
    push_array(object.key("topics"), &names, |out, name| {
        push_string(out, name)
    });
    object.end();
    Reply::json(StatusCode::OK, body)
}

pub(super) fn info(info: &Info) -> Reply {
    let config = &info.config;
    let mut body = String::new();
    let mut object = JsonObject::new(&mut body);
    object.text("version", NSQ_VERSION);
    object.text("broadcast_address", &config.broadcast_address);
    object.text("hostname", config.options.hostname());
    object.number("http_port", info.ports.http);
    object.number("tcp_port", info.ports.tcp);
    object.number("start_time", unix_seconds(info.start_time));
    object.number(
        "max_heartbeat_interval",
        nanos(config.heartbeat_interval_max),
    );
    object.number("max_output_buffer_size", config.output_buffer_bytes_max);
    object.number(
        "max_output_buffer_timeout",
        nanos(config.output_buffer_timeout_max),
    );
    object.number("max_deflate_level", config.deflate_level_max);
    object.text("topology_zone", &config.topology_zone);
    object.text("topology_region", &config.topology_region);
    object.text("ringq_version", RINGQ_VERSION);
    object.end();
    Reply::json(StatusCode::OK, body)
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

/// Returns the one publish count that nsqd shows: that of the wanted topic, or of any topic if none is wanted.
fn shown_pub_count<'a>(client: &'a ClientStats, filter: &StatsFilter) -> Option<&'a PubCount> {
    client
        .pub_counts
        .iter()
        .find(|count| filter.wants_topic(&count.topic))
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
