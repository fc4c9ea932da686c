//! Request bodies: read up to a limit, or got rid of.

use std::io;

use bytes::Bytes;

use super::chunked::{Chunked, Step};
use super::connection::{Connection, Io};
use super::head::Framing;

/// What is left of a body is read and thrown away before the answer if it is less than this; else
/// the connection is closed. The number is that of Go's server.
const DISCARD_BYTES_MAX: u64 = 256 * 1024;

/// A request's body, on its connection. What the program does not read is read and thrown away, or ends the connection.
#[derive(Debug)]
pub struct RequestBody<'a, S> {
    connection: &'a mut Connection<S>,
    framing: Framing,
    announced_bytes: Option<u64>,
    /// The peer sends nothing before it is asked to, which has not been done yet.
    awaits_continue: bool,
    is_broken: bool,
}

/// A body, or the beginning of one.
#[derive(Debug)]
pub struct Received {
    /// The bytes that came.
    pub bytes: Bytes,
    /// The reason why there are no more.
    pub end: End,
}

/// The reason why there are no more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Nothing is missing.
    Complete,
    /// The peer stopped in the middle, or the chunks are malformed.
    Broken,
    /// There is more than the limit. `bytes` holds more than the limit, by at most one read.
    OverLimit,
}

impl<'a, S: Io> RequestBody<'a, S> {
    /// What follows a head that was just taken off the connection.
    pub(super) fn new(
        connection: &'a mut Connection<S>,
        framing: Framing,
        awaits_continue: bool,
    ) -> RequestBody<'a, S> {
        let announced_bytes = match framing {
            Framing::Length(bytes) => Some(bytes),
            Framing::Chunked(_) => None,
        };
        RequestBody {
            connection,
            framing,
            announced_bytes,
            awaits_continue,
            is_broken: false,
        }
    }

    /// The announced length in bytes; `None` when the body is sent in chunks.
    pub fn announced_bytes(&self) -> Option<u64> {
        self.announced_bytes
    }

    /// Reads until the end, or until there are more than `bytes_max` bytes. A body of known length is read to where it
    /// stays: only what came together with the head is copied.
    pub async fn receive(&mut self, bytes_max: u64) -> Received {
        let mut bytes = Vec::new();
        let end = match self.framing {
            Framing::Length(count) if count <= bytes_max => {
                self.receive_announced(&mut bytes, count).await
            }
            _ => self.receive_pieces(&mut bytes, bytes_max).await,
        };
        Received {
            bytes: Bytes::from(bytes),
            end,
        }
    }

    async fn receive_announced(&mut self, bytes: &mut Vec<u8>, count: u64) -> End {
        let count = usize::try_from(count).expect("below the caller's limit");
        let asked = self.ask_to_continue().await;
        self.framing = Framing::Length(0);
        let read = match asked {
            Ok(()) => self.connection.read_to(bytes, count).await,
            Err(error) => Err(error),
        };
        self.is_broken = read.is_err();
        if self.is_broken {
            End::Broken
        } else {
            End::Complete
        }
    }

    async fn receive_pieces(&mut self, bytes: &mut Vec<u8>, bytes_max: u64) -> End {
        while let Some(piece) = self.next_piece().await {
            bytes.extend_from_slice(piece);
            if bytes.len() as u64 > bytes_max {
                return End::OverLimit;
            }
        }
        if self.is_broken {
            End::Broken
        } else {
            End::Complete
        }
    }

    /// Reads to the end without keeping anything, whatever the length. Returns false if the body is broken.
    pub async fn read_and_forget(&mut self) -> bool {
        while self.next_piece().await.is_some() {}
        !self.is_broken
    }

    /// Gets rid of what the handler left unread. Returns whether the connection has to be closed
    /// because that is too much. `is_closing`: the connection ends anyway. A peer that sends its body
    /// only when asked is not asked any more.
    pub(super) async fn finish(&mut self, is_closing: bool) -> bool {
        if self.is_broken {
            return true;
        }
        let (is_at_end, left_bytes) = match &self.framing {
            Framing::Length(left) => (*left == 0, *left),
            Framing::Chunked(chunked) => (chunked.is_at_end(), 0),
        };
        if is_at_end {
            return false;
        }
        if is_closing || self.awaits_continue || left_bytes >= DISCARD_BYTES_MAX {
            return true;
        }
        let mut count: u64 = 0;
        while let Some(piece) = self.next_piece().await {
            count += piece.len() as u64;
            if count >= DISCARD_BYTES_MAX {
                return true;
            }
        }
        self.is_broken
    }

    /// The next bytes, never empty; `None` at the end and after a failure.
    async fn next_piece(&mut self) -> Option<&[u8]> {
        match self.find_piece().await {
            Ok(0) => None,
            Ok(count) => Some(self.connection.take(count)),
            Err(_) => {
                self.is_broken = true;
                None
            }
        }
    }

    /// Reads until a piece of the body is at the front of what was read. Returns its length; 0 at
    /// the end.
    async fn find_piece(&mut self) -> io::Result<usize> {
        self.ask_to_continue().await?;
        loop {
            let unread = self.connection.unread();
            let step = match &mut self.framing {
                Framing::Length(left) => take_length(left, unread),
                Framing::Chunked(chunked) => take_chunk(chunked, unread)?,
            };
            match step {
                Step::Skip(count) => _ = self.connection.take(count),
                Step::Data(count) => return Ok(count),
                Step::End => return Ok(0),
                Step::More => {
                    if self.connection.fill().await? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
            }
        }
    }

    /// Also if the body is there already, as most servers do.
    async fn ask_to_continue(&mut self) -> io::Result<()> {
        let is_empty = matches!(self.framing, Framing::Length(0));
        if !is_empty && std::mem::take(&mut self.awaits_continue) {
            let answer = b"HTTP/1.1 100 Continue\r\n\r\n";
            return self.connection.write(answer).await;
        }
        Ok(())
    }
}

fn take_length(left: &mut u64, unread: &[u8]) -> Step {
    if *left == 0 {
        return Step::End;
    }
    if unread.is_empty() {
        return Step::More;
    }
    let count = usize::try_from(*left).map_or(unread.len(), |left| left.min(unread.len()));
    *left -= count as u64;
    Step::Data(count)
}

fn take_chunk(chunked: &mut Chunked, unread: &[u8]) -> io::Result<Step> {
    let step = chunked.step(unread);
    step.map_err(|_| io::ErrorKind::InvalidData.into())
}
