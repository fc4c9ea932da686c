//! [`Checkpoints`]: the checkpoints of a log that exist, and those that a power failure may bring back.

use std::time::Duration;

use wire::id::Seq;

use crate::checkpoint::{CheckpointDraft, Roster, SLOTS, Stamp};
use crate::file_name::SegmentNumber;
use crate::policy::RETRY_AFTER;

/// The demand that a checkpoint survives a power failure, and not only the end of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durable {
    /// The checkpoint need not be durable.
    No,
    /// Durable unless the last durable checkpoint is as good after a power failure: see `EmptyCheckpoint`.
    IfNeeded,
    /// The checkpoint is synced in any case. [`Notice::Checkpointed`](crate::Notice::Checkpointed) says whether it is
    /// durable.
    Yes,
}

/// The channels, pauses and end of a checkpoint that owes nothing. If the last durable checkpoint owes nothing, a later
/// checkpoint that owes nothing, either, needs to be durable only in two cases: its channels or pauses differ, or a
/// sync or a spill has written messages that came after the durable checkpoint. A power failure would bring these
/// messages back. Messages that only the kernel's write-back has written need no such care: write-back also writes the
/// later checkpoint.
#[derive(Debug)]
pub(super) struct EmptyCheckpoint {
    roster: Roster,
    /// The first seq that the checkpoint knows nothing about.
    next: Seq,
}

impl EmptyCheckpoint {
    /// `None`: something is owed.
    pub(super) fn of(draft: &CheckpointDraft) -> Option<EmptyCheckpoint> {
        (!draft.names_any()).then(|| EmptyCheckpoint {
            roster: Roster::from(draft),
            next: draft.stamp.next,
        })
    }
}

/// The checkpoint that the topic puts together.
#[derive(Debug)]
pub(super) struct Drafting {
    /// The state at the beginning of the checkpoint: a message that is finished and lost later is not damage.
    pub(super) stamp: Stamp,
    pub(super) durable: Durable,
    pub(super) began: Duration,
    /// True if the checkpoint was due at once: see [`Checkpoints::is_due_at_once`].
    pub(super) was_due_at_once: bool,
}

/// The checkpoint that is being written.
#[derive(Debug)]
pub(super) struct Writing {
    pub(super) number: u64,
    pub(super) slot: usize,
    pub(super) sync: bool,
    pub(super) empty: Option<EmptyCheckpoint>,
    /// Files up to here have durable names once it is written, if it syncs the names.
    pub(super) names_upto: Option<SegmentNumber>,
    /// True if it makes the name of a renamed file durable.
    pub(super) is_file_renamed: bool,
    /// The time at which the topic began to put it together.
    pub(super) began: Duration,
    /// True if the checkpoint was due at once: see [`Checkpoints::is_due_at_once`].
    pub(super) was_due_at_once: bool,
}

/// The checkpoint state of a log.
#[derive(Debug, Default)]
pub struct Checkpoints {
    /// The highest number given so far.
    pub(super) last_number: u64,
    /// The number of the last one that is surely durable; 0: none.
    pub(super) synced_number: u64,
    /// The last surely durable checkpoint, if it owes nothing.
    pub(super) durable_empty: Option<EmptyCheckpoint>,
    /// The number of the last one that is not as good as `durable_empty`: it owes something, or has other channels or
    /// pauses. A power failure may bring it back until a later one is durable.
    pub(super) last_different: u64,
    /// The highest number that a checkpoint of an earlier process may have; 0: none. That process may have overwritten
    /// checkpoints that the disk still has, and a power failure would bring them back. So the next checkpoint is made
    /// durable, and until then no segment goes that start-up found.
    pub(super) found_number: u64,
    /// True if the newest checkpoint comes from an earlier process that may have been killed before it synced the checkpoint. The
    /// next start takes a checkpoint with the sync flag for durable if there is a newer one. So the file is synced before
    /// the first checkpoint of this process is written.
    pub(super) is_newest_doubtful: bool,
    /// True if the start found no checkpoint file: a power failure may leave the directory of a new log without it. A
    /// sync of the names may come before the file is made. So the first durable checkpoint syncs the names in any case.
    pub(super) is_file_new: bool,
    /// The number of the checkpoint in each slot. 0: the slot holds nothing that counts.
    pub(super) slots: [u64; SLOTS],
    /// The synced mark of the newest checkpoint. The next start reads every segment that ends above this mark.
    pub(super) synced_mark: Seq,
    pub(super) drafting: Option<Drafting>,
    pub(super) writing: Option<Writing>,
    /// The earliest time at which a checkpoint becomes due. After a synced checkpoint, the log rests for as long as
    /// that checkpoint took, so that long checkpoints take at most half of the time of the keeper and the disk. A
    /// checkpoint that an answer waits for, or that makes an answered change durable, does not wait for this time.
    pub(super) rests_until: Duration,
    /// The time at which `has_progress` became true. The next checkpoint has to record that progress, or to make it
    /// durable.
    pub(super) began: Duration,
    pub(super) has_progress: bool,
    /// The next checkpoint does not wait for company.
    pub(super) is_due_at_once: bool,
    /// The time at which the last checkpoint of this process began, or failed.
    pub(super) last_began: Option<Duration>,
}

impl Checkpoints {
    /// Makes the state after start-up. `slots` has the checkpoint number of each slot, and `synced_number` is the
    /// surely durable one. `last_number` is the highest number that any checkpoint may have. `synced_mark` is that of
    /// the newest checkpoint. If `is_unsure`, a power failure may still undo changes that the newest checkpoint
    /// records. Then another checkpoint is due, which makes these changes durable.
    #[must_use]
    pub fn from_found(
        slots: [u64; SLOTS],
        synced_number: u64,
        last_number: u64,
        synced_mark: Seq,
        is_unsure: bool,
    ) -> Checkpoints {
        Checkpoints {
            last_number,
            synced_number,
            synced_mark,
            found_number: last_number,
            slots,
            has_progress: is_unsure,
            ..Checkpoints::default()
        }
    }

    /// Notes that an earlier process may not have synced the newest checkpoint.
    pub fn doubt_newest(&mut self) {
        self.is_newest_doubtful = true;
    }

    /// Notes that there was no checkpoint file at the start.
    pub fn begin_new_file(&mut self) {
        self.is_file_new = true;
    }

    /// The highest number given so far.
    #[must_use]
    pub fn last_number(&self) -> u64 {
        self.last_number
    }

    /// Returns whether a start after a crash may read a checkpoint that names a segment. `named_by` is the newest
    /// checkpoint that names the segment.
    #[inline]
    pub(super) fn may_name(&self, named_by: u64) -> bool {
        plant!(RecycledTooEarly, return false);
        named_by != 0 && named_by >= self.synced_number
    }

    /// The slot to be overwritten: neither the last durable one nor the last written one.
    pub(super) fn free_slot(&self) -> usize {
        let slots = || 0..self.slots.len();
        let newest = slots().max_by_key(|&slot| self.slots[slot]);
        let is_durable = |&slot: &usize| self.slots[slot] == self.synced_number;
        let durable = slots().find(is_durable).filter(|_| self.synced_number != 0);
        plant!(DurableCheckpointOverwritten, let durable = None);
        let free = slots().filter(|&slot| Some(slot) != newest && Some(slot) != durable);
        free.min_by_key(|&slot| self.slots[slot])
            .expect("two of three slots are kept at most")
    }

    /// Returns whether the last durable checkpoint and a newer one both owe nothing, and list the same channels and
    /// pauses.
    pub(super) fn equals_durable(&self, newer: Option<&EmptyCheckpoint>) -> bool {
        let durable = self.durable_empty.as_ref();
        durable
            .zip(newer)
            .is_some_and(|(durable, newer)| durable.roster == newer.roster)
    }

    /// Returns whether, after a power failure, the last durable checkpoint would be as good as `newer`, and no
    /// different checkpoint can come back. Messages below `on_disk` may be on the disk.
    pub(super) fn is_durable_as_good(&self, newer: Option<&EmptyCheckpoint>, on_disk: Seq) -> bool {
        let durable = self.durable_empty.as_ref();
        self.equals_durable(newer)
            && durable.is_some_and(|durable| on_disk <= durable.next)
            && self.last_different <= self.synced_number
    }

    pub(super) fn due_at(&self, delay: Duration) -> Option<Duration> {
        let is_due = self.has_progress && !self.is_under_way();
        let delay = if self.is_due_at_once {
            Duration::ZERO
        } else {
            delay
        };
        is_due.then(|| self.rests_until.max(self.began + delay))
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.drafting.is_some() || self.writing.is_some()
    }

    /// The last requested checkpoint was not written. The next one records its progress, but not before `RETRY_AFTER`. It
    /// waits longer for company, unless the failed one was due at once.
    pub(super) fn retry_later(&mut self, mono: Duration, was_due_at_once: bool) {
        self.has_progress = true;
        self.began = mono;
        self.last_began = Some(mono);
        self.rests_until = mono + RETRY_AFTER;
        self.is_due_at_once |= was_due_at_once;
    }
}
