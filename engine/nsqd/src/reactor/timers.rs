//! [`Timers`]: the wakers of tasks by time. Pure: time comes as an argument.

use std::collections::BTreeMap;
use std::task::Waker;
use std::time::Instant;

/// Names a timer: its time, and a number that tells it from others of the same time.
pub(super) type TimerKey = (Instant, u64);

/// Wakers by time.
#[derive(Default)]
pub(super) struct Timers {
    by_time: BTreeMap<TimerKey, Waker>,
    serial: u64,
}

impl Timers {
    /// Has `waker` come up at `at`.
    pub(super) fn set(&mut self, at: Instant, waker: Waker) -> TimerKey {
        self.serial += 1;
        let key = (at, self.serial);
        self.by_time.insert(key, waker);
        key
    }

    /// Forgets a timer; one that has come up is forgotten already.
    pub(super) fn remove(&mut self, key: TimerKey) {
        self.by_time.remove(&key);
    }

    /// The number of timers that are set.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.by_time.len()
    }

    /// The earliest time.
    pub(super) fn next(&self) -> Option<Instant> {
        self.by_time.first_key_value().map(|(key, _)| key.0)
    }

    /// Takes a waker whose time has come, the earliest first.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Waker> {
        let first = self.by_time.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}
