//! The executor of a shard: its tasks, sockets and timers, on one thread.
//!
//! ```text
//!        ┌──► tasks that are ready ──► none is left, or many were run ──► one that comes last ──┐
//!        │                                                                                      ▼
//!   wake tasks ◄── answers, timers ◄──── the engine: watches sockets, waits if no task is ready
//! ```
//!
//! The engine ([`Engine`], behind the seam in `driver.rs`) says which sockets are ready. The woken task then calls `recv`
//! or `sendmsg` itself, so that a shard reads into few buffers and writes from its log. A ring also receives for
//! connections with many small requests, and sends the small outputs of a turn together
//! (docs/decisions/0012-small-requests.md). With io_uring, the call that waits also says which sockets to watch. A
//! socket is polled only while a task waits for it, so a socket that is left to gather input wakes no task. The tasks
//! are those of `async-executor`.
//!
//! docs/decisions/0004-reactor.md says why this is not an executor with its own sockets.

mod budget;
mod driver;
mod epoll;
#[cfg(feature = "glommio")]
mod glommio;
mod notify;
#[cfg(target_os = "linux")]
mod ring;
mod source;
mod spin;
mod timers;
mod token;

use async_executor::{LocalExecutor, Task};
pub(crate) use budget::BYTES_PER_POLL;
use budget::Budget;
use driver::Driver;
pub use driver::Engine;
use futures_lite::future;
use notify::Notify;
pub(crate) use source::Source;
use source::Watched;
use spin::Spin;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice};
use std::mem;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use timers::Timers;
pub(crate) use timers::{Alarm, sleep};
use token::Token;

/// The reactor asks the engine at least every 64 tasks.
const TASKS_PER_LOOK: usize = 64;
/// The reactor also asks after 128 KiB of work, so that one busy sender does not hide the others.
const BYTES_PER_LOOK: usize = 128 * 1024;

/// The number of looks for answers after which a spinning thread lets other threads run.
const LOOKS_PER_YIELD: usize = 20;

/// The longest wait for an engine that is tried.
const TRY_TIME: Duration = Duration::from_secs(1);

/// The most outputs that are staged at the same time. Half of what a ring submits at once, so that polls fit beside them.
pub(crate) const SENDS_MAX: usize = 128;

/// The result of a staged output.
#[derive(Debug)]
pub(crate) struct Sent {
    /// The length of the output.
    pub(crate) offered: usize,
    /// The number of bytes that have left. `Ok(None)`: the socket took nothing.
    pub(crate) result: io::Result<Option<usize>>,
}

/// The part of a thread's executor that wakes tasks.
struct Reactor {
    driver: Driver,
    notify: Arc<Notify>,
    sources: RefCell<slab::Slab<Rc<Watched>>>,
    timers: RefCell<Timers>,
    /// The serial number of the next source. It distinguishes sources that have had the same index.
    next_serial: Cell<u32>,
    budget: Budget,
    /// Tasks that have much to do and come last.
    last: RefCell<VecDeque<Waker>>,
    spin: RefCell<Spin>,
    /// The time at which the last wait ended.
    awake_since: Cell<Instant>,
}

/// The executor of a thread, which its tasks reach through [`CURRENT`].
struct Runtime {
    executor: LocalExecutor<'static>,
    reactor: Rc<Reactor>,
}

#[cfg(test)]
thread_local! {
    /// Has the rings that this thread makes receive for no descriptor, as on the kernels that do not tell each end.
    pub(crate) static REFUSES_RECEIVING: Cell<bool> = const { Cell::new(false) };
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Runtime>>> = const { RefCell::new(None) };
}

/// Runs a future on this thread, and everything it spawns, until the future ends. What it spawned and
/// has not ended by then is dropped.
///
/// # Errors
/// The system does not give the engine what it needs, or the engine fails.
pub(crate) fn run<T: 'static>(
    engine: Engine,
    future: impl Future<Output = T> + 'static,
) -> io::Result<T> {
    let runtime = Rc::new(Runtime {
        executor: LocalExecutor::new(),
        reactor: Rc::new(Reactor::new(engine)?),
    });
    CURRENT.set(Some(Rc::clone(&runtime)));
    let result = runtime.run(future);
    CURRENT.set(None);
    result
}

/// Creates `count` engines, and has each report one wake-up. glommio creates one engine only. Returns whether the engines
/// receive for connections with small requests, which only rings can do.
///
/// # Errors
/// The system refuses to create or to enter an engine, or an engine does not report the wake-up within 1 s
/// (`TimedOut`).
pub(crate) fn try_engine(engine: Engine, count: NonZeroUsize) -> io::Result<bool> {
    #[cfg(feature = "glommio")]
    if engine == Engine::Glommio {
        return run(engine, async {}).map(|()| false);
    }
    let engines = (0..count.get())
        .map(|_| Driver::new(engine))
        .collect::<io::Result<Vec<_>>>()?;
    for (driver, notify) in &engines {
        notify.announce_sleep();
        notify.wake_by_ref();
        driver.enter(Some(TRY_TIME))?;
        if !driver.for_each_ready(|_| {}) {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(engines.iter().all(|(driver, _)| driver.receives()))
}

/// Starts a task on this thread. Dropping the handle cancels it; detach it to let it run.
///
/// # Panics
/// Outside of [`run`].
pub(crate) fn spawn<T: 'static>(future: impl Future<Output = T> + 'static) -> Task<T> {
    current().executor.spawn(future)
}

/// Lets all ready tasks run first. The reactor asks the engine after each task that came last. So a task that has much
/// to do does it in pieces, and calls this after each piece.
///
/// # Panics
/// Outside of [`run`].
pub(crate) async fn come_last() {
    let mut is_waiting = false;
    future::poll_fn(|cx| {
        if mem::replace(&mut is_waiting, true) {
            return Poll::Ready(());
        }
        current().reactor.wake_last(cx);
        Poll::Pending
    })
    .await;
}

/// Counts work of the running task that is no read of a [`Source`]. The caller asks [`is_budget_spent`] before.
///
/// # Panics
/// Outside of [`run`]. In debug builds, if the budget of the task was spent before.
pub(crate) fn count_work(bytes: usize) {
    current().reactor.budget.count(bytes);
}

/// Returns whether the running task has to let the others run.
///
/// # Panics
/// Outside of [`run`].
pub(crate) fn is_budget_spent() -> bool {
    current().reactor.budget.is_spent()
}

/// A descriptor that is readable when a listener is, for [`Source::poll_readable`] to watch instead. `None`: the
/// engine watches the listener itself.
///
/// A ring holds the files that it polls, and the kernel takes a dead process's ring apart some milliseconds after
/// its descriptors are closed. A listener that the ring holds would take connections in that time and reset them.
/// An epoll descriptor does not hold what it watches.
///
/// # Errors
/// No descriptor is left.
///
/// # Panics
/// Outside of [`run`].
#[cfg(target_os = "linux")]
pub(crate) fn epoll_around_listener(listener: impl AsFd) -> io::Result<Option<OwnedFd>> {
    if !matches!(current().reactor.driver, Driver::Ring(_)) {
        return Ok(None);
    }
    use rustix::event::epoll;
    let around = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let data = epoll::EventData::new_u64(0);
    epoll::add(&around, listener, data, epoll::EventFlags::IN)?;
    Ok(Some(around))
}

/// Returns `None`: only Linux has a ring.
#[cfg(not(target_os = "linux"))]
pub(crate) fn epoll_around_listener(_listener: impl AsFd) -> io::Result<Option<OwnedFd>> {
    Ok(None)
}

/// Stages an output of a connection. [`send_staged`] sends it, and the descriptor must stay open until then. Returns false
/// if the output is long, or the engine cannot stage, or in the callback of [`send_staged`]: then the caller sends it.
///
/// # Panics
/// Outside of [`run`].
pub(crate) fn stage_send(descriptor: impl AsFd, output: &[IoSlice<'_>]) -> bool {
    let reactor = &current().reactor;
    reactor.driver.stage_send(descriptor.as_fd(), output)
}

/// Sends all staged outputs with one system call, as much of each as its socket takes now. Calls `each` with the results,
/// in the order of staging.
///
/// # Panics
/// Outside of [`run`].
pub(crate) fn send_staged(each: impl FnMut(Sent)) {
    current().reactor.driver.send_staged(each);
}

/// Sets how long this thread may look for answers before it sleeps. Zero, as at the start: it sleeps at once.
///
/// # Panics
/// Outside of [`run`].
pub(crate) fn look_for(window: Duration) {
    *current().reactor.spin.borrow_mut() = Spin::new(window);
}

/// Returns whether the engine of this thread receives for descriptors.
#[cfg(test)]
pub(crate) fn receives() -> bool {
    current().reactor.driver.receives()
}

fn current() -> Rc<Runtime> {
    CURRENT
        .with_borrow(|current| Rc::clone(current.as_ref().expect("a thread that runs a reactor")))
}

impl Runtime {
    fn run<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> io::Result<T> {
        let main = self.executor.spawn(self.main(future));
        let waker = Waker::from(Arc::clone(&self.reactor.notify));
        let mut context = Context::from_waker(&waker);
        #[cfg(feature = "glommio")]
        if let Driver::Glommio(glommio) = &self.reactor.driver {
            return glommio::Glommio::run(async {
                loop {
                    self.run_tasks();
                    if main.is_finished() {
                        return main.await;
                    }
                    let tick = pin!(self.executor.tick());
                    let may_wait = self.may_wait(self.poll_tick(tick, &mut context));
                    let next_timer = self.reactor.timers.borrow().next();
                    glommio.rest(may_wait, next_timer).await;
                    self.reactor.wake_tasks(next_timer.is_some());
                }
            });
        }
        loop {
            self.run_tasks();
            if main.is_finished() {
                return Ok(future::block_on(main));
            }
            // Runs one more task. If none is ready, `tick` has the waker called when one becomes ready, as long as
            // `tick` lives.
            let tick = pin!(self.executor.tick());
            let may_wait = self.may_wait(self.poll_tick(tick, &mut context));
            self.reactor.ask_engine(may_wait)?;
        }
    }

    /// The future of [`run`]. It may work without a break: at the start, it recovers logs.
    fn main<T: 'static>(
        &self,
        future: impl Future<Output = T> + 'static,
    ) -> impl Future<Output = T> + 'static {
        let reactor = Rc::clone(&self.reactor);
        async move {
            let mut future = pin!(future);
            future::poll_fn(|cx| {
                let polled = future.as_mut().poll(cx);
                reactor.budget.restart_clock();
                polled
            })
            .await
        }
    }

    /// Runs a task if one is ready.
    fn try_tick(&self) -> bool {
        self.reactor.budget.begin_poll();
        let is_run = self.executor.try_tick();
        self.reactor.budget.end_poll();
        is_run
    }

    fn poll_tick(
        &self,
        tick: Pin<&mut impl Future<Output = ()>>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        self.reactor.budget.begin_poll();
        let tick = tick.poll(cx);
        self.reactor.budget.end_poll();
        tick
    }

    /// Runs tasks until none is ready, or many were run; then wakes one that comes last.
    fn run_tasks(&self) {
        for _ in 0..TASKS_PER_LOOK {
            let is_enough = self.reactor.budget.bytes() >= BYTES_PER_LOOK;
            if is_enough || !self.try_tick() {
                break;
            }
        }
        // Only one of the tasks that come last: the engine is asked for the others' sockets before the next one runs.
        let last = self.reactor.last.borrow_mut().pop_front();
        if let Some(last) = last {
            last.wake();
        }
    }

    /// Returns whether the thread may wait: no task is ready, and no other thread has woken this one.
    fn may_wait(&self, tick: Poll<()>) -> bool {
        tick.is_pending()
            && self.reactor.last.borrow().is_empty()
            && self.reactor.notify.announce_sleep()
    }
}

impl Reactor {
    fn new(engine: Engine) -> io::Result<Reactor> {
        let (driver, notify) = Driver::new(engine)?;
        Ok(Reactor {
            driver,
            notify,
            sources: RefCell::default(),
            timers: RefCell::default(),
            next_serial: Cell::new(0),
            budget: Budget::default(),
            last: RefCell::default(),
            spin: RefCell::new(Spin::new(Duration::ZERO)),
            awake_since: Cell::new(Instant::now()),
        })
    }

    /// Wakes a task behind all that are ready.
    fn wake_last(&self, cx: &Context<'_>) {
        self.last.borrow_mut().push_back(cx.waker().clone());
    }

    /// Wakes the tasks whose socket is ready or whose time has come. Waits for one, if it may.
    fn ask_engine(&self, may_wait: bool) -> io::Result<()> {
        let next_timer = self.timers.borrow().next();
        let entered = if may_wait {
            self.wait(next_timer)
        } else {
            self.driver.enter(Some(Duration::ZERO))
        };
        entered?;
        self.wake_tasks(next_timer.is_some());
        Ok(())
    }

    /// Waits for the engine or the clock.
    fn wait(&self, next_timer: Option<Instant>) -> io::Result<()> {
        let start = Instant::now();
        let timer = next_timer.map(|at| at.saturating_duration_since(start));
        let window = self.spin.borrow().window(timer);
        let window = window.filter(|_| self.driver.can_look_for_free());
        let hit = window.map(|window| self.spin_until(start + window));
        let hit = hit.transpose()?;
        let now = match hit {
            Some(false) => Instant::now(),
            _ => start,
        };
        let entered = self.driver.enter(time_left(next_timer, hit, now));
        let end = Instant::now();
        let worked = start.saturating_duration_since(self.awake_since.replace(end));
        self.spin.borrow_mut().record_wait(worked, end - start, hit);
        entered
    }

    /// Looks for answers until there is one, or the time is over.
    fn spin_until(&self, end: Instant) -> io::Result<bool> {
        self.driver.enter(Some(Duration::ZERO))?;
        loop {
            for _ in 0..LOOKS_PER_YIELD {
                if self.driver.has_news() {
                    return Ok(true);
                }
                std::hint::spin_loop();
            }
            if Instant::now() >= end {
                return Ok(false);
            }
            // Another thread that waits for this processor comes first.
            rustix::thread::sched_yield();
        }
    }

    /// Wakes the tasks whose socket is ready, and those whose time has come, if there are timers.
    fn wake_tasks(&self, has_timers: bool) {
        self.budget.begin_look();
        self.notify.announce_awake();
        let _is_woken = self.driver.for_each_ready(|token| {
            if let Some(source) = self.source(token) {
                self.spin.borrow_mut().record_answer(token.index());
                source.answer(token);
            }
        });
        if has_timers {
            let now = Instant::now();
            // Not all at once: a woken task may set or drop timers.
            while let Some(waker) = { self.timers.borrow_mut().take_due(now) } {
                waker.wake();
            }
        }
    }

    fn source(&self, token: Token) -> Option<Rc<Watched>> {
        let sources = self.sources.borrow();
        let source = sources.get(token.index())?;
        (source.serial == token.serial()).then(|| Rc::clone(source))
    }
}

/// Returns how long the engine may wait: not at all if spinning has found an answer, else until the next timer.
///
/// The spin takes longer than its window if another thread had the processor meanwhile. So the time that is left
/// follows from the clock, not from the window.
fn time_left(next_timer: Option<Instant>, hit: Option<bool>, now: Instant) -> Option<Duration> {
    if hit == Some(true) {
        return Some(Duration::ZERO);
    }
    next_timer.map(|at| at.saturating_duration_since(now))
}

#[cfg(test)]
pub(crate) mod tests;
