//! [`Unconfirmed`]: the publishes that have left their session without nsqd's confirmation, until their callers know.
//!
//! ```text
//!   Pending ─► Answer with a Returning ─► the caller sends the message again, or gets an error: settled
//!                              │ dropped, because the caller has gone away
//!                              └──► forgotten, until a flush or a close tells
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::address::Address;
use crate::error::ConnectionError;

/// The publishes to one node that are not confirmed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unanswered {
    /// The nsqd.
    pub node: Address,
    /// The number of publishes. A `publish_many` counts once.
    pub publishes: usize,
    /// The reason.
    pub reason: Arc<ConnectionError>,
}

/// The unconfirmed publishes of a producer. No lock is taken inside of this one's.
#[derive(Debug, Default)]
pub(crate) struct Unconfirmed(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The nodes that have such publishes.
    nodes: BTreeMap<Address, Counts>,
    /// The number of all beginnings and ends of [`Returning`]s so far.
    changes: u64,
}

/// The unconfirmed publishes of one node.
#[derive(Debug)]
struct Counts {
    /// The publishes on their way back to their callers, and those that wait until their callers send them again.
    returning: usize,
    /// The publishes whose callers have gone away since the last flush.
    forgotten: usize,
    /// The reason of the last one.
    reason: Arc<ConnectionError>,
}

impl Unconfirmed {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a number that differs when a publish has begun to return, or is not returning any more.
    pub(super) fn changes(&self) -> u64 {
        self.state().changes
    }

    /// Returns the publishes that are returning.
    pub(super) fn returning(&self) -> Vec<Unanswered> {
        let state = self.state();
        let nodes = state.nodes.iter();
        let nodes = nodes.map(|(node, counts)| counts.unanswered(node, counts.returning));
        nodes.collect()
    }

    /// Takes the publishes that were forgotten since the last call.
    pub(super) fn take_forgotten(&self) -> Vec<Unanswered> {
        let mut state = self.state();
        let nodes = state.nodes.iter_mut();
        let taken = nodes.map(|(node, counts)| {
            let forgotten = std::mem::take(&mut counts.forgotten);
            counts.unanswered(node, forgotten)
        });
        let taken = taken.collect();
        state.nodes.retain(|_, counts| counts.returning > 0);
        taken
    }
}

impl Counts {
    fn unanswered(&self, node: &Address, publishes: usize) -> Unanswered {
        Unanswered {
            node: node.clone(),
            publishes,
            reason: Arc::clone(&self.reason),
        }
    }
}

/// The place of one node in [`Unconfirmed`].
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) unconfirmed: Arc<Unconfirmed>,
    pub(crate) node: Address,
}

impl Account {
    /// States that a publish leaves its session without a confirmation, for `reason`.
    pub(super) fn begin(&self, reason: &Arc<ConnectionError>) -> Returning {
        let mut state = self.unconfirmed.state();
        state.changes += 1;
        let counts = state.nodes.entry(self.node.clone());
        let counts = counts.or_insert_with(|| Counts {
            returning: 0,
            forgotten: 0,
            reason: Arc::clone(reason),
        });
        counts.returning += 1;
        counts.reason = Arc::clone(reason);
        Returning {
            account: self.clone(),
            is_settled: false,
        }
    }
}

/// One publish on its way back to its caller. Dropping it states that the caller has gone away.
#[derive(Debug)]
pub(crate) struct Returning {
    account: Account,
    is_settled: bool,
}

impl Returning {
    /// States that the caller has sent the message again, or knows the outcome.
    pub(super) fn settle(mut self) {
        self.is_settled = true;
    }
}

impl Drop for Returning {
    fn drop(&mut self) {
        let mut state = self.account.unconfirmed.state();
        state.changes += 1;
        let counts = state.nodes.get_mut(&self.account.node);
        let counts = counts.expect("a node stays while publishes return");
        counts.returning -= 1;
        counts.forgotten += usize::from(!self.is_settled);
        if counts.returning == 0 && counts.forgotten == 0 {
            state.nodes.remove(&self.account.node);
        }
    }
}
