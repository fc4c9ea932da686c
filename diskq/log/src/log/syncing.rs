//! The start of the next sync, and the effects of its result.

use std::sync::Arc;
use std::time::Duration;

use wire::id::Seq;

use crate::policy::RETRY_AFTER;
use crate::request::{Request, SyncFailure, SyncJob};

use super::segments::Residency;
use super::sync::Syncing;
use super::{Log, Notice};

/// The least time between two syncs that start because of the number of unsynced messages. At high rates, more syncs
/// would only write the same warm pages again and again.
const SYNC_INTERVAL_MIN: Duration = Duration::from_millis(200);

/// The longest time that a sync waits for publishes to gather. Clients that wait for a sync publish again when it has
/// ended. The next sync starts when as many publishes wait as the last sync covered, or after the last sync's duration,
/// whichever is earlier. So one sync serves all of them.
const GATHER_MAX: Duration = Duration::from_millis(2);

/// If syncs in a row cannot open their files, the first is reported, and then one every 10 s.
const TOLD_EVERY: u32 = 40;

impl Log {
    /// Returns the seq of the next append. 0 for a new log, whose first append takes a seq from the clock.
    #[inline]
    #[must_use]
    pub fn next_seq(&self) -> Seq {
        self.next
    }

    /// Returns the seq below which every message is synced, or has no holder any more.
    #[inline]
    #[must_use]
    pub fn synced(&self) -> Seq {
        self.sync.synced
    }

    /// Returns the seq up to which a sync under way covers the messages. `None`: no sync is under way.
    #[inline]
    #[must_use]
    pub fn sync_upto(&self) -> Option<Seq> {
        self.sync.upto()
    }

    /// Returns why the log takes no messages any more: a sync has failed.
    #[must_use]
    pub fn poisoned(&self) -> Option<&Arc<str>> {
        self.sync.poisoned.as_ref()
    }

    /// Returns the seq that the next append gives if it comes at `wall_ns`.
    #[inline]
    #[must_use]
    pub fn next_append_seq(&self, wall_ns: u64) -> Seq {
        match self.next {
            Seq(0) => Seq::from_clock(wall_ns),
            next => next,
        }
    }

    /// Returns whether everything appended is synced.
    #[inline]
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.sync.synced >= self.next
    }

    /// Returns how many syncs in a row could not open their files: none of them lost anything.
    #[must_use]
    pub fn delayed_syncs(&self) -> u32 {
        self.sync.delayed
    }

    /// Asks for a sync of everything appended so far; [`Notice::Synced`] tells when. At most one is
    /// under way: the next starts soon after it ends, and covers all that was appended meanwhile.
    pub fn sync_now(&mut self) {
        if self.is_synced() || self.sync.poisoned.is_some() {
            return;
        }
        match self.sync.upto() {
            Some(upto) => self.sync.is_wanted |= upto < self.next,
            None if self.sync.delayed > 0 => {}
            None => self.start_sync(),
        }
    }

    /// Asks for a sync of everything appended so far, for which publishes wait. The sync starts when the requests are
    /// drained, or a little later if more such publishes are expected. [`Notice::Synced`] tells when it is done.
    #[inline]
    pub fn want_sync(&mut self) {
        self.sync.is_wanted = true;
    }

    /// Starts the sync that publishes wait for, if it does not wait for more of them.
    pub(super) fn sync_if_wanted(&mut self) {
        let sync = &mut self.sync;
        let can_start = sync.syncing.is_none() && sync.delayed == 0 && sync.poisoned.is_none();
        if !sync.is_wanted || !can_start {
            return;
        }
        let count = self.next.0.saturating_sub(sync.synced.0);
        if count >= sync.group || self.mono >= sync.gather_until {
            self.start_sync();
        } else {
            let gathered = sync.gather_until;
            sync.due = Some(sync.due.map_or(gathered, |due| due.min(gathered)));
        }
    }

    /// Makes a sync due: after the first unsynced append, or the one that makes too many.
    #[cold]
    pub(super) fn schedule_sync(&mut self) {
        if self.sync.due.is_none() {
            self.sync.due = Some(self.mono + self.options.sync_timeout);
            plant!(
                SyncTimerLost,
                self.sync.due = Some(self.mono + self.options.sync_timeout * 1001)
            );
            let covered = self.sync.covered();
            // With 1, the topic asks for each sync (`want_sync`). With 0, no number of messages makes a sync due.
            self.sync.count_trigger = match self.options.sync_every {
                0 | 1 => Seq(u64::MAX),
                every => Seq(covered.0.saturating_add(every)),
            };
        }
        if self.next >= self.sync.count_trigger {
            self.sync.count_trigger = Seq(u64::MAX);
            let earliest = self
                .sync
                .began
                .map_or(self.mono, |began| began + SYNC_INTERVAL_MIN);
            let early = earliest.max(self.mono);
            self.sync.due = self.sync.due.map(|due| due.min(early));
        }
    }

    pub(super) fn start_sync(&mut self) {
        let synced = self.sync.synced;
        let sealed = self.segments.sealed.iter().rev();
        let unsynced = self.segments.tail.iter().chain(sealed);
        let unsynced = unsynced.take_while(|segment| segment.end_seq() > synced);
        // A segment that nobody holds need not be durable: no later checkpoint owes any of its messages.
        let unsynced = unsynced.filter(|segment| segment.is_held() && !segment.is_durable);
        let written = unsynced.clone().filter_map(|s| s.written_since(synced));
        let written = written.collect();
        let (mut segments, mut copies, mut again) = (Vec::new(), Vec::new(), Vec::new());
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
                _ => segments.push(segment.number),
            }
        }
        let newest = segments.iter().chain(&copies).max().copied();
        if newest.is_some() {
            self.sync.raise_on_disk(self.next);
        }
        let gone = self.sync.voided.clone();
        let is_file_renamed = std::mem::take(&mut self.sync.is_file_renamed);
        let names = newest > self.sync.names_synced || !gone.is_empty() || is_file_renamed;
        let names_upto = names.then_some(self.supply.prepared_upto);
        self.sync.syncing = Some(Syncing {
            upto: self.next,
            names_upto,
            is_file_renamed,
            is_void: false,
            voided_count: gone.len(),
        });
        self.sync.began = Some(self.mono);
        self.sync.due = None;
        self.sync.is_wanted = false;
        self.requests.push_back(Request::Sync(SyncJob {
            segments,
            copies,
            written,
            again,
            gone,
            names,
            upto: self.next,
        }));
    }

    pub(super) fn sync_ended(
        &mut self,
        upto: Seq,
        result: Result<(), SyncFailure>,
        notices: &mut Vec<Notice>,
    ) {
        let syncing = self.sync.syncing.take();
        match result {
            Err(SyncFailure::Final(failure)) => {
                plant!(
                    FailedSyncRetried,
                    return self.delay(failure.text.into(), notices)
                );
                return self.poison(failure.text.into(), notices);
            }
            Err(SyncFailure::Retryable(failure)) => {
                self.sync.is_file_renamed |= syncing.is_some_and(|it| it.is_file_renamed);
                return self.delay(failure.text.into(), notices);
            }
            Ok(()) => self.sync.delayed = 0,
        }
        if self.sync.poisoned.is_some() {
            return;
        }
        if let Some(syncing) = syncing {
            self.sync.raise_names_synced(syncing.names_upto);
            plant!(
                NamesMarkTooEarly,
                self.sync.names_synced = Some(crate::file_name::SegmentNumber(u64::MAX))
            );
            self.sync.voided.drain(..syncing.voided_count);
            if syncing.is_void {
                return self.sync_now();
            }
        }
        let took = self
            .sync
            .began
            .map_or(Duration::ZERO, |began| self.mono - began);
        self.sync.ended_count += 1;
        self.sync.ended_time += took;
        self.sync.gather_until = self.mono + took.min(GATHER_MAX);
        self.sync.group = upto.0.saturating_sub(self.sync.synced.0);
        self.sync.synced = self.sync.synced.max(upto);
        plant!(SyncCoversTooMuch, self.sync.synced = self.next);
        self.make_checkpoint_due_above_mark();
        notices.push(Notice::Synced(self.sync.synced));
    }

    /// Schedules another try after a sync that could not open its files. Nothing was lost, and clients that wait for
    /// the sync wait on.
    fn delay(&mut self, text: Arc<str>, notices: &mut Vec<Notice>) {
        if self.sync.delayed.is_multiple_of(TOLD_EVERY) {
            notices.push(Notice::SyncDelayed(text));
        }
        self.sync.delayed = self.sync.delayed.saturating_add(1);
        self.sync.due = Some(self.mono + RETRY_AFTER);
        self.sync.count_trigger = Seq(u64::MAX);
    }

    /// Poisons the log. A failed sync is final: the kernel may have dropped the pages it could not
    /// write, and call the next sync a success.
    pub(super) fn poison(&mut self, text: Arc<str>, notices: &mut Vec<Notice>) {
        if self.sync.poisoned.is_none() {
            self.sync.poisoned = Some(Arc::clone(&text));
            notices.push(Notice::SyncFailed(text));
        }
    }
}
