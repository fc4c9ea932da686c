//! [`Connection`]: a stream with its unread input and its output.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;

use futures_lite::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::date::Date;
use super::head::{self, Head};
use super::host_names::HostNames;
use super::reply::{Exchange, Refusal, Reply};

/// Bytes per read while the length of the input is unknown. A keep-alive connection holds this
/// buffer all its life.
const BUFFER_BYTES: usize = 8 * 1024;

/// First size of the memory for a longer body, in bytes. The memory doubles with the bytes that
/// arrive, so a peer that only announces a long body costs no memory.
const BODY_BYTES_FIRST: usize = 64 * 1024;

/// Largest answer whose memory is kept for the next answer, in bytes.
const OUTPUT_BYTES_KEPT: usize = 16 * 1024;

/// Number of reads and answers after which the other tasks of the thread run. Without it, a
/// connection whose input arrives as fast as it is used would never yield.
const STEPS_AT_ONCE: u32 = 16;

/// Most bytes that are read from a connection which is closed before its request was read. The
/// kernel resets a socket that is closed with unread bytes, and the reset can overtake the answer.
const LINGER_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The stream of a connection: a socket, or the bytes of a test.
pub trait Io: AsyncRead + AsyncWrite + Unpin {
    /// Sets what the connection waits for from now on. Reading and writing fail with
    /// [`io::ErrorKind::TimedOut`] when the wait takes too long.
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
    /// Space for more of an answer.
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

/// One connection, between requests or within a request.
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

/// The reason why there is no request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoRequest {
    /// The peer has ended the connection, or the connection is broken.
    Ended,
    /// The input is not a request. This is the answer.
    Refused(Refusal),
}

impl<S: Io> Connection<S> {
    /// Returns a connection on a stream. `unread` are bytes that were read elsewhere and not used.
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

    /// Returns the stream of the connection.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Returns the stream and the unread bytes.
    pub fn into_parts(mut self) -> (S, Vec<u8>) {
        self.buffer.truncate(self.end);
        self.buffer.drain(..self.start);
        (self.stream, self.buffer)
    }

    /// Returns the unread bytes.
    pub fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Removes bytes from the front of the unread bytes. Panics if there are fewer.
    pub(super) fn take(&mut self, count: usize) -> &[u8] {
        assert!(count <= self.end - self.start);
        let taken = self.start..self.start + count;
        self.start = taken.end;
        &self.buffer[taken]
    }

    /// Reads once and appends to the unread bytes. Returns the number of new bytes; 0 means the
    /// end.
    pub(super) async fn fill(&mut self) -> io::Result<usize> {
        self.take_turns().await;
        self.make_room();
        let room = &mut self.buffer[self.end..];
        let stream = &mut self.stream;
        let count = poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, room)).await?;
        self.end += count;
        Ok(count)
    }

    /// Makes room in the buffer. The callers leave fewer unread bytes than the limit of a head.
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

    /// Appends input to `bytes` until there are `count` bytes.
    pub(super) async fn read_to(&mut self, bytes: &mut Vec<u8>, count: usize) -> io::Result<()> {
        let read = count.saturating_sub(bytes.len()).min(self.unread().len());
        bytes.reserve_exact(read);
        bytes.extend_from_slice(self.take(read));
        let mut filled = bytes.len();
        let result = loop {
            if filled == count {
                break Ok(());
            }
            if filled == bytes.len() {
                bytes.resize(count.min((2 * filled).max(BODY_BYTES_FIRST)), 0);
            }
            self.take_turns().await;
            let (stream, target) = (&mut self.stream, &mut bytes[filled..]);
            match poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, target)).await {
                Ok(0) => break Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => filled += read,
                Err(error) => break Err(error),
            }
        };
        bytes.truncate(filled);
        result
    }

    /// Writes all of `bytes`.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Writes an answer. `reply` has no further parts after that.
    pub(super) async fn answer(&mut self, reply: &mut Reply, exchange: Exchange) -> io::Result<()> {
        self.take_turns().await;
        reply.write(&mut self.output, exchange, self.date.now());
        loop {
            let result = self.stream.write_all(&self.output).await;
            self.output.clear();
            result?;
            if !reply.write_rest(&mut self.output, exchange).await {
                break;
            }
            // Making a part takes time.
            futures_lite::future::yield_now().await;
        }
        self.output.shrink_to(OUTPUT_BYTES_KEPT);
        self.stream.flush().await
    }

    /// Writes the answer to input that is not a request.
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

    /// Reads up to the end of the next request's head. `names` are those of [`head::parse`].
    pub(super) async fn next_head(&mut self, names: Option<&HostNames>) -> Result<Head, NoRequest> {
        let mut parsed_bytes = 0;
        let mut awaited = Awaited::Request;
        self.stream.begin(awaited);
        loop {
            // A read can end inside an empty line.
            let empty_bytes = head::empty_lines(self.unread());
            if empty_bytes > 0 {
                self.start += empty_bytes;
                parsed_bytes = 0;
                awaited = Awaited::Request;
                self.stream.begin(awaited);
            }
            // A head that arrives in pieces is parsed again only when it may be complete.
            let is_first_look = parsed_bytes == 0 && !self.unread().is_empty();
            if is_first_look || head::may_end(self.unread(), parsed_bytes) {
                let parsed = head::parse(self.unread(), names);
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

    /// Ends the output. Reads and discards further input if the peer may not have seen the answer
    /// yet.
    pub(super) async fn close(&mut self, has_left_unread: bool) {
        self.stream.begin(Awaited::Body);
        // A failure means that the peer is gone, which is the goal.
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
