//! [`Checkpoints`]: the checkpoints of a log that exist, those that a power failure may bring back, and the life of the
//! next one: when it is due, into which place it goes, and which segments it keeps.

use std::time::Duration;

use wire::id::Seq;

use crate::checkpoint::{CheckpointDraft, PLACES, Roster};
use crate::file_name::SegmentNumber;
use crate::policy::RETRY_AFTER;
use crate::request::{CheckpointJob, CheckpointNumber, Request, SyncFailure};

use super::answers::Notice;
use super::context::Context;
use super::segments::{Segment, Segments};
use super::sync::Sync;

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
struct EmptyCheckpoint {
    roster: Roster,
    /// The first seq that the checkpoint knows nothing about.
    next: Seq,
}

impl EmptyCheckpoint {
    /// `None`: something is owed.
    fn of(draft: &CheckpointDraft) -> Option<EmptyCheckpoint> {
        (!draft.names_any()).then(|| EmptyCheckpoint {
            roster: draft.roster(),
            next: draft.next,
        })
    }
}

/// The checkpoint that the topic puts together.
#[derive(Clone, Copy, Debug)]
struct Drafting {
    number: u64,
    /// The marks at the beginning of the checkpoint: a message that is finished and lost later is not damage.
    synced: Seq,
    next: Seq,
    durable: Durable,
    began: Duration,
    /// True if the checkpoint was due at once: see [`Checkpoints::is_due_at_once`].
    was_due_at_once: bool,
}

/// The checkpoint that is being written.
#[derive(Debug)]
struct Writing {
    draft: Drafting,
    place: usize,
    sync: bool,
    empty: Option<EmptyCheckpoint>,
    /// Files up to here have durable names once it is written, if it syncs the names.
    names_upto: Option<SegmentNumber>,
    /// True if it makes the name of a renamed file durable.
    is_file_renamed: bool,
}

/// The checkpoint state of a log.
#[derive(Debug, Default)]
pub struct Checkpoints {
    /// The highest number given so far.
    last_number: u64,
    /// The number of the last one that is surely durable; 0: none.
    synced_number: u64,
    /// The last surely durable checkpoint, if it owes nothing.
    durable_empty: Option<EmptyCheckpoint>,
    /// The number of the last one that is not as good as `durable_empty`: it owes something, or has other channels or
    /// pauses. A power failure may bring it back until a later one is durable.
    last_different: u64,
    /// The highest number that a checkpoint of an earlier process may have; 0: none. That process may have overwritten
    /// checkpoints that the disk still has, and a power failure would bring them back. So the next checkpoint is made
    /// durable, and until then no segment goes that start-up found.
    found_number: u64,
    /// True if the newest checkpoint comes from an earlier process that may have been killed before it synced the checkpoint. The
    /// next start takes a checkpoint with the sync flag for durable if there is a newer one. So the file is synced before
    /// the first checkpoint of this process is written.
    is_newest_doubtful: bool,
    /// True if the start found no checkpoint file: a power failure may leave the directory of a new log without it. A
    /// sync of the names may come before the file is made. So the first durable checkpoint syncs the names in any case.
    is_file_new: bool,
    /// The number of the checkpoint in each place. 0: the place holds nothing that counts.
    places: [u64; PLACES],
    /// The synced mark of the newest checkpoint. The next start reads every segment that ends above this mark.
    synced_mark: Seq,
    drafting: Option<Drafting>,
    writing: Option<Writing>,
    /// The earliest time at which a checkpoint becomes due. After a synced checkpoint, the log rests for as long as
    /// that checkpoint took, so that long checkpoints take at most half of the time of the keeper and the disk. A
    /// checkpoint that an answer waits for, or that makes an answered change durable, does not wait for this time.
    rests_until: Duration,
    /// The time at which `has_progress` became true. The next checkpoint has to record that progress, or to make it
    /// durable.
    began: Duration,
    has_progress: bool,
    /// The next checkpoint does not wait for company.
    pub(super) is_due_at_once: bool,
    /// The time at which the last checkpoint of this process began, or failed.
    last_began: Option<Duration>,
}

impl Checkpoints {
    /// Makes the state after start-up. `places` has the checkpoint number of each place, and `synced_number` is the
    /// surely durable one. `last_number` is the highest number that any checkpoint may have. `synced_mark` is that of
    /// the newest checkpoint. If `is_unsure`, a power failure may still undo changes that the newest checkpoint
    /// records. Then another checkpoint is due, which makes these changes durable.
    #[must_use]
    pub fn from_found(
        places: [u64; PLACES],
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
            places,
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

    /// The place to be overwritten: neither that of the last durable checkpoint nor that of the last written one.
    fn free_place(&self) -> usize {
        let number = |&place: &usize| self.places[place];
        let newest = (0..PLACES).max_by_key(number);
        let durable = (0..PLACES).find(|place| number(place) == self.synced_number);
        let durable = durable.filter(|_| self.synced_number != 0);
        plant!(DurableCheckpointOverwritten, let durable = None);
        let free = (0..PLACES).filter(|&place| Some(place) != newest && Some(place) != durable);
        free.min_by_key(number)
            .expect("two of three places are kept at most")
    }

    /// Returns whether the last durable checkpoint and a newer one both owe nothing, and list the same channels and
    /// pauses.
    fn equals_durable(&self, newer: Option<&EmptyCheckpoint>) -> bool {
        let durable = self.durable_empty.as_ref();
        durable
            .zip(newer)
            .is_some_and(|(durable, newer)| durable.roster == newer.roster)
    }

    /// Returns whether, after a power failure, the last durable checkpoint would be as good as `newer`, and no
    /// different checkpoint can come back. Messages below `on_disk` may be on the disk.
    fn is_durable_as_good(&self, newer: Option<&EmptyCheckpoint>, on_disk: Seq) -> bool {
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
    fn retry_later(&mut self, mono: Duration, was_due_at_once: bool) {
        self.has_progress = true;
        self.began = mono;
        self.last_began = Some(mono);
        self.rests_until = mono + RETRY_AFTER;
        self.is_due_at_once |= was_due_at_once;
    }

    #[inline]
    pub(super) fn make_due(&mut self, mono: Duration) {
        // A topic that was idle, too, waits for company: other messages, and other topics to sync with.
        if !std::mem::replace(&mut self.has_progress, true) {
            self.began = mono;
        }
    }

    /// Makes a checkpoint due if a sealed segment is owed and synced, but ends above the mark of the newest
    /// checkpoint. Without it, the next start would read the segment. Such checkpoints begin at most once in
    /// --sync-timeout. The first one after a start comes at once: the start has read these segments, and a process that
    /// crashes again and again must not read more of them each time.
    pub(super) fn make_due_above_mark(
        &mut self,
        context: &Context,
        segments: &Segments,
        synced: Seq,
    ) {
        let unmarked = segments.index_at_or_after(self.synced_mark);
        let sealed = segments.sealed.range(unmarked..);
        let mut synced = sealed.take_while(|segment| segment.end_seq() <= synced);
        if synced.any(Segment::is_held) {
            self.is_due_at_once |= self.last_began.is_none();
            let began = self.last_began.unwrap_or(context.mono);
            self.make_due(began);
            self.began = self.began.min(began);
        }
    }

    /// The number of the checkpoint that was begun, and the first seq that it knows nothing about.
    pub(super) fn drafted(&self) -> (u64, Seq) {
        let drafting = self.drafting.as_ref();
        let drafting = drafting.expect("name_run() follows begin_checkpoint()");
        (drafting.number, drafting.next)
    }

    pub(super) fn begin(
        &mut self,
        mono: Duration,
        durable: Durable,
        is_due: bool,
        sync: &Sync,
        next: Seq,
    ) {
        assert!(!self.is_under_way(), "one checkpoint at a time");
        // After a failed sync nothing becomes durable any more.
        let may_sync = sync.poisoned.is_none();
        plant!(ChangeNotSynced, let may_sync = false);
        let durable = if may_sync && is_due {
            durable.max(Durable::IfNeeded)
        } else {
            durable
        };
        self.last_number += 1;
        self.synced_mark = sync.synced;
        self.last_began = Some(mono);
        let was_due_at_once = std::mem::take(&mut self.is_due_at_once);
        if may_sync && durable == Durable::No {
            self.make_due(mono);
            self.rests_until = Duration::ZERO;
        } else {
            self.has_progress = false;
        }
        self.drafting = Some(Drafting {
            number: self.last_number,
            synced: sync.synced,
            next,
            durable,
            began: mono,
            was_due_at_once,
        });
    }

    pub(super) fn finish(
        &mut self,
        context: &mut Context,
        log_sync: &mut Sync,
        mut draft: CheckpointDraft,
    ) {
        let drafting = self.drafting.take();
        let drafting = drafting.expect("finish_checkpoint() follows begin_checkpoint()");
        let number = drafting.number;
        (draft.number, draft.synced, draft.next) = (number, drafting.synced, drafting.next);
        let is_first = self.synced_number < self.found_number;
        let empty = EmptyCheckpoint::of(&draft);
        let is_needed = match drafting.durable {
            Durable::No => false,
            Durable::IfNeeded => !self.is_durable_as_good(empty.as_ref(), log_sync.on_disk),
            Durable::Yes => true,
        };
        // A checkpoint of a poisoned log is never marked as synced, so that the next start does not take it for
        // durable: see [`Recovered`](crate::Recovered).
        let sync = (is_needed || is_first) && log_sync.poisoned.is_none();
        if !self.equals_durable(empty.as_ref()) {
            self.last_different = number;
        }
        let place = self.free_place();
        // Until it is written it holds nothing that counts.
        self.places[place] = 0;
        let is_file_renamed = sync && std::mem::take(&mut log_sync.is_file_renamed);
        let is_any_new = log_sync.names_synced.is_none() || self.is_file_new;
        let names = is_file_renamed || sync && is_any_new;
        self.writing = Some(Writing {
            draft: drafting,
            place,
            sync,
            empty,
            names_upto: names.then_some(context.prepared_upto),
            is_file_renamed,
        });
        context.ask(Request::WriteCheckpoint(CheckpointJob {
            number: CheckpointNumber(number),
            place: place as u8,
            draft,
            sync_first: self.is_newest_doubtful,
            sync,
            names,
        }));
    }

    /// Takes the result of a write. Returns whether the checkpoint is durable: segments may go that it does not name.
    pub(super) fn ended(
        &mut self,
        context: &mut Context,
        sync: &mut Sync,
        number: CheckpointNumber,
        result: Result<(), SyncFailure>,
    ) -> bool {
        let writing = self.writing.take();
        let writing = writing.expect("one checkpoint is written at a time");
        let draft = writing.draft;
        assert_eq!(draft.number, number.0, "the answer to another checkpoint");
        if let Err(failure) = result {
            self.retry_later(context.mono, draft.was_due_at_once);
            sync.is_file_renamed |= writing.is_file_renamed;
            let notice = |cause| Notice::CheckpointFailed { number, cause };
            sync.take_failure(context, failure, notice);
            return false;
        }
        if writing.sync {
            let took = context.mono.saturating_sub(draft.began);
            self.rests_until = context.mono + took;
        }
        self.places[writing.place] = draft.number;
        self.is_newest_doubtful = false;
        // After a failed sync, a later sync that succeeds proves nothing: the kernel may have dropped the pages
        // that it could not write.
        let synced = writing.sync && sync.poisoned.is_none();
        context.tell(Notice::Checkpointed { number, synced });
        if synced {
            self.synced_number = draft.number;
            self.durable_empty = writing.empty;
            self.is_file_new &= writing.names_upto.is_none();
            sync.raise_names_synced(writing.names_upto);
        }
        synced
    }
}
