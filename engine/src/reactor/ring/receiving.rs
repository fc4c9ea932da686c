//! [`Receiving`]: the requests by which the ring receives for connections with small requests, and what has come.
//!
//! ```text
//!   Off ──► On ──► Ending ──► Off      the request is armed; its end is asked for; it has ended
//!           On ──► Off                 the request has ended by itself, for example because no buffer was free
//!           On, Ending ──► Closed      the peer has ended its side
//!           On, Ending ──► Failed      the connection is broken
//! ```
//!
//! One request brings the input of a connection until it ends. The kernel puts each piece into a buffer of its choice.
//! The pieces of a connection keep their order in all of these states. A reader takes them first, and reads the socket
//! itself only in the state `Off`.

use super::buffers::{BUFFER_BYTES, Buffers, Filled};
use crate::reactor::driver::{Received, Token};
use io_uring::{IoUring, cqueue};
use std::collections::VecDeque;
use std::io;

/// The number of pieces at which a request is ended, because the reader is late: it may not read now.
const PIECES_MAX: usize = 4;

/// The errors of a request that say nothing about the connection. Its reader goes on with `recv`.
const ENDINGS: [i32; 7] = [
    // No buffer is free, or no other memory.
    libc::ENOBUFS,
    libc::ENOMEM,
    // The end was asked for.
    libc::ECANCELED,
    // The kernel has no such requests.
    libc::EINVAL,
    // The kernel does not carry out the request now.
    libc::EAGAIN,
    libc::EINTR,
    libc::EBADFD,
];

/// The input that the ring receives, and the memory for it.
pub(super) struct Receiving {
    buffers: Buffers,
    /// By the index of the source.
    inboxes: Vec<Inbox>,
    /// No request is made any more: the kernel has buffers, but no such requests (Linux 5.19), or the ring has not passed its
    /// trial.
    is_refused: bool,
}

#[derive(Default)]
struct Inbox {
    /// The serial number of the source that has this inbox, if one has it.
    serial: Option<u32>,
    state: State,
    pieces: VecDeque<Filled>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Off,
    On,
    Ending,
    Closed,
    /// The number of the error.
    Failed(i32),
}

/// The consequence of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Wake,
    /// The reader is to be woken, and the request is to be ended.
    WakeAndEnd,
    /// The source is gone.
    Nothing,
}

/// A completion of a request.
#[derive(Clone, Copy)]
pub(super) struct Completion {
    /// The number of bytes, 0 at the end, or the negative number of an error.
    result: i32,
    buffer: Option<u16>,
    /// The request stays armed.
    has_more: bool,
}

impl Completion {
    pub(super) fn of(entry: &cqueue::Entry) -> Completion {
        Completion {
            result: entry.result(),
            buffer: cqueue::buffer_select(entry.flags()),
            has_more: cqueue::more(entry.flags()),
        }
    }
}

impl Receiving {
    /// # Errors
    /// No memory, or the kernel has no such buffers (before Linux 5.19).
    pub(super) fn new(ring: &IoUring) -> io::Result<Receiving> {
        Ok(Receiving {
            buffers: Buffers::register(ring)?,
            inboxes: Vec::new(),
            is_refused: false,
        })
    }

    /// Ends the registration of the buffers with the kernel.
    ///
    /// # Errors
    /// The kernel may still use the buffers.
    pub(super) fn unregister(&self, ring: &IoUring) -> io::Result<()> {
        self.buffers.unregister(ring)
    }

    /// Has no more requests made.
    pub(super) fn refuse(&mut self) {
        self.is_refused = true;
    }

    /// Prepares for a request of a source. Returns false if none is to be made.
    pub(super) fn begin(&mut self, token: Token) -> bool {
        if self.is_refused {
            return false;
        }
        let index = token.index();
        if self.inboxes.len() <= index {
            self.inboxes.resize_with(index + 1, Inbox::default);
        }
        let inbox = &mut self.inboxes[index];
        debug_assert!(inbox.state == State::Off && inbox.pieces.is_empty());
        inbox.serial = Some(token.serial());
        inbox.state = State::On;
        true
    }

    /// Records a completion.
    pub(super) fn complete(&mut self, token: Token, completion: Completion) -> Then {
        let Completion {
            result, has_more, ..
        } = completion;
        let bytes = usize::try_from(result).unwrap_or(0);
        let piece = completion
            .buffer
            .map(|buffer| self.buffers.filled(buffer, bytes));
        self.is_refused |= result == -libc::EINVAL;
        let Some(inbox) = of(&mut self.inboxes, token) else {
            if let Some(piece) = piece {
                self.buffers.give_back(piece);
            }
            return Then::Nothing;
        };
        match piece {
            Some(piece) if bytes > 0 => inbox.pieces.push_back(piece),
            Some(piece) => self.buffers.give_back(piece),
            // Bytes are missing from here on, so nothing more of this connection may be used.
            None if bytes > 0 => inbox.state = State::Failed(libc::EIO),
            None => {}
        }
        if !has_more && !matches!(inbox.state, State::Failed(_)) {
            inbox.state = match result {
                0 => State::Closed,
                1.. => State::Off,
                error if ENDINGS.contains(&-error) => State::Off,
                error => State::Failed(-error),
            };
        }
        // A full buffer is a part of a large command, which the buffers of the shard hold better.
        let is_enough = bytes == BUFFER_BYTES || inbox.pieces.len() >= PIECES_MAX;
        if is_enough && inbox.state == State::On {
            inbox.state = State::Ending;
            return Then::WakeAndEnd;
        }
        Then::Wake
    }

    /// Takes what has come into the start of `room`.
    pub(super) fn take(&mut self, token: Token, room: &mut [u8]) -> Received {
        let Some(inbox) = of(&mut self.inboxes, token) else {
            return Received::Off;
        };
        let mut taken = 0;
        while taken < room.len()
            && let Some(mut piece) = inbox.pieces.pop_front()
        {
            taken += self.buffers.take(&mut piece, &mut room[taken..]);
            if piece.is_empty() {
                self.buffers.give_back(piece);
            } else {
                inbox.pieces.push_front(piece);
            }
        }
        if taken > 0 {
            return Received::Bytes(taken);
        }
        match inbox.state {
            State::Off => Received::Off,
            State::On | State::Ending => Received::Nothing,
            State::Closed => Received::Bytes(0),
            State::Failed(error) => Received::Failed(io::Error::from_raw_os_error(error)),
        }
    }

    /// Notes that a request is about to be ended. Returns false if none is armed, or its end was asked for before.
    pub(super) fn end(&mut self, token: Token) -> bool {
        match of(&mut self.inboxes, token) {
            Some(inbox) if inbox.state == State::On => {
                inbox.state = State::Ending;
                true
            }
            _ => false,
        }
    }

    /// Returns whether a request of the source is armed, so that more may come.
    pub(super) fn is_armed(&mut self, token: Token) -> bool {
        of(&mut self.inboxes, token)
            .is_some_and(|inbox| matches!(inbox.state, State::On | State::Ending))
    }

    /// Drops what has come for a source that ends.
    pub(super) fn forget(&mut self, token: Token) {
        if let Some(inbox) = of(&mut self.inboxes, token) {
            // A completion that comes later finds another serial number, or none, and gives its buffer back.
            for piece in std::mem::take(inbox).pieces {
                self.buffers.give_back(piece);
            }
        }
    }
}

/// The inbox of a source, if the source has one.
fn of(inboxes: &mut [Inbox], token: Token) -> Option<&mut Inbox> {
    let inbox = inboxes.get_mut(token.index())?;
    (inbox.serial == Some(token.serial())).then_some(inbox)
}

#[cfg(test)]
mod tests;
