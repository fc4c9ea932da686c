//! [`Deduplicator`]: a memory, and the keys that are in progress.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::memory::{Memory, UnixTime};

/// Decides for each message whether it is to be handled. Clones share one memory, so all tasks of a consumer use clones
/// of one deduplicator.
///
/// [`begin`](Deduplicator::begin) checks and records under one lock, so of two copies that come at the same time only
/// one is fresh.
pub struct Deduplicator<M: Memory> {
    shared: Arc<Mutex<Shared<M>>>,
}

#[derive(Debug)]
struct Shared<M: Memory> {
    memory: M,
    /// The keys that have a guard. They are not in the memory.
    in_progress: HashSet<M::Key>,
}

impl<M: Memory> Shared<M> {
    fn check(&mut self, key: M::Key, now: UnixTime) -> State {
        if self.in_progress.contains(&key) {
            State::InProgress
        } else if self.memory.remembers(key, now) {
            State::Done
        } else {
            self.in_progress.insert(key);
            State::Fresh
        }
    }
}

enum State {
    Fresh,
    InProgress,
    Done,
}

/// The answer of [`Deduplicator::begin`].
#[derive(Debug)]
pub enum Begin<M: Memory> {
    /// No copy of the message was handled, as far as the memory knows. The caller handles the message, and then commits
    /// the guard.
    Fresh(Guard<M>),
    /// A copy of the message is being handled. The caller waits, keeps its message alive with TOUCH, and asks again. It
    /// must not finish its copy, because the other copy can still fail.
    InProgress,
    /// A copy of the message was handled. The caller finishes its copy.
    Done,
}

impl<M: Memory> Deduplicator<M> {
    /// Makes a deduplicator over this memory.
    #[must_use]
    pub fn new(memory: M) -> Deduplicator<M> {
        let shared = Shared {
            memory,
            in_progress: HashSet::new(),
        };
        Deduplicator {
            shared: Arc::new(Mutex::new(shared)),
        }
    }

    /// Asks about the message with this key, and makes the key the caller's if the message is fresh.
    #[must_use = "a guard that is dropped gives the message up"]
    pub fn begin(&self, key: M::Key, now: UnixTime) -> Begin<M> {
        match self.lock().check(key, now) {
            State::Done => Begin::Done,
            State::InProgress => Begin::InProgress,
            State::Fresh => Begin::Fresh(Guard {
                shared: Arc::clone(&self.shared),
                key,
                is_open: true,
            }),
        }
    }

    /// Returns the number of keys in progress. The memory of these keys grows with the messages in flight of the
    /// consumer, and not with the backlog.
    #[must_use]
    pub fn in_progress(&self) -> usize {
        self.lock().in_progress.len()
    }

    /// Calls `action` with the memory, for example to save the memory. Nobody else can ask until `action` returns.
    pub fn with_memory<T>(&self, action: impl FnOnce(&mut M) -> T) -> T {
        action(&mut self.lock().memory)
    }

    fn lock(&self) -> MutexGuard<'_, Shared<M>> {
        lock(&self.shared)
    }
}

/// Locks the shared part. A panic of another thread inside the lock leaves the sets valid: each change is one insertion
/// or removal.
fn lock<M: Memory>(shared: &Mutex<Shared<M>>) -> MutexGuard<'_, Shared<M>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M: Memory> Clone for Deduplicator<M> {
    fn clone(&self) -> Deduplicator<M> {
        Deduplicator {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<M: Memory> fmt::Debug for Deduplicator<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deduplicator")
            .field("in_progress", &self.in_progress())
            .finish_non_exhaustive()
    }
}

/// The right to handle one message. While the guard lives, copies of the message are in progress.
///
/// A guard that is dropped without [`commit`](Guard::commit) gives the message up: its next copy is fresh.
pub struct Guard<M: Memory> {
    shared: Arc<Mutex<Shared<M>>>,
    key: M::Key,
    is_open: bool,
}

impl<M: Memory> Guard<M> {
    /// Returns the key of the message.
    #[must_use]
    pub fn key(&self) -> M::Key {
        self.key
    }

    /// Records that the message was handled. Call it after the work is done, and before the FIN: if the FIN is lost, the
    /// message comes again, and is done.
    pub fn commit(mut self, now: UnixTime) {
        self.is_open = false;
        let mut shared = lock(&self.shared);
        shared.in_progress.remove(&self.key);
        shared.memory.remember(self.key, now);
    }
}

impl<M: Memory> Drop for Guard<M> {
    fn drop(&mut self) {
        if self.is_open {
            lock(&self.shared).in_progress.remove(&self.key);
        }
    }
}

impl<M: Memory> fmt::Debug for Guard<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
