//! [`Deadline`]: the limit on the time for which an HTTP connection waits for its peer.
//!
//! A connection has one timer, which is set when the connection has to wait and no earlier timer is
//! set. While requests come, the end of each wait only moves to a later time, and the timer stays:
//! it costs one set timer per `--http-idle-timeout`, whatever the number of requests.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use super::Awaited;
use crate::flag;

/// Fewest bytes of a body that must come, or of an answer that must leave, per timeout. A steady
/// peer has time for a whole body, also on a slow line: 4 KiB per minute are 70 bytes per second. A
/// peer that sends a byte now and then to keep its connection has not. The kernels free room for an
/// answer in pieces (up to 128 KiB on the loopback interface), so a peer that reads an answer may
/// have to read one such piece per timeout.
const BYTES_PER_TIMEOUT: usize = 4 * 1024;

crate::flags! {
    /// The limits on the time that an HTTP client may take; `None` is no limit. NSQ's programs have no such flags.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct HttpTimeouts {
        read: Option<Duration> = flag::new("http-read-timeout", "1m0s", "time for a TLS handshake, for the head of a request, and for each 4 KiB of a body; 0: no limit");
        write: Option<Duration> = flag::new("http-write-timeout", "1m0s", "time in which 4 KiB of an answer must leave; 0 for no limit");
        idle: Option<Duration> = flag::new("http-idle-timeout", "15m0s", "time that an HTTP connection may be open without a request; 0 for no limit");
    }
}

/// A timer for an end that moves often and is seldom reached.
pub trait Alarm {
    /// Is ready when `end` has come. Otherwise the task is woken at `end` or earlier, and asks
    /// again.
    fn poll(&mut self, cx: &mut Context<'_>, now: Instant, end: Instant) -> Poll<()>;
}

/// The deadline of a connection's present wait.
#[derive(Debug)]
pub struct Deadline<A> {
    timeouts: HttpTimeouts,
    awaited: Awaited,
    /// The end of this wait; `None` until there is something to wait for.
    end: Option<Instant>,
    /// Bytes that came or left in this wait.
    bytes: usize,
    /// The wait that took too long, if one did.
    missed: Option<Awaited>,
    alarm: A,
}

impl<A: Alarm> Deadline<A> {
    /// Returns the deadline of a connection that has said nothing yet.
    pub fn new(timeouts: HttpTimeouts, alarm: A) -> Deadline<A> {
        Deadline {
            timeouts,
            awaited: Awaited::Request,
            end: None,
            bytes: 0,
            missed: None,
            alarm,
        }
    }

    /// Begins another wait.
    pub fn begin(&mut self, awaited: Awaited) {
        self.awaited = awaited;
        self.end = None;
        self.bytes = 0;
    }

    /// Counts bytes that came or left. Only bodies and answers extend the deadline; the first byte
    /// of a request, a head and a handshake have to arrive within the timeout as a whole.
    pub fn count_bytes(&mut self, bytes: usize) {
        if let Awaited::Body | Awaited::Room = self.awaited {
            self.bytes += bytes;
            if self.bytes >= BYTES_PER_TIMEOUT {
                self.begin(self.awaited);
            }
        }
    }

    /// Waits for input. When a connection waits for input again, its answer has left.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`]
    pub fn poll_input<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if self.awaited == Awaited::Room {
            self.begin(Awaited::Body);
        }
        self.poll(cx)
    }

    /// Waits for room in the socket.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`]
    pub fn poll_room<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if !matches!(self.awaited, Awaited::Room | Awaited::Handshake) {
            self.begin(Awaited::Room);
        }
        self.poll(cx)
    }

    fn poll<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let Some(timeout) = self.timeout() else {
            return Poll::Pending;
        };
        let now = Instant::now();
        let end = *self.end.get_or_insert(now + timeout);
        ready!(self.alarm.poll(cx, now, end));
        self.missed = Some(self.awaited);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn timeout(&self) -> Option<Duration> {
        match self.awaited {
            Awaited::Request => self.timeouts.idle,
            Awaited::Handshake | Awaited::Head | Awaited::Body => self.timeouts.read,
            Awaited::Room => self.timeouts.write,
        }
    }

    /// Returns the wait that took too long, if one did.
    pub fn missed(&self) -> Option<Awaited> {
        self.missed
    }
}
