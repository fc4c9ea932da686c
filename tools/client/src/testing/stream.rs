//! [`Cut`]: where a connection breaks. [`CutStream`]: a client's side of a connection that breaks there.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

/// The bytes after which a connection breaks, counted from its beginning. The default never breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The bytes from the client that the server receives.
    pub sent: u64,
    /// The bytes behind these that the client can still write. They are lost on the way.
    pub lost: u64,
    /// The bytes from the server that the client receives.
    pub received: u64,
}

impl Default for Cut {
    fn default() -> Cut {
        Cut {
            sent: u64::MAX,
            lost: 0,
            received: u64::MAX,
        }
    }
}

/// The client's side of a connection in memory.
#[derive(Debug)]
pub(super) struct CutStream {
    inner: DuplexStream,
    left: Cut,
    is_broken: bool,
}

impl CutStream {
    pub(super) fn new(inner: DuplexStream, cut: Cut) -> CutStream {
        CutStream {
            inner,
            left: cut,
            is_broken: false,
        }
    }

    fn break_off(&mut self) -> io::Error {
        self.is_broken = true;
        io::ErrorKind::ConnectionReset.into()
    }
}

impl AsyncRead for CutStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.is_broken || this.left.received == 0 {
            return Poll::Ready(Err(this.break_off()));
        }
        if this.left.received == u64::MAX {
            return Pin::new(&mut this.inner).poll_read(cx, buf);
        }
        let mut scratch = [0; 4096];
        let left = usize::try_from(this.left.received).unwrap_or(usize::MAX);
        let most = left.min(buf.remaining()).min(scratch.len());
        let mut part = ReadBuf::new(&mut scratch[..most]);
        ready!(Pin::new(&mut this.inner).poll_read(cx, &mut part))?;
        buf.put_slice(part.filled());
        this.left.received -= part.filled().len() as u64;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for CutStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let most = |left: u64| usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        if this.is_broken || this.left.sent == 0 && this.left.lost == 0 {
            return Poll::Ready(Err(this.break_off()));
        }
        if this.left.sent == 0 {
            let vanished = most(this.left.lost);
            this.left.lost -= vanished as u64;
            return Poll::Ready(Ok(vanished));
        }
        let piece = &bytes[..most(this.left.sent)];
        let written = ready!(Pin::new(&mut this.inner).poll_write(cx, piece))?;
        this.left.sent -= written as u64;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
