//! [`Checker`]: says every few seconds what is wrong in the cluster, and what limits each channel.
//!
//! ```text
//!   Round (what every node and nsqlookupd said) ─► Checker ─► Checkup: doctor, producers, shards, disks
//!                                                    │            └──► concerns, the worst one first
//!                                                    └─ the rounds before, usual rates, free bytes of disks
//! ```
//!
//! The checker is a state machine without sockets and clocks. A round costs what its clients cost,
//! so the live figures, which have no clients, come more often.

mod channel;
mod concern;
mod node;
mod producer;
mod round;
mod topic;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use nsq_doctor::duration;
use serde::Serialize;
use wire::go_json::to_string;
use wire::json_object;

pub use channel::ChannelCheck;
pub use concern::{Concern, Subject};
pub use node::{DiskFigures, GoneNode, NodeCheck, ShardFigures};
pub use producer::TopicProducers;
pub use round::{LookupdRound, NodeMetrics, NodeRound, ProducerFigures, Round, ShardUse};

use crate::figures::{Now, rounded};

use channel::{Ages, Departed, check_channel};
use node::{Disks, Vanished};
use producer::Usual;
use round::Recent;
use topic::Unclaimed;

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
    departed: Departed,
    vanished: Vanished,
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
        for (name, channel) in after.channels.iter().filter(|_| !self.recent.is_empty()) {
            let is_older = self.ages.grows(name);
            let departed = self.departed.sentence(name, steady_millis);
            let (check, concern) = check_channel(name, &self.recent, channel, is_older, departed);
            found.extend(concern);
            checkup.channels.insert(name.clone(), check);
        }
        checkup.producers = self.usual.producers(&self.recent, &after);
        for (address, node) in &after.nodes {
            let disk = self.disks.next(address, node, steady_millis);
            let check = NodeCheck::of(address, node, &self.recent, disk);
            checkup.nodes.insert(address.clone(), check);
        }
        self.disks.forget_old(steady_millis);
        checkup.gone = self.vanished.next(&after);
        checkup.concerns = concern::all(&after, &checkup, found);
        self.recent.push(after);
        checkup
    }
}

impl Checkup {
    /// Returns the field `doctor` of a channel. With `is_brief`, a channel that has nothing to do has no such field.
    pub fn doctor(&self, topic: &str, channel: &str, is_brief: bool) -> Option<impl Serialize> {
        let name = (topic.to_owned(), channel.to_owned());
        let check = self.channels.get(&name);
        let check = check.filter(|check| !(is_brief && check.is_idle));
        check.map(|check| json_object! { doctor: check })
    }

    /// Returns who publishes to a topic: its producers, those with the highest rates first. A rate that is not known is
    /// `null`.
    pub fn publishing(&self, topic: &str) -> impl Serialize {
        let none = TopicProducers::default();
        let producers = self.producers.get(topic).unwrap_or(&none);
        let known = |rate| producers.is_measured.then(|| rounded(rate));
        let listed = producers.listed.iter().map(|producer| {
            let usual = producer.usual.map(rounded);
            json_object! {
                #[serde(flatten)]
                producer: producer.clone(),
                rate: known(producer.rate),
                #[serde(flatten)]
                usual: usual.map(|rate| json_object! { usual_rate: rate }),
            }
        });
        let others_usual = producers.others_usual.map(rounded);
        json_object! {
            rate: known(producers.arrivals),
            others_rate: known(producers.others),
            #[serde(flatten)]
            others_usual: others_usual.map(|rate| json_object! { others_usual_rate: rate }),
            producer_count: producers.count,
            producers: listed.collect::<Vec<_>>(),
        }
    }

    /// Returns what needs attention about this subject.
    pub fn concerns_of(&self, subject: &Subject) -> Vec<&Concern> {
        let concerns = self.concerns.iter();
        concerns.filter(|it| it.subject == *subject).collect()
    }

    /// Returns the nodes that have vanished and had a topic.
    pub fn gone_with(&self, topic: &str) -> Vec<&GoneNode> {
        let gone = self.gone.iter();
        gone.filter(|gone| gone.topics.contains(topic)).collect()
    }

    /// Returns what needs attention. `message` says which servers did not answer. `next` is the time until the next checkup
    /// is expected.
    pub fn attention(&self, message: &str, next: Duration) -> String {
        to_string(&json_object! {
            #[serde(flatten)]
            now: self.now,
            next_ms: next.as_millis(),
            concerns: &self.concerns,
            gone_nodes: &self.gone,
            message,
        })
    }

    /// Returns the health, the shards, the disk and the concerns of a node, or `None` for an unknown node. A
    /// node that has vanished has concerns alone.
    pub fn node(&self, address: &str) -> Option<String> {
        let subject = Subject::Node(address.to_owned());
        let gone = NodeCheck::default();
        let is_gone = || self.concerns.iter().any(|one| one.subject == subject);
        let node = match self.nodes.get(address) {
            Some(node) => node,
            None if is_gone() => &gone,
            None => return None,
        };
        Some(to_string(&json_object! {
            node: address,
            #[serde(flatten)]
            check: node,
            shards: node.shards.values().collect::<Vec<_>>(),
            concerns: self.concerns_of(&subject),
            message: "",
        }))
    }

    /// Returns the sentences about each node that needs attention.
    pub fn concerns_of_nodes(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut sentences: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for concern in &self.concerns {
            if let Subject::Node(address) = &concern.subject {
                let of_node = sentences.entry(address).or_default();
                of_node.push(&concern.sentence);
            }
        }
        sentences
    }
}

/// Forgets the entries with the lowest ranks, such as the earliest times, if there are more than `max`.
pub(crate) fn keep_highest<K: Ord, V>(
    map: &mut BTreeMap<K, V>,
    max: usize,
    rank: impl Fn(&K, &V) -> i64,
) {
    let mut excess = map.len().saturating_sub(max);
    if excess == 0 {
        return;
    }
    let mut ranks: Vec<i64> = map.iter().map(|(key, value)| rank(key, value)).collect();
    let (_, last, _) = ranks.select_nth_unstable(excess - 1);
    map.retain(|key, value| {
        let is_forgotten = rank(key, value) <= *last && excess > 0;
        excess -= usize::from(is_forgotten);
        !is_forgotten
    });
}

/// Forgets what came at `now` or later, and what is too old: the earliest that stays is at least `window` old, as soon as
/// there is such a one. All times are steady milliseconds.
fn keep_window<T>(items: &mut VecDeque<T>, now: i64, window: i64, time: impl Fn(&T) -> i64) {
    items.retain(|item| time(item) < now);
    let is_old = |item: &T| now - time(item) >= window;
    while items.get(1).is_some_and(is_old) {
        items.pop_front();
    }
}

/// Returns the time since then, both in steady milliseconds, or `None` if that is just now.
#[allow(clippy::cast_precision_loss)] // A time needs no more.
fn time_since(then: i64, now: i64) -> Option<String> {
    let seconds = now.saturating_sub(then) as f64 / 1000.0;
    (seconds >= 1.0).then(|| duration(seconds))
}

/// Returns ` and 3 more`, for the end of a list, or an empty text.
fn and_more(count: usize) -> String {
    match count {
        0 => String::new(),
        count => format!(" and {count} more"),
    }
}

#[cfg(test)]
mod tests;
