//! [`Sync`]: which messages of a log are synced, and what the sync under way covers.

use std::sync::Arc;
use std::time::Duration;

use wire::id::Seq;

use crate::file_name::SegmentNumber;

/// A sync under way.
#[derive(Debug)]
pub(super) struct Syncing {
    pub(super) upto: Seq,
    /// Files up to here have durable names once it ends, if it syncs the names.
    pub(super) names_upto: Option<SegmentNumber>,
    /// True if it makes the name of a renamed file durable.
    pub(super) is_file_renamed: bool,
    /// True if the sync relied on a copy that the log does not use: its spill has failed, or a reader came. Such a sync
    /// proves nothing, and is done again.
    pub(super) is_void: bool,
    /// The number of entries of `voided` that are durably removed once this sync ends.
    pub(super) voided_count: usize,
}

/// The sync state of a log.
#[derive(Debug, Default)]
pub(super) struct Sync {
    /// Everything below is synced, or nobody holds it any more.
    pub(super) synced: Seq,
    /// No sync and no spill has written messages at or above this seq.
    pub(super) on_disk: Seq,
    pub(super) syncing: Option<Syncing>,
    /// True if a publish waits for a sync that covers everything appended.
    pub(super) is_wanted: bool,
    /// The number of messages that the last sync covered.
    pub(super) group: u64,
    /// The time until which the next sync waits for `group` messages.
    pub(super) gather_until: Duration,
    /// The time at which the next sync starts; `None` while everything appended is covered.
    pub(super) due: Option<Duration>,
    /// The seq whose append makes the sync due early.
    pub(super) count_trigger: Seq,
    /// The time at which the last sync began.
    pub(super) began: Option<Duration>,
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
    pub(super) fn spill_is_void(&mut self) {
        plant!(VoidSyncBelieved, return);
        if let Some(syncing) = &mut self.syncing {
            syncing.is_void = true;
        }
    }

    /// Raises the mark of the files whose names are durable.
    pub(super) fn raise_names_synced(&mut self, upto: Option<SegmentNumber>) {
        self.names_synced = self.names_synced.max(upto);
    }
}
