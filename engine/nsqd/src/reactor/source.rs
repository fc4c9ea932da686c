//! [`Source`]: the readiness of a descriptor, and the tasks that wait for it.

use super::token::{Direction, Received, Token};
use super::{Reactor, current};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A read of at most this many bytes is small: one request, or a few.
const SMALL_BYTES: usize = 1024;
/// After this many small reads in a row, the engine receives for the descriptor.
const SMALL_READS: u32 = 32;

/// The readiness of one descriptor, which must be non-blocking. Drop the source before the descriptor is closed: a poll
/// in the ring keeps the file open, and epoll can only forget an open descriptor.
///
/// A reader tries to read first. A reader that finds nothing, or less than it had room for, calls
/// [`Source::expect_no_more`], and is told when there is more. A task that does not wait is not woken.
pub(crate) struct Source {
    reactor: Rc<Reactor>,
    index: usize,
    watched: Rc<Watched>,
}

/// The reactor's view of a source.
pub(super) struct Watched {
    pub(super) serial: u32,
    is_readable: Cell<bool>,
    /// The engine receives for the descriptor, or has received bytes or an end that are not taken.
    is_received: Cell<bool>,
    /// The number of small reads since the last one that was not small.
    small_reads: Cell<u32>,
    /// One for each [`Direction`].
    waits: [WaitSlot; 2],
}

/// The wait for one direction of a source, and the task that waits.
#[derive(Default)]
struct WaitSlot {
    is_armed: Cell<bool>,
    task: RefCell<Option<Waker>>,
}

impl Source {
    /// Creates the readiness of one descriptor.
    ///
    /// # Panics
    /// Outside of [`super::run`].
    pub(crate) fn new() -> Source {
        let reactor = Rc::clone(&current().reactor);
        let serial = reactor.next_serial.get();
        reactor.next_serial.set(serial.wrapping_add(1));
        let watched = Rc::new(Watched {
            serial,
            is_readable: Cell::new(true),
            is_received: Cell::new(false),
            small_reads: Cell::new(0),
            waits: Default::default(),
        });
        let index = reactor.sources.borrow_mut().insert(Rc::clone(&watched));
        Source {
            reactor,
            index,
            watched,
        }
    }

    fn token(&self, direction: Direction) -> Token {
        Token::new(self.index, self.watched.serial, direction)
    }

    /// Wakes the task when the descriptor is ready for the direction.
    fn arm(&self, cx: &Context<'_>, descriptor: BorrowedFd<'_>, direction: Direction) {
        let slot = self.watched.slot(direction);
        register(&slot.task, cx);
        if !slot.is_armed.replace(true) {
            self.reactor.driver.watch(descriptor, self.token(direction));
        }
    }

    /// Ready when an attempt to read may succeed. Otherwise wakes the task when it may.
    pub(crate) fn poll_readable(&self, cx: &Context<'_>, descriptor: BorrowedFd<'_>) -> Poll<()> {
        if self.watched.is_readable.get() {
            return Poll::Ready(());
        }
        if self.watched.small_reads.get() >= SMALL_READS && self.receive(descriptor) {
            register(&self.watched.slot(Direction::Read).task, cx);
        } else {
            self.arm(cx, descriptor, Direction::Read);
        }
        Poll::Pending
    }

    // --- the budget of the running task

    /// Ready while the running task may go on. Otherwise the task goes on behind the others, as after
    /// [`come_last`](super::come_last).
    pub(crate) fn poll_budget(&self, cx: &Context<'_>) -> Poll<()> {
        if !self.is_budget_spent() {
            return Poll::Ready(());
        }
        self.reactor.wake_last(cx);
        Poll::Pending
    }

    /// Returns whether the running task has to let the others run.
    pub(crate) fn is_budget_spent(&self) -> bool {
        self.reactor.budget.is_spent()
    }

    /// Counts the bytes of a step of the running task: bytes that are written or decoded.
    pub(crate) fn count_work(&self, bytes: usize) {
        self.reactor.budget.count(bytes);
    }

    /// Counts the work on bytes that were just read.
    pub(crate) fn count_more_work(&self, bytes: usize) {
        self.reactor.budget.count_more(bytes);
    }

    /// Counts the bytes of a read. The reactor looks for answers after some of them.
    pub(crate) fn count_read(&self, bytes: usize) {
        self.reactor.budget.count(bytes);
        let small_reads = match bytes {
            ..=SMALL_BYTES => self.watched.small_reads.get().saturating_add(1),
            _ => 0,
        };
        self.watched.small_reads.set(small_reads);
    }

    // --- receiving by the engine

    /// Takes what the engine has received for the descriptor; 0 bytes are the end. `None` if the reader must read
    /// itself.
    pub(crate) fn poll_received(
        &self,
        cx: &Context<'_>,
        room: &mut [u8],
    ) -> Option<Poll<io::Result<usize>>> {
        if !self.watched.is_received.get() {
            return None;
        }
        let token = self.token(Direction::Read);
        Some(match self.reactor.driver.take_received(token, room) {
            Received::Bytes(bytes) => {
                self.reactor.budget.count(bytes);
                Poll::Ready(Ok(bytes))
            }
            Received::Nothing => {
                register(&self.watched.slot(Direction::Read).task, cx);
                Poll::Pending
            }
            Received::Failed(error) => Poll::Ready(Err(error)),
            Received::Off => {
                self.watched.is_received.set(false);
                self.watched.small_reads.set(0);
                self.watched.is_readable.set(true);
                return None;
            }
        })
    }

    /// Returns whether the engine receives for the descriptor, or has received bytes or an end that are not taken.
    #[cfg(test)]
    pub(crate) fn is_received(&self) -> bool {
        self.watched.is_received.get()
    }

    /// Has the engine receive for the descriptor. Returns false if it cannot, or polls the descriptor already.
    fn receive(&self, descriptor: BorrowedFd<'_>) -> bool {
        let driver = &self.reactor.driver;
        let is_armed = self.watched.slot(Direction::Read).is_armed.get();
        let is_received = !is_armed && driver.receive(descriptor, self.token(Direction::Read));
        self.watched.is_received.set(is_received);
        if !is_received {
            self.watched.small_reads.set(0);
        }
        is_received
    }

    /// Lets the input gather in the socket: the next read of the socket is late, and brings much.
    pub(crate) fn let_gather(&self) {
        self.watched.small_reads.set(0);
        if self.watched.is_received.get() {
            let driver = &self.reactor.driver;
            driver.end_receiving(self.token(Direction::Read));
        }
    }

    /// Appends what the engine has received to `unread`, so that the engine's buffers are free.
    pub(crate) fn take_received(&self, unread: &mut Vec<u8>) {
        if !self.watched.is_received.get() {
            return;
        }
        let token = self.token(Direction::Read);
        let mut room = [0; 2048];
        while let Received::Bytes(bytes @ 1..) = self.reactor.driver.take_received(token, &mut room)
        {
            unread.extend_from_slice(&room[..bytes]);
        }
    }

    /// Ends the receiving by the engine, and appends what has come to `unread`. If the engine has received an error, the
    /// next reader of the descriptor finds the end of the input instead.
    pub(crate) fn stop_receiving(&self, unread: &mut Vec<u8>) {
        if self.watched.is_received.get() {
            let driver = &self.reactor.driver;
            driver.stop_receiving(self.token(Direction::Read));
            self.take_received(unread);
        }
    }

    /// Notes that there was nothing to read, or less than there was room for.
    pub(crate) fn expect_no_more(&self) {
        self.watched.is_readable.set(false);
    }

    /// Wakes the task when there is room to write. To be called when there was none.
    pub(crate) fn wait_writable(&self, cx: &Context<'_>, descriptor: BorrowedFd<'_>) {
        self.arm(cx, descriptor, Direction::Write);
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let Reactor {
            driver, sources, ..
        } = &*self.reactor;
        sources.borrow_mut().remove(self.index);
        if self.watched.is_received.get() {
            driver.forget_received(self.token(Direction::Read));
        }
        let is_armed = |direction: &Direction| self.watched.slot(*direction).is_armed.get();
        let armed = Direction::ALL.into_iter().filter(is_armed);
        driver.forget(self.index, armed.map(|direction| self.token(direction)));
    }
}

impl Watched {
    /// Wakes the task whose wait is answered.
    pub(super) fn answer(&self, token: Token) {
        if token.direction() == Direction::Read {
            self.is_readable.set(true);
        }
        let slot = self.slot(token.direction());
        // The answer of a receiving may come late, when the descriptor is polled again. This poll goes on, and no second one
        // may begin: a source that ends cancels one.
        if !token.is_of_receiving() {
            slot.is_armed.set(false);
        }
        if let Some(waker) = slot.task.take() {
            waker.wake();
        }
    }

    fn slot(&self, direction: Direction) -> &WaitSlot {
        &self.waits[direction as usize]
    }
}

fn register(place: &RefCell<Option<Waker>>, cx: &Context<'_>) {
    let mut place = place.borrow_mut();
    if !place
        .as_ref()
        .is_some_and(|waker| waker.will_wake(cx.waker()))
    {
        *place = Some(cx.waker().clone());
    }
}
