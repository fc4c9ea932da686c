//! The drain of the node. The shards learn of it one after the other, by mail. When all know, no publish gets OK. When the
//! broker owes nothing, the model must not owe anything either, and the process stops.

use super::dead_letters::RULE;
use super::{Mail, ShardWorld, World};
use engine_rules::Owed;

/// The mean number of steps after which a drain is taken back.
const DRAIN_STEPS: u64 = 30;

impl World {
    /// Begins a drain, or takes it back.
    pub(super) fn begin_drain(&mut self, is_draining: bool) {
        self.reached.note("drain");
        self.is_drained = vec![false; self.shards.len()];
        for shard in &mut self.shards {
            shard.inbox.push_back(Mail::Drain(is_draining));
        }
    }

    /// Lets a shard begin the drain, or take it back.
    pub(super) fn drain_shard(&mut self, shard: usize, is_draining: bool) {
        let mut out = Vec::new();
        self.shards[shard]
            .broker
            .set_draining(is_draining, &mut out);
        self.perform(shard, out);
        self.is_drained[shard] = is_draining;
    }

    /// Returns true if every shard refuses publishes.
    pub(super) fn is_draining(&self) -> bool {
        self.is_drained.iter().all(|is_drained| *is_drained)
    }

    /// Looks at what the node owes, if it is in a drain.
    pub(super) fn look_at_drain(&mut self) {
        let is_asleep = |shard: &ShardWorld| !shard.is_awake;
        if !self.is_draining() || self.mid_turn.is_killed || self.shards.iter().any(is_asleep) {
            return;
        }
        let now = self.now();
        let mut owed = Owed::default();
        for shard in 0..self.shards.len() {
            let mut out = Vec::new();
            owed.add(self.shards[shard].broker.drain(now, &mut out));
            self.perform(shard, out);
        }
        if owed.total() > 0 {
            if self.random.below(DRAIN_STEPS) == 0 {
                self.begin_drain(false);
            }
            return;
        }
        self.reached.note("drained");
        let has_rule = !self.dead_letters.is_empty();
        for (number, message) in self.model.messages.iter().enumerate() {
            let sampled = &self.model.sampled;
            let mut channels = message.owed.iter();
            let is_owed = channels.any(|channel| !sampled.contains(&(message.topic, *channel)));
            let is_letter = has_rule && message.topic == RULE.0;
            assert!(
                !message.acknowledged || !is_owed || is_letter,
                "the drain is over, and message {number} is owed to {:?}",
                message.owed
            );
        }
        self.stop();
    }
}
