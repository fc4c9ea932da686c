//! [`HttpIo`]: any futures-style stream as hyper wants it.
//!
//! hyper reads into memory that may be uninitialised, which a safe adapter cannot hand to
//! `AsyncRead`. So it reads into a buffer of its own and copies; HTTP is not the message path.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_lite::{AsyncRead, AsyncWrite};
use hyper::rt::ReadBufCursor;

/// Bytes per read. A keep-alive connection holds them as long as it lives.
const READ_BYTES: usize = 8 * 1024;

/// hyper's `Read` and `Write` over `AsyncRead` and `AsyncWrite`.
#[derive(Debug)]
pub struct HttpIo<S> {
    stream: S,
    buffer: Box<[u8]>,
}

impl<S> HttpIo<S> {
    /// Wraps a stream.
    pub fn new(stream: S) -> HttpIo<S> {
        HttpIo {
            stream,
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
        }
    }
}

impl<S: AsyncRead + Unpin> hyper::rt::Read for HttpIo<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut target: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let wanted = target.remaining().min(this.buffer.len());
        let buffer = &mut this.buffer[..wanted];
        let count = ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        target.put_slice(&buffer[..count]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> hyper::rt::Write for HttpIo<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_close(context)
    }
}
