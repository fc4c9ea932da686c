//! The answer to a message that is recognised: first the claim ends, then the command leaves.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::{Answered, Delivery, Source, Way};
use crate::consumer::backoff::Verdict;
use crate::dedup::Claim;

/// The claim of a delivery, until the answer takes it.
pub(super) type ClaimCell = Mutex<Option<(Box<Claim>, Handle)>>;

impl Delivery {
    /// Gives the message the claim on its key. `runtime` runs the end of a claim in a store.
    pub(crate) fn set_claim(&self, claim: Box<Claim>, runtime: &Handle) {
        *self.claim.lock() = Some((claim, runtime.clone()));
    }

    /// Releases the key, before an answer that is no success of the application: the next copy is fresh.
    pub(crate) fn release_claim(&self) {
        let Some((claim, runtime)) = self.claim.lock().take() else {
            return;
        };
        if claim.is_leased() {
            runtime.spawn(end_leased(claim, Arc::clone(&self.source), false));
        } else {
            claim.end(false);
        }
    }

    /// Returns true if the message has waited.
    #[cfg(feature = "memcached")]
    pub(crate) fn has_waited(&self) -> bool {
        self.has_waited.load(Ordering::Relaxed)
    }

    /// States that the message waits, because a copy is being handled.
    pub(crate) fn set_waited(&self) {
        self.has_waited.store(true, Ordering::Relaxed);
    }

    /// Returns the most attempts of this message. If nsqd counts the returns of a copy that waits as attempts, then a
    /// copy that has waited has twice as many: no application may have seen the copy yet. The number stays finite, so a
    /// message that breaks its handlers is given up, although its copies wait for each other.
    pub(super) fn attempts_max(&self, configured: u16) -> u16 {
        if self.source.connection.has_uncounted || !self.has_waited.load(Ordering::Relaxed) {
            configured
        } else {
            configured.saturating_mul(2)
        }
    }

    /// Returns true if a copy that waits may go back to nsqd so that others can come. If nsqd counts this as an
    /// attempt, the second half of the attempts is the application's.
    pub(crate) fn may_go_back(&self) -> bool {
        let attempts_max = self.source.state.config.max_attempts;
        self.source.connection.has_uncounted
            || attempts_max == 0
            || self.attempts <= attempts_max / 2
    }

    /// Finishes a copy of a message that was handled. Outside of a backoff, this is no lock of the flow control.
    pub(crate) fn finish_duplicate(&self) -> Answered {
        let verdict = match self.source.state.level() {
            0 => Verdict::Success,
            // A test of the backoff is about the application, which does not see this message.
            _ => Verdict::Neutral,
        };
        self.answer(verdict, true, |out| wire::encode::fin(out, &self.id))
    }

    /// Ends the claim, then sends the answer. `write` writes the command.
    pub(super) fn answer_claimed(
        &self,
        (claim, runtime): (Box<Claim>, Handle),
        verdict: Verdict,
        is_finish: bool,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Answered {
        if !claim.is_leased() {
            claim.end(is_finish);
            return self.source.send(verdict, is_finish, write);
        }
        let mut command = Vec::new();
        write(&mut command);
        let source = Arc::clone(&self.source);
        let (sender, receiver) = tokio::sync::oneshot::channel();
        runtime.spawn(async move {
            end_leased(claim, Arc::clone(&source), is_finish).await;
            let answered = source.send(verdict, is_finish, |out| out.extend_from_slice(&command));
            // The application need not wait for the answer.
            let _ = sender.send(answered);
        });
        Answered(Way::Later(receiver))
    }
}

/// Ends a claim at the store. If the store does not hear of a message that was handled, its copies are handled again.
#[cfg(feature = "memcached")]
async fn end_leased(claim: Box<Claim>, source: Arc<Source>, is_handled: bool) {
    let ends = claim.ends();
    if let Err(error) = claim.end_lease(is_handled).await {
        let count = ends.count_failure();
        if !crate::dedup::is_power_of_ten(count) {
            return;
        }
        source.emit(|client, _| crate::event::Event::Dedup {
            client,
            report: crate::dedup::DedupReport::EndFailed {
                count,
                is_handled,
                error: error.to_string(),
            },
        });
    }
}

/// Ends a claim of a filter of this process, as there is no other one without a store.
#[cfg(not(feature = "memcached"))]
async fn end_leased(claim: Box<Claim>, _source: Arc<Source>, is_handled: bool) {
    claim.end(is_handled);
}
