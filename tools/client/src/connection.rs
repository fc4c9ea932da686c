//! [`Connection`]: one connection over a stream. It moves the bytes of a [`Protocol`].
//!
//! ```text
//!   application ─► Outbox ─► Protocol ─► stream          one write for all commands that are ready
//!   stream ─► Protocol ─► Recipient                      one read, many messages; heartbeats are answered here
//! ```
//!
//! Usage inside the crate: [`Connection::open`] dials and shakes hands. The owner takes [`Connection::negotiated`] and
//! [`Connection::outbox`], and spawns a task that calls [`Connection::run`] with its [`Recipient`]. Reading and
//! heartbeats do not depend on how fast the application is: a [`Recipient`] never waits.

mod frames;
mod outbox;
mod protocol;
mod settings;

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use crate::address::Address;
use crate::connector::{Connector, Transport};
use crate::error::{ConnectionError, ErrorFrame};

pub(crate) use frames::{Batch, RawMessage};
use outbox::Request;
pub(crate) use outbox::{Outbox, Position, Sent};
use protocol::{Event, Protocol};
pub use settings::{Authorization, Negotiated};
pub(crate) use settings::{Settings, Subscription};

/// The longest wait for nsqd's end of a connection that the client has ended. Until then the client reads on: a socket
/// that is closed with unread input destroys output that nsqd has not read yet.
const LINGER: Duration = Duration::from_secs(1);
/// The most reads before other tasks of the thread get a turn.
const ROUNDS_MAX: u32 = 32;

/// The owner of a connection, which takes everything that nsqd sends. The calls come from the connection's task, so
/// they must not wait. An error ends the connection.
pub(crate) trait Recipient: Send {
    /// Takes consecutive messages.
    fn messages(&mut self, batch: Batch) -> Result<(), ConnectionError>;

    /// Takes a response: `OK` or `CLOSE_WAIT`. Heartbeats never come here.
    fn response(&mut self, data: Bytes) -> Result<(), ConnectionError>;

    /// Takes an error frame. If the error is fatal, nsqd closes the connection next.
    fn error(&mut self, error: ErrorFrame) -> Result<(), ConnectionError>;

    /// Called when everything of one read has been taken: the place to wake other tasks up, once for many messages.
    fn read_done(&mut self) -> Result<(), ConnectionError> {
        Ok(())
    }
}

/// An open connection.
pub(crate) struct Connection {
    stream: Box<dyn Transport>,
    protocol: Protocol,
    outbox: Outbox,
    /// Commands on their way from the outbox to the protocol. The memory is used again.
    commands: Vec<u8>,
    /// The bytes of the outbox that the protocol has, as long as the stream has not taken all of them, in the form in
    /// which TLS and the compression send them.
    unsent: u64,
    /// Wakes the task, never later than at the protocol's deadline.
    timer: Pin<Box<Sleep>>,
    /// True while the stream may have bytes that were written but not flushed.
    is_unflushed: bool,
    /// The reason why writing failed, and the time until which the client still reads what nsqd said before.
    failure: Option<(ConnectionError, Instant)>,
    ending: Ending,
}

/// The progress of the end of a connection that the application closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The connection goes on.
    None,
    /// All output is on the stream. The stream is being shut down.
    ShutDown,
    /// The client's side has ended. nsqd may send until this time.
    Linger(Instant),
}

impl Connection {
    /// Connects to `address` within `dial_timeout`, and shakes hands within `read_timeout`, whatever nsqd sends
    /// meanwhile. A subscription among the settings is made too. Dropping the future closes the connection.
    pub(crate) async fn open(
        connector: &dyn Connector,
        address: &Address,
        settings: Arc<Settings>,
    ) -> Result<Connection, ConnectionError> {
        let dial = connector.connect(address);
        let stream = match settings.dial_timeout {
            None => dial.await,
            Some(limit) => timeout(limit, dial)
                .await
                .map_err(|_| ConnectionError::DialTimeout(limit))?,
        };
        let stream = stream.map_err(ConnectionError::Dial)?;
        let now = Instant::now();
        let mut connection = Connection {
            stream,
            protocol: Protocol::new(settings, address.host(), now.into_std()),
            outbox: Outbox::new(),
            commands: Vec::new(),
            unsent: 0,
            timer: Box::pin(sleep_until(now)),
            is_unflushed: false,
            failure: None,
            ending: Ending::None,
        };
        match poll_fn(|cx| connection.poll(cx, None)).await {
            Ok(()) => Ok(connection),
            Err(error) => {
                connection.send_last_words();
                Err(error)
            }
        }
    }

    /// Returns what nsqd agreed to.
    pub(crate) fn negotiated(&self) -> &Negotiated {
        self.protocol.negotiated()
    }

    /// Returns the output of the connection, for any thread.
    pub(crate) fn outbox(&self) -> Outbox {
        self.outbox.clone()
    }

    /// Moves bytes until the connection ends. Returns the reason, or `None` if the owner closed the outbox and all
    /// output was sent. When this function returns, the outbox is lost.
    pub(crate) async fn run(mut self, recipient: &mut dyn Recipient) -> Option<ConnectionError> {
        let ended = poll_fn(|cx| self.poll(cx, Some(recipient))).await;
        if ended.is_err() {
            self.send_last_words();
        }
        ended.err()
    }

    /// Offers the stream what the connection still has to say: TLS explains an error by an alert.
    fn send_last_words(&mut self) {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        if let Ok(bytes) = self.protocol.unsent(Instant::now().into_std())
            && !bytes.is_empty()
        {
            // Nobody waits for the result: the connection is over.
            let _ = Pin::new(&mut self.stream).poll_write(&mut cx, bytes);
        }
    }

    /// Moves bytes as far as possible. Without a recipient, it is ready when the handshake is over. With one, it is
    /// ready when the connection is over.
    ///
    /// Up to [`ROUNDS_MAX`] reads come before a write. So a connection that has ended while this process stood still
    /// takes no command that was not begun: the command can go to another connection.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut recipient: Option<&mut (dyn Recipient + '_)>,
    ) -> Poll<Result<(), ConnectionError>> {
        for _ in 0..ROUNDS_MAX {
            match recipient.as_deref_mut() {
                Some(recipient) => self.deliver(recipient)?,
                None if self.shake_hands()? => return Poll::Ready(Ok(())),
                None => {}
            }
            match pin!(self.stream.read_buf(self.protocol.receive_space())).poll(cx) {
                Poll::Ready(Ok(0)) => return Poll::Ready(self.end_with(ConnectionError::Closed)),
                Poll::Ready(Ok(_)) => self.protocol.received(Instant::now().into_std()),
                Poll::Ready(Err(error)) => {
                    return Poll::Ready(self.end_with(ConnectionError::Read(error)));
                }
                Poll::Pending => return self.poll_output(cx, recipient.is_some()),
            }
        }
        // An nsqd that sends without a pause gets its answers, and is under the same limits.
        let ended = self.poll_output(cx, recipient.is_some());
        if ended.is_pending() {
            // Other tasks of this thread get a turn.
            cx.waker().wake_by_ref();
        }
        ended
    }

    /// Writes as far as possible, unless writing has failed already, and applies the limits of time. Ready when the
    /// connection is over.
    fn poll_output(
        &mut self,
        cx: &mut Context<'_>,
        is_open: bool,
    ) -> Poll<Result<(), ConnectionError>> {
        let now = Instant::now();
        if self.failure.is_none() {
            // After a pause of the process, nsqd counts as silent even though no timer has fired. Nothing is written
            // then, so the commands go to another connection.
            self.protocol.check_silence(now.into_std())?;
            match self.poll_write(cx, now, is_open) {
                Ok(Request::Abort) => return Poll::Ready(Ok(())),
                Ok(_) => {}
                // nsqd may have said why before it closed the connection.
                Err(error) => self.failure = Some((error, now + LINGER)),
            }
        }
        match self.failure.take_if(|(_, until)| now >= *until) {
            Some((failure, _)) => Poll::Ready(Err(failure)),
            None => match self.failure {
                Some((_, until)) => self.poll_failure(cx, until),
                None => self.poll_timer(cx),
            },
        }
    }

    /// Returns true when the handshake is over.
    fn shake_hands(&mut self) -> Result<bool, ConnectionError> {
        while !self.protocol.is_open() && self.protocol.next_event()?.is_some() {}
        Ok(self.protocol.is_open())
    }

    /// Gives the recipient all events of the received bytes.
    fn deliver(&mut self, recipient: &mut dyn Recipient) -> Result<(), ConnectionError> {
        let mut is_first = true;
        let delivered = loop {
            let taken = match self.protocol.next_event() {
                Ok(None) => break Ok(()),
                Ok(Some(Event::Messages(batch))) => recipient.messages(batch),
                Ok(Some(Event::Response(data))) => recipient.response(data),
                Ok(Some(Event::Error(error))) => recipient.error(error),
                Ok(Some(Event::Opened)) => unreachable!("a connection opens once"),
                Err(error) => Err(error),
            };
            is_first = false;
            if taken.is_err() {
                break taken;
            }
        };
        if is_first {
            delivered
        } else {
            delivered.and(recipient.read_done())
        }
    }

    /// Writes until the stream takes no more or there is nothing left. Then the task is woken up for more.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        is_open: bool,
    ) -> Result<Request, ConnectionError> {
        let mut request = Request::Open;
        loop {
            if is_open && self.unsent == 0 {
                request = self.outbox.take(cx, &mut self.commands);
                self.unsent = self.commands.len() as u64;
                self.protocol.send(&mut self.commands);
            }
            let bytes = self.protocol.unsent(now.into_std())?;
            if bytes.is_empty() {
                return match self.poll_end(cx, now, request)? {
                    // The end marks of upgrades are written too.
                    Poll::Ready(()) => continue,
                    Poll::Pending => Ok(request),
                };
            }
            match Pin::new(&mut self.stream).poll_write(cx, bytes) {
                Poll::Pending => return Ok(self.outbox.watch(cx)),
                Poll::Ready(Ok(0)) => {
                    return Err(ConnectionError::Write(io::ErrorKind::WriteZero.into()));
                }
                Poll::Ready(Ok(taken)) => {
                    self.is_unflushed = true;
                    self.protocol.sent(taken, now.into_std());
                    // TLS or the compression may hold commands that are not a part of these bytes.
                    if self.unsent > 0 && self.protocol.are_commands_sent() {
                        self.outbox.count_sent(std::mem::take(&mut self.unsent));
                    }
                }
                Poll::Ready(Err(error)) => return Err(ConnectionError::Write(error)),
            }
        }
    }

    /// Flushes the stream, all of whose bytes are written. Ends the client's side if the owner asks for it. Ready means
    /// that there is more to write.
    fn poll_end(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        request: Request,
    ) -> Result<Poll<()>, ConnectionError> {
        if self.is_unflushed {
            match Pin::new(&mut self.stream).poll_flush(cx) {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(Ok(())) => self.is_unflushed = false,
                Poll::Ready(Err(error)) => return Err(ConnectionError::Write(error)),
            }
        }
        match self.ending {
            Ending::None if request == Request::Close => {
                self.protocol.end();
                self.ending = Ending::ShutDown;
                Ok(Poll::Ready(()))
            }
            Ending::ShutDown => {
                match Pin::new(&mut self.stream).poll_shutdown(cx) {
                    Poll::Pending => {}
                    Poll::Ready(Ok(())) => self.ending = Ending::Linger(now + LINGER),
                    Poll::Ready(Err(error)) => return Err(ConnectionError::Write(error)),
                }
                Ok(Poll::Pending)
            }
            Ending::None | Ending::Linger(_) => Ok(Poll::Pending),
        }
    }

    /// Returns the result of a connection that nsqd has ended, or the system.
    fn end_with(&mut self, error: ConnectionError) -> Result<(), ConnectionError> {
        match (self.failure.take(), self.ending) {
            (_, Ending::Linger(_)) => Ok(()),
            (Some((failure, _)), _) => Err(failure),
            (None, _) => Err(error),
        }
    }

    /// Ready at this time with the reason why writing failed. Until then, what nsqd has said may still be on its way
    /// here: the runtime learns of it later than a write fails.
    fn poll_failure(
        &mut self,
        cx: &mut Context<'_>,
        until: Instant,
    ) -> Poll<Result<(), ConnectionError>> {
        if self.outbox.watch(cx) == Request::Abort {
            return Poll::Ready(Ok(()));
        }
        self.timer.as_mut().reset(until);
        match (self.timer.as_mut().poll(cx), self.failure.take()) {
            (Poll::Ready(()), Some((failure, _))) => Poll::Ready(Err(failure)),
            (_, failure) => {
                self.failure = failure;
                Poll::Pending
            }
        }
    }

    /// Ready when the connection has been silent or blocked for too long, or has lingered for long enough.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        let linger = match self.ending {
            Ending::Linger(until) => Some(until),
            Ending::None | Ending::ShutDown => None,
        };
        let deadline = self.protocol.deadline().map(Instant::from_std);
        let Some(wake_at) = [linger, deadline].into_iter().flatten().min() else {
            return Poll::Pending;
        };
        // A timer that ends too early costs less than one that is moved at each read.
        if wake_at < self.timer.deadline() {
            self.timer.as_mut().reset(wake_at);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if linger.is_some_and(|until| now >= until) {
                return Poll::Ready(Ok(()));
            }
            self.protocol.handle_timeout(now.into_std())?;
            self.timer.as_mut().reset(wake_at);
        }
        Poll::Pending
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.outbox.lose();
    }
}

#[cfg(test)]
#[cfg(feature = "tls")]
mod tests;
