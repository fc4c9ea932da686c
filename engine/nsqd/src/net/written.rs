//! [`Written`]: how much of its output a connection has taken.

use crate::reactor::Sent;
use std::io;

/// The result of one call of `Transport::send`.
#[derive(Debug)]
pub(crate) struct Written {
    /// Bytes of the output that have left, from its start. If an encoded piece leaves in parts, they count in
    /// proportion.
    pub(crate) left: usize,
    pub(crate) taken: Taken,
}

/// The part of the offered bytes that the socket took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Everything, maybe because nothing was offered.
    All,
    Part,
    Nothing,
}

impl Written {
    /// The meaning of what a plain socket took.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn of(sent: Sent) -> io::Result<Written> {
        let taken = sent.result?;
        Ok(Written {
            left: taken.unwrap_or(0),
            taken: Taken::of(taken, sent.offered),
        })
    }
}

impl Taken {
    /// `sent` is the socket's answer: `None` if it took nothing.
    pub(super) fn of(sent: Option<usize>, offered: usize) -> Taken {
        match sent {
            None => Taken::Nothing,
            Some(bytes) if bytes < offered => Taken::Part,
            Some(_) => Taken::All,
        }
    }
}
