//! The life of a checkpoint: when it is due, into which slot it goes, and which segments it keeps.

use std::sync::Arc;
use std::time::Duration;

use crate::checkpoint::{CheckpointDraft, CheckpointRun, Runs, Stamp};
use crate::policy::RETRY_AFTER;
use crate::range::SeqRange;
use crate::request::{CheckpointJob, CheckpointNumber, Request, SyncFailure};

use super::checkpoints::{Drafting, Durable, EmptyCheckpoint, Writing};
use super::{Log, Notice, Segment};

impl Log {
    /// Makes a checkpoint due, because something that it would record has changed.
    #[inline]
    pub fn make_checkpoint_due(&mut self) {
        // A topic that was idle, too, waits for company: other messages, and other topics to sync with.
        if !std::mem::replace(&mut self.checkpoints.has_progress, true) {
            self.checkpoints.began = self.mono;
        }
    }

    /// Makes a checkpoint due that waits for no company: segments may go with it, and their room is wanted.
    pub fn make_checkpoint_due_at_once(&mut self) {
        self.make_checkpoint_due();
        self.checkpoints.is_due_at_once = true;
    }

    /// Makes a checkpoint due if a sealed segment is owed and synced, but ends above the mark of the newest
    /// checkpoint. Without it, the next start would read the segment. Such checkpoints begin at most once in
    /// --sync-timeout. The first one after a start comes at once: the start has read these segments, and a process that
    /// crashes again and again must not read more of them each time.
    pub(super) fn make_checkpoint_due_above_mark(&mut self) {
        let unmarked = self
            .segments
            .index_at_or_after(self.checkpoints.synced_mark);
        let sealed = self.segments.sealed.range(unmarked..);
        let mut synced = sealed.take_while(|segment| segment.end_seq() <= self.sync.synced);
        if synced.any(Segment::is_held) {
            let state = &mut self.checkpoints;
            state.is_due_at_once |= state.last_began.is_none();
            let began = state.last_began.unwrap_or(self.mono);
            state.began = if std::mem::replace(&mut state.has_progress, true) {
                state.began.min(began)
            } else {
                began
            };
        }
    }

    /// Returns whether [`Notice::Checkpointed`] or [`Notice::CheckpointFailed`] of a checkpoint is still to come.
    #[must_use]
    pub fn expects_checkpoint(&self, number: CheckpointNumber) -> bool {
        self.is_checkpoint_under_way() && number.0 <= self.checkpoints.last_number
    }

    /// Returns whether it is time for [`Log::begin_checkpoint`].
    #[must_use]
    pub fn checkpoint_due(&self, mono: Duration) -> bool {
        self.checkpoint_at().is_some_and(|at| at <= mono)
    }

    /// Returns when a checkpoint is due. While the disk is full it does not wait for company: segments that
    /// nobody holds may go with it, and their room is wanted.
    pub(super) fn checkpoint_at(&self) -> Option<Duration> {
        let timeout = self.options.sync_timeout;
        let delay = match self.supply.shortage_text() {
            Some(_) => timeout.min(RETRY_AFTER),
            None => timeout,
        };
        self.checkpoints.due_at(delay)
    }

    /// Returns whether a checkpoint is being put together or written. There is one at a time.
    #[must_use]
    pub fn is_checkpoint_under_way(&self) -> bool {
        self.checkpoints.is_under_way()
    }

    /// The number that the next checkpoint gets.
    #[must_use]
    pub fn next_checkpoint(&self) -> CheckpointNumber {
        CheckpointNumber(self.checkpoints.last_number + 1)
    }

    /// Begins a checkpoint. Before [`Log::finish_checkpoint`], the caller names all owed messages below the log's next
    /// seq with [`Log::name_run`]. Messages that are finished meanwhile may be named. Messages that are still owed at
    /// the end must be named.
    ///
    /// A checkpoint that is not durable survives the end of the process, but not a power failure. It never overwrites
    /// the last durable checkpoint. After a checkpoint with [`Durable::No`], another checkpoint is due, at most
    /// --sync-timeout after the first one began, to make its content durable. Once that checkpoint is due,
    /// [`Durable::No`] counts as [`Durable::IfNeeded`]: otherwise a steady flow of changes would put the durable
    /// checkpoint off for ever.
    ///
    /// # Panics
    /// If [`Log::is_checkpoint_under_way`].
    pub fn begin_checkpoint(&mut self, mono: Duration, durable: Durable) {
        assert!(!self.is_checkpoint_under_way(), "one checkpoint at a time");
        self.mono = self.mono.max(mono);
        // After a failed sync nothing becomes durable any more.
        let may_sync = self.sync.poisoned.is_none();
        plant!(ChangeNotSynced, let may_sync = false);
        let durable = if may_sync && self.checkpoint_due(self.mono) {
            durable.max(Durable::IfNeeded)
        } else {
            durable
        };
        self.checkpoints.last_number += 1;
        self.checkpoints.synced_mark = self.sync.synced;
        self.checkpoints.last_began = Some(self.mono);
        let was_due_at_once = std::mem::take(&mut self.checkpoints.is_due_at_once);
        if may_sync && durable == Durable::No {
            self.make_checkpoint_due();
            self.checkpoints.rests_until = Duration::ZERO;
        } else {
            self.checkpoints.has_progress = false;
        }
        self.checkpoints.drafting = Some(Drafting {
            stamp: Stamp {
                synced: self.sync.synced,
                next: self.next,
                number: self.checkpoints.last_number,
                sync: false,
            },
            durable,
            began: self.mono,
            was_due_at_once,
        });
    }

    /// Adds `run` to a list of the checkpoint, without seqs that were appended after the checkpoint began. The segments
    /// of the run stay until a durable checkpoint does not name them.
    ///
    /// # Panics
    /// If no checkpoint was begun.
    pub fn name_run(&mut self, list: &mut Runs, run: CheckpointRun) {
        let drafting = self.checkpoints.drafting.as_ref();
        let stamp = drafting
            .expect("name_run() follows begin_checkpoint()")
            .stamp;
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
            was_due_at_once,
        } = drafting.expect("finish_checkpoint() follows begin_checkpoint()");
        let number = stamp.number;
        draft.stamp = stamp;
        let is_first = self.checkpoints.synced_number < self.checkpoints.found_number;
        let empty = EmptyCheckpoint::of(&draft);
        let is_needed = match durable {
            Durable::No => false,
            Durable::IfNeeded => {
                let on_disk = self.sync.on_disk;
                !self.checkpoints.is_durable_as_good(empty.as_ref(), on_disk)
            }
            Durable::Yes => true,
        };
        // A checkpoint of a poisoned log is never marked as synced, so that the next start does not take it for
        // durable: see [`Recovered`](crate::Recovered).
        let sync = (is_needed || is_first) && self.sync.poisoned.is_none();
        draft.stamp.sync = sync;
        if !self.checkpoints.equals_durable(empty.as_ref()) {
            self.checkpoints.last_different = number;
        }
        let slot = self.checkpoints.free_slot();
        // Until it is written it holds nothing that counts.
        self.checkpoints.slots[slot] = 0;
        let is_file_renamed = sync && std::mem::take(&mut self.sync.is_file_renamed);
        let is_any_new = self.sync.names_synced.is_none() || self.checkpoints.is_file_new;
        let names = is_file_renamed || sync && is_any_new;
        let names_upto = names.then_some(self.supply.prepared_upto);
        self.checkpoints.writing = Some(Writing {
            number,
            slot,
            sync,
            empty,
            names_upto,
            is_file_renamed,
            began,
            was_due_at_once,
        });
        self.requests
            .push_back(Request::WriteCheckpoint(CheckpointJob {
                number: CheckpointNumber(number),
                slot: slot as u8,
                draft,
                sync_first: self.checkpoints.is_newest_doubtful,
                sync,
                names,
            }));
    }

    /// Marks the segments of `range` as named by checkpoint `number`. They stay until a durable checkpoint does not
    /// name them.
    pub(super) fn mark_named(&mut self, range: SeqRange, number: u64) {
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
        result: Result<(), SyncFailure>,
        notices: &mut Vec<Notice>,
    ) {
        let writing = self.checkpoints.writing.take();
        let writing = writing.expect("one checkpoint is written at a time");
        assert_eq!(writing.number, number.0, "the answer to another checkpoint");
        match result {
            Ok(()) => {
                if writing.sync {
                    let took = self.mono.saturating_sub(writing.began);
                    self.checkpoints.rests_until = self.mono + took;
                }
                self.checkpoints.slots[writing.slot] = writing.number;
                self.checkpoints.is_newest_doubtful = false;
                // After a failed sync, a later sync that succeeds proves nothing: the kernel may have dropped the pages
                // that it could not write.
                let synced = writing.sync && self.sync.poisoned.is_none();
                notices.push(Notice::Checkpointed { number, synced });
                if synced {
                    self.checkpoints.synced_number = writing.number;
                    self.checkpoints.durable_empty = writing.empty;
                    self.checkpoints.is_file_new &= writing.names_upto.is_none();
                    self.sync.raise_names_synced(writing.names_upto);
                    self.drop_unneeded();
                }
            }
            Err(failure) => {
                self.checkpoints
                    .retry_later(self.mono, writing.was_due_at_once);
                self.sync.is_file_renamed |= writing.is_file_renamed;
                let (SyncFailure::Retryable(why) | SyncFailure::Final(why)) = &failure;
                let cause: Arc<str> = why.text.as_str().into();
                let is_final = matches!(failure, SyncFailure::Final(_));
                notices.push(Notice::CheckpointFailed {
                    number,
                    cause: Arc::clone(&cause),
                });
                if is_final {
                    self.poison(cause, notices);
                }
            }
        }
    }
}
