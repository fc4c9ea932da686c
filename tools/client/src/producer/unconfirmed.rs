//! [`Unconfirmed`]: the publishes that have left their session without nsqd's confirmation, until their callers know.
//!
//! ```text
//!   Pending ─► Answer with a Returning ─► the caller sends the message again, or gets an error: settled
//!                              │ dropped, because the caller has gone away
//!                              └──► forgotten, until a flush or a close tells
//! ```
//!
//! The counts only grow while a flush goes on. So a flush compares them with its [`Mark`], their state at its
//! beginning, and misses nothing that comes and goes in between.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

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
pub(crate) struct Unconfirmed(Mutex<UnconfirmedNodes>);

#[derive(Debug, Default)]
struct UnconfirmedNodes {
    /// The nodes that have such publishes, or had some while a flush went on.
    nodes: BTreeMap<Address, Counts>,
    /// Each [`Mark`] has a clone.
    marks: Arc<()>,
}

/// The unconfirmed publishes of one node so far.
#[derive(Clone, Debug)]
struct Counts {
    /// The [`Returning`]s that have begun.
    begun: usize,
    /// The part of `begun` that has ended. The others are on their way back to their callers, or wait until their
    /// callers send them again.
    ended: usize,
    /// The part of `ended` whose callers had gone away.
    forgotten: usize,
    /// The part of `forgotten` that a flush has told.
    told: usize,
    /// The reason of the last one that has begun.
    reason: Arc<ConnectionError>,
}

/// The beginning of a flush.
#[derive(Debug)]
pub(super) struct Mark {
    /// The counts at this time.
    before: BTreeMap<Address, Counts>,
    /// Keeps the counts from beginning anew.
    _marks: Arc<()>,
}

impl Unconfirmed {
    /// Begins a flush.
    pub(super) fn mark(&self) -> Mark {
        let state = self.0.lock();
        Mark {
            before: state.nodes.clone(),
            _marks: Arc::clone(&state.marks),
        }
    }

    /// Returns the publishes that were returning at the time of `mark`, and those that have begun to return since then.
    pub(super) fn returning_since(&self, mark: &Mark) -> Vec<Unanswered> {
        let state = self.0.lock();
        let nodes = state.nodes.iter().map(|(node, counts)| {
            let ended_before = mark.before.get(node).map_or(0, |before| before.ended);
            counts.unanswered(node, counts.begun - ended_before)
        });
        nodes.collect()
    }

    /// Ends a flush, which tells the forgotten publishes that no flush had told at the time of `mark`.
    pub(super) fn tell_forgotten(&self, mark: Mark) -> Vec<Unanswered> {
        let mut state = self.0.lock();
        let nodes = state.nodes.iter_mut().map(|(node, counts)| {
            let told_before = mark.before.get(node).map_or(0, |before| before.told);
            counts.told = counts.forgotten;
            counts.unanswered(node, counts.forgotten - told_before)
        });
        let told = nodes.collect();
        drop(mark);
        if !state.has_marks() {
            state.nodes.retain(|_, counts| !counts.are_over());
        }
        told
    }
}

impl UnconfirmedNodes {
    /// Returns true while a flush goes on.
    fn has_marks(&self) -> bool {
        Arc::strong_count(&self.marks) > 1
    }
}

impl Counts {
    /// Returns true when no publish is returning, and none is left to be told.
    fn are_over(&self) -> bool {
        self.begun == self.ended && self.forgotten == self.told
    }

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
        let mut state = self.unconfirmed.0.lock();
        let counts = state.nodes.entry(self.node.clone());
        let counts = counts.or_insert_with(|| Counts {
            begun: 0,
            ended: 0,
            forgotten: 0,
            told: 0,
            reason: Arc::clone(reason),
        });
        counts.begun += 1;
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
    /// States that the message is sent again, or that the caller gets to know the outcome.
    pub(super) fn settle(mut self) {
        self.is_settled = true;
    }
}

impl Drop for Returning {
    fn drop(&mut self) {
        let mut state = self.account.unconfirmed.0.lock();
        let counts = state.nodes.get_mut(&self.account.node);
        let counts = counts.expect("a node stays while publishes return");
        counts.ended += 1;
        counts.forgotten += usize::from(!self.is_settled);
        if counts.are_over() && !state.has_marks() {
            state.nodes.remove(&self.account.node);
        }
    }
}

#[cfg(test)]
mod tests;
