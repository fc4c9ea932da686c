//! [`HttpStream`]: what carries an HTTP connection, a socket or TLS over one.

use super::deadline::Deadline;
use crate::net::layered::{HandshakeError, Layered};
use crate::net::socket::Stream;
use crate::process::HttpTimeouts;
use futures_lite::{AsyncRead, AsyncWrite, future};
use program::http::{Awaited, Io};
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use upgrade::{Layer, ServerConfig};

/// How requests begin, as Go's server tells them from TLS.
const REQUEST_STARTS: [&[u8]; 5] = [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO"];

/// A stream of an HTTP connection.
pub(crate) struct HttpStream {
    stream: Stream,
    layered: Option<Box<Layered>>,
    deadline: Deadline,
}

impl HttpStream {
    /// Plain HTTP.
    pub(crate) fn plain(stream: Stream, timeouts: HttpTimeouts) -> HttpStream {
        HttpStream {
            stream,
            layered: None,
            deadline: Deadline::new(timeouts),
        }
    }

    /// HTTPS, once the handshake is over. `self` can still tell the peer something in the clear when
    /// that fails.
    pub(crate) async fn secure(
        &mut self,
        config: &Arc<ServerConfig>,
    ) -> Result<(), HandshakeError> {
        let layer = Layer::tls_server(config).map_err(HandshakeError::Refused)?;
        let layered = self.layered.get_or_insert_default();
        layered.push(layer);
        self.deadline.begin(Awaited::Handshake);
        let mut is_first = true;
        while self
            .layered
            .as_ref()
            .is_some_and(|layered| layered.is_handshaking())
        {
            let look = |wire: &[u8]| match std::mem::replace(&mut is_first, false) {
                true if REQUEST_STARTS.iter().any(|start| wire.starts_with(start)) => {
                    Err(HandshakeError::PlainHttp)
                }
                _ => Ok(()),
            };
            let mut look = Some(look);
            let step = future::poll_fn(|cx| match (&mut self.layered, look.take()) {
                (Some(layered), Some(look)) => {
                    match layered.poll_handshake(&self.stream, cx, look) {
                        Poll::Pending => self.deadline.poll_input(cx).map_err(HandshakeError::from),
                        step => step,
                    }
                }
                _ => Poll::Ready(Ok(())),
            })
            .await;
            // TLS has an answer also to what it refuses, and that is the error to report.
            let flushed = future::poll_fn(|cx| self.poll_flush_wire(cx)).await;
            if let Err(error) = step {
                if let Some(layered) = &mut self.layered {
                    layered.clear();
                }
                return Err(error);
            }
            flushed?;
        }
        Ok(())
    }

    /// Of what another shard gave away.
    pub(crate) fn adopt(
        descriptor: OwnedFd,
        layered: Option<Box<Layered>>,
        timeouts: HttpTimeouts,
    ) -> HttpStream {
        HttpStream {
            stream: Stream::adopt(descriptor),
            layered,
            deadline: Deadline::new(timeouts),
        }
    }

    /// For another shard to adopt.
    pub(crate) fn into_parts(self) -> (OwnedFd, Option<Box<Layered>>) {
        (self.stream.into_descriptor(), self.layered)
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.layered.is_some()
    }

    /// The wait for the peer that took too long, if reading or writing has failed by that.
    pub(crate) fn missed(&self) -> Option<Awaited> {
        self.deadline.missed()
    }

    fn poll_flush_wire(&mut self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let Some(layered) = &mut self.layered else {
            return Poll::Ready(Ok(()));
        };
        while !layered.unsent().is_empty() {
            let written = self.stream.poll_write(cx, layered.unsent());
            let bytes = ready!(note_written(&mut self.deadline, cx, written))?;
            layered.note_sent(bytes);
        }
        Poll::Ready(Ok(()))
    }
}

/// Counts the result of a write towards the deadline.
fn note_written(
    deadline: &mut Deadline,
    cx: &Context<'_>,
    written: Poll<io::Result<usize>>,
) -> Poll<io::Result<usize>> {
    match written {
        Poll::Pending => deadline.poll_room(cx),
        Poll::Ready(Ok(bytes)) => {
            deadline.note(bytes);
            written
        }
        Poll::Ready(Err(_)) => written,
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
        let HttpStream {
            stream,
            layered,
            deadline,
        } = &mut *self;
        let read = match layered {
            None => Stream::poll_read(stream, cx, buffer),
            Some(layered) => layered.poll_read(stream, cx, buffer),
        };
        match read {
            Poll::Pending => deadline.poll_input(cx),
            Poll::Ready(Ok(bytes)) => {
                deadline.note(bytes);
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        }
    }
}

impl AsyncWrite for HttpStream {
    /// With TLS what was taken is sealed, and leaves as far as the socket takes it: the rest leaves
    /// with what is written next, or by flushing.
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush_wire(cx))?;
        let HttpStream {
            stream,
            layered,
            deadline,
        } = &mut *self;
        let Some(layered) = layered else {
            let written = Stream::poll_write(stream, cx, bytes);
            return note_written(deadline, cx, written);
        };
        let sealed = layered.seal(&[IoSlice::new(bytes)])?;
        match self.poll_flush_wire(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(sealed)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush_wire(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(layered) = &mut self.layered {
            layered.end();
        }
        ready!(self.poll_flush_wire(cx))?;
        Pin::new(&mut self.stream).poll_close(cx)
    }
}
