//! [`Glommio`]: readiness by glommio, the thread-per-core runtime, in a build with the feature `glommio`.
//!
//! glommio owns the loop of its thread. So the reactor's loop is one task of glommio's executor
//! ([`Glommio::run`]), which rests until a poll of glommio's has ended, a timer of glommio's is over, or
//! another thread wakes it. It is here for comparison: docs/decisions/0004-reactor.md.

use super::notify::{Notify, take_wakeup};
use super::token::{Direction, Token, place_of};
use futures_lite::future;
use glommio::io::{PollState, PollableFd};
use glommio::timer::Timer;
use glommio::{GlommioError, LocalExecutorBuilder, Placement};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// The time after which glommio takes the processor from its tasks. The reactor's loop rests after each turn, so it
/// needs no such timer. A short one is a danger: glommio-ng 0.12.0 goes to sleep although a task is ready if the timer
/// ends before the first task runs (`run_task_queues` then says that nothing ran).
const PREEMPT_TIME: Duration = Duration::from_secs(10);
/// The sleep of the loop while tasks are ready. It is long enough for glommio to look at its rings.
const LOOK_TIME: Duration = Duration::from_micros(2);
/// Memory for direct I/O, which is glommio's own and not used here: the least that it takes.
const IO_BYTES: usize = 64 * 1024;

/// The polls of one thread.
pub(super) struct Glommio {
    /// By the index of the source.
    waits: RefCell<Vec<[Option<Wait>; 2]>>,
    reports: Arc<Reports>,
    /// Becomes readable when another thread wakes this one.
    eventfd: Arc<OwnedFd>,
    eventfd_poll: RefCell<PollState>,
}

/// A poll that has not been answered.
struct Wait {
    descriptor: PollableFd<RawFd>,
    state: PollState,
    token: Token,
}

/// The messages of the polls' wakers to the loop.
#[derive(Default)]
struct Reports {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Tokens whose poll may have ended.
    tokens: Vec<Token>,
    /// Wakes the loop's task, if it rests.
    task: Option<Waker>,
}

/// The waker of one poll.
struct Report {
    reports: Arc<Reports>,
    token: Token,
}

impl Wake for Report {
    fn wake(self: Arc<Self>) {
        let mut state = self.reports.state.lock();
        state.tokens.push(self.token);
        let task = state.task.take();
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl Glommio {
    /// Makes an engine, and what wakes its thread. glommio itself starts with [`Glommio::run`].
    ///
    /// # Errors
    /// No descriptor is left.
    pub(super) fn new() -> io::Result<(Glommio, Arc<Notify>)> {
        let (eventfd, notify) = Notify::with_eventfd()?;
        let glommio = Glommio {
            waits: RefCell::default(),
            reports: Arc::default(),
            eventfd,
            eventfd_poll: RefCell::default(),
        };
        Ok((glommio, notify))
    }

    /// Runs the reactor's loop as a task of glommio.
    ///
    /// # Errors
    /// glommio cannot be started.
    pub(super) fn run<T>(task: impl Future<Output = T>) -> io::Result<T> {
        let executor = LocalExecutorBuilder::new(Placement::Unbound)
            .io_memory(IO_BYTES)
            .preempt_timer(PREEMPT_TIME)
            .make()
            .map_err(io_error)?;
        Ok(executor.run(task))
    }

    /// Lets glommio look at its rings, and waits for a report or for `timer`, if it may.
    pub(super) async fn rest(&self, may_wait: bool, timer: Option<Instant>) {
        let eventfd = pollable(self.eventfd.as_raw_fd());
        let now = Instant::now();
        // glommio looks at its rings when no task of its own is ready, and a timer of no time ends at once.
        let timer = if may_wait {
            timer
        } else {
            Some(now + LOOK_TIME)
        };
        let mut timer = timer.map(|at| Timer::new(at.saturating_duration_since(now)));
        future::poll_fn(|cx| {
            let mut state = self.reports.state.lock();
            if !state.tokens.is_empty() {
                return Poll::Ready(());
            }
            state.task = Some(cx.waker().clone());
            drop(state);
            let mut eventfd_poll = self.eventfd_poll.borrow_mut();
            if eventfd.poll_readable(cx, &mut eventfd_poll).is_ready() {
                take_wakeup(&self.eventfd);
                return Poll::Ready(());
            }
            match &mut timer {
                Some(timer) => Pin::new(timer).poll(cx).map(drop),
                None => Poll::Pending,
            }
        })
        .await;
    }

    /// See [`super::driver::Driver::watch`].
    pub(super) fn watch(&self, descriptor: BorrowedFd<'_>, token: Token) {
        let mut wait = Wait {
            descriptor: pollable(descriptor.as_raw_fd()),
            state: PollState::new(),
            token,
        };
        match self.poll(&mut wait) {
            Poll::Ready(()) => self.reports.state.lock().tokens.push(token),
            Poll::Pending => {}
        }
        let mut waits = self.waits.borrow_mut();
        place_of(&mut waits, token)[token.direction() as usize] = Some(wait);
    }

    fn poll(&self, wait: &mut Wait) -> Poll<()> {
        let report = Report {
            reports: Arc::clone(&self.reports),
            token: wait.token,
        };
        let waker = Waker::from(Arc::new(report));
        let cx = &mut Context::from_waker(&waker);
        let polled = match wait.token.direction() {
            Direction::Read => wait.descriptor.poll_readable(cx, &mut wait.state),
            Direction::Write => wait.descriptor.poll_writable(cx, &mut wait.state),
        };
        // A poll that fails counts as readiness: the reader or writer will see the error.
        polled.map(drop)
    }

    /// See [`super::driver::Driver::forget`].
    pub(super) fn forget(&self, index: usize) {
        let wait = self.waits.borrow_mut().get_mut(index).map(std::mem::take);
        drop(wait);
    }

    /// See [`super::driver::Driver::for_each_ready`].
    pub(super) fn for_each_ready(&self, mut each: impl FnMut(Token)) {
        let tokens = std::mem::take(&mut self.reports.state.lock().tokens);
        for token in tokens {
            // A token of a source that is gone, or a poll that was answered already, is nobody's.
            let is_awaited = self
                .waits
                .borrow_mut()
                .get_mut(token.index())
                .is_some_and(|waits| {
                    let wait = &mut waits[token.direction() as usize];
                    wait.take_if(|wait| wait.token == token).is_some()
                });
            if is_awaited {
                each(token);
            }
        }
    }
}

fn pollable(descriptor: RawFd) -> PollableFd<RawFd> {
    PollableFd::new(descriptor).expect("glommio runs this task")
}

fn io_error(error: GlommioError<()>) -> io::Error {
    match error {
        GlommioError::IoError(error) => error,
        other => io::Error::other(other.to_string()),
    }
}
