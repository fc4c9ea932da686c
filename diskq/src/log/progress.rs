//! Checkpoints: when they are due, where they go, what they keep from being recycled.

use std::sync::Arc;
use std::time::Duration;

use wire::id::Seq;

use crate::checkpoint::{ChannelCheckpoint, Checkpoint, SLOTS, Stamp, encode};
use crate::keeper::{CheckpointFailure, CheckpointNumber, Request, SegmentNumber};

use super::supply::PREPARE_RETRY;
use super::{Event, Log};

/// When a checkpoint has to survive a power failure, and not only the end of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    fn of(checkpoint: &Checkpoint, next: Seq) -> Option<Settled> {
        let channel = |saved: &ChannelCheckpoint| (saved.name.clone(), saved.paused);
        checkpoint.named().next().is_none().then(|| Settled {
            paused: checkpoint.paused,
            channels: checkpoint.channels.iter().map(channel).collect(),
            next,
        })
    }

    fn says_as_much_as(&self, newer: &Settled) -> bool {
        self.paused == newer.paused && self.channels == newer.channels
    }
}

/// An encoded checkpoint.
#[derive(Debug)]
struct Encoded {
    number: u64,
    bytes: Vec<u8>,
    sync: bool,
    settled: Option<Settled>,
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
    writing: Option<Writing>,
    /// The next to be written. A newer one replaces it: it says all the older one did.
    pending: Option<Encoded>,
    /// When the first progress was noted that the last one asked for does not have.
    began: Duration,
    has_progress: bool,
    /// The last one could not be written: none is due before this time.
    retry_at: Duration,
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
        named_by != 0 && named_by >= self.synced_number
    }

    /// The slot to be overwritten: neither the last durable one nor the last written one.
    fn free_slot(&self) -> usize {
        let slots = || 0..self.slots.len();
        let newest = slots().max_by_key(|&slot| self.slots[slot]);
        let is_durable = |&slot: &usize| self.slots[slot] == self.synced_number;
        let durable = slots().find(is_durable).filter(|_| self.synced_number != 0);
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
        let is_idle = self.writing.is_none() && self.pending.is_none();
        let due_at = (self.began + delay).max(self.retry_at);
        (self.has_progress && is_idle).then_some(due_at)
    }

    /// The last one asked for was not written: its progress is to be recorded all the same, but not at once.
    fn note_failed(&mut self, mono: Duration) {
        self.has_progress = true;
        self.began = mono;
        self.retry_at = mono + PREPARE_RETRY;
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

    /// Whether [`Event::Checkpointed`] or [`Event::CheckpointFailed`] of a checkpoint is still to come.
    #[must_use]
    pub fn expects_checkpoint(&self, number: CheckpointNumber) -> bool {
        let writing = self.checkpoints.writing.as_ref().map(|one| one.number);
        let pending = self.checkpoints.pending.as_ref().map(|one| one.number);
        writing.max(pending).is_some_and(|last| last >= number.0)
    }

    /// Whether it is time for [`Log::write_checkpoint`].
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

    /// Writes a checkpoint; `synced`, `next` and `number` are filled in here.
    ///
    /// One that is not durable survives the process only, and never overwrites the last durable one. While one
    /// is being written the next waits, and is replaced by a newer one: the event of a number stands for all
    /// lower ones.
    pub fn write_checkpoint(
        &mut self,
        mono: Duration,
        checkpoint: &Checkpoint,
        durable: Durable,
    ) -> CheckpointNumber {
        self.mono = self.mono.max(mono);
        let number = self.checkpoints.last_number + 1;
        let replaced = self.checkpoints.pending.take();
        let is_first = self.checkpoints.synced_number < self.checkpoints.found_number;
        let settled = Settled::of(checkpoint, self.next);
        let is_needed = match durable {
            Durable::No => false,
            Durable::IfNeeded => {
                let on_disk = self.sync.on_disk();
                !self.checkpoints.is_settled(settled.as_ref(), on_disk)
            }
            Durable::Yes => true,
        };
        let sync = is_needed || is_first || replaced.is_some_and(|replaced| replaced.sync);
        if settled.is_none() {
            self.checkpoints.last_naming = number;
        }
        let stamp = Stamp {
            synced: self.sync.synced(),
            next: self.next,
            number,
            sync,
        };
        self.mark_named(checkpoint, number);
        self.checkpoints.last_number = number;
        self.checkpoints.has_progress = false;
        self.checkpoints.pending = Some(Encoded {
            number,
            bytes: encode(checkpoint, &stamp),
            sync,
            settled,
        });
        self.start_checkpoint();
        CheckpointNumber(number)
    }

    /// Segments the checkpoint names stay until a durable one no longer does.
    fn mark_named(&mut self, checkpoint: &Checkpoint, number: u64) {
        for range in checkpoint.named() {
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
    }

    fn start_checkpoint(&mut self) {
        if self.checkpoints.writing.is_some() {
            return;
        }
        let Some(Encoded {
            number,
            bytes,
            sync,
            settled,
        }) = self.checkpoints.pending.take()
        else {
            return;
        };
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
        });
        let number = CheckpointNumber(number);
        self.requests.push_back(Request::WriteCheckpoint {
            number,
            slot: slot as u8,
            bytes,
            sync,
            names,
        });
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
        self.start_checkpoint();
    }
}
