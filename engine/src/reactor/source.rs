//! [`Source`]: whether a descriptor is ready, and who waits for that.

use super::ring::Token;
use super::{Reactor, current};
use std::cell::{Cell, RefCell};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The readiness of one descriptor, which must be non-blocking. To be dropped before it is closed or
/// right after: until then the descriptor's file stays open.
///
/// Reading begins by trying. Who finds nothing, or less than there was room for, says so
/// ([`Source::drained`]) and is told when there is more. Nobody is woken who does not wait.
pub(crate) struct Source {
    reactor: Rc<Reactor>,
    index: usize,
    watched: Rc<Watched>,
}

/// What the reactor knows of a source.
pub(super) struct Watched {
    pub(super) serial: u32,
    is_readable: Cell<bool>,
    /// A poll for reading is armed.
    is_watched: Cell<bool>,
    reader: RefCell<Option<Waker>>,
    /// A poll for writing is armed.
    is_write_watched: Cell<bool>,
    writer: RefCell<Option<Waker>>,
}

impl Source {
    /// Of a descriptor of this thread.
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
            is_watched: Cell::new(false),
            reader: RefCell::default(),
            is_write_watched: Cell::new(false),
            writer: RefCell::default(),
        });
        let index = reactor.sources.borrow_mut().insert(Rc::clone(&watched));
        Source {
            reactor,
            index,
            watched,
        }
    }

    fn token(&self, is_write: bool) -> Token {
        Token::new(self.index, self.watched.serial, is_write)
    }

    /// Whether it is worth trying to read; if not, wakes the task when it is.
    pub(crate) fn poll_readable(&self, cx: &Context<'_>, descriptor: BorrowedFd<'_>) -> Poll<()> {
        if self.watched.is_readable.get() {
            return Poll::Ready(());
        }
        register(&self.watched.reader, cx);
        if !self.watched.is_watched.replace(true) {
            self.reactor.ring.watch(descriptor, self.token(false));
        }
        Poll::Pending
    }

    /// So many bytes were read.
    pub(crate) fn note_read(&self, bytes: usize) {
        let before = self.reactor.bytes_read.get();
        self.reactor.bytes_read.set(before + bytes);
    }

    /// There was nothing to read, or less than there was room for.
    pub(crate) fn drained(&self) {
        self.watched.is_readable.set(false);
    }

    /// Wakes the task when there is room to write. To be called when there was none.
    pub(crate) fn wait_writable(&self, cx: &Context<'_>, descriptor: BorrowedFd<'_>) {
        register(&self.watched.writer, cx);
        if !self.watched.is_write_watched.replace(true) {
            self.reactor
                .ring
                .watch_writable(descriptor, self.token(true));
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.reactor.sources.borrow_mut().remove(self.index);
        if self.watched.is_watched.get() {
            self.reactor.ring.cancel(self.token(false));
        }
        if self.watched.is_write_watched.get() {
            self.reactor.ring.cancel(self.token(true));
        }
    }
}

impl Watched {
    /// A poll of this source has ended.
    pub(super) fn complete(&self, token: Token) {
        let waker = if token.is_write() {
            self.is_write_watched.set(false);
            self.writer.take()
        } else {
            self.is_watched.set(false);
            self.is_readable.set(true);
            self.reader.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
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
