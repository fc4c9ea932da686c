//! [`Outbox`]: the commands of a connection that wait for the socket. Any thread appends to it.
//!
//! Commands of many callers go into one buffer. The first command of an empty buffer wakes the connection's task up;
//! the further ones cost an append. The task takes the whole buffer at once.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use crate::error::ConnectionLost;

/// The output of one connection. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Outbox(Arc<Mutex<OutboxBuffer>>);

/// The end of a command in the output of a connection, in bytes since the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position(pub(crate) u64);

/// The request of the application to the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// The connection goes on.
    Open,
    /// The connection ends when all output is sent.
    Close,
    /// The connection ends at once.
    Abort,
}

#[derive(Debug)]
struct OutboxBuffer {
    buffer: Vec<u8>,
    /// The bytes that were appended since the handshake.
    appended: u64,
    /// The part of `appended` that the connection's task took.
    taken: u64,
    /// The part of `appended` that the socket took.
    sent: u64,
    request: Request,
    /// True when the connection is over.
    is_lost: bool,
    /// The connection's task.
    task: Option<Waker>,
    /// True when the task waits for output, and not only for a request.
    is_idle: bool,
    /// The futures that wait until a position is sent.
    waiting: Vec<(u64, Waker)>,
}

impl Outbox {
    pub(crate) fn new() -> Outbox {
        Outbox(Arc::new(Mutex::new(OutboxBuffer {
            buffer: Vec::new(),
            appended: 0,
            taken: 0,
            sent: 0,
            request: Request::Open,
            is_lost: false,
            task: None,
            is_idle: false,
            waiting: Vec::new(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, OutboxBuffer> {
        // A panic in `write` of `append` may leave half a command: nothing more may be sent. parking_lot's mutex does
        // not tell of a panic.
        self.0.lock().unwrap_or_else(|poisoned| {
            let mut state = poisoned.into_inner();
            state.request = Request::Abort;
            state
        })
    }

    /// Appends what `write` writes: one command or several, which stay together. Returns the position behind them.
    ///
    /// Fails when the connection is over, or is being closed: `write` is not called.
    #[inline]
    pub(crate) fn append(
        &self,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Position, ConnectionLost> {
        self.rewrite(|buffer, _| write(buffer))
    }

    /// Calls `write` with the buffer and with the position behind it. `write` may also replace commands at the buffer's
    /// end by longer ones: the task has not taken them yet. Otherwise the same as [`Outbox::append`].
    #[inline]
    pub(crate) fn rewrite(
        &self,
        write: impl FnOnce(&mut Vec<u8>, Position),
    ) -> Result<Position, ConnectionLost> {
        let mut state = self.state();
        if state.is_lost || state.request != Request::Open {
            return Err(ConnectionLost);
        }
        let (before, end) = (state.buffer.len(), Position(state.appended));
        write(&mut state.buffer, end);
        state.appended += (state.buffer.len() - before) as u64;
        let position = Position(state.appended);
        let task = if std::mem::take(&mut state.is_idle) {
            state.task.take()
        } else {
            None
        };
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
        Ok(position)
    }

    /// Returns a future that resolves when the socket has taken the output up to `position`, or when the connection
    /// is lost before.
    pub(crate) fn sent(&self, position: Position) -> Sent {
        Sent {
            outbox: self.clone(),
            position,
        }
    }

    /// Ends the connection after the output that is there. Later commands are refused.
    pub(crate) fn close(&self) {
        self.request(Request::Close);
    }

    /// Ends the connection without its remaining output.
    pub(crate) fn abort(&self) {
        self.request(Request::Abort);
    }

    fn request(&self, request: Request) {
        let mut state = self.state();
        if state.request != Request::Abort {
            state.request = request;
        }
        let task = state.task.take();
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Returns the end of the output that the connection's task has taken. nsqd cannot have what lies behind.
    pub(crate) fn taken(&self) -> Position {
        Position(self.state().taken)
    }

    /// Takes the output, into the empty `into`. If there is none, the task of `cx` is woken up when there is some, or
    /// when the request changes.
    pub(crate) fn take(&self, cx: &mut Context<'_>, into: &mut Vec<u8>) -> Request {
        let mut state = self.state();
        if state.request == Request::Abort {
            return Request::Abort;
        }
        if state.buffer.is_empty() {
            state.watch(cx);
            state.is_idle = true;
        } else {
            std::mem::swap(&mut state.buffer, into);
            state.taken = state.appended;
        }
        state.request
    }

    /// Returns the request. The task of `cx` is woken up when the request changes, and not for new output.
    pub(crate) fn watch(&self, cx: &mut Context<'_>) -> Request {
        let mut state = self.state();
        state.watch(cx);
        state.is_idle = false;
        state.request
    }

    /// States that the socket took `bytes` more.
    pub(crate) fn count_sent(&self, bytes: u64) {
        let mut state = self.state();
        state.sent += bytes;
        let sent = state.sent;
        // Each waker is woken without the lock: it may run code of the application.
        let mut woken = Vec::new();
        state.waiting.retain(|(position, waker)| {
            let is_sent = *position <= sent;
            if is_sent {
                woken.push(waker.clone());
            }
            !is_sent
        });
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    /// States that the connection is over: later commands are refused, and whoever waits gets to know.
    pub(crate) fn lose(&self) {
        let mut state = self.state();
        state.is_lost = true;
        state.buffer = Vec::new();
        state.task = None;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl OutboxBuffer {
    fn watch(&mut self, cx: &Context<'_>) {
        match &mut self.task {
            Some(task) => task.clone_from(cx.waker()),
            None => self.task = Some(cx.waker().clone()),
        }
    }
}

/// The future of [`Outbox::sent`].
#[derive(Debug)]
#[must_use = "the command is sent in any case; the future only tells when"]
pub(crate) struct Sent {
    outbox: Outbox,
    position: Position,
}

impl Future for Sent {
    type Output = Result<(), ConnectionLost>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Position(position) = self.position;
        let mut state = self.outbox.state();
        if state.sent >= position {
            return Poll::Ready(Ok(()));
        }
        if state.is_lost {
            return Poll::Ready(Err(ConnectionLost));
        }
        let is_known = state
            .waiting
            .iter()
            .any(|(at, waker)| *at == position && waker.will_wake(cx.waker()));
        if !is_known {
            state.waiting.push((position, cx.waker().clone()));
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests;
