//! The executor of a shard: its tasks, sockets and timers, on one thread and one io_uring.
//!
//! ```text
//!        ┌──► tasks that are ready ──► none is left, or many were run ──► one that comes last ──┐
//!        │                                                                                      ▼
//!   wake tasks ◄── completions, timers ◄────────── io_uring_enter: submits polls, waits if no task is ready
//! ```
//!
//! The ring says which sockets are ready; the bytes themselves go by plain `recv` and `sendmsg`, so
//! that a shard reads into few buffers and writes from its log. Polls are submitted with the call that
//! waits: a turn of a busy shard is one `io_uring_enter`, and one `recv` or `sendmsg` for each
//! connection that has something. A socket is polled only while somebody waits for it: one that is
//! left to gather input wakes nobody. Tasks are those of `async-executor`.
//!
//! Why not an executor with its own sockets: docs/decisions/0004-reactor.md.

mod notify;
mod ring;
mod source;
mod spin;
mod timers;

use async_executor::{LocalExecutor, Task};
use notify::Notify;
use ring::Ring;
use rustix::time::{ClockId, clock_gettime};
pub(crate) use source::Source;
use source::Watched;
use spin::Spin;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{self, Future};
use std::io;
use std::mem;
use std::num::NonZeroUsize;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use timers::{TimerKey, Timers};

/// After so many tasks the ring is looked at, even if more are ready.
const TASKS_PER_LOOK: usize = 64;
/// And after so many bytes read: whoever sends without end must not keep the others from being seen.
const BYTES_PER_LOOK: usize = 128 * 1024;

/// How often a spinning thread looks at its ring before it lets others run.
const LOOKS_PER_YIELD: usize = 20;

/// How long a ring is tried for.
const RING_PATIENCE: Duration = Duration::from_secs(1);
const RING_PAUSE: Duration = Duration::from_millis(10);

/// What wakes the tasks of a thread.
struct Reactor {
    ring: Ring,
    notify: Arc<Notify>,
    sources: RefCell<slab::Slab<Rc<Watched>>>,
    timers: RefCell<Timers>,
    /// Tells sources apart that have had the same place.
    next_serial: Cell<u32>,
    /// Bytes read since the last look.
    bytes_read: Cell<usize>,
    /// Tasks that have much to do and come last.
    last: RefCell<VecDeque<Waker>>,
    spin: RefCell<Spin>,
    /// When the last wait ended.
    awake_since: Cell<Instant>,
}

/// What the tasks of a thread can reach.
struct Runtime {
    executor: LocalExecutor<'static>,
    reactor: Rc<Reactor>,
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Runtime>>> = const { RefCell::new(None) };
}

/// Runs a future on this thread, and everything it spawns, until the future ends. What it spawned and
/// has not ended by then is dropped.
///
/// # Errors
/// The system gives no ring or no descriptor, or the ring fails.
pub(crate) fn run<T: 'static>(future: impl Future<Output = T> + 'static) -> io::Result<T> {
    let runtime = Rc::new(Runtime {
        executor: LocalExecutor::new(),
        reactor: Rc::new(Reactor::new()?),
    });
    CURRENT.set(Some(Rc::clone(&runtime)));
    let result = runtime.run(future);
    CURRENT.set(None);
    result
}

/// Whether so many rings, at the same time, do what the reactor needs.
///
/// # Errors
/// They are not to be had.
pub(crate) fn try_rings(count: NonZeroUsize) -> io::Result<bool> {
    let rings = (0..count.get())
        .map(|_| ring_patiently())
        .collect::<io::Result<Vec<Ring>>>()?;
    let notify = Arc::new(Notify::new()?);
    notify.fall_asleep();
    notify.wake_by_ref();
    for ring in &rings {
        ring.watch(notify.descriptor(), ring::NOTIFIED);
        ring.enter(Some(Duration::from_secs(1)))?;
        let mut works = false;
        ring.for_each_completion(|token| works |= token == ring::NOTIFIED);
        if !works {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Starts a task on this thread. Dropping the handle cancels it; detach it to let it run.
///
/// # Panics
/// Outside of [`run`].
pub(crate) fn spawn<T: 'static>(future: impl Future<Output = T> + 'static) -> Task<T> {
    current().executor.spawn(future)
}

/// Waits for at least `duration`.
///
/// # Panics
/// Outside of [`run`].
pub(crate) fn sleep(duration: Duration) -> Sleep {
    Sleep {
        alarm: Alarm::new(),
        end: Instant::now() + duration,
    }
}

/// Lets all others go first that are ready: for a task that has much to do, in pieces. One such piece is
/// done between two looks at the ring.
///
/// # Panics
/// Outside of [`run`].
pub(crate) async fn come_last() {
    let mut is_waiting = false;
    future::poll_fn(|cx| {
        if mem::replace(&mut is_waiting, true) {
            return Poll::Ready(());
        }
        let runtime = current();
        runtime
            .reactor
            .last
            .borrow_mut()
            .push_back(cx.waker().clone());
        Poll::Pending
    })
    .await;
}

fn current() -> Rc<Runtime> {
    CURRENT
        .with_borrow(|current| Rc::clone(current.as_ref().expect("a thread that runs a reactor")))
}

impl Runtime {
    fn run<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> io::Result<T> {
        let main = self.executor.spawn(future);
        let notify = &self.reactor.notify;
        let waker = Waker::from(Arc::clone(notify));
        let mut context = Context::from_waker(&waker);
        loop {
            for _ in 0..TASKS_PER_LOOK {
                let is_enough = self.reactor.bytes_read.get() >= BYTES_PER_LOOK;
                if is_enough || !self.executor.try_tick() {
                    break;
                }
            }
            if main.is_finished() {
                return Ok(futures_lite::future::block_on(main));
            }
            // One piece of what comes last: the others are looked for before the next.
            let last = self.reactor.last.borrow_mut().pop_front();
            if let Some(last) = last {
                last.wake();
            }
            // Runs one more task, or has the waker called when there is one.
            let tick = pin!(self.executor.tick());
            let is_idle = tick.poll(&mut context).is_pending();
            let is_idle = is_idle && self.reactor.last.borrow().is_empty();
            let may_wait = is_idle && notify.fall_asleep();
            self.reactor.look(may_wait)?;
        }
    }
}

impl Reactor {
    fn new() -> io::Result<Reactor> {
        let reactor = Reactor {
            ring: ring_patiently()?,
            notify: Arc::new(Notify::new()?),
            sources: RefCell::default(),
            timers: RefCell::default(),
            next_serial: Cell::new(0),
            bytes_read: Cell::new(0),
            last: RefCell::default(),
            spin: RefCell::default(),
            awake_since: Cell::new(Instant::now()),
        };
        reactor
            .ring
            .watch(reactor.notify.descriptor(), ring::NOTIFIED);
        Ok(reactor)
    }

    /// Wakes whom the ring and the clock have something for; waits for that, if it may.
    fn look(&self, may_wait: bool) -> io::Result<()> {
        let next_timer = self.timers.borrow().next();
        let entered = if may_wait {
            self.wait(next_timer)
        } else {
            self.ring.enter(Some(Duration::ZERO))
        };
        self.bytes_read.set(0);
        self.notify.wake_up();
        entered?;
        self.ring.for_each_completion(|token| {
            if token == ring::NOTIFIED {
                self.notify.clear();
                self.ring.watch(self.notify.descriptor(), ring::NOTIFIED);
            } else if let Some(source) = self.source(token) {
                source.complete(token);
            }
        });
        if next_timer.is_some() {
            let now = Instant::now();
            // Not all at once: a woken task may set or drop timers.
            while let Some(waker) = { self.timers.borrow_mut().take_due(now) } {
                waker.wake();
            }
        }
        Ok(())
    }

    /// Waits for the ring or the clock.
    fn wait(&self, next_timer: Option<Instant>) -> io::Result<()> {
        let start = Instant::now();
        let timer = next_timer.map(|at| at.saturating_duration_since(start));
        let (window, is_measured) = {
            let spin = self.spin.borrow();
            (spin.window(timer), spin.wants_sleep())
        };
        let hit = window.map(|window| self.spin_until(start + window));
        let hit = hit.transpose()?;
        let rest = if hit == Some(true) {
            Some(Duration::ZERO)
        } else {
            timer.map(|timer| timer.saturating_sub(window.unwrap_or_default()))
        };
        let before = is_measured.then(processor_time);
        let entered = self.ring.enter(rest);
        if let Some(before) = before {
            let cost = processor_time().saturating_sub(before);
            self.spin.borrow_mut().note_sleep(cost);
        }
        let end = Instant::now();
        let worked = start.saturating_duration_since(self.awake_since.replace(end));
        self.spin.borrow_mut().note(worked, end - start, hit);
        entered
    }

    /// Looks whether there is something in the ring until there is, or the time is over.
    fn spin_until(&self, end: Instant) -> io::Result<bool> {
        self.ring.enter(Some(Duration::ZERO))?;
        loop {
            for _ in 0..LOOKS_PER_YIELD {
                if self.ring.has_news() {
                    return Ok(true);
                }
                std::hint::spin_loop();
            }
            if Instant::now() >= end {
                return Ok(false);
            }
            // Whoever else this processor could run comes first.
            rustix::thread::sched_yield();
        }
    }

    fn source(&self, token: ring::Token) -> Option<Rc<Watched>> {
        let sources = self.sources.borrow();
        let source = sources.get(token.index())?;
        (source.serial == token.serial()).then(|| Rc::clone(source))
    }
}

/// Of this thread, so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The kernel gives the locked memory of an earlier ring back a little later: of [`try_rings`], or of
/// a process that was killed.
fn ring_patiently() -> io::Result<Ring> {
    let deadline = Instant::now() + RING_PATIENCE;
    loop {
        match Ring::new() {
            Err(error)
                if error.kind() == io::ErrorKind::OutOfMemory && Instant::now() < deadline =>
            {
                std::thread::sleep(RING_PAUSE);
            }
            result => return result,
        }
    }
}

/// See [`sleep`].
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
    /// Outside of [`run`].
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

#[cfg(test)]
mod tests;
