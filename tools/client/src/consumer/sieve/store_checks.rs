//! Checks at a store that several consumers share. Each is a task, because the store takes its time.

use std::sync::Arc;

use super::{Sieve, WaitingCopy};
#[cfg(feature = "memcached")]
use crate::line::Line;
use crate::message::Message;

/// A message about which the store is asked.
pub(super) enum StoreCheck {
    /// The message has just arrived.
    Arrived(WaitingCopy<Message>),
    /// The message is a copy that waited.
    Again(WaitingCopy<Message>),
}

/// Counts a check with the connection of its copy, until the check is answered or dropped.
#[cfg(feature = "memcached")]
struct CountedCheck(Arc<Line>);

#[cfg(feature = "memcached")]
impl CountedCheck {
    fn new(line: &Arc<Line>) -> CountedCheck {
        line.begin_check();
        CountedCheck(Arc::clone(line))
    }
}

#[cfg(feature = "memcached")]
impl Drop for CountedCheck {
    fn drop(&mut self) {
        self.0.end_check();
    }
}

impl Sieve {
    /// Asks the store, in a task.
    #[cfg(feature = "memcached")]
    pub(super) fn begin_store_check(self: &Arc<Sieve>, check: StoreCheck) {
        use crate::dedup::{Count, FilterAnswer, WhenUnavailable};
        use crate::hub::Phase;

        let sieve = Arc::clone(self);
        let (is_new, waiting) = match check {
            StoreCheck::Arrived(waiting) => (true, waiting),
            StoreCheck::Again(waiting) => (false, waiting),
        };
        let line = &waiting.copy.delivery().source.line;
        let (counted, msg_timeout) = (CountedCheck::new(line), line.msg_timeout);
        self.runtime.spawn(async move {
            let _counted = counted;
            let request = sieve
                .dedup
                .begin_shared(waiting.key, msg_timeout, &sieve.claim_ends);
            let answer = request.await;
            sieve.set_availability(answer.as_ref().err().map(ToString::to_string));
            match answer {
                Ok(FilterAnswer::Fresh(claim)) => {
                    let message = sieve.fresh(waiting.copy, claim);
                    sieve.deliver(message);
                    return;
                }
                Ok(FilterAnswer::Done) => return sieve.finish(&waiting.copy),
                Ok(FilterAnswer::InProgress) if is_new => {
                    sieve.counters.add(Count::Waited);
                }
                Ok(FilterAnswer::InProgress) => {}
                Err(_) => {
                    sieve.counters.add(Count::FailedCheck);
                    if sieve.dedup.when_store_unavailable() == WhenUnavailable::Handle {
                        return sieve.deliver(waiting.copy);
                    }
                }
            }
            if sieve.hub.phase() != Phase::Running {
                drop(waiting.copy.delivery().give_back())
            } else {
                sieve.wait(waiting)
            }
        });
    }

    /// States that the store is unavailable, or answers again.
    #[cfg(feature = "memcached")]
    fn set_availability(&self, error: Option<String>) {
        use crate::dedup::DedupReport;
        use std::sync::atomic::Ordering;

        let was_unavailable = self.is_unavailable.swap(error.is_some(), Ordering::Relaxed);
        match error {
            Some(error) if !was_unavailable => self.report(DedupReport::StoreUnavailable { error }),
            None if was_unavailable => self.report(DedupReport::StoreAvailable),
            _ => {}
        }
    }

    /// Without a store, no filter is outside of this process.
    #[cfg(not(feature = "memcached"))]
    pub(super) fn begin_store_check(self: &Arc<Sieve>, check: StoreCheck) {
        let (StoreCheck::Arrived(waiting) | StoreCheck::Again(waiting)) = check;
        self.check_again(vec![waiting]);
    }
}
