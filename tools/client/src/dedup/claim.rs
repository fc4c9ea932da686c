//! [`Claim`]: the claim on the key of a message that the application handles.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringq_dedup::{ForgetfulBloom, Guard, InverseBloom, RoaringPair, UnixTime};
#[cfg(feature = "memcached")]
use ringq_dedup::{Lease, StoreError};

use super::claim_ends::ClaimEnds;
use super::key::FilterKey;

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
