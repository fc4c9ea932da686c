//! [`Deduplicator`]: a filter, and the keys that are in progress.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::filter::{Filter, UnixTime};

/// Decides for each message whether it is to be handled. Clones share one filter, so all tasks of a consumer use clones
/// of one deduplicator.
///
/// [`begin`](Deduplicator::begin) checks and records under one lock, so of two copies that come at the same time only
/// one is fresh.
pub struct Deduplicator<F: Filter> {
    shared: Arc<Mutex<Shared<F>>>,
}

/// A panic under the lock leaves the set and the filter usable: at most one key is missing.
#[derive(Debug)]
struct Shared<F: Filter> {
    filter: F,
    /// The keys that have a guard. They are not in the filter.
    in_progress: HashSet<F::Key>,
}

/// The answer of [`Deduplicator::begin`].
#[derive(Debug)]
pub enum Begin<F: Filter> {
    /// No copy of the message was handled, as far as the filter knows. The caller handles the message, and then commits
    /// the guard.
    Fresh(Guard<F>),
    /// A copy of the message is being handled. The caller waits, keeps its message alive with TOUCH, and asks again. It
    /// must not finish its copy, because the other copy can still fail.
    InProgress,
    /// A copy of the message was handled. The caller finishes its copy.
    Done,
}

impl<F: Filter> Deduplicator<F> {
    /// Makes a deduplicator over this filter.
    #[must_use]
    pub fn new(filter: F) -> Deduplicator<F> {
        let shared = Shared {
            filter,
            in_progress: HashSet::new(),
        };
        Deduplicator {
            shared: Arc::new(Mutex::new(shared)),
        }
    }

    /// Asks about the message with this key, and gives the caller the claim on the key if the message is fresh.
    #[must_use = "a guard that is dropped releases the key"]
    pub fn begin(&self, key: F::Key, now: UnixTime) -> Begin<F> {
        let mut shared = self.shared.lock();
        if shared.in_progress.contains(&key) {
            return Begin::InProgress;
        }
        if shared.filter.remembers(key, now) {
            return Begin::Done;
        }
        shared.in_progress.insert(key);
        Begin::Fresh(Guard {
            shared: Arc::clone(&self.shared),
            key,
            is_open: true,
        })
    }

    /// Returns the number of keys in progress. The bytes of these keys grow with the messages in flight of the
    /// consumer, and not with the backlog.
    #[must_use]
    pub fn in_progress(&self) -> usize {
        self.shared.lock().in_progress.len()
    }

    /// Calls `action` with the filter, for example to save the filter. Nobody else can ask until `action` returns.
    pub fn with_filter<T>(&self, action: impl FnOnce(&mut F) -> T) -> T {
        action(&mut self.shared.lock().filter)
    }
}

impl<F: Filter> Clone for Deduplicator<F> {
    fn clone(&self) -> Deduplicator<F> {
        Deduplicator {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<F: Filter> fmt::Debug for Deduplicator<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deduplicator")
            .field("in_progress", &self.in_progress())
            .finish_non_exhaustive()
    }
}

/// The claim on one key in a filter of this process. While the guard lives, copies of the message are in progress.
///
/// A guard that is dropped without [`commit`](Guard::commit) releases the key: the next copy of the message is fresh.
pub struct Guard<F: Filter> {
    shared: Arc<Mutex<Shared<F>>>,
    key: F::Key,
    is_open: bool,
}

impl<F: Filter> Guard<F> {
    /// Returns the key of the message.
    #[must_use]
    pub fn key(&self) -> F::Key {
        self.key
    }

    /// Records that the message was handled. Call it after the work is done, and before the FIN: if the FIN is lost,
    /// the message comes again, and is done.
    pub fn commit(mut self, now: UnixTime) {
        self.is_open = false;
        let mut shared = self.shared.lock();
        shared.in_progress.remove(&self.key);
        shared.filter.remember(self.key, now);
    }
}

impl<F: Filter> Drop for Guard<F> {
    fn drop(&mut self) {
        if self.is_open {
            self.shared.lock().in_progress.remove(&self.key);
        }
    }
}

impl<F: Filter> fmt::Debug for Guard<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
