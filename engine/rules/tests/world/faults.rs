//! Faults of the disk, the kernel and the clock.

use super::mid_turn::Event;
use super::{DATA_PATH, Mail, World};
use std::path::Path;
use std::time::Duration;

use diskq::{Reply, SyncFailure};
use diskq_sim::Call;

/// Errors of the environment that lose nothing: the next try may succeed.
const PASSING: [(Call, i32); 12] = [
    (Call::CreateDir, libc::ENOSPC),
    (Call::Allocate, libc::EMFILE),
    (Call::Allocate, libc::ENOSPC),
    (Call::Map, libc::ENOMEM),
    (Call::Copy, libc::EIO),
    (Call::Load, libc::EMFILE),
    (Call::Load, libc::EIO),
    (Call::Open, libc::EMFILE),
    (Call::Rename, libc::EIO),
    (Call::Remove, libc::EIO),
    (Call::List, libc::EMFILE),
    (Call::Write, libc::ENOSPC),
];
const SET_BACK_MAX: Duration = Duration::from_secs(300);

impl World {
    /// Causes a fault now, or arms one for a later call.
    pub(super) fn harm(&mut self) {
        let kinds = if self.has_faults { 10 } else { 6 };
        match self.random.below(kinds) {
            0..=2 => {
                let at = self.random.below(PASSING.len() as u64) as usize;
                let (call, code) = PASSING[at];
                self.may_be_torn |= call == Call::Write;
                self.fail_soon(call, code);
            }
            3 => self.in_a_turn(Event::WriteBack),
            4 => {
                self.reached.note("written back");
                self.observe_all();
                self.files.write_back(self.random.draw());
            }
            5 => self.set_clock_back(),
            6 => {
                self.observe_all();
                let failed = self.files.failed_syncs();
                let seed = self.random.draw();
                match self.random.below(2) {
                    0 => self.files.fail_write_back(seed),
                    // This loses the names of new logs or the deletions of logs.
                    _ => self.files.fail_write_back_of(Path::new(DATA_PATH), seed),
                }
                if self.files.failed_syncs() > failed {
                    self.reached.note("write-back failed");
                }
                self.forget_files();
            }
            7 => {
                self.was_reclaimed = true;
                self.files.reclaim();
                self.forget_files();
            }
            8 => {
                self.may_be_flipped = true;
                self.files.flip_nth_of(Call::Load, 1);
            }
            _ => {
                let call = [Call::Sync, Call::Sync, Call::SyncDir][self.random.below(3) as usize];
                self.fail_soon(call, libc::EIO);
            }
        }
    }

    /// The kernel drops files from memory that nobody has mapped, and forgets their failed write-backs. That may take
    /// messages that the process has found at its start and not synced yet (docs/explain/reliability.md, "Known
    /// limits").
    fn forget_files(&mut self) {
        self.was_reclaimed = true;
        if self.files.evict(self.random.draw()) {
            self.reached.note("a failed write-back was forgotten");
            self.at_risk.fail_found();
            self.had_failed_sync |= self.starts > 1;
        }
    }

    fn fail_soon(&mut self, call: Call, code: i32) {
        self.reached.note("a fault in a keeper");
        let nth = 1 + self.random.below(4);
        self.say(format_args!("{call:?} {nth} will fail with {code}"));
        self.files.fail_nth_of(call, nth, code);
    }

    /// Makes one file call of the next start fail.
    pub(super) fn harm_start(&mut self) {
        const CALLS: [(Call, i32); 4] = [
            (Call::Read, libc::EMFILE),
            (Call::Read, libc::EIO),
            (Call::List, libc::ENOMEM),
            (Call::Remove, libc::EIO),
        ];
        let (call, code) = CALLS[self.random.below(CALLS.len() as u64) as usize];
        self.fail_soon(call, code);
    }

    /// Sets the wall clock back like a clock correction.
    fn set_clock_back(&mut self) {
        self.reached.note("clock stepped back");
        let left = SET_BACK_MAX.saturating_sub(self.set_back);
        let step = Duration::from_millis(self.random.below(left.as_millis() as u64 + 1));
        self.set_back += step;
        self.wall_ns -= step.as_nanos() as u64;
    }

    /// Kills the process in the middle of its keepers' jobs.
    pub(super) fn die_in_a_job(&mut self) {
        self.reached.note("killed in a job");
        self.may_be_torn = true;
        self.files.disarm();
        self.files.die_at(1 + self.random.below(6));
        for shard in 0..self.shards.len() {
            for _ in 0..self.random.below(4) {
                self.work_keeper(shard);
            }
        }
        for shard in &mut self.shards {
            let is_answer = |mail: &Mail| matches!(mail, Mail::Keeper(..) | Mail::Deleted(..));
            shard.inbox.retain(|mail| !is_answer(mail));
        }
    }

    /// Notes the results of the syncs in a keeper's answer. Returns true if a sync has failed, which is final.
    pub(super) fn record_syncs(&mut self, reply: &Reply, topic: usize) -> bool {
        let failed = match reply {
            Reply::Synced { result, .. } => result.as_ref().err(),
            Reply::CheckpointWritten {
                result: Err(SyncFailure::Final(failure)),
                ..
            }
            | Reply::StateWritten {
                result: Err(SyncFailure::Final(failure)),
                ..
            }
            | Reply::Spilled {
                result: Err(SyncFailure::Final(failure)),
                ..
            } => {
                self.say(&failure.text);
                self.at_risk.fail(topic);
                return true;
            }
            Reply::CheckpointWritten {
                result: Err(SyncFailure::Retryable(_)),
                ..
            } => {
                self.at_risk.delay_checkpoint(topic, self.mono);
                return false;
            }
            Reply::Spilled { result: Err(_), .. } => {
                self.at_risk.delay(topic, self.mono);
                return false;
            }
            _ => None,
        };
        match failed {
            Some(SyncFailure::Retryable(_)) => self.at_risk.delay(topic, self.mono),
            Some(SyncFailure::Final(_)) => self.at_risk.fail(topic),
            None => {}
        }
        matches!(failed, Some(SyncFailure::Final(_)))
    }
}
