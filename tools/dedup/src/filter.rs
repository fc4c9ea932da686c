//! The interface of the filters.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

/// The time since 1970 by the wall clock. Filters that forget by time use it, so that a restored filter goes on where
/// the saved one stopped. A filter treats a clock that was set back as a clock that stands still. If the clock was set
/// back by more than the window, the filter sets its own times back by as much. So a clock that was far ahead for a
/// moment makes no filter keep its keys until that time comes.
pub type UnixTime = Duration;

/// Returns how far `latest`, the latest time that a filter was told, lies ahead of `now`, if that is more than the
/// window.
pub(crate) fn far_ahead(latest: UnixTime, now: UnixTime, window: Duration) -> Option<Duration> {
    let ahead = latest.saturating_sub(now);
    (ahead > window).then_some(ahead)
}

/// A filter: it knows which messages were done.
///
/// A filter has two answers, and decides alone what it forgets. [`Deduplicator`](crate::Deduplicator) adds the third
/// answer, *in progress*, and is what consumers use.
pub trait Filter {
    /// The value that the filter compares.
    type Key: Copy + Debug + Eq + Hash;

    /// Returns whether the message with this key was done, as far as the filter knows.
    fn remembers(&mut self, key: Self::Key, now: UnixTime) -> bool;

    /// Records that the message with this key is done.
    fn remember(&mut self, key: Self::Key, now: UnixTime);

    /// Returns the bytes of memory that the filter takes now, at the most. The filters of fixed size take this much
    /// from the start.
    fn bytes(&self) -> u64;

    /// Returns the most bytes of memory that the filter ever takes. They are known when the filter is made. A snapshot,
    /// from which the filter is saved while it is asked, takes as much again. `tests/memory.rs` compares the bytes with
    /// those of the allocator.
    fn bytes_max(&self) -> u64 {
        self.bytes()
    }
}
