//! [`HttpStream`]: the transport of an HTTP connection, with the deadlines of its waits.

use crate::net::socket::Stream;
use crate::net::transport::{MovingTransport, Transport};
use crate::net::upgraded::HandshakeError;
use crate::net::written::Taken;
use crate::reactor::Alarm;
use futures_lite::{AsyncRead, AsyncWrite, future};
use program::http::{Awaited, Deadline, HttpTimeouts, Io};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;
use upgrade::{ServerConfig, Upgrade};

/// The first bytes by which Go's server tells an HTTP request from TLS.
const REQUEST_STARTS: [&[u8]; 5] = [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO"];

/// A stream of an HTTP connection.
pub(crate) struct HttpStream {
    transport: Transport,
    deadline: Deadline<Alarm>,
    /// A write has failed. TLS may have encoded bytes of it, so the connection takes no other bytes.
    has_failed: bool,
}

impl HttpStream {
    /// Plain HTTP.
    pub(crate) fn plain(stream: Stream, timeouts: HttpTimeouts) -> HttpStream {
        HttpStream {
            transport: Transport::new(stream),
            deadline: Deadline::new(timeouts, Alarm::new()),
            has_failed: false,
        }
    }

    /// Makes the stream HTTPS, and returns when the handshake is over. If the handshake fails, `self` can still tell
    /// the peer something in the clear.
    pub(crate) async fn secure(
        &mut self,
        config: &Arc<ServerConfig>,
    ) -> Result<(), HandshakeError> {
        let upgrade = Upgrade::tls_server(config).map_err(HandshakeError::Refused)?;
        self.transport.upgrade(upgrade, &[])?;
        self.deadline.begin(Awaited::Handshake);
        let mut is_first = true;
        while self.transport.is_handshaking() {
            let look = |wire: &[u8]| {
                let is_request = REQUEST_STARTS.iter().any(|start| wire.starts_with(start));
                if std::mem::replace(&mut is_first, false) && is_request {
                    Err(HandshakeError::PlainHttp)
                } else {
                    Ok(())
                }
            };
            let mut look = Some(look);
            let step = future::poll_fn(|cx| match look.take() {
                Some(look) => match self.transport.poll_handshake(cx, look) {
                    Poll::Pending => self.deadline.poll_input(cx).map_err(HandshakeError::from),
                    step => step,
                },
                None => Poll::Ready(Ok(())),
            })
            .await;
            // TLS has an answer also to what it refuses, and that is the error to report.
            let flushed = future::poll_fn(|cx| self.poll_flush_encoded(cx)).await;
            if let Err(error) = step {
                self.transport.clear();
                return Err(error);
            }
            flushed?;
        }
        Ok(())
    }

    /// The stream that another shard gave away.
    pub(crate) fn adopt(moving: MovingTransport, timeouts: HttpTimeouts) -> HttpStream {
        HttpStream {
            transport: Transport::adopt(moving),
            deadline: Deadline::new(timeouts, Alarm::new()),
            has_failed: false,
        }
    }

    /// Packs the stream for another shard, which adopts it.
    pub(crate) fn into_moving(self) -> MovingTransport {
        self.transport.into_moving()
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.transport.was_upgraded()
    }

    /// The wait for the peer that took too long, if reading or writing has failed by that.
    pub(crate) fn missed(&self) -> Option<Awaited> {
        self.deadline.missed()
    }

    /// Writes what is encoded, which comes from TLS itself: the bytes of an answer leave in `poll_write`.
    fn poll_flush_encoded(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.transport.has_unsent() {
            ready!(self.poll_send(cx, &[]))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes once, when the socket has room and the others have had their turn. After an error, every write fails.
    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.transport.stream().poll_budget(cx));
        if self.has_failed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let sent = self.poll_send_once(cx, bytes);
        self.has_failed = matches!(sent, Poll::Ready(Err(_)));
        sent
    }

    fn poll_send_once(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.transport.send(&[IoSlice::new(bytes)])?;
        if written.taken == Taken::Nothing {
            self.transport.stream().wait_writable(cx);
            return self.deadline.poll_room(cx);
        }
        self.transport.stream().count_work(written.left);
        self.deadline.count_bytes(written.left);
        Poll::Ready(Ok(written.left))
    }
}

impl program::http::Alarm for Alarm {
    fn poll(&mut self, cx: &mut Context<'_>, now: Instant, end: Instant) -> Poll<()> {
        Alarm::poll(self, cx, now, end)
    }
}

impl Io for HttpStream {
    fn begin(&mut self, awaited: Awaited) {
        self.deadline.begin(awaited);
    }
}

impl AsyncRead for HttpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let read = self.transport.poll_read(cx, buffer);
        match read {
            Poll::Pending => self.deadline.poll_input(cx),
            Poll::Ready(Ok(bytes)) => {
                self.deadline.count_bytes(bytes);
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        }
    }
}

impl AsyncWrite for HttpStream {
    /// Writes until a part of `bytes` has left. The rest must be written next.
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match ready!(self.poll_send(cx, bytes))? {
                // Only what TLS itself has to say has left.
                0 if !bytes.is_empty() => {}
                left => return Poll::Ready(Ok(left)),
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush_encoded(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.transport.end();
        ready!(self.poll_flush_encoded(cx))?;
        Poll::Ready(self.transport.stream().shut_down())
    }
}

#[cfg(test)]
mod tests;
