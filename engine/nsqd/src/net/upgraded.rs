//! [`Upgraded`]: TLS and compression between a socket and its reader and writer.
//!
//! ```text
//!   socket ──► unopened ──► upgrades ──► room of the reader        only what fits is opened
//!   socket ◄──   wire   ◄── upgrades ◄── output of the writer      sealed when the socket took the rest
//! ```
//!
//! Both sides are bounded: of what came, the connection keeps one read's worth at most, and of what
//! leaves, one piece. All of it moves with the connection.

use crate::net::socket::{Stream, Taken, Written};
use crate::reactor::BYTES_PER_POLL;
use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};
use upgrade::{UpgradeError, Upgrades};

/// The most bytes that one read brings. A full read is all the work of one poll, because opening bytes takes several
/// times as long as reading them.
const WIRE_BYTES: usize = 32 * 1024;

/// The additional bytes of work for each byte of a read.
const WORK_PER_BYTE: usize = BYTES_PER_POLL / WIRE_BYTES - 1;

/// The most bytes that are opened at once. A few bytes of compressed input may be many bytes of a large command.
const OPENED_BYTES_MAX: usize = BYTES_PER_POLL;

/// The most bytes that are sealed at once. A peer that does not read makes us keep them in addition to its output.
const SEALED_BYTES_MAX: usize = 64 * 1024;

/// Pieces of output that are sealed at once, or go into one write. The kernel takes 1024.
pub(crate) const SLICES_MAX: usize = 64;

thread_local! {
    /// The buffer into which all sockets of a shard are read, one after the other: a shard is one thread.
    static WIRE: RefCell<Box<[u8]>> = RefCell::new(vec![0; WIRE_BYTES].into_boxed_slice());
}

/// The upgrades of a connection, from the first one on.
#[derive(Default)]
pub(super) struct Upgraded {
    pub(super) upgrades: Upgrades,
    /// Received, and not opened: there was no room, or the handshake has just ended.
    unopened: Vec<u8>,
    /// Bytes of the output that are sealed and have not left.
    sealed: usize,
}

impl Upgraded {
    /// Reads once for the handshake, and shows what came to `look` before. What TLS has to answer is
    /// then to be sent, also after an error.
    ///
    /// # Errors
    /// [`HandshakeError`]
    pub(super) fn poll_handshake(
        &mut self,
        stream: &Stream,
        cx: &Context<'_>,
        look: impl FnOnce(&[u8]) -> Result<(), HandshakeError>,
    ) -> Poll<Result<(), HandshakeError>> {
        WIRE.with_borrow_mut(|wire| {
            let bytes = ready!(stream.poll_read(cx, wire)).map_err(HandshakeError::Socket)?;
            if bytes == 0 {
                return Poll::Ready(Err(HandshakeError::Ended));
            }
            let mut rest = &wire[..bytes];
            look(rest)?;
            let done = self.upgrades.shake_hands(&mut rest);
            // A signature takes longer than anything else that a poll does.
            stream.source().count_more_work(BYTES_PER_POLL);
            self.unopened.extend_from_slice(rest);
            Poll::Ready(done.map_err(HandshakeError::Refused))
        })
    }

    /// Reads once, if there is nothing to open, and opens as much as there is room for, but no more than
    /// [`OPENED_BYTES_MAX`]; 0 is the end. Reads again if all bytes belong to the upgrades' own protocol.
    ///
    /// # Errors
    /// The connection is broken, or the peer does not keep to a format.
    pub(super) fn poll_read(
        &mut self,
        stream: &Stream,
        cx: &Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        ready!(stream.source().poll_budget(cx));
        let most = room.len().min(OPENED_BYTES_MAX);
        let room = &mut room[..most];
        let mut unopened = &self.unopened[..];
        let opened = self.upgrades.open(&mut unopened, room)?;
        stream.source().count_work(opened);
        let left = unopened.len();
        self.unopened.drain(..self.unopened.len() - left);
        if self.unopened.is_empty() {
            self.unopened = Vec::new();
        }
        if opened > 0 || self.upgrades.has_ended() {
            return Poll::Ready(Ok(opened));
        }
        WIRE.with_borrow_mut(|wire| {
            loop {
                let bytes = ready!(stream.poll_read(cx, wire))?;
                let mut rest = &wire[..bytes];
                let opened = self.upgrades.open(&mut rest, room)?;
                stream
                    .source()
                    .count_more_work(bytes * WORK_PER_BYTE + opened);
                self.unopened.extend_from_slice(rest);
                if opened > 0 || bytes == 0 || self.upgrades.has_ended() {
                    return Poll::Ready(Ok(opened));
                }
            }
        })
    }

    // --- output

    /// Writes once. What was sealed before leaves before more is sealed.
    ///
    /// # Errors
    /// The connection is broken, or a library failed.
    pub(super) fn send(&mut self, stream: &Stream, output: &[IoSlice<'_>]) -> io::Result<Written> {
        if self.upgrades.unsent().is_empty() {
            self.seal_up_to(output, SEALED_BYTES_MAX)?;
        }
        let offered = self.upgrades.unsent().len();
        let sent = match offered {
            0 => Some(0),
            _ => stream.send(&[IoSlice::new(self.upgrades.unsent())])?,
        };
        Ok(Written {
            left: sent.map_or(0, |bytes| self.take_sent(bytes)),
            taken: Taken::of(sent, offered),
        })
    }

    /// Seals all of the output, for an upgrade that begins behind it.
    ///
    /// # Errors
    /// A library failed.
    pub(super) fn seal_all(&mut self, output: &[IoSlice<'_>]) -> io::Result<()> {
        self.seal_up_to(output, usize::MAX)
    }

    /// Seals the next `most` bytes of the output, behind what is sealed of it.
    fn seal_up_to(&mut self, output: &[IoSlice<'_>], most: usize) -> io::Result<()> {
        let mut pieces = [IoSlice::new(&[]); SLICES_MAX];
        let (mut skipped, mut bytes) = (0, 0);
        for (piece, slice) in pieces.iter_mut().zip(output) {
            let start = slice.len().min(self.sealed - skipped);
            skipped += start;
            let rest = &slice[start..];
            let rest = &rest[..rest.len().min(most - bytes)];
            bytes += rest.len();
            *piece = IoSlice::new(rest);
        }
        if bytes > 0 {
            self.upgrades
                .seal(&pieces[..output.len().min(SLICES_MAX)])?;
            self.sealed += bytes;
        }
        Ok(())
    }

    /// Drops the first `bytes` sealed bytes, which the socket took. Returns how many bytes of the output have left by
    /// that. If a sealed piece leaves in parts, the bytes of its output count in proportion.
    fn take_sent(&mut self, bytes: usize) -> usize {
        let unsent = self.upgrades.unsent().len();
        self.upgrades.drop_sent(bytes);
        let left = if bytes == unsent {
            self.sealed
        } else {
            (self.sealed as u64 * bytes as u64 / unsent as u64) as usize
        };
        self.sealed -= left;
        left
    }
}

/// The reason why there is no TLS.
#[derive(Debug)]
pub(crate) enum HandshakeError {
    /// The connection is broken.
    Socket(io::Error),
    /// The peer has ended.
    Ended,
    /// The handshake took too long.
    TimedOut,
    /// The peer speaks HTTP.
    PlainHttp,
    /// The sides did not come to terms, or the peer does not speak TLS.
    Refused(UpgradeError),
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> HandshakeError {
        match error.kind() {
            io::ErrorKind::TimedOut => HandshakeError::TimedOut,
            _ => HandshakeError::Socket(error),
        }
    }
}

/// In Go's words, where it has some.
impl std::fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            HandshakeError::Socket(error) => f.write_str(&wire::go_error::system_text(error)),
            HandshakeError::Ended => f.write_str("EOF"),
            HandshakeError::TimedOut => f.write_str("i/o timeout"),
            HandshakeError::PlainHttp => {
                f.write_str("client sent an HTTP request to an HTTPS server")
            }
            HandshakeError::Refused(UpgradeError::NoTls) => {
                f.write_str("tls: first record does not look like a TLS handshake")
            }
            HandshakeError::Refused(error) => write!(f, "{error}"),
        }
    }
}
