//! [`HttpStream`]: a stream of tokio, with or without TLS, as the HTTP server wants it, with the
//! deadlines of its waits.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use futures_lite::{AsyncRead, AsyncWrite};
use program::http::{Alarm, Awaited, Deadline, HttpTimeouts, Io};
use tokio::io::ReadBuf;
use tokio::time::Sleep;

/// A socket, or TLS on a socket.
pub(crate) trait Stream:
    tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin
{
}

impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Stream for S {}

/// A stream of an HTTP connection.
pub(crate) struct HttpStream<S> {
    socket: S,
    deadline: Deadline<Timer>,
}

impl<S> HttpStream<S> {
    pub(crate) fn new(socket: S, timeouts: HttpTimeouts) -> HttpStream<S> {
        HttpStream {
            socket,
            deadline: Deadline::new(timeouts, Timer { sleep: None }),
        }
    }

    /// Returns the wait for the peer that took too long, if one did.
    pub(crate) fn missed(&self) -> Option<Awaited> {
        self.deadline.missed()
    }
}

/// A timer of tokio.
struct Timer {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Alarm for Timer {
    fn poll(&mut self, cx: &mut Context<'_>, now: Instant, end: Instant) -> Poll<()> {
        if now >= end {
            return Poll::Ready(());
        }
        // A timer that is set for an earlier time wakes the task, which then asks again.
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end.into())));
        if sleep.is_elapsed() || sleep.deadline() > end.into() {
            sleep.as_mut().reset(end.into());
        }
        match sleep.as_mut().poll(cx) {
            // The end has moved since the timer was set.
            Poll::Ready(()) => {
                sleep.as_mut().reset(end.into());
                sleep.as_mut().poll(cx)
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: Stream> Io for HttpStream<S> {
    fn begin(&mut self, awaited: Awaited) {
        self.deadline.begin(awaited);
    }
}

impl<S: Stream> AsyncRead for HttpStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        match Pin::new(&mut self.socket).poll_read(cx, &mut buffer) {
            Poll::Pending => self.deadline.poll_input(cx),
            Poll::Ready(Ok(())) => {
                let count = buffer.filled().len();
                self.deadline.count_bytes(count);
                Poll::Ready(Ok(count))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        }
    }
}

impl<S: Stream> AsyncWrite for HttpStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.socket).poll_write(cx, bytes) {
            Poll::Pending => self.deadline.poll_room(cx),
            Poll::Ready(Ok(count)) => {
                self.deadline.count_bytes(count);
                Poll::Ready(Ok(count))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
