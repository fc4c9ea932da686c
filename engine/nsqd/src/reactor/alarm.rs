//! [`Sleep`] and [`Alarm`]: the timers of tasks.

use super::timers::TimerKey;
use super::{Reactor, current};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

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
