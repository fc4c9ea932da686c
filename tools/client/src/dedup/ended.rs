//! [`Ended`]: tells the copies that wait which messages have an answer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::key::FilterKey;

/// The keys whose copies are to ask the filter again. Any thread adds keys, and one task takes them.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    keys: Mutex<Vec<FilterKey>>,
    /// True while copies wait. Otherwise nobody needs the keys.
    is_watched: AtomicBool,
    changed: Notify,
    /// The claims whose end the store did not hear of.
    failures: AtomicU64,
}

impl Ended {
    fn keys(&self) -> MutexGuard<'_, Vec<FilterKey>> {
        // No section of the lock can be left half done by a panic.
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// States that copies wait, or that none waits. A copy that begins to wait calls this before it asks the filter for
    /// the last time, so the end of its twin is either seen by this question or pushed.
    pub(crate) fn watch(&self, is_watched: bool) {
        self.is_watched.store(is_watched, Ordering::SeqCst);
    }

    /// States that a message with this key has an answer.
    pub(crate) fn push(&self, key: FilterKey) {
        if self.is_watched.load(Ordering::SeqCst) {
            self.keys().push(key);
            self.changed.notify_one();
        }
    }

    /// Wakes the task that takes keys.
    pub(crate) fn wake(&self) {
        self.changed.notify_one();
    }

    /// Ready when there may be keys.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Counts a claim whose end the store did not hear of. Returns their number.
    #[cfg(feature = "memcached")]
    pub(crate) fn count_failure(&self) -> u64 {
        self.failures.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the number of claims whose end the store did not hear of.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Takes the keys.
    pub(crate) fn take(&self) -> Vec<FilterKey> {
        std::mem::take(&mut self.keys())
    }
}
