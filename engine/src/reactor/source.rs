//! [`Source`]: the readiness of a descriptor, and the tasks that wait for it.

use super::driver::{Direction, Token};
use super::{Reactor, current};
use std::cell::{Cell, RefCell};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

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
        self.arm(cx, descriptor, Direction::Read);
        Poll::Pending
    }

    /// Counts the bytes of a read. The reactor looks for answers after some of them.
    pub(crate) fn count_read(&self, bytes: usize) {
        let before = self.reactor.bytes_read.get();
        self.reactor.bytes_read.set(before + bytes);
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
        self.reactor.sources.borrow_mut().remove(self.index);
        let is_armed = |direction: &Direction| self.watched.slot(*direction).is_armed.get();
        let armed = Direction::ALL.into_iter().filter(is_armed);
        self.reactor
            .driver
            .forget(self.index, armed.map(|direction| self.token(direction)));
    }
}

impl Watched {
    /// Wakes the task whose wait is answered.
    pub(super) fn answer(&self, direction: Direction) {
        if direction == Direction::Read {
            self.is_readable.set(true);
        }
        let slot = self.slot(direction);
        slot.is_armed.set(false);
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
