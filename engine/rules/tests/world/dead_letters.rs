//! The messages that have reached their attempts, as the model knows them: each is finished, or in the dead-letter topic,
//! or in both after a crash.

use super::model::{Delivered, Model, Place};
use super::{CHANNELS, TOPICS, World};
use engine_rules::DeadLetterRules;
use engine_rules::stats::{StatsFilter, StatsSnapshot};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The dead-letter topic: clients only consume it, and operators leave it alone.
pub(crate) const DEAD: usize = TOPICS.len() - 1;
/// The channel that has the rule.
pub(crate) const RULE: Place = (0, 0);
/// The number of the first channels, which are not ephemeral.
pub(crate) const DURABLE_CHANNELS: usize = 2;
/// The dead letters that consumers got.
#[derive(Debug, Default)]
pub(crate) struct DeadLetters {
    /// The number of deliveries after which a message is a dead letter. `None`: the history has no rule.
    pub(crate) attempts_max: Option<u16>,
    pub(crate) seen: BTreeSet<u64>,
}

/// The number of attempts in the rule of a history. Two of five histories have a rule.
pub(crate) fn attempts_max(seed: u64) -> Option<u16> {
    matches!(seed % 5, 1 | 4).then_some(1 + (seed % 2) as u16)
}

/// The rules of a history.
pub(crate) fn rules(seed: u64) -> Arc<DeadLetterRules> {
    let mut rules = DeadLetterRules::default();
    if let Some(attempts_max) = attempts_max(seed) {
        let (topic, channel) = (TOPICS[RULE.0], CHANNELS[RULE.1]);
        let added = rules.add(topic, channel, attempts_max, TOPICS[DEAD]);
        added.expect("a valid rule");
    }
    rules.into()
}

impl DeadLetters {
    /// Checks that no message is delivered more often than the rule allows.
    pub(crate) fn check_attempts(&self, place: Place, attempts: u16) {
        let max = self.attempts_max.filter(|_| place == RULE);
        let is_allowed = max.is_none_or(|max| attempts <= max);
        assert!(is_allowed, "{attempts} attempts in spite of the rule");
    }
}

impl Model {
    /// Notes that a peer got a message from the dead-letter topic. A crash may have doubled the message.
    pub(crate) fn deliver_dead_letter(&mut self, delivered: &Delivered<'_>) {
        let number = delivered.number;
        let tracked = &self.messages[number as usize];
        assert_eq!(tracked.topic, RULE.0, "only this topic has a rule");
        assert_eq!(tracked.body, delivered.body, "byte for byte");
        let key = (RULE, number);
        let is_exact = number >= self.exact_from
            && !self.late.contains(&RULE)
            && !self.unsure_attempts.contains(&key);
        if is_exact {
            let attempts = self.deliveries.get(&key).copied().unwrap_or_default();
            let max = self.dead_letters.attempts_max;
            assert_eq!(Some(attempts), max, "{number} went too early");
        }
        self.dead_letters.seen.insert(number);
    }

    /// Checks that no channel seems younger than a message that it certainly owes. Returns true if there was such a
    /// message.
    pub(crate) fn check_ages(&self, stats: &StatsSnapshot, wall_ns: u64, has_rule: bool) -> bool {
        let mut is_checked = false;
        for topic in &stats.topics {
            let index = super::place_of(&topic.topic_name);
            for channel in &topic.channels {
                let at = CHANNELS
                    .iter()
                    .position(|name| *name == channel.channel_name);
                let place = (index, at.expect("a channel of ours"));
                let owes = channel.depth + channel.in_flight_count + channel.deferred_count;
                assert!(owes > 0 || channel.oldest_unfinished_ms == 0);
                if self.sampled.contains(&place) || has_rule && place == RULE {
                    continue;
                }
                let owed = self.messages.iter().filter(|message| {
                    message.topic == index
                        && message.acknowledged_ns > 0
                        && message.owed.contains(&place.1)
                });
                let Some(since) = owed.map(|message| message.acknowledged_ns).min() else {
                    continue;
                };
                is_checked = true;
                let age_ms = wall_ns.saturating_sub(since) / 1_000_000;
                let shown = channel.oldest_unfinished_ms.max(topic.oldest_unfinished_ms);
                assert!(
                    shown >= age_ms,
                    "{place:?}: {shown} ms, and {age_ms} ms are owed"
                );
            }
        }
        is_checked
    }
}

impl World {
    /// Notes that messages of the dead-letter topic may be lost. The model does not know which ones were there.
    pub(crate) fn lose_dead_letters(&mut self, topic: usize) {
        if topic == DEAD {
            self.model.allow_damage(RULE.0);
        }
    }

    /// Consumes the dead letters. Returns the number of messages that wait because the dead-letter topic refuses them.
    pub(crate) fn drain_dead_letters(&mut self) -> u64 {
        if self.dead_letters.is_empty() {
            return 0;
        }
        // Each dead letter went to all channels that there were, also to those that the model does not know.
        let topics = self.durable_topics();
        let topic = topics.iter().find(|facts| facts.name == TOPICS[DEAD]);
        let there = topic.map_or(&[][..], |topic| &topic.channels);
        let is_there = |channel: &usize| there.iter().any(|facts| facts.name == CHANNELS[*channel]);
        let mut channels: Vec<usize> = (0..DURABLE_CHANNELS).filter(is_there).collect();
        if !self.model.poisoned.is_empty() {
            // A new channel, or one that is not recorded, may be refused.
            if channels
                .iter()
                .any(|channel| !self.model.channels.contains(&(DEAD, *channel)))
                || channels.is_empty()
            {
                return u64::MAX;
            }
        } else if channels.is_empty() && topic.is_some() {
            // Without the topic, nothing was stored there, and a broken directory refuses a new topic.
            channels.push(0);
        }
        for channel in channels {
            if !self.drain_channel(DEAD, channel) {
                return u64::MAX;
            }
        }
        let now = self.now();
        let filter = StatsFilter {
            include_disk: false,
            topic: Some(TOPICS[RULE.0].to_owned()),
            channel: Some(CHANNELS[RULE.1].to_owned()),
            ..StatsFilter::default()
        };
        let shards = self.shards.iter_mut();
        let stats = shards.map(|shard| shard.broker.distribute_and_snapshot(now, &filter));
        let stats = StatsSnapshot::merge(stats);
        let mut channels = stats.topics.iter().flat_map(|topic| &topic.channels);
        let dead = channels.find_map(|channel| channel.dead_letters.as_ref());
        let left = dead.map_or(0, |dead| dead.waiting_count);
        assert!(
            left == 0 || !self.model.poisoned.is_empty(),
            "{left} dead letters wait"
        );
        left
    }
}
