//! [`Sync`]: which messages of a log are synced, when a sync starts, and what its result means.

use std::sync::Arc;
use std::time::Duration;

use wire::id::Seq;

use crate::file_name::SegmentNumber;
use crate::policy::RETRY_AFTER;
use crate::request::{Request, SyncFailure, SyncJob};

use super::answers::Notice;
use super::context::Context;
use super::segments::{Residency, Segments};

/// The least time between two syncs that start because of the number of unsynced messages. At high rates, more syncs
/// would only write the same warm pages again and again.
const SYNC_INTERVAL_MIN: Duration = Duration::from_millis(200);

/// The longest time that a sync waits for publishes to gather. Clients that wait for a sync publish again when it has
/// ended. The next sync starts when as many publishes wait as the last sync covered, or after the last sync's duration,
/// whichever is earlier. So one sync serves all of them.
const GATHER_MAX: Duration = Duration::from_millis(2);

/// If syncs in a row cannot open their files, the first is reported, and then one every 10 s.
const TOLD_EVERY: u32 = 40;

/// A sync under way.
#[derive(Debug)]
struct Syncing {
    upto: Seq,
    /// Files up to here have durable names once it ends, if it syncs the names.
    names_upto: Option<SegmentNumber>,
    /// True if it makes the name of a renamed file durable.
    is_file_renamed: bool,
    /// True if the sync relied on a copy that the log does not use: its spill has failed, or a reader came. Such a sync
    /// proves nothing, and is done again.
    is_void: bool,
    /// The number of entries of `voided` that are durably removed once this sync ends.
    voided_count: usize,
}

/// The sync state of a log.
#[derive(Debug, Default)]
pub(super) struct Sync {
    /// Everything below is synced, or nobody holds it any more.
    pub(super) synced: Seq,
    /// No sync and no spill has written messages at or above this seq.
    pub(super) on_disk: Seq,
    syncing: Option<Syncing>,
    /// True if a publish waits for a sync that covers everything appended.
    pub(super) is_wanted: bool,
    /// The number of messages that the last sync covered.
    group: u64,
    /// The time until which the next sync waits for `group` messages.
    gather_until: Duration,
    /// The time at which the next sync starts; `None` while everything appended is covered.
    pub(super) due: Option<Duration>,
    /// The seq whose append makes the sync due early.
    count_trigger: Seq,
    /// Files up to this number have durable names. `None`: not even the directory is known to.
    pub(super) names_synced: Option<SegmentNumber>,
    /// True if a file of the topic was renamed. The next sync makes its name durable, too.
    pub(super) is_file_renamed: bool,
    /// The number of syncs in a row that could not open their files. If it is not 0, the next sync starts at `due`,
    /// even if a publish asks for one earlier.
    pub(super) delayed: u32,
    /// The number of syncs that have ended well.
    pub(super) ended_count: u64,
    /// The time that these syncs took, all together.
    pub(super) ended_time: Duration,
    pub(super) poisoned: Option<Arc<str>>,
    /// Copies that are not used and were never synced. The next sync removes them for good, because a power failure
    /// must not bring a torn copy back beside a whole original: start-up prefers a copy to its original, and does not
    /// read a copy that lies below the synced mark.
    pub(super) voided: Vec<SegmentNumber>,
}

impl Sync {
    pub(super) fn new(synced: Seq) -> Sync {
        Sync {
            synced,
            on_disk: synced,
            ..Sync::default()
        }
    }

    /// Raises the mark below which messages may be on the disk: those below `upto` are being brought there.
    pub(super) fn raise_on_disk(&mut self, upto: Seq) {
        self.on_disk = self.on_disk.max(upto);
    }

    /// Returns the end of the messages that the sync under way covers.
    pub(super) fn upto(&self) -> Option<Seq> {
        self.syncing.as_ref().map(|syncing| syncing.upto)
    }

    /// Returns whether an append that ends at `next` may change the time of the next sync.
    #[inline]
    pub(super) fn wants_to_know(&self, next: Seq) -> bool {
        self.due.is_none() || next >= self.count_trigger
    }

    /// Returns the seq below which everything is synced, or will be when the sync under way ends.
    pub(super) fn covered(&self) -> Seq {
        self.synced.max(self.upto().unwrap_or(self.synced))
    }

    pub(super) fn due_at(&self) -> Option<Duration> {
        self.due
            .filter(|_| self.syncing.is_none() && self.poisoned.is_none())
    }

    /// Makes the sync under way void: it relied on the copy of a segment, and the log does not use that copy.
    pub(super) fn make_void(&mut self) {
        plant!(VoidSyncBelieved, return);
        if let Some(syncing) = &mut self.syncing {
            syncing.is_void = true;
        }
    }

    /// Raises the mark of the files whose names are durable.
    pub(super) fn raise_names_synced(&mut self, upto: Option<SegmentNumber>) {
        self.names_synced = self.names_synced.max(upto);
    }

    /// Starts a sync of everything appended so far, unless one is under way or delayed.
    pub(super) fn start_now(&mut self, context: &mut Context, segments: &Segments) {
        if self.synced >= segments.next || self.poisoned.is_some() {
            return;
        }
        match self.upto() {
            Some(upto) => self.is_wanted |= upto < segments.next,
            None if self.delayed > 0 => {}
            None => self.start(context, segments),
        }
    }

    /// Starts the sync that publishes wait for, if it does not wait for more of them.
    pub(super) fn start_if_wanted(&mut self, context: &mut Context, segments: &Segments) {
        let can_start = self.syncing.is_none() && self.delayed == 0 && self.poisoned.is_none();
        if !self.is_wanted || !can_start {
            return;
        }
        let count = segments.next.0.saturating_sub(self.synced.0);
        if count >= self.group || context.mono >= self.gather_until {
            self.start(context, segments);
        } else {
            let gathered = self.gather_until;
            self.due = Some(self.due.map_or(gathered, |due| due.min(gathered)));
        }
    }

    /// Makes a sync due: after the first unsynced append, or the one that makes too many.
    #[cold]
    pub(super) fn schedule(&mut self, context: &Context, next: Seq) {
        if self.due.is_none() {
            self.due = Some(context.mono + context.options.sync_timeout);
            plant!(
                SyncTimerLost,
                self.due = Some(context.mono + context.options.sync_timeout * 1001)
            );
            let covered = self.covered();
            // With 1, the topic asks for each sync (`want_sync`). With 0, no number of messages makes a sync due.
            self.count_trigger = match context.options.sync_every {
                0 | 1 => Seq(u64::MAX),
                every => Seq(covered.0.saturating_add(every)),
            };
        }
        if next >= self.count_trigger {
            self.count_trigger = Seq(u64::MAX);
            let earliest = context.sync_began.map(|began| began + SYNC_INTERVAL_MIN);
            let early = earliest.map_or(context.mono, |at| at.max(context.mono));
            self.due = self.due.map(|due| due.min(early));
        }
    }

    pub(super) fn start(&mut self, context: &mut Context, segments: &Segments) {
        let (synced, next) = (self.synced, segments.next);
        let unsynced = segments.newest_first();
        let unsynced = unsynced.take_while(|segment| segment.end_seq() > synced);
        // A segment that nobody holds need not be durable: no later checkpoint owes any of its messages.
        let unsynced = unsynced.filter(|segment| segment.is_held() && !segment.is_durable);
        let written = unsynced.clone().filter_map(|s| s.written_since(synced));
        let written = written.collect();
        let (mut files, mut copies, mut again) = (Vec::new(), Vec::new(), Vec::new());
        for segment in unsynced {
            if segment.is_doubtful {
                again.push((segment.number, segment.pieces()));
            }
            match segment.residency {
                Residency::Spilling {
                    is_synced: true, ..
                } => {}
                // Before the keeper reaches this sync, the copy is written or the sync is void.
                Residency::Spilling { copy, .. } => copies.push(copy),
                _ => files.push(segment.number),
            }
        }
        let newest = files.iter().chain(&copies).max().copied();
        if newest.is_some() {
            self.raise_on_disk(next);
        }
        let gone = self.voided.clone();
        let is_file_renamed = std::mem::take(&mut self.is_file_renamed);
        let names = newest > self.names_synced || !gone.is_empty() || is_file_renamed;
        let names_upto = names.then_some(context.prepared_upto);
        self.syncing = Some(Syncing {
            upto: next,
            names_upto,
            is_file_renamed,
            is_void: false,
            voided_count: gone.len(),
        });
        context.sync_began = Some(context.mono);
        self.due = None;
        self.is_wanted = false;
        context.ask(Request::Sync(SyncJob {
            segments: files,
            copies,
            written,
            again,
            gone,
            names,
            upto: next,
        }));
    }

    /// Takes the result of a sync. Returns whether the synced mark may have moved.
    pub(super) fn ended(
        &mut self,
        context: &mut Context,
        segments: &Segments,
        upto: Seq,
        result: Result<(), SyncFailure>,
    ) -> bool {
        let syncing = self.syncing.take();
        match result {
            Err(SyncFailure::Final(failure)) => {
                plant!(FailedSyncRetried, {
                    self.delay(context, failure.text.into());
                    return false;
                });
                self.poison(context, failure.text.into());
                return false;
            }
            Err(SyncFailure::Retryable(failure)) => {
                self.is_file_renamed |= syncing.is_some_and(|it| it.is_file_renamed);
                self.delay(context, failure.text.into());
                return false;
            }
            Ok(()) => self.delayed = 0,
        }
        if self.poisoned.is_some() {
            return false;
        }
        if let Some(syncing) = syncing {
            self.raise_names_synced(syncing.names_upto);
            plant!(
                NamesMarkTooEarly,
                self.names_synced = Some(SegmentNumber(u64::MAX))
            );
            self.voided.drain(..syncing.voided_count);
            if syncing.is_void {
                self.start_now(context, segments);
                return false;
            }
        }
        let began = context.sync_began.unwrap_or(context.mono);
        let took = context.mono - began;
        self.ended_count += 1;
        self.ended_time += took;
        self.gather_until = context.mono + took.min(GATHER_MAX);
        self.group = upto.0.saturating_sub(self.synced.0);
        self.synced = self.synced.max(upto);
        plant!(SyncCoversTooMuch, self.synced = segments.next);
        true
    }

    /// Schedules another try after a sync that could not open its files. Nothing was lost, and clients that wait for
    /// the sync wait on.
    fn delay(&mut self, context: &mut Context, text: Arc<str>) {
        if self.delayed.is_multiple_of(TOLD_EVERY) {
            context.tell(Notice::SyncDelayed(text));
        }
        self.delayed = self.delayed.saturating_add(1);
        self.due = Some(context.mono + RETRY_AFTER);
        self.count_trigger = Seq(u64::MAX);
    }

    /// Poisons the log. A failed sync is final: the kernel may have dropped the pages it could not
    /// write, and call the next sync a success.
    pub(super) fn poison(&mut self, context: &mut Context, text: Arc<str>) {
        if self.poisoned.is_none() {
            self.poisoned = Some(Arc::clone(&text));
            context.tell(Notice::SyncFailed(text));
        }
    }

    /// Takes the failure of a checkpoint or a saved state, and makes a notice of it. Poisons the log if it is final.
    pub(super) fn take_failure(
        &mut self,
        context: &mut Context,
        failure: SyncFailure,
        notice: impl FnOnce(Arc<str>) -> Notice,
    ) {
        let is_final = matches!(failure, SyncFailure::Final(_));
        let (SyncFailure::Retryable(why) | SyncFailure::Final(why)) = failure;
        let cause: Arc<str> = why.text.into();
        context.tell(notice(Arc::clone(&cause)));
        if is_final {
            self.poison(context, cause);
        }
    }
}
