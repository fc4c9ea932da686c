//! [`Timers`]: the wakers of tasks by time. [`Sleep`] and [`Alarm`]: the timers of tasks.

use super::{Reactor, current};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Names a timer: its time, and a number that tells it from others of the same time.
type TimerKey = (Instant, u64);

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

/// Waits for at least `duration`.
///
/// # Panics
/// Outside of [`super::run`].
pub(crate) fn sleep(duration: Duration) -> Sleep {
    Sleep {
        alarm: Alarm::new(),
        end: Instant::now() + duration,
    }
}

/// The wait that [`sleep`] returns.
pub(crate) struct Sleep {
    alarm: Alarm,
    end: Instant,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let end = self.end;
        self.alarm.poll(cx, Instant::now(), end)
    }
}

/// A timer of one task for an end that moves often and is seldom reached: moving the end to a later time
/// leaves the timer where it is.
pub(crate) struct Alarm {
    reactor: Rc<Reactor>,
    /// The timer that is set, and the task that it wakes.
    set: Option<(TimerKey, Waker)>,
}

impl Alarm {
    /// An alarm that is not set.
    ///
    /// # Panics
    /// Outside of [`super::run`].
    pub(crate) fn new() -> Alarm {
        Alarm {
            reactor: Rc::clone(&current().reactor),
            set: None,
        }
    }

    /// Ready when `end` has come. Otherwise the task is woken at `end` or earlier, and asks again.
    pub(crate) fn poll(&mut self, cx: &Context<'_>, now: Instant, end: Instant) -> Poll<()> {
        if now >= end {
            return Poll::Ready(());
        }
        let is_set = self.set.as_ref().is_some_and(|((at, _), waker)| {
            // A timer of the past has come up.
            now < *at && *at <= end && waker.will_wake(cx.waker())
        });
        if !is_set {
            self.clear();
            let waker = cx.waker().clone();
            let key = self.reactor.timers.borrow_mut().set(end, waker.clone());
            self.set = Some((key, waker));
        }
        Poll::Pending
    }

    fn clear(&mut self) {
        if let Some((key, _)) = self.set.take() {
            self.reactor.timers.borrow_mut().remove(key);
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.clear();
    }
}
