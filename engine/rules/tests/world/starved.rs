//! Shards that get no turn for a while. Mail, input, answers of keepers and timers wait, and the other shards go on. When
//! such a shard runs again, it begins with a turn at the time that it has read last: the clocks of the shards differ.

use super::{Mail, TOPICS, World};
use engine_rules::{Now, shard_of};
use std::time::Duration;

impl World {
    /// Returns the time as a shard knows it.
    pub(super) fn clock(&self, shard: usize) -> Now {
        self.shards[shard].old_clock.unwrap_or(self.now())
    }

    /// Sends a shard to sleep, in some histories.
    pub(super) fn starve(&mut self) {
        let shard = self.random.below(self.shards.len() as u64) as usize;
        if self.may_starve && self.shards[shard].is_awake {
            self.reached.note("starved");
            let now = self.now();
            let shard = &mut self.shards[shard];
            (shard.is_awake, shard.old_clock) = (false, Some(now));
        }
    }

    /// Wakes some of the shards that sleep, or all.
    pub(super) fn wake_shards(&mut self, are_all: bool) {
        for shard in 0..self.shards.len() {
            if self.shards[shard].is_awake || !are_all && self.random.below(16) > 0 {
                continue;
            }
            self.shards[shard].is_awake = true;
            for mail in &self.shards[shard].inbox {
                self.reached.note(match mail {
                    Mail::Forwards(_) => "publishes wait for a starved shard",
                    Mail::Connection(..) => "a move waits for a starved shard",
                    _ => continue,
                });
            }
            let read = self.clock(shard).mono;
            if self.mono - read > Duration::from_secs(1) {
                self.reached.note("a turn with an old clock");
            }
            self.turn(shard);
            self.shards[shard].old_clock = None;
        }
    }

    /// Returns for each topic whether its shard runs.
    pub(super) fn awake_topics(&self) -> [bool; TOPICS.len()] {
        TOPICS
            .map(|topic| self.shards[shard_of(topic, self.shards.len() as u32).0 as usize].is_awake)
    }
}
