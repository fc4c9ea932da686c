//! [`Source`]: whether a descriptor is ready, and who waits for that.

use super::ring::{Event, Token};
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
    has_hung_up: Cell<bool>,
    /// One for each [`Event`].
    polls: [Poller; 3],
}

/// One poll of a source, and the task that waits for it.
#[derive(Default)]
struct Poller {
    is_armed: Cell<bool>,
    task: RefCell<Option<Waker>>,
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
            has_hung_up: Cell::new(false),
            polls: Default::default(),
        });
        let index = reactor.sources.borrow_mut().insert(Rc::clone(&watched));
        Source {
            reactor,
            index,
            watched,
        }
    }

    fn token(&self, event: Event) -> Token {
        Token::new(self.index, self.watched.serial, event)
    }

    /// Wakes the task when the event comes.
    fn wait(&self, cx: &Context<'_>, descriptor: BorrowedFd<'_>, event: Event) {
        let poll = self.watched.poll(event);
        register(&poll.task, cx);
        if !poll.is_armed.replace(true) {
            self.reactor.ring.watch(descriptor, self.token(event));
        }
    }

    /// Whether it is worth trying to read; if not, wakes the task when it is.
    pub(crate) fn poll_readable(&self, cx: &Context<'_>, descriptor: BorrowedFd<'_>) -> Poll<()> {
        if self.watched.is_readable.get() {
            return Poll::Ready(());
        }
        self.wait(cx, descriptor, Event::Readable);
        Poll::Pending
    }

    /// Ready when the peer has ended its side; if not, the task is woken when it does.
    pub(crate) fn poll_hung_up(&self, cx: &Context<'_>, descriptor: BorrowedFd<'_>) -> Poll<()> {
        if self.watched.has_hung_up.get() {
            return Poll::Ready(());
        }
        self.wait(cx, descriptor, Event::HungUp);
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
        self.wait(cx, descriptor, Event::Writable);
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.reactor.sources.borrow_mut().remove(self.index);
        for event in [Event::Readable, Event::Writable, Event::HungUp] {
            if self.watched.poll(event).is_armed.get() {
                self.reactor.ring.cancel(self.token(event));
            }
        }
    }
}

impl Watched {
    /// A poll of this source has ended.
    pub(super) fn complete(&self, token: Token) {
        let event = token.event();
        match event {
            Event::Readable => self.is_readable.set(true),
            Event::Writable => {}
            Event::HungUp => self.has_hung_up.set(true),
        }
        let poll = self.poll(event);
        poll.is_armed.set(false);
        if let Some(waker) = poll.task.take() {
            waker.wake();
        }
    }

    fn poll(&self, event: Event) -> &Poller {
        &self.polls[event as usize]
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
