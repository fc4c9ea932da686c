//! The grace of new topics, as the model knows it: a channel that is certainly made in the grace gets every message
//! that the topic certainly keeps.

use super::model::{Model, Place};
use super::{TOPICS, World, is_durable};
use engine_rules::{GraceOptions, TopicKey};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The number of checkpoints after which a crash must not end a grace. The first one may have begun before the grace.
const CHECKPOINTS: u32 = 2;

/// The grace of one topic.
#[derive(Debug)]
struct Grace {
    until: Duration,
    /// The checkpoints that were written in the grace, [`CHECKPOINTS`] at most.
    written: u32,
    /// True if the last one of these, or a later one, was synced.
    is_synced: bool,
    /// The channels that were emptied or deleted in the grace, so earlier messages may be missing.
    emptied: BTreeSet<usize>,
}

/// The graces of all topics.
#[derive(Debug, Default)]
pub(crate) struct Graces {
    topics: BTreeMap<usize, Grace>,
    /// The topics that wait for the channels that they have elsewhere.
    starting: BTreeMap<usize, TopicKey>,
}

/// The options of a history. Two of three histories have no grace.
pub(crate) fn options(seed: u64) -> GraceOptions {
    const PERIODS: [u64; 3] = [2, 60, 600];
    if !seed.is_multiple_of(3) {
        return GraceOptions::default();
    }
    GraceOptions {
        period: Duration::from_secs(PERIODS[(seed / 3 % 3) as usize]),
        bytes_max: if seed.is_multiple_of(4) {
            2000
        } else {
            1 << 30
        },
    }
}

impl Graces {
    /// Notes that a topic asks for its channels before it starts.
    pub(crate) fn asked(&mut self, topic: usize, key: TopicKey) {
        self.starting.insert(topic, key);
    }

    /// Returns whether a topic may wait for the channels that it has elsewhere.
    pub(crate) fn is_starting(&self, topic: usize) -> bool {
        self.starting.contains_key(&topic)
    }

    /// Notes that a topic is gone.
    pub(crate) fn end(&mut self, topic: usize) {
        self.topics.remove(&topic);
        self.starting.remove(&topic);
    }

    /// Notes that a channel was emptied or deleted.
    pub(crate) fn empty(&mut self, (topic, channel): Place) {
        if let Some(grace) = self.topics.get_mut(&topic) {
            grace.emptied.insert(channel);
        }
    }

    /// Notes that a checkpoint of a topic was written.
    pub(crate) fn written(&mut self, topic: usize, is_synced: bool) {
        if let Some(grace) = self.topics.get_mut(&topic) {
            grace.written = (grace.written + 1).min(CHECKPOINTS);
            grace.is_synced |= is_synced && grace.written == CHECKPOINTS;
        }
    }

    /// Notes a crash. `is_trusted` is false if a checkpoint may be lost that was written, or synced for a power
    /// failure. Returns whether a grace must survive the crash.
    pub(crate) fn crash(&mut self, now: Duration, is_power_lost: bool, is_trusted: bool) -> bool {
        self.starting.clear();
        self.topics.retain(|_, grace| {
            let is_recorded = if is_power_lost {
                grace.is_synced
            } else {
                grace.written == CHECKPOINTS
            };
            is_recorded && is_trusted && now < grace.until
        });
        !self.topics.is_empty()
    }
}

impl World {
    /// Notes that a topic gets the channels that it asked for, and may begin its grace.
    pub(crate) fn start_topic(&mut self, topic: usize, key: TopicKey, is_complete: bool) {
        if self.model.graces.starting.get(&topic) != Some(&key) {
            return;
        }
        self.model.graces.starting.remove(&topic);
        let period = self.grace.period;
        if !is_complete && !period.is_zero() && !TOPICS[topic].ends_with("#ephemeral") {
            self.reached.note("grace");
            let grace = Grace {
                until: self.mono + period,
                written: 0,
                is_synced: false,
                emptied: BTreeSet::new(),
            };
            self.model.graces.topics.insert(topic, grace);
        }
    }

    /// Notes that a channel certainly exists, which did not certainly exist before.
    pub(crate) fn owe_kept(&mut self, place: Place) {
        let is_bounded = self.grace.bytes_max < 1 << 30;
        if !is_bounded && self.model.fill_from_grace(place, self.mono) > 0 {
            self.reached.note("channel made in grace");
        }
    }
}

impl Model {
    /// Owes a new channel what the grace of its topic keeps. Returns the number of acknowledged messages.
    fn fill_from_grace(&mut self, place: Place, now: Duration) -> usize {
        let (topic, channel) = place;
        let grace = self.graces.topics.get(&topic);
        let is_filled = |grace: &Grace| now < grace.until && !grace.emptied.contains(&channel);
        if !is_durable(place) || !grace.is_some_and(is_filled) {
            return 0;
        }
        let messages = self.messages.iter_mut();
        let kept = messages.filter(|message| message.topic == topic && message.is_kept);
        kept.map(|message| {
            message.owed.insert(channel);
            usize::from(message.acknowledged)
        })
        .sum()
    }
}
