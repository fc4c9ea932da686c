//! [`Timers`]: one ordered set per shard.
//!
//! Each topic has one entry at most and each connection two, whatever happens to them: an entry
//! that is replaced is removed, so neither reconnecting clients nor topics whose next timeout keeps
//! changing leave anything behind.

use crate::ids::{ClientId, TopicKey};
use std::collections::BTreeSet;
use std::time::Duration;

/// The purpose of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A heartbeat to a client, and the deadline of its writes.
    Heartbeat(ClientId),
    /// The read deadline of a silent client, or the deadline of the peer's part of an upgrade.
    Deadline(ClientId),
    /// The next timeout, sync or checkpoint of a topic.
    Topic(TopicKey),
}

/// All timers of a shard, by time.
pub(super) type Timers = BTreeSet<(Duration, Timer)>;

/// Moves a timer to `at`, or removes it. `armed` is the time for which the timer is set, and is updated.
pub(super) fn replace(
    timers: &mut Timers,
    timer: Timer,
    armed: &mut Option<Duration>,
    at: Option<Duration>,
) {
    if let Some(before) = armed.take() {
        timers.remove(&(before, timer));
    }
    if let Some(at) = at {
        timers.insert((at, timer));
        *armed = Some(at);
    }
}
