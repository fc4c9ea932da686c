//! [`NodeCheck`]: the health, the disk and the shards of a node. [`Vanished`]: the nodes that are gone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use nsq_doctor::{grown, short};
use serde::Serialize;
use wire::go_json::is_default;

use super::round::{Backlog, NodeRound, Recent, Round};
use super::{and_more, keep_highest, time_since};
use crate::figures::write_rounded;

/// The time for which a node that has vanished is named, in milliseconds. After this time, the node counts as taken out of the
/// cluster.
const GONE_MILLIS: i64 = 30 * 60 * 1000;

/// Most nodes that are remembered after they have vanished: those that were named last. An nsqlookupd that
/// names other nodes each time must not fill the memory.
pub(super) const GONE_MAX: usize = 1000;

/// The time over which the use of a disk is measured, in milliseconds. nsqd takes its disk in whole
/// segments, so a shorter time shows steps.
const WINDOW_MILLIS: i64 = 600_000;

/// The shortest time that is enough, in milliseconds.
const WINDOW_MILLIS_MIN: i64 = 60_000;

/// The time until a disk is full below which the disk needs attention, in seconds.
const SOON_SECONDS: f64 = 4.0 * 3600.0;

/// The longest forecast, in times that were watched.
const WATCHED_FACTOR: f64 = 24.0;

/// The check of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NodeCheck {
    /// `OK`, or the reason why the node takes no messages. Empty if the node did not answer.
    pub health: String,
    /// The version of ringq, which is empty for another nsqd. `None` if the node did not tell its build.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ringq_version: Option<String>,
    /// The disk of the node. Only ringq's nsqd tells about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskFigures>,
    /// The shards by number. Only ringq's nsqd has some.
    #[serde(skip)]
    pub shards: BTreeMap<u64, ShardFigures>,
}

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
        let metrics = node.metrics.as_ref();
        let metrics = metrics.filter(|metrics| metrics.disk_bytes > 0.0)?;
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

/// The load of a shard between two rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ShardFigures {
    /// The number of the shard.
    #[serde(rename = "shard")]
    pub number: u64,
    /// The part of a core that the shard uses. `None` without an earlier figure.
    #[serde(
        serialize_with = "write_rounded",
        skip_serializing_if = "Option::is_none"
    )]
    pub load: Option<f64>,
    /// The topics.
    pub topic_count: usize,
    /// The connections.
    pub connections: f64,
    /// Messages per second that arrive in the topics.
    #[serde(rename = "rate", serialize_with = "write_rounded")]
    pub arrivals: f64,
    /// The topic with the most of them.
    #[serde(flatten)]
    pub busiest: Option<Busiest>,
}

/// The topic of a shard with the most messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Busiest {
    /// The name.
    #[serde(rename = "busiest_topic")]
    pub topic: String,
    /// Its messages per second.
    #[serde(rename = "busiest_rate", serialize_with = "write_rounded")]
    pub rate: f64,
}

impl NodeCheck {
    /// Returns the check of a node's answer.
    pub(super) fn of(
        address: &str,
        node: &NodeRound,
        recent: &Recent,
        disk: Option<DiskFigures>,
    ) -> NodeCheck {
        let (known, elapsed) = recent.earliest_answer(address, node);
        NodeCheck {
            health: node.health.clone(),
            ringq_version: node.ringq_version.clone(),
            shards: shards(known, node, elapsed),
            disk,
        }
    }
}

/// Returns the shards of a node.
#[allow(clippy::cast_precision_loss)] // A rate needs no more.
fn shards(
    before: Option<&NodeRound>,
    after: &NodeRound,
    elapsed: Duration,
) -> BTreeMap<u64, ShardFigures> {
    let seconds = elapsed.as_secs_f64();
    let mut shards: BTreeMap<u64, ShardFigures> = BTreeMap::new();
    for (number, used) in after.metrics.iter().flat_map(|metrics| &metrics.shards) {
        let shard = shard_of(&mut shards, *number);
        shard.connections = used.connections;
        let earlier = before.and_then(|node| node.metrics.as_ref()?.shards.get(number));
        // A node that has started anew counts from 0.
        let grown = earlier.map(|earlier| used.cpu_seconds - earlier.cpu_seconds);
        shard.load = grown
            .filter(|grown| seconds > 0.0 && *grown >= 0.0)
            .map(|grown| grown / seconds)
            .filter(|load| load.is_finite());
    }
    for (topic, (number, count)) in &after.shards {
        let shard = shard_of(&mut shards, *number);
        shard.topic_count += 1;
        let Some(before) = before.filter(|_| seconds > 0.0) else {
            continue;
        };
        // All messages of a new topic belong to this time.
        let earlier = before.shards.get(topic).map_or(0, |(_, count)| *count);
        let rate = grown(earlier, *count) as f64 / seconds;
        shard.arrivals += rate;
        if rate > 0.0 && shard.busiest.as_ref().is_none_or(|most| rate > most.rate) {
            let topic = topic.clone();
            shard.busiest = Some(Busiest { topic, rate });
        }
    }
    shards
}

fn shard_of(shards: &mut BTreeMap<u64, ShardFigures>, number: u64) -> &mut ShardFigures {
    shards.entry(number).or_insert_with(|| ShardFigures {
        number,
        ..ShardFigures::default()
    })
}

/// A node that no nsqlookupd knows any more, for those who look for its topics.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GoneNode {
    /// `host:port`
    #[serde(rename = "node")]
    pub address: String,
    /// The topics that the node had.
    #[serde(skip)]
    pub topics: Arc<BTreeSet<String>>,
    /// The sentence about the node, which a concern has, too.
    pub sentence: String,
}

/// The nodes that were there.
#[derive(Debug, Default)]
pub(super) struct Vanished {
    /// What the nodes had that are not known to be gone.
    seen: BTreeMap<String, Had>,
    /// The nodes that no nsqlookupd knows any more.
    pub(super) gone: BTreeMap<String, Gone>,
}

/// The last answer of a node.
#[derive(Clone, Debug, Default)]
struct Had {
    topics: Arc<BTreeSet<String>>,
    /// `None`: the node has never answered.
    backlog: Option<Arc<Backlog>>,
}

/// A node that no nsqlookupd knows any more.
#[derive(Debug)]
pub(super) struct Gone {
    had: Had,
    /// The time of the first round without the node, in steady milliseconds.
    since: i64,
}

impl Vanished {
    /// Takes the next round. Returns the nodes that are gone: nsqlookupd forgets a node that dies at once.
    pub(super) fn next(&mut self, after: &Round) -> Vec<GoneNode> {
        self.see(after);
        if after.lookupds.values().any(Result::is_ok) {
            self.look_for_missing(after);
        }
        let all_answer = after.lookupds.values().all(Result::is_ok);
        let gone = self.gone.iter().map(|(address, gone)| GoneNode {
            address: address.clone(),
            topics: gone.had.topics.clone(),
            sentence: gone.sentence(after.now.steady_millis, all_answer),
        });
        gone.collect()
    }

    /// Remembers the nodes of a round.
    fn see(&mut self, after: &Round) {
        for (address, node) in &after.nodes {
            // A node that was gone and does not answer yet has what it had.
            let known = || {
                let gone = self.gone.get(address);
                gone.map(|gone| gone.had.clone()).unwrap_or_default()
            };
            let had = self.seen.entry(address.clone()).or_insert_with(known);
            if node.failure.is_none() {
                had.topics = node.topics.clone();
                had.backlog = Some(node.backlog.clone());
            }
        }
    }

    /// Finds the nodes that have vanished: no nsqlookupd that answers knows them. A host that dies may have run both an nsqd and
    /// an nsqlookupd, so a silent nsqlookupd hides no node.
    fn look_for_missing(&mut self, after: &Round) {
        let now = after.now.steady_millis;
        let is_there = |address: &String| {
            let mut answers = after.lookupds.values().flatten();
            after.nodes.contains_key(address) || answers.any(|nodes| nodes.contains(address))
        };
        let missing = self.seen.extract_if(.., |address, _| !is_there(address));
        let missing = missing.map(|(address, had)| (address, Gone { had, since: now }));
        self.gone.extend(missing);
        self.gone
            .retain(|address, gone| now - gone.since < GONE_MILLIS && !is_there(address));
        keep_highest(&mut self.gone, GONE_MAX, |_, gone| gone.since);
    }
}

impl Gone {
    /// Returns the sentence about the node. `all_answer` is true if all nsqlookupds answer.
    fn sentence(&self, now: i64, all_answer: bool) -> String {
        let nobody = if all_answer {
            "no nsqlookupd"
        } else {
            "no nsqlookupd that answers"
        };
        let known = match time_since(self.since, now) {
            None => "knows it any more, since just now".to_owned(),
            Some(time) => format!("has known it for {time}"),
        };
        let backlog = self.had.backlog.as_deref();
        let backlog = backlog.map(of_backlog).unwrap_or_default();
        format!(
            "This nsqd is gone: {nobody} {known}. Messages on its disk wait until it is back{backlog}"
        )
    }
}

/// Returns `: about 1.2k in 4 topics (a, b, c and 1 more)`.
#[allow(clippy::cast_precision_loss)] // An estimate needs no more.
fn of_backlog(backlog: &Backlog) -> String {
    let topics = match backlog.topic_count {
        0 => return ". It had none in its last answer".to_owned(),
        1 => "1 topic".to_owned(),
        count => format!("{count} topics"),
    };
    let more = and_more(backlog.topic_count.saturating_sub(backlog.longest.len()));
    let names = backlog.longest.join(", ");
    let messages = short(backlog.messages as f64);
    format!(": about {messages} in {topics} ({names}{more}) in its last answer")
}
