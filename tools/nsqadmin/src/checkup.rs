//! [`Checker`]: says every few seconds what is wrong in the cluster, and what limits each channel.
//!
//! ```text
//!   Round (what every node and nsqlookupd said) ─► Checker ─► Checkup: doctor, producers, shards, disks
//!                                                    │            └──► concerns, the worst one first
//!                                                    └─ the rounds before, usual rates, free bytes of disks
//! ```
//!
//! The checker is a state machine without sockets and clocks. A round costs what its clients cost,
//! so the live figures, which have no clients, come more often. [`Pace`] says when a round is due.

mod ages;
mod concern;
mod dedup;
mod departed;
mod disk;
mod json;
mod pace;
mod producer;
mod recent;
mod round;
mod shard;
mod unclaimed;
mod usual;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use nsq_doctor::{ChannelSample, Diagnosis, Flow, Limit, diagnose, short};
use serde::Serialize;

pub use concern::{Concern, Subject};
pub use disk::DiskFigures;
pub use pace::{Pace, is_watched};
pub use producer::{ProducerFigures, TopicProducers};
pub use round::{
    Backlog, ChannelRound, ConsumerKey, LookupdRound, NodeMetrics, NodeRound, Round, ShardUse,
};
pub use shard::ShardFigures;

use crate::now::Now;
use crate::thousandth::write_rounded;

use ages::Ages;
use dedup::Dedup;
use departed::Departed;
use disk::Disks;
use producer::Usual;
use recent::Recent;
use unclaimed::Unclaimed;

/// The time for which a node that has vanished is named, in milliseconds. After this time, the node counts as taken out of the
/// cluster.
const GONE_MILLIS: i64 = 30 * 60 * 1000;

/// Most nodes that are remembered after they have vanished: those that were named last. An nsqlookupd that
/// names other nodes each time must not fill the memory.
const GONE_MAX: usize = 1000;

/// Most topics and most channels that are remembered while no node tells about them. Clients make names such as
/// `tail123#ephemeral` as they like. Those of silent nodes of a large cluster have room.
const ABSENT_MAX: usize = 100_000;

/// The state between two rounds.
#[derive(Debug, Default)]
pub struct Checker {
    recent: Recent,
    ages: Ages,
    usual: Usual,
    disks: Disks,
    unclaimed: Unclaimed,
    dedup: Dedup,
    departed: Departed,
    /// The nodes that were there, and are not known to be gone.
    seen: BTreeMap<String, Seen>,
    /// The nodes that no nsqlookupd knows any more.
    gone: BTreeMap<String, Gone>,
}

/// A node that was there.
#[derive(Debug, Default)]
struct Seen {
    /// The topics of the node's last answer.
    topics: Arc<BTreeSet<String>>,
    /// The messages of the node's last answer. `None`: the node has never answered.
    backlog: Option<Arc<Backlog>>,
    /// The nsqlookupds whose last answers had the node.
    lookupds: BTreeSet<String>,
    /// The time of the first round without the node, in steady milliseconds. `None` if the last round had it.
    missing_since: Option<i64>,
}

/// A node that no nsqlookupd knows any more.
#[derive(Debug)]
struct Gone {
    /// The time of the first round without the node, in steady milliseconds.
    since: i64,
    /// The time from which the node is named, in steady milliseconds. It is later if the nsqlookupds that knew the node
    /// were silent when it vanished.
    named_since: i64,
    topics: Arc<BTreeSet<String>>,
    /// `None`: the node has never answered.
    backlog: Option<Arc<Backlog>>,
}

impl Seen {
    /// Returns what is known of a node that was gone.
    fn again(gone: &Gone) -> Seen {
        Seen {
            topics: gone.topics.clone(),
            backlog: gone.backlog.clone(),
            ..Seen::default()
        }
    }
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

/// The result of a round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checkup {
    /// The time of the round. 0 before the first one.
    pub now: Now,
    /// The channels by topic and channel. Empty after the first round.
    pub channels: BTreeMap<(String, String), ChannelCheck>,
    /// The producers of each topic.
    pub producers: BTreeMap<String, TopicProducers>,
    /// The nodes by `host:port`.
    pub nodes: BTreeMap<String, NodeCheck>,
    /// The nodes that have vanished.
    pub gone: Vec<GoneNode>,
    /// The concerns, the worst first.
    pub concerns: Vec<Concern>,
}

/// The check of a channel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChannelCheck {
    /// The sentence of the doctor.
    pub sentence: String,
    /// True if the channel needs attention: a concern says so, too.
    pub is_problem: bool,
    /// True if the oldest message gets older.
    pub is_older: bool,
    /// True if messages are delivered again: consumers requeue them, or they time out. So is the oldest one, if it has failed again
    /// and again.
    pub is_retried: bool,
    /// Seconds until no message waits, if the present rates stay and consumers make the backlog shorter.
    #[serde(
        rename = "drained_in_s",
        serialize_with = "write_rounded",
        skip_serializing_if = "Option::is_none"
    )]
    pub drained_in: Option<f64>,
    /// True if the channel has nothing to do.
    #[serde(skip)]
    pub is_idle: bool,
}

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

impl Checker {
    /// Takes what all channels have between two rounds: topic, channel, depth, and the age of the oldest message in
    /// milliseconds.
    pub fn watch<'a>(
        &mut self,
        steady_millis: i64,
        channels: impl IntoIterator<Item = (&'a str, &'a str, i64, i64)>,
    ) {
        self.ages.add(steady_millis, channels);
    }

    /// Takes the next round.
    pub fn check(&mut self, mut after: Round) -> Checkup {
        for ((topic, _), channel) in &mut after.channels {
            channel.sample.dead_letters_of = after.dead_letters.get(topic).cloned();
        }
        let channels = after.channels.iter().map(|((topic, channel), round)| {
            let oldest_ms = round.oldest_ms.unwrap_or(0);
            (&**topic, &**channel, round.depth(), oldest_ms)
        });
        let steady_millis = after.now.steady_millis;
        self.watch(steady_millis, channels);
        self.recent.prepare(steady_millis);
        self.departed.next(&after);
        let mut checkup = Checkup {
            now: after.now,
            ..Checkup::default()
        };
        let mut found = self.unclaimed.next(&after);
        found.extend(self.dedup.next(&after));
        for (name, channel) in after.channels.iter().filter(|_| !self.recent.is_empty()) {
            let is_older = self.ages.grows(&name.0, &name.1);
            let departed = self.departed.sentence(name, steady_millis);
            let (check, concern) = check_channel(name, &self.recent, channel, is_older, departed);
            found.extend(concern);
            checkup.channels.insert(name.clone(), check);
        }
        checkup.producers = self.usual.producers(&self.recent, &after);
        for (address, node) in &after.nodes {
            let (known, elapsed) = self.recent.earliest_answer(address, node);
            let check = NodeCheck {
                health: node.health.clone(),
                ringq_version: node.ringq_version.clone(),
                shards: shard::figures(known, node, elapsed),
                disk: self.disks.next(address, node, steady_millis),
            };
            checkup.nodes.insert(address.clone(), check);
        }
        self.disks.forget_old(steady_millis);
        self.remember_gone(&after);
        let all_answer = after.lookupds.values().all(Result::is_ok);
        let gone = self.gone.iter().map(|(address, gone)| GoneNode {
            address: address.clone(),
            topics: gone.topics.clone(),
            sentence: concern::gone(
                gone.since,
                steady_millis,
                all_answer,
                gone.backlog.as_deref(),
            ),
        });
        checkup.gone = gone.collect();
        checkup.concerns = concern::all(&after, &checkup, found);
        self.recent.push(after);
        checkup
    }

    /// Remembers the nodes that have vanished: nsqlookupd forgets a node that dies at once. A node that only silent
    /// nsqlookupds knew does not count as gone. A host that dies may have run both an nsqd and an nsqlookupd, so the word
    /// of another nsqlookupd that knew the node is enough.
    fn remember_gone(&mut self, after: &Round) {
        let steady_millis = after.now.steady_millis;
        for (address, node) in &after.nodes {
            // A node that was gone and does not answer yet has what it had.
            let known = || self.gone.get(address).map(Seen::again).unwrap_or_default();
            let seen = self.seen.entry(address.clone()).or_insert_with(known);
            seen.missing_since = None;
            if node.failure.is_none() {
                seen.topics = node.topics.clone();
                seen.backlog = Some(node.backlog.clone());
            }
        }
        let answers = || {
            let lookupds = after.lookupds.iter();
            lookupds.filter_map(|(name, lookupd)| Some((name, lookupd.as_ref().ok()?)))
        };
        if answers().next().is_none() {
            return;
        }
        let is_there = |address: &String| {
            after.nodes.contains_key(address) || answers().any(|(_, nodes)| nodes.contains(address))
        };
        let is_silent = |lookupd: &String| {
            let round = after.lookupds.get(lookupd);
            round.is_some_and(Result::is_err)
        };
        let gone = &mut self.gone;
        self.seen.retain(|address, seen| {
            if is_there(address) {
                seen.missing_since = None;
            } else {
                let since = *seen.missing_since.get_or_insert(steady_millis);
                if seen.lookupds.is_empty() || !seen.lookupds.iter().all(is_silent) {
                    let entry = Gone {
                        since,
                        named_since: steady_millis,
                        topics: seen.topics.clone(),
                        backlog: seen.backlog.clone(),
                    };
                    gone.insert(address.clone(), entry);
                    return false;
                }
            }
            for (lookupd, nodes) in answers() {
                if nodes.contains(address) {
                    _ = seen.lookupds.insert(lookupd.clone())
                } else {
                    _ = seen.lookupds.remove(lookupd)
                }
            }
            true
        });
        self.gone.retain(|address, gone| {
            steady_millis - gone.named_since < GONE_MILLIS && !is_there(address)
        });
        keep_latest(&mut self.gone, GONE_MAX, |gone| gone.named_since);
    }
}

/// Forgets the entries with the earliest times if there are more than `max`.
pub(crate) fn keep_latest<K: Ord, V>(
    map: &mut BTreeMap<K, V>,
    max: usize,
    time: impl Fn(&V) -> i64,
) {
    let mut excess = map.len().saturating_sub(max);
    if excess == 0 {
        return;
    }
    let mut times: Vec<i64> = map.values().map(&time).collect();
    let (_, last, _) = times.select_nth_unstable(excess - 1);
    map.retain(|_, value| {
        let is_forgotten = time(value) <= *last && excess > 0;
        excess -= usize::from(is_forgotten);
        !is_forgotten
    });
}

/// Returns the check of a channel, and the concern about the channel, if there is one. `departed` tells about the last consumers.
fn check_channel(
    name: &(String, String),
    recent: &Recent,
    after: &ChannelRound,
    is_older: bool,
    departed: Option<String>,
) -> (ChannelCheck, Option<Concern>) {
    let (before, elapsed) = recent.earliest(|round| round.channels.get(name));
    let unknown = ChannelSample::default();
    let sample = before.map_or(&unknown, |before| &before.sample);
    let diagnosis = diagnose(sample, &after.sample, elapsed);
    // The messages of a node that has just come back wait for consumers that are about to find it.
    let is_older = is_older && (after.is_oldest_found || !after.sample.awaits_consumers());
    let departed = departed.filter(|_| matches!(diagnosis.limit, Limit::NoConsumers { .. }));
    let flow = Flow::between(sample, &after.sample, elapsed);
    let again_rate = flow.requeues + flow.timeouts;
    let is_retried = again_rate > 0.0 || diagnosis.oldest_failed.is_some();
    let again = if again_rate > 0.0 {
        format!(
            " {}/s are delivered again: look at the messages with the most attempts.",
            short(again_rate)
        )
    } else {
        String::new()
    };
    let check = ChannelCheck {
        sentence: if is_older && !diagnosis.is_problem() {
            format!(
                "The oldest message gets older.{again} {}",
                diagnosis.beside_older()
            )
        } else {
            format!("{diagnosis}{}", departed.unwrap_or_default())
        },
        is_older,
        is_retried,
        is_problem: is_older || (diagnosis.is_problem() && has_work(&diagnosis, &flow)),
        drained_in: before
            .and_then(|before| drained_in(&flow, after.finished_since(before), elapsed)),
        is_idle: matches!(diagnosis.limit, Limit::Idle { .. }),
    };
    // Messages behind a pause of the topic wait in the topic, and the sentence is about them.
    let in_topic = diagnosis.pauses().filter(|paused| paused.is_of_topic);
    let waiting = in_topic.fold(flow.depth, |most, paused| most.max(paused.waiting));
    let concern = check.is_problem.then(|| Concern {
        subject: Subject::Channel(name.0.clone(), name.1.clone()),
        sentence: check.sentence.clone(),
        depth: waiting,
        oldest_ms: after.oldest_ms,
        is_older,
        is_retried,
    });
    (check, concern)
}

/// Returns the seconds until no message waits. `finished` is the number of messages that consumers have finished in
/// this time: the flow also counts messages that were emptied, and they say nothing about the rest.
#[allow(clippy::cast_precision_loss)] // A time needs no more.
fn drained_in(flow: &Flow, finished: i64, elapsed: Duration) -> Option<f64> {
    let finishes = flow.finishes.min(finished as f64 / elapsed.as_secs_f64());
    let shrinks = finishes - flow.arrivals;
    (flow.depth > 0 && shrinks > 0.0 && flow.growth < 0.0).then(|| flow.depth as f64 / shrinks)
}

/// Returns true if a channel with a problem has something to do. A paused channel without messages
/// needs no attention.
fn has_work(diagnosis: &Diagnosis, flow: &Flow) -> bool {
    match &diagnosis.limit {
        Limit::Paused(_) => diagnosis.pauses().any(|paused| paused.waiting > 0),
        _ => flow.depth > 0 || flow.deferred > 0 || flow.in_flight > 0.0 || flow.arrivals > 0.0,
    }
}

#[cfg(test)]
mod tests;
