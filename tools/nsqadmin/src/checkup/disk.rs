//! [`DiskFigures`]: the room on a node's disk, and the time until there is none.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;
use wire::go_json::is_default;

use super::round::NodeRound;
use crate::thousandth::write_rounded;

/// The time over which the use of a disk is measured, in milliseconds. nsqd takes its disk in whole
/// segments, so a shorter time shows steps.
const WINDOW_MILLIS: i64 = 600_000;

/// The shortest time that is enough, in milliseconds.
const WINDOW_MILLIS_MIN: i64 = 60_000;

/// The time until a disk is full below which the disk needs attention, in seconds.
const SOON_SECONDS: f64 = 4.0 * 3600.0;

/// The longest forecast, in times that were watched.
const WATCHED_FACTOR: f64 = 24.0;

/// The disk of a node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DiskFigures {
    /// Bytes of the file system.
    pub size_bytes: f64,
    /// Bytes that nsqd may still use.
    pub free_bytes: f64,
    /// True if nsqd refuses messages because the disk has no room.
    #[serde(skip_serializing_if = "is_default")]
    pub is_full: bool,
    /// Seconds until the disk is full, if it goes on to fill as in the last ten minutes.
    #[serde(
        rename = "full_in_s",
        serialize_with = "write_rounded",
        skip_serializing_if = "Option::is_none"
    )]
    pub full_in: Option<f64>,
    /// True if the disk is full soon: within 4 hours, and within 24 times the time that was watched. A
    /// minute does not tell about hours.
    #[serde(skip)]
    pub is_full_soon: bool,
}

/// The free bytes of each node's disk over time.
#[derive(Debug, Default)]
pub(super) struct Disks(BTreeMap<String, VecDeque<(i64, f64)>>);

impl Disks {
    /// Takes the next figure of a node.
    pub(super) fn next(
        &mut self,
        address: &str,
        node: &NodeRound,
        steady_millis: i64,
    ) -> Option<DiskFigures> {
        let metrics = node
            .metrics
            .as_ref()
            .filter(|metrics| metrics.disk_bytes > 0.0)?;
        let past = self.0.entry(address.to_owned()).or_default();
        past.retain(|(time, _)| steady_millis - time <= WINDOW_MILLIS);
        past.push_back((steady_millis, metrics.free_bytes));
        let (began, free) = *past.front()?;
        let millis = steady_millis - began;
        let used = free - metrics.free_bytes;
        #[allow(clippy::cast_precision_loss)] // A time needs no more.
        let watched = millis as f64 / 1000.0;
        let is_full = node.says_disk_is_full();
        let full_in = (millis >= WINDOW_MILLIS_MIN && used > 0.0 && !is_full)
            .then(|| metrics.free_bytes / used * watched);
        let soon = (watched * WATCHED_FACTOR).min(SOON_SECONDS);
        Some(DiskFigures {
            size_bytes: metrics.disk_bytes,
            free_bytes: metrics.free_bytes,
            is_full,
            full_in,
            is_full_soon: full_in.is_some_and(|seconds| seconds < soon),
        })
    }

    /// Forgets the nodes that have not told a figure for so long that it counts no more. A round without an answer of a node, or
    /// of all nsqlookupds, forgets nothing.
    pub(super) fn forget_old(&mut self, steady_millis: i64) {
        self.0.retain(|_, past| {
            let last = past.back().map(|(time, _)| steady_millis - time);
            last.is_some_and(|age| age <= WINDOW_MILLIS)
        });
    }
}
