//! [`WaitingCopies`]: the copies that wait until the first copy is done or has failed. Time is an argument; no task and
//! no I/O.
//!
//! ```text
//!   arrival ──── touch ──── touch ──── ... ──── requeue        touch: half of the message timeout after the last one
//!      └─ check ─ check ── check ─── ...                      requeue: a quarter of the timeout before nsqd's limit
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use super::ready::ConnectionId;
use crate::dedup::FilterKey;

/// The time after which copies go back if all messages of their connection wait.
pub(super) const STALL: Duration = Duration::from_secs(1);

/// A copy that waits.
pub(super) trait Held {
    /// Asks nsqd for more time.
    fn touch(&self);
    /// Returns true if nobody needs the copy any more: its connection is lost.
    fn is_gone(&self) -> bool;
    /// Returns true if the copy may go back to nsqd so that others can come.
    fn may_go_back(&self) -> bool;
    /// Returns the connection of the copy.
    fn connection(&self) -> ConnectionId;
    /// Returns the times that nsqd gives to the copy.
    fn limits(&self) -> Limits;
}

/// The times that nsqd gives to a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) delivered_at: Instant,
    /// The message timeout, which begins again with each touch.
    pub(super) timeout: Duration,
    /// The longest time with touches.
    pub(super) timeout_max: Duration,
}

/// The interval between two checks of one copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckInterval {
    pub(super) first: Duration,
    /// The interval doubles with each check, up to this.
    pub(super) max: Duration,
}

/// A copy, and when something is to be done for it.
#[derive(Debug)]
pub(super) struct WaitingCopy<T> {
    pub(super) key: FilterKey,
    pub(super) copy: T,
    since: Instant,
    touch_at: Instant,
    requeue_at: Instant,
    check_at: Instant,
    interval: Duration,
}

impl<T: Held> WaitingCopy<T> {
    pub(super) fn new(
        now: Instant,
        key: FilterKey,
        copy: T,
        checks: CheckInterval,
    ) -> WaitingCopy<T> {
        let limits = copy.limits();
        let longest = limits.timeout_max.max(limits.timeout);
        WaitingCopy {
            key,
            since: now,
            // The copy may have been on its way, or with the store, for a while.
            touch_at: limits.delivered_at + limits.timeout / 2,
            requeue_at: limits.delivered_at + longest - limits.timeout / 4,
            check_at: now + checks.first,
            interval: checks.first,
            copy,
        }
    }

    fn next_timeout(&self) -> Instant {
        self.touch_at.min(self.requeue_at).min(self.check_at)
    }
}

/// The work for copies that waited.
#[derive(Debug)]
pub(super) struct Due<T> {
    /// The copies about which the filter is asked. They come back by [`WaitingCopies::put`].
    pub(super) check: Vec<WaitingCopy<T>>,
    /// The copies that go back to nsqd, because its limit is near.
    pub(super) requeue: Vec<T>,
    /// The copies that nobody needs any more.
    pub(super) gone: Vec<T>,
}

/// The copies that wait. Copies with equal keys are taken in the order in which they were last put here.
#[derive(Debug)]
pub(super) struct WaitingCopies<T> {
    waiting: BTreeMap<u64, WaitingCopy<T>>,
    by_key: HashMap<FilterKey, BTreeSet<u64>>,
    /// The number of copies of each connection that has some.
    by_connection: HashMap<ConnectionId, usize>,
    next_number: u64,
}

impl<T: Held> WaitingCopies<T> {
    pub(super) fn new() -> WaitingCopies<T> {
        WaitingCopies {
            waiting: BTreeMap::new(),
            by_key: HashMap::new(),
            by_connection: HashMap::new(),
            next_number: 0,
        }
    }

    /// Returns the number of copies.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of copies of a connection.
    pub(super) fn len_of(&self, connection: ConnectionId) -> usize {
        self.by_connection.get(&connection).copied().unwrap_or(0)
    }

    /// Adds a copy, or puts it back after a check.
    pub(super) fn put(&mut self, waiting: WaitingCopy<T>) {
        let connection = waiting.copy.connection();
        *self.by_connection.entry(connection).or_default() += 1;
        let number = self.next_number;
        self.next_number += 1;
        self.by_key.entry(waiting.key).or_default().insert(number);
        self.waiting.insert(number, waiting);
    }

    fn remove(&mut self, number: u64) -> WaitingCopy<T> {
        let waiting = self.waiting.remove(&number).expect("the copy is here");
        let others = self.by_key.get_mut(&waiting.key).expect("its key is here");
        others.remove(&number);
        if others.is_empty() {
            self.by_key.remove(&waiting.key);
        }
        let connection = waiting.copy.connection();
        let count = self.by_connection.get_mut(&connection);
        let count = count.expect("its connection is here");
        *count -= 1;
        if *count == 0 {
            self.by_connection.remove(&connection);
        }
        waiting
    }

    /// Takes the copies with this key out, in the order in which they were last put here.
    pub(super) fn take(&mut self, key: FilterKey) -> Vec<WaitingCopy<T>> {
        let numbers = self.by_key.get(&key).cloned().unwrap_or_default();
        let taken = numbers.into_iter().map(|number| self.remove(number));
        taken.collect()
    }

    /// Takes all copies out, in the same order.
    pub(super) fn take_all(&mut self) -> Vec<T> {
        self.by_key.clear();
        self.by_connection.clear();
        let all = std::mem::take(&mut self.waiting);
        all.into_values().map(|waiting| waiting.copy).collect()
    }

    /// Returns the time at which [`WaitingCopies::handle_timeout`] has something to do.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.waiting.values().map(WaitingCopy::next_timeout).min()
    }

    /// Touches the copies that are due, and takes those out for which more is to be done. A call too early is harmless.
    pub(super) fn handle_timeout(&mut self, now: Instant, checks: CheckInterval) -> Due<T> {
        let mut due = Due {
            check: Vec::new(),
            requeue: Vec::new(),
            gone: Vec::new(),
        };
        let numbers: Vec<u64> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| waiting.next_timeout() <= now || waiting.copy.is_gone())
            .map(|(number, _)| *number)
            .collect();
        for number in numbers {
            let waiting = self.waiting.get_mut(&number).expect("it was found");
            if waiting.copy.is_gone() {
                due.gone.push(self.remove(number).copy);
                continue;
            }
            if waiting.requeue_at <= now {
                due.requeue.push(self.remove(number).copy);
                continue;
            }
            if waiting.touch_at <= now {
                waiting.copy.touch();
                waiting.touch_at = now + waiting.copy.limits().timeout / 2;
            }
            if waiting.check_at <= now {
                let mut waiting = self.remove(number);
                waiting.interval = (waiting.interval * 2).min(checks.max);
                waiting.check_at = now + waiting.interval;
                due.check.push(waiting);
            }
        }
        due
    }

    /// Takes copies out so that their connections can receive other messages. A connection is stalled if all messages
    /// that its RDY allows are copies that wait. This takes the older half of those copies that may go back, but none
    /// that has waited less than [`STALL`]. `connections` has each one with its messages in flight and its RDY.
    pub(super) fn relieve(
        &mut self,
        now: Instant,
        connections: impl IntoIterator<Item = (ConnectionId, u64, u32)>,
    ) -> Vec<T> {
        let mut by_connection: HashMap<ConnectionId, Vec<u64>> = HashMap::new();
        for (number, waiting) in &self.waiting {
            let numbers = by_connection.entry(waiting.copy.connection()).or_default();
            numbers.push(*number);
        }
        let mut relieved = Vec::new();
        for (connection, in_flight, ready) in connections {
            let Some(numbers) = by_connection.get(&connection) else {
                continue;
            };
            let is_full = ready > 0 && in_flight >= u64::from(ready);
            if !is_full || (numbers.len() as u64) < in_flight {
                continue;
            }
            let mut numbers = numbers.clone();
            numbers.retain(|number| self.waiting[number].copy.may_go_back());
            numbers.sort_by_key(|number| self.waiting[number].since);
            let older = numbers.len().div_ceil(2);
            for number in &numbers[..older] {
                if now.duration_since(self.waiting[number].since) >= STALL {
                    relieved.push(self.remove(*number).copy);
                }
            }
        }
        relieved
    }
}

#[cfg(test)]
mod tests;
