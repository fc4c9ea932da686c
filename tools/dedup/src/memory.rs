//! The interface of the filters.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

/// The time since 1970 by the wall clock. Filters that forget by time use it, so that a restored filter goes on where
/// the saved one stopped. A filter treats a clock that was set back as a clock that stands still.
pub type UnixTime = Duration;

/// A filter: the memory of what was done.
///
/// A memory has two answers, and decides alone what it forgets. [`Deduplicator`](crate::Deduplicator) adds the third
/// answer, *in progress*, and is what consumers use.
pub trait Memory {
    /// The value that the memory compares.
    type Key: Copy + Debug + Eq + Hash;

    /// Returns whether the message with this key was done, as far as the memory knows.
    fn remembers(&mut self, key: Self::Key, now: UnixTime) -> bool;

    /// Records that the message with this key is done.
    fn remember(&mut self, key: Self::Key, now: UnixTime);

    /// Returns the bytes of memory that the filter takes now, at the most. The filters of fixed size take this much from
    /// the start.
    fn bytes(&self) -> u64;

    /// Returns the most bytes of memory that the filter ever takes. They are known when the filter is made. A copy, from
    /// which the filter is saved while it is asked, takes as much again. `tests/memory.rs` compares the bytes with those
    /// of the allocator.
    fn bytes_max(&self) -> u64 {
        self.bytes()
    }
}
