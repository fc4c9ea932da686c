//! `/metrics`: the registrations and the process, for Prometheus. docs/reference/metrics.md lists the metrics, and a
//! test compares the two.

use std::sync::Arc;
use std::task::Poll;
use std::time::SystemTime;

use parking_lot::RwLock;
use program::http::Reply;
use program::metrics::{Exposition, Family, Kind, Number, append_process, push_label};
use program::version::{NSQ_VERSION, RINGQ_VERSION};

use crate::database::{Database, NodeFigures, Now, TopicFigures, Totals};

/// Topics or nodes that are read under one lock.
const PAGE: usize = 128;

/// A metric and how it is read.
struct Row<T> {
    family: Family,
    read: fn(&T) -> Number,
}

const fn gauge<T>(name: &'static str, help: &'static str, read: fn(&T) -> Number) -> Row<T> {
    let family = Family::new(name, Kind::Gauge, help);
    Row { family, read }
}

const BUILD: Family = Family::new(
    "nsqlookupd_build_info",
    Kind::Gauge,
    "1; the labels have the versions of NSQ and of ringq.",
);

#[rustfmt::skip]
const TOTALS: &[Row<Totals>] = &[
    gauge("nsqlookupd_topics", "Topics that /topics shows.", |it| it.topics.into()),
    gauge("nsqlookupd_channels", "Channels of all topics.", |it| it.channels.into()),
    gauge("nsqlookupd_nodes", "Connected nsqds that /nodes shows.", |it| it.nodes.into()),
    gauge("nsqlookupd_inactive_nodes", "Connected nsqds that were silent for longer than --inactive-producer-timeout.", |it| it.inactive_nodes.into()),
];

#[rustfmt::skip]
const TOPIC: &[Row<TopicFigures>] = &[
    gauge("nsqlookupd_topic_producers", "nsqds that /lookup shows for the topic.", |it| it.producers.into()),
    gauge("nsqlookupd_topic_tombstones", "nsqds that a tombstone hides from /lookup for the topic.", |it| it.tombstones.into()),
    gauge("nsqlookupd_topic_channels", "Channels of the topic.", |it| it.channels.into()),
];

#[rustfmt::skip]
const NODE: &[Row<NodeFigures>] = &[
    gauge("nsqlookupd_node_topics", "Topics that the nsqd has registered.", |it| it.topics.into()),
    gauge("nsqlookupd_node_silence_seconds", "Time since the last PING of the nsqd, or since its IDENTIFY.", |it| it.silence.as_secs_f64().into()),
];

/// Returns the answer to `/metrics`. What changes in the meantime may be a part of it.
pub(super) async fn metrics(
    database: &Arc<RwLock<Database>>,
    now: fn() -> Now,
    started: SystemTime,
) -> Reply {
    let mut parts = Vec::new();
    let mut out = Exposition::new(|part| parts.push(part));
    let mut labels = String::new();
    push_label(&mut labels, "version", NSQ_VERSION);
    push_label(&mut labels, "ringq_version", RINGQ_VERSION);
    out.begin(BUILD);
    out.sample(&labels, 1);
    append_process(&mut out, started);
    let totals = database.read().totals(now());
    append_rows(&mut out, TOTALS, &[(String::new(), totals)]);
    append_rows(&mut out, TOPIC, &topics(database, now).await);
    append_rows(&mut out, NODE, &nodes(database, now).await);
    out.end();
    let mut parts = parts.into_iter();
    let reply = Reply::metrics(parts.next().unwrap_or_default());
    if parts.as_slice().is_empty() {
        return reply;
    }
    reply.and_more(move |_| Poll::Ready(parts.next()))
}

async fn topics(database: &RwLock<Database>, now: fn() -> Now) -> Vec<(String, TopicFigures)> {
    let mut topics = Vec::new();
    let mut behind = None;
    loop {
        let page = database.read().topic_figures(behind.as_ref(), PAGE, now());
        let Some((figures, last)) = page else {
            return topics;
        };
        topics.extend(figures.into_iter().map(|figures| {
            let mut labels = String::new();
            push_label(&mut labels, "topic", &figures.name);
            (labels, figures)
        }));
        behind = Some(last);
        tokio::task::yield_now().await;
    }
}

/// The address of the connection tells apart two connections of one nsqd: an old one, and the one that replaces it.
async fn nodes(database: &RwLock<Database>, now: fn() -> Now) -> Vec<(String, NodeFigures)> {
    let mut nodes = Vec::new();
    let clients = database.read().clients();
    for page in clients.chunks(PAGE) {
        let database = database.read();
        let figures = page
            .iter()
            .filter_map(|client| database.node_figures(*client, now()));
        nodes.extend(figures.map(|figures| {
            let mut labels = String::new();
            push_label(&mut labels, "node", &figures.node);
            push_label(&mut labels, "remote_address", &figures.remote_address);
            (labels, figures)
        }));
    }
    nodes
}

fn append_rows<T>(out: &mut Exposition, rows: &[Row<T>], things: &[(String, T)]) {
    for row in rows {
        out.begin(row.family);
        for (labels, thing) in things {
            out.sample(labels, (row.read)(thing));
        }
    }
}

/// Returns all metrics with the names of their labels, for the table of the page.
#[cfg(test)]
pub(super) fn all() -> Vec<(Family, &'static str)> {
    fn of<T>(rows: &[Row<T>], labels: &'static str) -> Vec<(Family, &'static str)> {
        rows.iter().map(|row| (row.family, labels)).collect()
    }
    let mut all = vec![(BUILD, "version, ringq_version")];
    all.extend(of(TOTALS, ""));
    all.extend(of(TOPIC, "topic"));
    all.extend(of(NODE, "node, remote_address"));
    all
}
