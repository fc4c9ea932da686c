//! [`Flow`]: the flow control of a consumer, which unites [`Ready`] and [`Backoff`]. Events and the time go in, RDY
//! counts come out. No clock, task or I/O.
//!
//! ```text
//!   connection added, lost ─┐                                ┌─► RDY counts, in the order in which they are sent
//!   message received ───────┼─► Flow ── Ready, Backoff ──────┤
//!   messages in flight ─────┤                                └─► backoff entered, left
//!   message answered ───────┤
//!   max_in_flight, time ────┘
//! ```

use std::time::{Duration, Instant};

use super::backoff::{Backoff, Step, Verdict};
use super::ready::{ConnectionId, Ready, SetReady};
use crate::config::Config;

/// The time until the next test of a backoff if no connection could be tested.
const NO_CONNECTION: Duration = Duration::from_secs(1);

/// The result of an event: changes that the shell carries out in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// The RDY counts to send. Lower counts come before higher ones.
    pub(crate) ready: Vec<SetReady>,
    /// The change of the backoff.
    pub(crate) backoff: Option<BackoffChange>,
}

/// A change of the backoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackoffChange {
    /// A period starts.
    Entered {
        /// The level, at least 1.
        level: u32,
        /// The length of the period.
        period: Duration,
    },
    /// The backoff is over.
    Left,
}

/// The flow control of one consumer.
///
/// Invariants: those of [`Ready`] and [`Backoff`]. Outside of level 0, either a period runs, or one connection has RDY
/// 1.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    ready: Ready,
    backoff: Backoff,
    redistribute_interval: Duration,
    /// The last time at which redistribution was considered, or the time of creation.
    redistributed_at: Instant,
    is_stopped: bool,
}

impl Flow {
    pub(crate) fn new(now: Instant, config: &Config, seed: u64) -> Flow {
        Flow {
            ready: Ready::new(config, seed),
            backoff: Backoff::new(config, !seed),
            redistribute_interval: config.rdy_redistribute_interval,
            redistributed_at: now,
            is_stopped: false,
        }
    }

    /// Returns true for a connection that takes part in the distribution of RDY.
    pub(crate) fn has(&self, id: ConnectionId) -> bool {
        self.ready.has(id)
    }

    /// Returns the RDY count of a connection.
    pub(crate) fn count(&self, id: ConnectionId) -> u32 {
        self.ready.count(id)
    }

    /// Returns the level of the backoff. 0 means none.
    pub(crate) fn level(&self) -> u32 {
        self.backoff.level()
    }

    /// Returns `max_in_flight`.
    pub(crate) fn max(&self) -> u32 {
        self.ready.max()
    }

    /// Adds a connection, whose nsqd accepts counts up to `count_max`.
    pub(crate) fn add(&mut self, now: Instant, id: ConnectionId, count_max: u32) -> Changes {
        let mut changes = Changes::default();
        if !self.is_stopped {
            self.ready.add(now, id, count_max, &mut changes.ready);
        }
        changes
    }

    /// Takes a connection out of the distribution whose nsqd is asked to send nothing more.
    pub(crate) fn retire(&mut self, now: Instant, id: ConnectionId) -> Changes {
        let mut changes = Changes::default();
        self.ready.retire(now, id, &mut changes.ready);
        self.keep_testing(now, &mut changes);
        changes
    }

    /// States how many messages of a connection have come and have no answer, before another call.
    pub(crate) fn set_in_flight(&mut self, id: ConnectionId, in_flight: u32) {
        self.ready.set_in_flight(id, in_flight);
    }

    /// Returns true while an answer makes room for which a connection waits: [`Flow::use_room`] then has something to
    /// do.
    pub(crate) fn is_short(&self) -> bool {
        !self.is_stopped && self.ready.is_short()
    }

    /// Gives connections what others do not need any more after an answer.
    pub(crate) fn use_room(&mut self, now: Instant) -> Changes {
        let mut changes = Changes::default();
        if self.is_short() {
            self.ready.use_room(now, &mut changes.ready);
        }
        changes
    }

    /// Removes a connection that is lost or closed.
    pub(crate) fn remove(&mut self, now: Instant, id: ConnectionId) -> Changes {
        let mut changes = Changes::default();
        self.ready.remove(now, id, &mut changes.ready);
        self.keep_testing(now, &mut changes);
        changes
    }

    /// States that a connection received messages.
    pub(crate) fn receive(&mut self, now: Instant, id: ConnectionId) {
        self.ready.receive(now, id);
    }

    /// Takes the answer to a message. Its RDY counts are to be sent before the answer.
    pub(crate) fn answer(&mut self, now: Instant, verdict: Verdict) -> Changes {
        let mut changes = Changes::default();
        if self.is_stopped {
            return changes;
        }
        match self.backoff.answer(now, verdict) {
            Step::Stay => {}
            Step::Pause(period) => {
                self.ready.pause(now, &mut changes.ready);
                let level = self.backoff.level();
                changes.backoff = Some(BackoffChange::Entered { level, period });
            }
            Step::Leave => {
                self.ready.resume(now, &mut changes.ready);
                changes.backoff = Some(BackoffChange::Left);
            }
        }
        changes
    }

    /// Changes `max_in_flight`.
    pub(crate) fn set_max(&mut self, now: Instant, max: u32) -> Changes {
        let mut changes = Changes::default();
        self.ready.set_max(now, max, &mut changes.ready);
        self.keep_testing(now, &mut changes);
        changes
    }

    /// Stops all changes. The connections are being closed, and nsqd sends nothing more.
    pub(crate) fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Returns the time at which [`Flow::handle_timeout`] has something to do.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        if self.is_stopped {
            return None;
        }
        let redistribution = self.ready.is_scarce() && !self.backoff.is_period_running();
        let redistribution =
            redistribution.then(|| self.redistributed_at + self.redistribute_interval);
        let timeouts = [
            self.backoff.period_end(),
            self.ready.next_retry(),
            redistribution,
        ];
        timeouts.into_iter().flatten().min()
    }

    /// Carries out what is due. A call too early is harmless.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Changes {
        let mut changes = Changes::default();
        if self.is_stopped {
            return changes;
        }
        if self.backoff.period_end().is_some_and(|end| end <= now) {
            self.backoff.end_period();
            self.keep_testing(now, &mut changes);
        }
        self.ready.retry(now, &mut changes.ready);
        if now >= self.redistributed_at + self.redistribute_interval {
            self.redistributed_at = now;
            if !self.backoff.is_period_running() {
                self.ready.redistribute(now, &mut changes.ready);
                if self.backoff.level() > 0 && self.ready.total() == 0 {
                    // The next test has to wait until the last one holds nothing, and may go to another connection.
                    self.backoff.wait(now, self.ready.settle_time());
                }
            }
        }
        changes
    }

    /// Gives the test of the backoff to a connection, if none has it. If there is none, a short period starts.
    fn keep_testing(&mut self, now: Instant, changes: &mut Changes) {
        let is_testing = self.backoff.level() > 0 && !self.backoff.is_period_running();
        if self.is_stopped || !is_testing || self.ready.total() > 0 {
            return;
        }
        if !self.ready.test(now, &mut changes.ready) {
            self.backoff.wait(now, NO_CONNECTION);
        }
    }
}

#[cfg(test)]
mod tests;
