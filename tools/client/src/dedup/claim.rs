//! [`Claim`]: the claim on the key of a message that the application handles.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use ringq_dedup::{ForgetfulBloom, Guard, InverseBloom, RoaringPair, UnixTime};
#[cfg(feature = "memcached")]
use ringq_dedup::{Lease, StoreError};
use tokio::sync::Notify;

use super::key::FilterKey;
use super::report::Counters;

/// The claim in a filter of this process or in a store. Dropped, a guard releases the key, and a lease ends by itself.
#[derive(Debug)]
pub(super) enum GuardOrLease {
    Inverse(Guard<InverseBloom>),
    Forgetful(Guard<ForgetfulBloom>),
    Roaring(Guard<RoaringPair>),
    #[cfg(feature = "memcached")]
    Leased(Lease),
}

/// Returns the present time by the wall clock.
pub(super) fn unix_now() -> UnixTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO)
}

/// The claim on the key of one message, of whichever filter. It lives with the message until the answer of the
/// application. A claim that is dropped releases the key: the next copy of the message is fresh.
#[derive(Debug)]
pub(crate) struct Claim {
    key: FilterKey,
    /// `None` when the claim has ended.
    held: Option<GuardOrLease>,
    ends: Arc<ClaimEnds>,
}

impl Claim {
    pub(super) fn boxed(key: FilterKey, held: GuardOrLease, ends: &Arc<ClaimEnds>) -> Box<Claim> {
        Box::new(Claim {
            key,
            held: Some(held),
            ends: Arc::clone(ends),
        })
    }

    /// Returns the list that gets the key when the claim ends.
    #[cfg(feature = "memcached")]
    pub(crate) fn ends(&self) -> Arc<ClaimEnds> {
        Arc::clone(&self.ends)
    }

    /// Returns true if the end of the claim takes a request to a store.
    pub(crate) fn is_leased(&self) -> bool {
        match &self.held {
            #[cfg(feature = "memcached")]
            Some(GuardOrLease::Leased(_)) => true,
            _ => false,
        }
    }

    /// Ends the claim on the key in a filter of this process: commits the key if `is_handled`, and releases it
    /// otherwise.
    pub(crate) fn end(mut self, is_handled: bool) {
        if !is_handled {
            return;
        }
        match self.held.take() {
            Some(GuardOrLease::Inverse(guard)) => guard.commit(unix_now()),
            Some(GuardOrLease::Forgetful(guard)) => guard.commit(unix_now()),
            Some(GuardOrLease::Roaring(guard)) => guard.commit(unix_now()),
            // A lease ends by `end_lease`. One that is dropped ends by itself.
            #[cfg(feature = "memcached")]
            Some(GuardOrLease::Leased(_)) => {}
            None => {}
        }
    }

    /// Ends the claim on the key in a store. For a filter of this process, does the same as [`Claim::end`].
    #[cfg(feature = "memcached")]
    pub(crate) async fn end_lease(
        mut self: Box<Claim>,
        is_handled: bool,
    ) -> Result<(), StoreError> {
        match self.held.take() {
            Some(GuardOrLease::Leased(lease)) => {
                if is_handled {
                    lease.commit().await
                } else {
                    lease.release().await
                }
            }
            held => {
                self.held = held;
                self.end(is_handled);
                Ok(())
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // The guard first: copies that wait ask again as soon as they hear of the end.
        drop(self.held.take());
        self.ends.check_again(self.key);
    }
}

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
        self.counters.add(super::report::Count::FailedEnd)
    }

    /// Takes the keys.
    pub(crate) fn take(&self) -> Vec<FilterKey> {
        std::mem::take(&mut self.keys.lock())
    }
}
