//! The graceful stop at SIGTERM, in the order of `Shard::stop` (engine/nsqd/src/shard.rs): clients go on while the shards stop
//! one after the other, mail between the shards is late, the disk is full, and calls of the disk fail or hang.

use super::mid_turn::MidTurn;
use super::model::Place;
use super::{Mail, World, is_durable};
use std::time::Duration;

/// The most rounds of a stop. A stop whose disk hangs lasts longer, and the process is killed.
const ROUNDS_MAX: u64 = 1000;
const ROUNDS_MAX_OF_HUNG: u64 = 30;

/// The stage of one shard in the stop.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The shard does not know of the stop yet.
    Serves,
    Stops,
    /// All is durable. nsqd.dat is being written, and mail is still handled.
    Writes,
    Ended,
}

impl World {
    /// Stops the process gracefully, and starts the program again. In between, the power may fail.
    pub(super) fn stop(&mut self) {
        self.say("stops");
        self.wake_shards(true);
        self.mid_turn = MidTurn::default();
        self.at_risk.begin_stop();
        let mut stages = vec![Stage::Serves; self.shards.len()];
        let hung = self.random.below(8 * self.shards.len() as u64) as usize;
        let is_hung = hung < self.shards.len();
        let rounds_max = if is_hung {
            ROUNDS_MAX_OF_HUNG
        } else {
            ROUNDS_MAX
        };
        for _ in 0..rounds_max {
            self.live_on();
            for (shard, stage) in stages.iter_mut().enumerate() {
                if shard != hung {
                    (0..self.random.below(4)).for_each(|_| self.work_keeper(shard));
                }
                self.stop_further(shard, stage);
            }
            if stages.iter().all(|stage| *stage == Stage::Ended) {
                return self.end_stop();
            }
        }
        assert!(is_hung, "the process does not stop");
        self.reached.note("killed in a stop that hangs");
        self.kill();
    }

    /// Does what the clients, the network and the disk do in a round of the stop.
    fn live_on(&mut self) {
        match self.random.below(6) {
            0 => self.fill_disk(),
            1 => self.harm(),
            2 => self.answer(),
            _ => self.publish(),
        }
        self.deliver_mail(3);
        self.end_leaving(false);
        let time = [1, 20, 300][self.random.below(3) as usize];
        self.advance_once(Duration::from_millis(time));
    }

    /// Takes the next step of a shard's stop, if it is the time.
    fn stop_further(&mut self, shard: usize, stage: &mut Stage) {
        let now = self.now();
        let mut out = Vec::new();
        let is_time = self.random.below(6) == 0;
        let broker = &mut self.shards[shard].broker;
        *stage = match *stage {
            Stage::Serves if is_time => {
                broker.begin_stop(&mut out);
                Stage::Stops
            }
            Stage::Stops if !broker.drive_stop(now, &mut out) => Stage::Writes,
            Stage::Writes if is_time => {
                self.record_metadata(shard);
                self.shards[shard].is_awake = false;
                Stage::Ended
            }
            stage => stage,
        };
        self.perform(shard, out);
        self.turn(shard);
    }

    /// Ends the process. What was acknowledged and answered is synced now, and what was finished is recorded, except in
    /// topics whose disk has failed in the stop.
    fn end_stop(&mut self) {
        self.reached.note("stopped");
        for shard in 0..self.shards.len() {
            while !self.shards[shard].jobs.is_empty() {
                self.work_keeper(shard);
            }
        }
        let mut mail = self.shards.iter().flat_map(|shard| &shard.inbox);
        if mail.any(|mail| matches!(mail, Mail::Forwards(_))) {
            self.reached.note("mail for a shard that has stopped");
        }
        let failed = self.at_risk.end_stop();
        let is_power_lost = self.random.below(2) == 0;
        let has_copies = self.model.numbers.has_copies();
        let finished = std::mem::take(&mut self.model.finished);
        self.restart(is_power_lost);
        if !self.had_failed_sync && !self.was_reclaimed && !has_copies {
            // The last checkpoints have these FINs.
            self.model.finished = finished;
            let is_kept = |place: &Place| !failed.contains(&place.0) && is_durable(*place);
            self.model.finished.retain(|(place, _)| is_kept(place));
        }
    }
}
