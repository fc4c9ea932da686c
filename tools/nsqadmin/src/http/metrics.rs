//! `/metrics`: requests, servers that are asked, collections, the history, acts and the process, for Prometheus.
//! docs/reference/metrics.md lists the metrics, and a test compares the two.

use std::sync::Arc;
use std::time::Instant;

use ::http::StatusCode;
use jiff::Timestamp;
use program::metrics::{
    CONTENT_TYPE, Exposition, Family, Kind, Number, append_process, push_label,
};
use program::version::{NSQ_VERSION, RINGQ_VERSION};

use super::{App, Reply};
use crate::collector::{Collector, STREAMS_MAX};
use crate::live::Snapshot;
use crate::tally::{Collections, Tally, UpstreamCounts, UpstreamName};

/// The samples of a metric, each with the values of its labels.
type Samples = Vec<(Vec<String>, Number)>;

/// A metric, the names of its labels, and how its samples are read.
type Row = (Family, &'static str, fn(&Seen) -> Samples);

const BUILD: Row = (
    Family::new(
        "nsqadmin_build_info",
        Kind::Gauge,
        "1; the labels have the versions of NSQ and of ringq.",
    ),
    "version, ringq_version",
    |_| vec![(labels([NSQ_VERSION, RINGQ_VERSION]), 1.into())],
);

/// All metrics but [`BUILD`] and those of the process.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    (Family::new("nsqadmin_http_requests_total", Kind::Counter, "Requests of clients, by method and status."), "method, code", Seen::requests),
    (Family::new("nsqadmin_upstream_up", Kind::Gauge, "1 if the last request to the server got an answer, otherwise 0. Also 0 for an nsqd that is gone: the nsqlookupds know it no more."), "server, address", |it| it.upstreams(|it| it.is_up.into())),
    (Family::new("nsqadmin_upstream_requests_total", Kind::Counter, "Requests to the server."), "server, address", |it| it.upstreams(|it| it.requests.into())),
    (Family::new("nsqadmin_upstream_request_seconds_total", Kind::Counter, "Time of these requests."), "server, address", |it| it.upstreams(|it| it.time.as_secs_f64().into())),
    (Family::new("nsqadmin_upstream_failures_total", Kind::Counter, "Requests to the server that failed: unreachable, no_answer, refused, not_understood. An unknown topic or channel is no failure."), "server, address, reason", Seen::failures),
    (Family::new("nsqadmin_collections_total", Kind::Counter, "Collections of the figures of all nsqds: ok, partly without some servers, failed without any."), "result", Seen::collections),
    (Family::new("nsqadmin_collection_seconds_total", Kind::Counter, "Time of all collections."), "", |it| it.live(|it| it.counts.time.as_secs_f64().into())),
    (Family::new("nsqadmin_last_collection_seconds", Kind::Gauge, "Time of the last collection."), "", |it| it.live(|it| it.counts.last_time.as_secs_f64().into())),
    (Family::new("nsqadmin_history_left_out_series", Kind::Gauge, "Series for which the history has no room (--history-max-bytes)."), "", |it| it.live(|it| it.counts.left_out_series.into())),
    (Family::new("nsqadmin_last_figures_time_seconds", Kind::Gauge, "Unix time of the present live figures; 0 before the first ones."), "", |it| it.live(Live::time_seconds)),
    (Family::new("nsqadmin_topics", Kind::Gauge, "Topics in the live figures."), "", |it| it.live(|it| count(it.snapshot.topics.len()))),
    (Family::new("nsqadmin_channels", Kind::Gauge, "Channels in the live figures."), "", |it| it.live(Live::channels)),
    (Family::new("nsqadmin_nodes", Kind::Gauge, "nsqds in the live figures."), "", |it| it.live(|it| count(it.snapshot.nodes.len()))),
    (Family::new("nsqadmin_history_series", Kind::Gauge, "Topics, channels and nodes whose past is in memory."), "", |it| it.live(|it| count(it.collector.history.lock().len()))),
    (Family::new("nsqadmin_history_bytes", Kind::Gauge, "Bytes of memory of this past."), "", |it| it.live(|it| count(it.collector.history.lock().bytes()))),
    (Family::new("nsqadmin_history_bytes_max", Kind::Gauge, "The most of them (--history-max-bytes)."), "", |it| it.live(|it| count(it.collector.history.lock().bytes_max))),
    (Family::new("nsqadmin_history_room_seconds", Kind::Gauge, "Time for which the past has had room: seven days, or less after points were dropped."), "", |it| it.live(Live::room_seconds)),
    (Family::new("nsqadmin_event_streams", Kind::Gauge, "Open streams of events (/api/live/events)."), "", |it| it.live(Live::streams)),
    (Family::new("nsqadmin_event_streams_max", Kind::Gauge, "The most streams of events that may be open."), "", |it| it.live(|_| count(STREAMS_MAX))),
    (Family::new("nsqadmin_acts_total", Kind::Counter, "Acts of admins by their result: done, partly, failed, refused."), "action, result", Seen::acts),
    (Family::new("nsqadmin_audit_failures_total", Kind::Counter, "Lines that could not be written to --audit-log-file."), "", |it| vec![(Vec::new(), it.tally.audit_failures().into())]),
    (Family::new("nsqadmin_notifications_total", Kind::Counter, "Notifications of acts: sent, failed, and dropped because too many waited."), "result", |it| by_result(it.tally.notifications())),
];

/// The figures at one moment.
struct Seen {
    tally: Tally,
    /// The servers that were asked.
    upstreams: Vec<(UpstreamName, UpstreamCounts)>,
    /// `None` without live figures.
    live: Option<Live>,
}

/// The figures of the collector.
struct Live {
    counts: Collections,
    snapshot: Arc<Snapshot>,
    collector: Collector,
}

impl Live {
    fn streams(&self) -> Number {
        let free = self.collector.streams.available_permits();
        count(STREAMS_MAX.saturating_sub(free))
    }

    #[allow(clippy::cast_precision_loss)] // Milliseconds since 1970 are below 2^53.
    fn time_seconds(&self) -> Number {
        (self.snapshot.now.unix_millis as f64 / 1000.0).into()
    }

    fn channels(&self) -> Number {
        let topics = self.snapshot.topics.values();
        count(topics.map(|topic| topic.channels.len()).sum())
    }

    fn room_seconds(&self) -> Number {
        let history = self.collector.history.lock();
        let seconds = history.room_seconds(Timestamp::now().as_second());
        seconds.unsigned_abs().into()
    }
}

fn count(count: usize) -> Number {
    (count as u64).into()
}

impl Seen {
    fn of(app: &App) -> Seen {
        let live = |collector: &Collector| Live {
            counts: app.tally.collections(),
            snapshot: collector.snapshots.borrow().clone(),
            collector: collector.clone(),
        };
        Seen {
            tally: app.tally.clone(),
            upstreams: app.tally.upstreams(Instant::now()),
            live: app.collector.as_ref().map(live),
        }
    }

    fn requests(&self) -> Samples {
        let requests = self.tally.requests().into_iter();
        let samples = requests
            .map(|((method, status), count)| (labels([method, &status.to_string()]), count.into()));
        samples.collect()
    }

    fn upstreams(&self, read: fn(&UpstreamCounts) -> Number) -> Samples {
        let upstreams = self.upstreams.iter();
        upstreams
            .map(|(name, counts)| (labels([name.server, &name.address]), read(counts)))
            .collect()
    }

    fn failures(&self) -> Samples {
        let upstreams = self.upstreams.iter();
        let samples = upstreams.flat_map(|(name, counts)| {
            let failures = counts.failures.iter();
            failures.map(|(reason, count)| {
                let labels = labels([name.server, &name.address, reason]);
                (labels, (*count).into())
            })
        });
        samples.collect()
    }

    fn live(&self, read: fn(&Live) -> Number) -> Samples {
        let live = self.live.iter();
        live.map(|live| (Vec::new(), read(live))).collect()
    }

    fn collections(&self) -> Samples {
        let counts = self.live.iter().flat_map(|Live { counts: of, .. }| {
            [
                ("ok", of.complete),
                ("partly", of.partial),
                ("failed", of.failed),
            ]
        });
        by_result(counts)
    }

    fn acts(&self) -> Samples {
        let acts = self.tally.acts().into_iter();
        let samples =
            acts.map(|((action, result), count)| (labels([&action, result]), count.into()));
        samples.collect()
    }
}

/// Answers `/metrics`.
pub(super) fn metrics(app: &App) -> Reply {
    let mut text = String::new();
    let mut out = Exposition::new(|part| text += &part);
    let seen = Seen::of(app);
    append(&mut out, &BUILD, &seen);
    append_process(&mut out, app.started);
    for row in ROWS {
        append(&mut out, row, &seen);
    }
    out.end();
    Reply::new(StatusCode::OK, CONTENT_TYPE, text)
}

fn append(out: &mut Exposition, (family, names, read): &Row, seen: &Seen) {
    out.begin(*family);
    for (values, number) in read(seen) {
        let mut labels = String::new();
        for (name, value) in names.split(", ").zip(&values) {
            push_label(&mut labels, name, value);
        }
        out.sample(&labels, number);
    }
}

fn by_result(counts: impl Iterator<Item = (&'static str, u64)>) -> Samples {
    counts
        .map(|(result, count)| (labels([result]), count.into()))
        .collect()
}

fn labels<const N: usize>(values: [&str; N]) -> Vec<String> {
    values.map(str::to_owned).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_support::tables;

    /// docs/reference/metrics.md holds a table of all metrics, and it is this one. To write it anew, run this test
    /// with UPDATE_DOCS=1.
    #[test]
    fn the_documentation_has_every_metric() {
        let rows = std::iter::once(&BUILD).chain(ROWS);
        let all: Vec<_> = rows.map(|(family, labels, _)| (*family, *labels)).collect();
        let table = tables::of_metrics(&all);
        test_support::pages::check("reference/metrics.md", |page| {
            tables::page_with_table(page, "nsqadmin's metrics", &table)
        });
    }
}
