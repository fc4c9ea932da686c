//! [`ClaimEnds`]: tells the copies that wait which claims have ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::counters::Counters;
use super::key::FilterKey;

/// The ends of the claims of a consumer: the keys whose copies are to ask the filter again. Any thread adds keys, and
/// one task takes them.
#[derive(Debug, Default)]
pub(crate) struct ClaimEnds {
    keys: Mutex<Vec<FilterKey>>,
    /// True while copies wait. Otherwise nobody needs the keys.
    is_watched: AtomicBool,
    changed: Notify,
    /// For the ends that a store does not hear of.
    #[cfg_attr(
        not(feature = "memcached"),
        expect(dead_code, reason = "only a store fails")
    )]
    counters: Arc<Counters>,
}

impl ClaimEnds {
    /// Makes an empty list. Ends that the store does not hear of add to `counters`.
    pub(crate) fn new(counters: &Arc<Counters>) -> ClaimEnds {
        ClaimEnds {
            counters: Arc::clone(counters),
            ..ClaimEnds::default()
        }
    }

    /// States that copies wait, or that none waits. A copy that begins to wait calls this before it asks the filter for
    /// the last time, so the end of the claim on its key is either seen by this check or in the list.
    pub(crate) fn watch(&self, is_watched: bool) {
        self.is_watched.store(is_watched, Ordering::SeqCst);
    }

    /// Lets the copies with this key ask the filter again. Does nothing while no copy waits.
    pub(crate) fn check_again(&self, key: FilterKey) {
        if self.is_watched.load(Ordering::SeqCst) {
            self.keys.lock().push(key);
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
        self.counters.add(super::counters::Count::FailedEnd)
    }

    /// Takes the keys.
    pub(crate) fn take(&self) -> Vec<FilterKey> {
        std::mem::take(&mut self.keys.lock())
    }
}
