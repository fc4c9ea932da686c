//! `/metrics`: requests, servers that are asked, collections, the history, acts and the process, for Prometheus.
//! docs/monitoring.md lists the metrics, and a test compares the two.

use std::time::Instant;

use ::http::StatusCode;
use ::http::header::ACCEPT;
use jiff::Timestamp;
use program::metrics::{Exposition, Family, Format, Kind, Number, append_process, push_label};
use program::version::{NSQ_VERSION, RINGQ_VERSION};

use super::live::STREAMS_MAX;
use super::{App, Reply, Request};
use crate::collector::Collector;
use crate::tally::{Collections, Tally, UpstreamCounts};

/// A metric and how it is read.
struct Row<T> {
    family: Family,
    read: fn(&T) -> Number,
}

const fn row<T>(
    name: &'static str,
    kind: Kind,
    help: &'static str,
    read: fn(&T) -> Number,
) -> Row<T> {
    let family = Family::new(name, kind, help);
    Row { family, read }
}

const fn gauge(name: &'static str, help: &'static str) -> Family {
    Family::new(name, Kind::Gauge, help)
}

const fn counter(name: &'static str, help: &'static str) -> Family {
    Family::new(name, Kind::Counter, help)
}

const BUILD: Family = gauge(
    "nsqadmin_build_info",
    "1; the labels have the versions of NSQ and of ringq.",
);
const REQUESTS: Family = counter(
    "nsqadmin_http_requests_total",
    "Requests of clients, by method and status.",
);
const FAILURES: Family = counter(
    "nsqadmin_upstream_failures_total",
    "Requests to the server that failed: unreachable, no_answer, refused, not_understood. An unknown topic or channel is no failure.",
);
const COLLECTIONS: Family = counter(
    "nsqadmin_collections_total",
    "Collections of the figures of all nsqds: ok, partly without some servers, failed without any.",
);
const ACTS: Family = counter(
    "nsqadmin_acts_total",
    "Acts of admins by their result: done, partly, failed, refused.",
);
const AUDIT_FAILURES: Family = counter(
    "nsqadmin_audit_failures_total",
    "Lines that could not be written to --audit-log-file.",
);
const NOTIFICATIONS: Family = counter(
    "nsqadmin_notifications_total",
    "Notifications of acts: sent, failed, and dropped because too many waited.",
);
const STREAMS: Family = gauge(
    "nsqadmin_event_streams",
    "Open streams of events (/api/live/events).",
);
const STREAMS_LIMIT: Family = gauge(
    "nsqadmin_event_streams_max",
    "The most streams of events that may be open.",
);

#[rustfmt::skip]
const UPSTREAM: &[Row<UpstreamCounts>] = &[
    row("nsqadmin_upstream_up", Kind::Gauge, "1 if the last request to the server got an answer, otherwise 0. Also 0 for an nsqd that is gone: the nsqlookupds know it no more.", |it| it.is_up.into()),
    row("nsqadmin_upstream_requests_total", Kind::Counter, "Requests to the server.", |it| it.requests.into()),
    row("nsqadmin_upstream_request_seconds_total", Kind::Counter, "Time of these requests.", |it| it.time.as_secs_f64().into()),
];

#[rustfmt::skip]
const COLLECTION: &[Row<Collections>] = &[
    row("nsqadmin_collection_seconds_total", Kind::Counter, "Time of all collections.", |it| it.time.as_secs_f64().into()),
    row("nsqadmin_last_collection_seconds", Kind::Gauge, "Time of the last collection.", |it| it.last_time.as_secs_f64().into()),
    row("nsqadmin_history_left_out_series", Kind::Gauge, "Series for which the history has no room (--history-max-bytes).", |it| it.left_out_series.into()),
];

#[rustfmt::skip]
const LIVE: &[Row<Live>] = &[
    row("nsqadmin_last_figures_time_seconds", Kind::Gauge, "Unix time of the present live figures; 0 before the first ones.", |it| it.time_seconds.into()),
    row("nsqadmin_topics", Kind::Gauge, "Topics in the live figures.", |it| it.topics.into()),
    row("nsqadmin_channels", Kind::Gauge, "Channels in the live figures.", |it| it.channels.into()),
    row("nsqadmin_nodes", Kind::Gauge, "nsqds in the live figures.", |it| it.nodes.into()),
    row("nsqadmin_history_series", Kind::Gauge, "Topics, channels and nodes whose past is in memory.", |it| it.series.into()),
    row("nsqadmin_history_bytes", Kind::Gauge, "Bytes of memory of this past.", |it| it.history_bytes.into()),
    row("nsqadmin_history_bytes_max", Kind::Gauge, "The most of them (--history-max-bytes).", |it| it.history_bytes_max.into()),
    row("nsqadmin_history_room_seconds", Kind::Gauge, "Time for which the past has had room: seven days, or less after points were dropped.", |it| it.room_seconds.into()),
];

/// The figures of the collector.
struct Live {
    time_seconds: f64,
    topics: u64,
    channels: u64,
    nodes: u64,
    series: u64,
    history_bytes: u64,
    history_bytes_max: u64,
    room_seconds: u64,
}

impl Live {
    fn of(collector: &Collector) -> Live {
        let snapshot = collector.snapshots.borrow().clone();
        let channels = snapshot.topics.values().map(|topic| topic.channels.len());
        let channels = channels.sum::<usize>() as u64;
        let history = collector.history();
        Live {
            #[allow(clippy::cast_precision_loss)] // Milliseconds since 1970 are below 2^53.
            time_seconds: snapshot.now.unix_millis as f64 / 1000.0,
            topics: snapshot.topics.len() as u64,
            channels,
            nodes: snapshot.nodes.len() as u64,
            series: history.len() as u64,
            history_bytes: history.bytes() as u64,
            history_bytes_max: history.bytes_max as u64,
            room_seconds: history.room_seconds(Timestamp::now().as_second()).unsigned_abs(),
        }
    }
}

impl App {
    /// Answers `/metrics`.
    pub(super) fn metrics(&self, request: &Request) -> Reply {
        let format = Format::of_accept(request.header(ACCEPT.as_str()).as_bytes());
        let mut out = Exposition::new(format);
        out.begin(BUILD);
        let versions = [("version", NSQ_VERSION), ("ringq_version", RINGQ_VERSION)];
        out.sample(&labels(&versions), 1);
        append_process(&mut out, self.started);
        out.begin(REQUESTS);
        for ((method, status), count) in self.tally.requests() {
            let code = status.to_string();
            out.sample(&labels(&[("method", method), ("code", &code)]), count);
        }
        append_upstreams(&mut out, &self.tally);
        if let Some(collector) = &self.collector {
            append_collections(&mut out, &self.tally);
            append(&mut out, LIVE, &[(String::new(), Live::of(collector))]);
            let open = STREAMS_MAX.saturating_sub(self.streams.available_permits());
            out.single(STREAMS, open as u64);
            out.single(STREAMS_LIMIT, STREAMS_MAX as u64);
        }
        append_acts(&mut out, &self.tally);
        Reply::new(StatusCode::OK, format.content_type(), out.end().concat())
    }
}

fn append_upstreams(out: &mut Exposition, tally: &Tally) {
    let upstreams = tally.upstreams(Instant::now());
    let upstreams: Vec<(String, UpstreamCounts)> = upstreams
        .into_iter()
        .map(|(name, counts)| {
            let labels = labels(&[("server", name.server), ("address", &name.address)]);
            (labels, counts)
        })
        .collect();
    append(out, UPSTREAM, &upstreams);
    out.begin(FAILURES);
    for (labels, counts) in &upstreams {
        for (reason, count) in &counts.failures {
            let mut labels = labels.clone();
            push_label(&mut labels, "reason", reason);
            out.sample(&labels, *count);
        }
    }
}

fn append_collections(out: &mut Exposition, tally: &Tally) {
    let collections = tally.collections();
    out.begin(COLLECTIONS);
    for (result, count) in [
        ("ok", collections.complete),
        ("partly", collections.partial),
        ("failed", collections.failed),
    ] {
        out.sample(&labels(&[("result", result)]), count);
    }
    append(out, COLLECTION, &[(String::new(), collections)]);
}

fn append_acts(out: &mut Exposition, tally: &Tally) {
    out.begin(ACTS);
    for ((action, result), count) in tally.acts() {
        let labels = labels(&[("action", &action), ("result", result)]);
        out.sample(&labels, count);
    }
    out.single(AUDIT_FAILURES, tally.audit_failures());
    out.begin(NOTIFICATIONS);
    for (result, count) in tally.notifications() {
        out.sample(&labels(&[("result", result)]), count);
    }
}

fn append<T>(out: &mut Exposition, rows: &[Row<T>], things: &[(String, T)]) {
    for row in rows {
        out.begin(row.family);
        for (labels, thing) in things {
            out.sample(labels, (row.read)(thing));
        }
    }
}

fn labels(pairs: &[(&str, &str)]) -> String {
    let mut labels = String::new();
    for (name, value) in pairs {
        push_label(&mut labels, name, value);
    }
    labels
}

#[cfg(test)]
mod tests;
