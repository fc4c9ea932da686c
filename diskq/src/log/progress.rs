//! Checkpoints: when they are due, where they go, what they keep from being recycled.

use std::sync::Arc;
use std::time::Duration;

use wire::id::Seq;

use crate::checkpoint::{ChannelDraft, CheckpointDraft, CheckpointRun, Runs, SLOTS, Stamp};
use crate::keeper::{CheckpointFailure, CheckpointNumber, Request, SegmentNumber};
use crate::planted::{Bug, is_planted};
use crate::range::SeqRange;

use super::supply::PREPARE_RETRY;
use super::{Event, Log};

/// When a checkpoint has to survive a power failure, and not only the end of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durable {
    /// It need not.
    No,
    /// If otherwise more than the last moments would come back: see `Settled`.
    IfNeeded,
    /// In any case, once [`Event::Checkpointed`] comes and says so.
    Yes,
}

/// A durable checkpoint that owes nothing. What follows it needs to be durable only if it says something
/// else of the channels, or if messages behind it are on disk for certain: none of them is given up for it,
/// and what the kernel writes of them by itself, and when, it writes of the checkpoint, too.
#[derive(Debug)]
struct Settled {
    paused: bool,
    /// Name, and whether it is paused.
    channels: Vec<(String, bool)>,
    /// The first seq it knows nothing about.
    next: Seq,
}

impl Settled {
    /// `None`: something is owed.
    fn of(draft: &CheckpointDraft) -> Option<Settled> {
        let channel = |draft: &ChannelDraft| (draft.name.clone(), draft.paused);
        (!draft.names_any()).then(|| Settled {
            paused: draft.paused,
            channels: draft.channels.iter().map(channel).collect(),
            next: draft.stamp.next,
        })
    }

    fn says_as_much_as(&self, newer: &Settled) -> bool {
        self.paused == newer.paused && self.channels == newer.channels
    }
}

/// The checkpoint that the topic puts together.
#[derive(Debug)]
struct Drafting {
    /// The state at the beginning of the checkpoint: a message that is finished and lost later is not damage.
    stamp: Stamp,
    durable: Durable,
    began: Duration,
}

/// The checkpoint that is being written.
#[derive(Debug)]
struct Writing {
    number: u64,
    slot: usize,
    sync: bool,
    settled: Option<Settled>,
    /// Files up to here have durable names once it is written, if it syncs the names.
    names_upto: Option<SegmentNumber>,
    /// When the topic began to put it together.
    began: Duration,
}

/// The checkpoint state of a log.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    /// The highest number given so far.
    last_number: u64,
    /// The number of the last one that is surely durable; 0: none.
    synced_number: u64,
    /// That one, if it owes nothing.
    settled: Option<Settled>,
    /// The number of the last one that owes something; what it names stays until a durable one does not name it.
    last_naming: u64,
    /// The newest that start-up found; 0: none. The process that wrote it may have overwritten others
    /// that are on disk all the same, and a power failure brings them back. So until a newer one is
    /// durable nothing goes that was there, and the next one is to be durable.
    found_number: u64,
    /// What each slot holds; 0: nothing that counts.
    slots: [u64; SLOTS],
    drafting: Option<Drafting>,
    writing: Option<Writing>,
    /// The earliest time of the next checkpoint: a long checkpoint takes at most half of the time of the keeper
    /// and the disk.
    rests_until: Duration,
    /// When the first progress was noted that the last one asked for does not have.
    began: Duration,
    has_progress: bool,
}

impl Checkpoints {
    /// The state after start-up: which checkpoint each slot holds, which is surely durable, and the
    /// highest number that any may have.
    pub(crate) fn from_found(
        slots: [u64; SLOTS],
        synced_number: u64,
        last_number: u64,
    ) -> Checkpoints {
        Checkpoints {
            last_number,
            synced_number,
            found_number: last_number,
            slots,
            ..Checkpoints::default()
        }
    }

    /// The highest number given so far.
    pub(crate) fn last_number(&self) -> u64 {
        self.last_number
    }

    /// Whether a checkpoint that may be read after a crash names a segment whose newest naming
    /// checkpoint is `named_by`.
    #[inline]
    pub(super) fn may_name(&self, named_by: u64) -> bool {
        named_by != 0 && named_by >= self.synced_number && !is_planted(Bug::RecycledTooEarly)
    }

    /// The slot to be overwritten: neither the last durable one nor the last written one.
    fn free_slot(&self) -> usize {
        let slots = || 0..self.slots.len();
        let newest = slots().max_by_key(|&slot| self.slots[slot]);
        let is_durable = |&slot: &usize| self.slots[slot] == self.synced_number;
        let durable = slots().find(is_durable).filter(|_| self.synced_number != 0);
        let durable = durable.filter(|_| !is_planted(Bug::DurableCheckpointOverwritten));
        let free = slots().filter(|&slot| Some(slot) != newest && Some(slot) != durable);
        free.min_by_key(|&slot| self.slots[slot])
            .expect("two of three slots are kept at most")
    }

    /// Whether after a power failure the last durable checkpoint would do as well, and nothing waits for
    /// another. Everything below `on_disk` may be there.
    fn is_settled(&self, newer: Option<&Settled>, on_disk: Seq) -> bool {
        match (&self.settled, newer) {
            (Some(durable), Some(newer)) => {
                on_disk <= durable.next
                    && durable.says_as_much_as(newer)
                    && self.last_naming <= self.synced_number
            }
            _ => false,
        }
    }

    fn due_at(&self, delay: Duration) -> Option<Duration> {
        let is_due = self.has_progress && !self.is_under_way();
        is_due.then(|| self.rests_until.max(self.began + delay))
    }

    fn is_under_way(&self) -> bool {
        self.drafting.is_some() || self.writing.is_some()
    }

    /// The last requested checkpoint was not written. The next one records its progress, but not at once.
    fn note_failed(&mut self, mono: Duration) {
        self.has_progress = true;
        self.began = mono;
        self.rests_until = mono + PREPARE_RETRY;
    }
}

impl Log {
    /// Something a checkpoint would record has changed.
    #[inline]
    pub fn note_progress(&mut self) {
        // A topic that was idle, too, waits for company: other messages, and other topics to sync with.
        if !std::mem::replace(&mut self.checkpoints.has_progress, true) {
            self.checkpoints.began = self.mono;
        }
    }

    /// Returns whether [`Event::Checkpointed`] or [`Event::CheckpointFailed`] of a checkpoint is still to come.
    #[must_use]
    pub fn expects_checkpoint(&self, number: CheckpointNumber) -> bool {
        self.is_recording() && number.0 <= self.checkpoints.last_number
    }

    /// Returns whether it is time for [`Log::begin_checkpoint`].
    #[must_use]
    pub fn checkpoint_due(&self, mono: Duration) -> bool {
        self.checkpoint_at().is_some_and(|at| at <= mono)
    }

    /// When a checkpoint is due. While the disk is full it does not wait for company: segments that
    /// nobody holds may go with it, and their room is wanted.
    pub(super) fn checkpoint_at(&self) -> Option<Duration> {
        let timeout = self.options.sync_timeout;
        let delay = match self.supply.refusal_text() {
            Some(_) => timeout.min(PREPARE_RETRY),
            None => timeout,
        };
        self.checkpoints.due_at(delay)
    }

    /// Returns whether a checkpoint is being put together or written. There is one at a time.
    #[must_use]
    pub fn is_recording(&self) -> bool {
        self.checkpoints.is_under_way()
    }

    /// The number that the next checkpoint gets.
    #[must_use]
    pub fn next_checkpoint(&self) -> CheckpointNumber {
        CheckpointNumber(self.checkpoints.last_number + 1)
    }

    /// Begins a checkpoint: everything owed below the log's next seq is to be named in it, by
    /// [`Log::record`], before [`Log::finish_checkpoint`]. What is named may be finished by then; what
    /// is still owed at the end must be named.
    ///
    /// A checkpoint that is not durable survives the process only, and never overwrites the last durable
    /// one.
    ///
    /// # Panics
    /// If [`Log::is_recording`].
    pub fn begin_checkpoint(&mut self, mono: Duration, durable: Durable) {
        assert!(!self.is_recording(), "one checkpoint at a time");
        self.mono = self.mono.max(mono);
        self.checkpoints.last_number += 1;
        self.checkpoints.has_progress = false;
        self.checkpoints.drafting = Some(Drafting {
            stamp: Stamp {
                synced: self.sync.synced(),
                next: self.next,
                number: self.checkpoints.last_number,
                sync: false,
            },
            durable,
            began: self.mono,
        });
    }

    /// Adds to a list of the checkpoint what it must say of `run`: nothing of seqs that came after its
    /// beginning. The segments of the run stay until a durable checkpoint does not name them.
    ///
    /// # Panics
    /// If no checkpoint was begun.
    pub fn record(&mut self, list: &mut Runs, run: CheckpointRun) {
        let drafting = self.checkpoints.drafting.as_ref();
        let stamp = drafting.expect("record() follows begin_checkpoint()").stamp;
        let known = stamp.next.0.saturating_sub(run.start.0);
        let run = CheckpointRun {
            count: run.count.min(known),
            ..run
        };
        if run.count > 0 {
            self.mark_named(run.range(), stamp.number);
            list.push(run);
        }
    }

    /// Writes the checkpoint that was begun.
    ///
    /// # Panics
    /// If none was begun.
    pub fn finish_checkpoint(&mut self, mut draft: CheckpointDraft) {
        let drafting = self.checkpoints.drafting.take();
        let Drafting {
            stamp,
            durable,
            began,
        } = drafting.expect("finish_checkpoint() follows begin_checkpoint()");
        let number = stamp.number;
        draft.stamp = stamp;
        let is_first = self.checkpoints.synced_number < self.checkpoints.found_number;
        let settled = Settled::of(&draft);
        let is_needed = match durable {
            Durable::No => false,
            Durable::IfNeeded => {
                let on_disk = self.sync.on_disk();
                !self.checkpoints.is_settled(settled.as_ref(), on_disk)
            }
            Durable::Yes => true,
        };
        let sync = is_needed || is_first;
        draft.stamp.sync = sync;
        if settled.is_none() {
            self.checkpoints.last_naming = number;
        }
        let slot = self.checkpoints.free_slot();
        // Until it is written it holds nothing that counts.
        self.checkpoints.slots[slot] = 0;
        let names = sync && !self.sync.names_are_synced();
        let names_upto = names.then(|| self.supply.prepared_upto());
        self.checkpoints.writing = Some(Writing {
            number,
            slot,
            sync,
            settled,
            names_upto,
            began,
        });
        self.requests.push_back(Request::WriteCheckpoint {
            number: CheckpointNumber(number),
            slot: slot as u8,
            draft,
            sync,
            names,
        });
    }

    /// A segment that the checkpoint names stays until a durable one no longer does.
    fn mark_named(&mut self, range: SeqRange, number: u64) {
        let mut index = self.segments.index_at_or_after(range.start);
        while let Some(segment) = self.segments.sealed.get_mut(index) {
            if segment.head.base >= range.end {
                break;
            }
            segment.named_by = number;
            index += 1;
        }
        if let Some(tail) = &mut self.segments.tail
            && !tail.range().intersection(&range).is_empty()
        {
            tail.named_by = number;
        }
    }

    pub(super) fn checkpoint_ended(
        &mut self,
        number: CheckpointNumber,
        result: Result<(), CheckpointFailure>,
        events: &mut Vec<Event>,
    ) {
        let writing = self.checkpoints.writing.take();
        let writing = writing.expect("one checkpoint is written at a time");
        assert_eq!(writing.number, number.0, "the answer to another checkpoint");
        match result {
            Ok(()) => {
                let took = self.mono.saturating_sub(writing.began);
                self.checkpoints.rests_until = self.mono + took;
                self.checkpoints.slots[writing.slot] = writing.number;
                // After a failed sync a later one that works says nothing: the kernel may have
                // dropped what failed.
                let synced = writing.sync && self.sync.poisoned().is_none();
                events.push(Event::Checkpointed { number, synced });
                if synced {
                    self.checkpoints.synced_number = writing.number;
                    self.checkpoints.settled = writing.settled;
                    self.sync.note_names_synced(writing.names_upto);
                    self.settle_all();
                }
            }
            Err(CheckpointFailure::Write(failure)) => {
                self.checkpoints.note_failed(self.mono);
                let cause = failure.text.into();
                events.push(Event::CheckpointFailed { number, cause });
            }
            Err(CheckpointFailure::Sync(failure)) => {
                self.checkpoints.note_failed(self.mono);
                let cause: Arc<str> = failure.text.into();
                events.push(Event::CheckpointFailed {
                    number,
                    cause: Arc::clone(&cause),
                });
                self.poison(cause, events);
            }
        }
    }
}

#[cfg(test)]
impl Log {
    /// Writes a checkpoint at once.
    pub(crate) fn write_checkpoint(
        &mut self,
        mono: Duration,
        checkpoint: &crate::Checkpoint,
        durable: Durable,
    ) -> CheckpointNumber {
        let number = self.next_checkpoint();
        self.begin_checkpoint(mono, durable);
        for range in checkpoint.named() {
            self.mark_named(range, number.0);
        }
        self.finish_checkpoint(CheckpointDraft::from(checkpoint));
        number
    }
}
