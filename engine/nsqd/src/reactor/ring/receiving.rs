//! [`Receiving`]: the requests by which the ring receives for connections with small requests, and what has come.
//!
//! ```text
//!   Request:  None ──► Armed ──► Ending ──► None     it is made; its end is asked for; it has ended
//!                      Armed ──► None                it has ended by itself, for example because no buffer was free
//!
//!   Rest:     InSocket ──► Closed                    the peer has ended its side
//!             InSocket ──► Failed                    the connection is broken, or bytes are lost
//! ```
//!
//! One request, a multishot receive, brings the input of a connection until the request ends. The kernel puts each piece
//! into a buffer of its choice. The pieces of a connection keep their order, and a reader takes them first. The reader
//! reads the socket itself only if no request is made and the rest of the input is in the socket.
//!
//! A late reader does not keep the buffers from the other connections: its pieces are copied into memory of its own.

use super::buffers::{BUFFER_BYTES, Buffers, COUNT, Filled};
use crate::reactor::token::{Received, Token, place_of};
use io_uring::{IoUring, cqueue};
use std::collections::VecDeque;
use std::io::{self, Read};

/// The number of pieces at which a reader is late: it may not read now. Its request is ended, and the pieces are copied.
const PIECES_MAX: usize = 4;
/// The most buffers that hold pieces for readers. Further pieces are copied when they come, so an eighth of the buffers is
/// left to the kernel.
const HELD_MAX: u16 = COUNT / 8 * 7;

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
    request: Request,
    /// The bytes of the first pieces, whose buffers went back.
    copied: VecDeque<u8>,
    pieces: VecDeque<Filled>,
    rest: Rest,
}

/// The request of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Request {
    /// No more comes.
    #[default]
    None,
    Armed,
    /// Its end is asked for. Until then, more may come.
    Ending,
}

/// The input behind the pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rest {
    #[default]
    InSocket,
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
    /// The request is to be ended once more.
    End,
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

    /// Returns whether no request is made any more.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Prepares for a request of a source. Returns false if none is to be made.
    pub(super) fn begin(&mut self, token: Token) -> bool {
        if self.is_refused {
            return false;
        }
        let inbox = place_of(&mut self.inboxes, token);
        debug_assert!(inbox.request == Request::None && inbox.rest == Rest::InSocket);
        debug_assert!(inbox.copied.is_empty() && inbox.pieces.is_empty());
        inbox.serial = Some(token.serial());
        inbox.request = Request::Armed;
        true
    }

    /// Records a completion of a request.
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
            Some(piece) if bytes > 0 && inbox.rest == Rest::InSocket => {
                inbox.pieces.push_back(piece);
            }
            Some(piece) => self.buffers.give_back(piece),
            // Bytes are missing here. The input ends before them, because what follows would be taken for them.
            None if bytes > 0 => inbox.rest = Rest::Failed(libc::EIO),
            None => {}
        }
        if !has_more {
            inbox.request = Request::None;
            if inbox.rest == Rest::InSocket {
                inbox.rest = rest_behind(result);
            }
        }
        let is_late = inbox.pieces.len() >= PIECES_MAX || inbox.copied.len() >= BUFFER_BYTES;
        if is_late || self.buffers.held() > HELD_MAX {
            inbox.copy_out(&mut self.buffers);
        }
        // A full buffer is a part of a large command, which the buffers of the shard hold better.
        let is_enough = is_late || bytes == BUFFER_BYTES || inbox.rest != Rest::InSocket;
        if is_enough && inbox.request == Request::Armed {
            inbox.request = Request::Ending;
            return Then::WakeAndEnd;
        }
        Then::Wake
    }

    /// Records the completion of an attempt to end a request.
    ///
    /// The kernel does not find a request whose connection had input while the kernel began to poll it. The request then
    /// stays armed.
    pub(super) fn complete_end(&mut self, token: Token, completion: Completion) -> Then {
        let is_missed = [-libc::ENOENT, -libc::EALREADY].contains(&completion.result);
        match of(&mut self.inboxes, token) {
            Some(inbox) if is_missed && inbox.request == Request::Ending => Then::End,
            _ => Then::Nothing,
        }
    }

    /// Takes what has come into the start of `room`.
    pub(super) fn take(&mut self, token: Token, room: &mut [u8]) -> Received {
        let Some(inbox) = of(&mut self.inboxes, token) else {
            return Received::Off;
        };
        let mut taken = inbox.take_copied(room);
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
        match inbox.rest {
            Rest::InSocket if inbox.request == Request::None => Received::Off,
            Rest::InSocket => Received::Nothing,
            Rest::Closed => Received::Bytes(0),
            Rest::Failed(error) => Received::Failed(io::Error::from_raw_os_error(error)),
        }
    }

    /// Notes that a request is about to be ended. Returns false if none is armed, or its end was asked for before.
    pub(super) fn end(&mut self, token: Token) -> bool {
        match of(&mut self.inboxes, token) {
            Some(inbox) if inbox.request == Request::Armed => {
                inbox.request = Request::Ending;
                true
            }
            _ => false,
        }
    }

    /// Returns whether a request of the source is armed, so that more may come.
    pub(super) fn is_armed(&mut self, token: Token) -> bool {
        of(&mut self.inboxes, token).is_some_and(|inbox| inbox.request != Request::None)
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

impl Inbox {
    /// Copies all pieces, and gives their buffers back.
    fn copy_out(&mut self, buffers: &mut Buffers) {
        let mut bytes = [0; BUFFER_BYTES];
        for mut piece in self.pieces.drain(..) {
            let count = buffers.take(&mut piece, &mut bytes);
            self.copied.extend(&bytes[..count]);
            buffers.give_back(piece);
        }
    }

    /// Takes bytes that were copied into the start of `room`. Returns their number.
    fn take_copied(&mut self, room: &mut [u8]) -> usize {
        let count = self.copied.len().min(room.len());
        if count > 0 {
            self.copied
                .read_exact(&mut room[..count])
                .expect("as many bytes are there");
            // A late reader is rare: its memory is not kept.
            if self.copied.is_empty() {
                self.copied.shrink_to(BUFFER_BYTES);
            }
        }
        count
    }
}

/// The input behind the last piece of a request that has ended with `result`.
fn rest_behind(result: i32) -> Rest {
    match result {
        0 => Rest::Closed,
        1.. => Rest::InSocket,
        error if ENDINGS.contains(&-error) => Rest::InSocket,
        error => Rest::Failed(-error),
    }
}

/// The inbox of a source, if the source has one.
fn of(inboxes: &mut [Inbox], token: Token) -> Option<&mut Inbox> {
    let inbox = inboxes.get_mut(token.index())?;
    (inbox.serial == Some(token.serial())).then_some(inbox)
}

#[cfg(test)]
mod tests;
