//! [`Connection`]: a stream, what was read of it and not used yet, and what is written to it.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;

use futures_lite::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::date::Date;
use super::head::{self, Head};
use super::reply::{Exchange, Refusal, Reply};

/// Bytes per read while nothing is known of what comes. A keep-alive connection holds them as long
/// as it lives.
const BUFFER_BYTES: usize = 8 * 1024;

/// The first piece of memory for a longer body. It doubles with what has come, so that announcing
/// a long body costs nobody anything.
const BODY_BYTES_FIRST: usize = 64 * 1024;

/// Answers up to here leave their memory to the next one.
const OUTPUT_BYTES_KEPT: usize = 16 * 1024;

/// After so many reads and answers the other tasks of the thread have their turn. Input that comes as
/// fast as it is used never makes this one wait.
const STEPS_AT_ONCE: u32 = 16;

/// Bytes that are taken off a connection which is closed before its request was read. Closing a
/// socket with unread bytes makes the kernel reset it, and the reset can overtake the answer.
const LINGER_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The stream of a connection: a socket, or a test's bytes.
pub trait Io: AsyncRead + AsyncWrite + Unpin {
    /// Says what is waited for from now on. Reading and writing fail with [`io::ErrorKind::TimedOut`] when that
    /// takes too long.
    fn begin(&mut self, awaited: Awaited);
}

/// Something that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The end of the TLS handshake.
    Handshake,
    /// The first byte of a request.
    Request,
    /// The rest of a request's head.
    Head,
    /// More of a request's body.
    Body,
    /// Room for more of an answer.
    Room,
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Awaited::Handshake => "in the TLS handshake",
            Awaited::Request => "without a request",
            Awaited::Head => "in the head of a request",
            Awaited::Body => "in the body of a request",
            Awaited::Room => "in an answer that the client does not read",
        })
    }
}

/// One connection, between requests or in one.
///
/// `start <= end <= buffer.len()`: the bytes from `start` to `end` are unread.
#[derive(Debug)]
pub struct Connection<S> {
    stream: S,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    output: Vec<u8>,
    date: Date,
    steps: u32,
}

/// Why there is no request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoRequest {
    /// The peer has ended, in the middle or not, or the connection is broken.
    Ended,
    /// What came is none, which is answered by this.
    Refused(Refusal),
}

impl<S: Io> Connection<S> {
    /// Returns a connection on a stream; `unread` are bytes that were read elsewhere and not used.
    pub fn new(stream: S, unread: &[u8]) -> Connection<S> {
        let mut buffer = unread.to_vec();
        buffer.resize(unread.len().max(BUFFER_BYTES), 0);
        Connection {
            stream,
            buffer,
            start: 0,
            end: unread.len(),
            output: Vec::new(),
            date: Date::default(),
            steps: 0,
        }
    }

    /// The stream of the connection.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Returns the stream, and the bytes that were read and not used.
    pub fn into_parts(mut self) -> (S, Vec<u8>) {
        self.buffer.truncate(self.end);
        self.buffer.drain(..self.start);
        (self.stream, self.buffer)
    }

    /// The bytes that were read and not used.
    pub fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Takes bytes off the front of what was read; panics if there are fewer.
    pub(super) fn take(&mut self, count: usize) -> &[u8] {
        assert!(count <= self.end - self.start);
        let taken = self.start..self.start + count;
        self.start = taken.end;
        &self.buffer[taken]
    }

    /// Reads once, behind what is unread. Returns how much; 0 is the end.
    pub(super) async fn fill(&mut self) -> io::Result<usize> {
        self.take_turns().await;
        self.make_room();
        let room = &mut self.buffer[self.end..];
        let stream = &mut self.stream;
        let count = poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, room)).await?;
        self.end += count;
        Ok(count)
    }

    /// The callers leave less than a head's limit unread.
    fn make_room(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.buffer.len() > BUFFER_BYTES {
                self.buffer = vec![0; BUFFER_BYTES];
            }
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.end > self.buffer.len() / 2 {
                let doubled = self.buffer.len() * 2;
                self.buffer.resize(doubled.min(head::HEAD_BYTES_MAX), 0);
            }
        }
    }

    /// Appends to `bytes` until there are `count`.
    pub(super) async fn read_to(&mut self, bytes: &mut Vec<u8>, count: usize) -> io::Result<()> {
        let read = count.saturating_sub(bytes.len()).min(self.unread().len());
        bytes.reserve_exact(read);
        bytes.extend_from_slice(self.take(read));
        let mut filled = bytes.len();
        let result = loop {
            let left = count - filled;
            if left == 0 {
                break Ok(());
            }
            let read = if left < BUFFER_BYTES {
                // With room for more than is left, the read shows that nothing else is there.
                self.fill_and_copy(bytes, &mut filled, left).await
            } else {
                if filled == bytes.len() {
                    bytes.resize(count.min((2 * filled).max(BODY_BYTES_FIRST)), 0);
                }
                self.take_turns().await;
                let (stream, target) = (&mut self.stream, &mut bytes[filled..]);
                let read = poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, target)).await;
                filled += *read.as_ref().unwrap_or(&0);
                read
            };
            match read {
                Ok(0) => break Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) => break Err(error),
            }
        };
        bytes.truncate(filled);
        result
    }

    async fn fill_and_copy(
        &mut self,
        bytes: &mut Vec<u8>,
        filled: &mut usize,
        left: usize,
    ) -> io::Result<usize> {
        let read = self.fill().await?;
        let taken = self.take(read.min(left));
        bytes.truncate(*filled);
        bytes.extend_from_slice(taken);
        *filled = bytes.len();
        Ok(read)
    }

    /// Writes all of it.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Writes an answer.
    pub(super) async fn answer(&mut self, reply: &Reply, exchange: Exchange) -> io::Result<()> {
        self.take_turns().await;
        reply.write(&mut self.output, exchange, self.date.now());
        let result = self.stream.write_all(&self.output).await;
        self.output.clear();
        self.output.shrink_to(OUTPUT_BYTES_KEPT);
        result?;
        self.stream.flush().await
    }

    /// Writes an answer to what is no request.
    pub(super) async fn refuse(&mut self, refusal: Refusal) -> io::Result<()> {
        let mut output = Vec::new();
        refusal.write(&mut output);
        self.stream.write_all(&output).await
    }

    async fn take_turns(&mut self) {
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(STEPS_AT_ONCE) {
            futures_lite::future::yield_now().await;
        }
    }

    /// Reads up to the end of the next request's head.
    pub(super) async fn next_head(&mut self) -> Result<Head, NoRequest> {
        let mut parsed_bytes = 0;
        let mut awaited = Awaited::Request;
        self.stream.begin(awaited);
        loop {
            if parsed_bytes == 0 {
                self.start += head::empty_lines(self.unread());
            }
            // A head that trickles in is looked at again when it may be complete, not before.
            let is_first_look = parsed_bytes == 0 && !self.unread().is_empty();
            if is_first_look || head::may_end(self.unread(), parsed_bytes) {
                let parsed = head::parse(self.unread());
                if let Some((head, count)) = parsed.map_err(NoRequest::Refused)? {
                    self.take(count);
                    self.stream.begin(Awaited::Body);
                    return Ok(head);
                }
            }
            parsed_bytes = self.unread().len();
            if parsed_bytes >= head::HEAD_BYTES_MAX {
                return Err(NoRequest::Refused(Refusal::LONG_HEAD));
            }
            if parsed_bytes > 0 && awaited == Awaited::Request {
                awaited = Awaited::Head;
                self.stream.begin(awaited);
            }
            match self.fill().await {
                Ok(1..) => {}
                Ok(0) if parsed_bytes > 0 => {
                    return Err(NoRequest::Refused(Refusal::MALFORMED));
                }
                Ok(0) | Err(_) => return Err(NoRequest::Ended),
            }
        }
    }

    /// Ends the output, and takes what the peer still sends if it may not have seen the answer yet.
    pub(super) async fn close(&mut self, has_left_unread: bool) {
        self.stream.begin(Awaited::Body);
        // A failure means that the peer is gone, which is what is wanted.
        if self.stream.close().await.is_err() {
            return;
        }
        let mut left_bytes = if has_left_unread { LINGER_BYTES_MAX } else { 0 };
        while left_bytes > 0 {
            self.start = self.end;
            match self.fill().await {
                Ok(0) | Err(_) => return,
                Ok(count) => left_bytes = left_bytes.saturating_sub(count as u64),
            }
        }
    }
}
