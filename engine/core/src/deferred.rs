//! Messages that are not yet due: DPUB, REQ with a timeout, `defer` over HTTP.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;
use wire::id::Seq;

/// One deferred message of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DeferredEntry {
    /// When it becomes due, on the monotonic clock.
    pub due: Duration,
    /// Which message.
    pub seq: Seq,
    /// Deliveries so far.
    pub attempts: u16,
}

/// The deferred messages of a channel, the next due first. Their due times are all different, so
/// this is a heap; what is waiting in order needs none (see `window`).
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    heap: BinaryHeap<Reverse<DeferredEntry>>,
}

impl Deferred {
    /// Number of messages not yet due.
    pub(crate) fn count(&self) -> u64 {
        self.heap.len() as u64
    }

    /// Adds a message.
    pub(crate) fn push(&mut self, entry: DeferredEntry) {
        self.heap.push(Reverse(entry));
    }

    /// Removes the next message that is due at `now`.
    pub(crate) fn pop_due(&mut self, now: Duration) -> Option<DeferredEntry> {
        match self.heap.peek() {
            Some(Reverse(entry)) if entry.due <= now => self.heap.pop().map(|Reverse(e)| e),
            _ => None,
        }
    }

    /// When the next one becomes due.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.heap.peek().map(|Reverse(entry)| entry.due)
    }

    /// Takes all of them out, in no particular order.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = DeferredEntry> + '_ {
        self.heap.drain().map(|Reverse(entry)| entry)
    }

    /// All of them, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = DeferredEntry> + '_ {
        self.heap.iter().map(|Reverse(entry)| *entry)
    }
}
