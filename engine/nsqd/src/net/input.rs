//! [`Input`]: the bytes that a connection has received and the broker has not carried out, without copies of large
//! bodies.
//!
//! ```text
//!   nothing, or little    received into a buffer of the shard that all of them use in turn;
//!                         what is left of it is copied out, and in front of what comes next
//!   much                  the connection keeps the buffer, and the rest is received behind it
//! ```
//!
//! The buffers are used again, the last one first: its memory is warm, and a page that is touched for
//! the first time costs more than copying it.

use crate::reactor::BYTES_PER_POLL;
use std::io;
use std::ops::Range;
use std::task::{Poll, ready};

/// The size of a buffer.
const BUFFER_BYTES: usize = 512 * 1024;

/// The most bytes that one read brings, unless a command is longer.
const READ_BYTES_MAX: usize = BYTES_PER_POLL;

/// Up to this many bytes, unread input is copied out of the shard's buffer.
const COPIED_BYTES_MAX: usize = 16 * 1024;

/// The memory that a connection without input may keep.
const IDLE_BYTES_MAX: usize = 1024;

/// Connections of a shard that may keep a buffer. Further ones copy into memory of their own, as much
/// as the command needs: many slow peers must not cost half a megabyte each.
const KEPT_MAX: usize = 16;

/// Buffers that wait to be used again.
const SPARES_MAX: usize = 4;

/// The receive buffers of a shard.
#[derive(Default)]
pub(crate) struct Buffers {
    spares: Vec<Box<[u8]>>,
    kept: usize,
}

impl Buffers {
    /// A buffer that begins with `little`.
    fn hold(&mut self, little: &[u8]) -> Held {
        let mut buffer = self
            .spares
            .pop()
            .unwrap_or_else(|| vec![0; BUFFER_BYTES].into_boxed_slice());
        buffer[..little.len()].copy_from_slice(little);
        Held {
            buffer,
            at: 0..little.len(),
            lent: Lent::ForOneRead,
        }
    }

    fn give_back(&mut self, held: Held) {
        self.kept -= usize::from(held.lent == Lent::Kept);
        if held.lent != Lent::No && self.spares.len() < SPARES_MAX {
            self.spares.push(held.buffer);
        }
    }
}

/// The bytes that a connection has received and the broker has not carried out.
#[derive(Default)]
pub(crate) struct Input {
    /// The input, if it is at most [`COPIED_BYTES_MAX`] bytes.
    little: Vec<u8>,
    /// The input, if it is more, and while the broker carries it out. `little` is empty then.
    held: Option<Held>,
}

/// A buffer and where in it the input is.
struct Held {
    buffer: Box<[u8]>,
    at: Range<usize>,
    lent: Lent,
}

/// The owner of a buffer: the shard lends it, or the connection has it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lent {
    /// The buffer is the connection's own.
    No,
    ForOneRead,
    /// The shard lends the buffer until an unfinished command is complete.
    Kept,
}

/// The result of [`Input::poll_fill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// There is more input than before.
    Some,
    /// The peer sends nothing more.
    End,
}

impl Input {
    /// Input that came with a connection from another shard: it may be much.
    pub(crate) fn new(bytes: Vec<u8>) -> Input {
        let mut input = Input::default();
        if bytes.len() <= COPIED_BYTES_MAX {
            input.little = bytes;
        } else {
            input.held = Some(Held {
                at: 0..bytes.len(),
                buffer: bytes.into_boxed_slice(),
                lent: Lent::No,
            });
        }
        input
    }

    /// The input.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.held {
            Some(held) => &held.buffer[held.at.clone()],
            None => &self.little,
        }
    }

    /// Receives once, behind the input that is there. `needs` is the length that the input must have for its first
    /// command, or 0 if that is not known. The caller then offers the input to the broker, and tells
    /// [`consumed`](Input::consumed) how much was carried out.
    ///
    /// # Errors
    /// The errors of `read`, unchanged.
    pub(crate) fn poll_fill(
        &mut self,
        buffers: &mut Buffers,
        needs: usize,
        read: impl FnOnce(&mut [u8]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<Filled>> {
        let is_kept = self.held.is_some();
        let mut held = match self.held.take() {
            Some(held) => held,
            None => buffers.hold(&self.little),
        };
        held.make_room(needs, buffers);
        let room_end = (held.at.end + READ_BYTES_MAX).max(held.at.start + needs);
        let room_end = room_end.min(held.buffer.len());
        let room = &mut held.buffer[held.at.end..room_end];
        let result = read(room);
        match result {
            Poll::Ready(Ok(bytes @ 1..)) => {
                held.at.end += bytes;
                self.little.clear();
                self.held = Some(held);
            }
            _ if is_kept => self.held = Some(held),
            _ => buffers.give_back(held),
        }
        Poll::Ready(Ok(match ready!(result)? {
            0 => Filled::End,
            _ => Filled::Some,
        }))
    }

    /// Drops the first `bytes` bytes, and the buffer unless much is left.
    pub(crate) fn consumed(&mut self, buffers: &mut Buffers, bytes: usize) {
        let Some(mut held) = self.held.take() else {
            self.little.drain(..bytes);
            return;
        };
        held.at.start += bytes;
        if held.at.len() > COPIED_BYTES_MAX {
            self.held = Some(held.keep(buffers));
            return;
        }
        if held.at.is_empty() && self.little.capacity() > IDLE_BYTES_MAX {
            self.little = Vec::new();
        }
        self.little.extend_from_slice(&held.buffer[held.at.clone()]);
        buffers.give_back(held);
    }

    /// Everything there is, for another shard, and at the end of a connection: the buffer goes back.
    pub(crate) fn take(&mut self, buffers: &mut Buffers) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.little);
        if let Some(held) = self.held.take() {
            bytes.extend_from_slice(&held.buffer[held.at.clone()]);
            buffers.give_back(held);
        }
        bytes
    }
}

impl Held {
    /// Makes room behind the input: up to `needs` bytes from its start, and for a whole read where there can be.
    fn make_room(&mut self, needs: usize, buffers: &mut Buffers) {
        let wanted = needs.max(self.at.len() + 1);
        if self.buffer.len() < wanted {
            return self.copy_to_own(wanted.next_power_of_two(), buffers);
        }
        let is_tight = self.buffer.len() < self.at.start + wanted
            || self.buffer.len() < self.at.end + READ_BYTES_MAX;
        if is_tight && self.at.start > 0 {
            self.buffer.copy_within(self.at.clone(), 0);
            self.at = 0..self.at.len();
        }
    }

    /// Keeps the buffer for a connection, or as much memory of its own as the input takes.
    fn keep(mut self, buffers: &mut Buffers) -> Held {
        if self.lent == Lent::ForOneRead {
            if buffers.kept < KEPT_MAX {
                buffers.kept += 1;
                self.lent = Lent::Kept;
            } else {
                self.copy_to_own(self.at.len(), buffers);
            }
        }
        self
    }

    fn copy_to_own(&mut self, bytes: usize, buffers: &mut Buffers) {
        let mut own = vec![0; bytes].into_boxed_slice();
        own[..self.at.len()].copy_from_slice(&self.buffer[self.at.clone()]);
        let own = Held {
            buffer: own,
            at: 0..self.at.len(),
            lent: Lent::No,
        };
        buffers.give_back(std::mem::replace(self, own));
    }
}

#[cfg(test)]
mod tests;
