//! [`WriteLimited`]: a connection that ends when its client takes nothing for too long.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// A stream whose writes fail with [`io::ErrorKind::TimedOut`] when one waits too long.
#[derive(Debug)]
pub(crate) struct WriteLimited<S> {
    stream: S,
    limit: Option<Duration>,
    /// The end of the present wait for room.
    wait: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteLimited<S> {
    /// Returns a stream with this limit. `None` is no limit.
    pub(crate) fn new(stream: S, limit: Option<Duration>) -> WriteLimited<S> {
        WriteLimited {
            stream,
            limit,
            wait: None,
        }
    }

    /// Returns the result of a write, or the failure of one that waits for too long.
    fn checked<T>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let (Poll::Pending, Some(limit)) = (&result, self.limit) else {
            self.wait = None;
            return result;
        };
        let wait = self.wait.get_or_insert_with(|| Box::pin(sleep(limit)));
        match wait.as_mut().poll(cx) {
            Poll::Ready(()) => {
                wait.as_mut().reset(Instant::now() + limit);
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteLimited<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteLimited<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.checked(cx, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.checked(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.checked(cx, result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test(start_paused = true)]
    async fn only_a_client_that_takes_nothing_is_cut_off() {
        let limit = Duration::from_secs(10);
        let (near, mut far) = duplex(4);
        let mut near = WriteLimited::new(near, Some(limit));
        let slow = tokio::spawn(async move {
            let mut buffer = [0; 4];
            for _ in 0..3 {
                sleep(Duration::from_secs(9)).await;
                far.read_exact(&mut buffer).await.unwrap();
            }
            // Holds the stream open and reads no more.
            sleep(Duration::from_secs(60)).await;
        });
        near.write_all(&[1; 12]).await.unwrap();
        let error = near.write_all(&[1; 12]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        slow.await.unwrap();
    }
}
