//! `/metrics`: the figures of `/stats`, of the shards and of the process, for Prometheus.
//!
//! ```text
//!   shards ──► snapshot in slices ──► a thread beside the shards: families, labels, text ──► answer in parts, which leave
//!                                                                                           while others are made
//! ```
//!
//! [`families`] has the metrics.

use std::path::Path;
use std::task::Context;

use super::{BUSY, HttpBroker};
use crate::process::Info;
use crate::thread_pool::Full;
use engine_rules::stats::{ShardStats, StatsFilter, StatsSnapshot};
use futures_channel::mpsc;
use futures_lite::StreamExt;
use program::http::{Failure, Query, Reply};
use program::metrics::Exposition;
use rustix::fs::statvfs;

mod families;

/// Everything that the metrics show.
struct Figures {
    snapshot: StatsSnapshot,
    shards: Vec<ShardStats>,
    info: Info,
    is_healthy: bool,
    is_draining: bool,
    /// Size of the file system of the data path, and the bytes that nsqd may still use. Read beside the shards.
    disk: Option<Disk>,
}

#[derive(Clone, Copy)]
struct Disk {
    size_bytes: u64,
    available_bytes: u64,
}

/// Returns the answer to `/metrics`.
///
/// # Errors
/// 503 if too many long answers are being prepared.
pub(super) async fn metrics(broker: &HttpBroker, query: &Query<'_>) -> Result<Reply, Failure> {
    let filter = StatsFilter {
        topic: query.get_filter("topic"),
        channel: query.get_filter("channel"),
        include_clients: query.get_switch("include_clients", false),
        include_disk: false,
        include_logs: true,
        include_histograms: query.get_switch("include_histograms", true),
    };
    let mut snapshot = broker.stats(&filter).await;
    if filter.channel.is_some() {
        snapshot.topics.retain(|topic| !topic.channels.is_empty());
    }
    let shared = broker.shared();
    let mut figures = Figures {
        snapshot,
        shards: broker.shards().await,
        info: broker.info().clone(),
        is_healthy: shared.health.get().is_ok(),
        is_draining: shared.drain.is_draining(),
        disk: None,
    };
    let (sender, mut parts) = mpsc::unbounded();
    let render = move || {
        figures.snapshot.sort();
        figures.disk = disk(&figures.info.config.data_path);
        let mut out = Exposition::new(move |part| {
            // The caller may be gone: an HTTP client that hung up.
            let _ = sender.unbounded_send(part);
        });
        families::append(&mut out, &figures);
        out.end();
    };
    let begun = shared.reports.give(0, Box::new(render));
    begun.map_err(|Full| BUSY)?;
    let first = parts.next().await.ok_or(BUSY)?;
    let poll_next = move |cx: &mut Context<'_>| parts.poll_next(cx);
    Ok(Reply::metrics(first).and_more(poll_next))
}

/// Asks the file system of the data path. `None`: it does not answer.
fn disk(data_path: &Path) -> Option<Disk> {
    let found = statvfs(data_path).ok()?;
    Some(Disk {
        size_bytes: found.f_blocks * found.f_frsize,
        available_bytes: found.f_bavail * found.f_frsize,
    })
}

#[cfg(test)]
mod tests;
