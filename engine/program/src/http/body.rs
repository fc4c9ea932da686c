//! Request bodies: reads them up to a limit, or discards them.

use std::io;

use bytes::Bytes;

use super::chunked::{Chunked, Step};
use super::connection::{Connection, Io};
use super::head::Framing;
use super::reply::Failure;

/// Fewest unread bytes of a body for which the connection is closed. A shorter rest is read and
/// discarded before the answer. Go's server has the same number.
const DISCARD_BYTES_MAX: u64 = 256 * 1024;

/// The body of a request on its connection. Bytes that the program does not read are discarded, or
/// the connection is closed.
#[derive(Debug)]
pub struct RequestBody<'a, S> {
    connection: &'a mut Connection<S>,
    framing: Framing,
    announced_bytes: Option<u64>,
    /// True while the peer waits for "100 Continue" before it sends the body.
    awaits_continue: bool,
    is_broken: bool,
}

/// A body, or the beginning of a body.
#[derive(Debug)]
pub struct Received {
    /// The received bytes.
    pub bytes: Bytes,
    /// The reason why there are no more.
    pub end: End,
}

impl Received {
    /// Returns the bytes of a body that is complete.
    ///
    /// # Errors
    /// The body is broken, or longer than the limit: `too_large` is the word for that.
    pub fn complete(self, too_large: &'static str) -> Result<Bytes, Failure> {
        match self.end {
            End::Complete => Ok(self.bytes),
            End::Broken => Err(Failure::INTERNAL),
            End::OverLimit => Err(Failure::too_large(too_large)),
        }
    }
}

/// The reason why there are no more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The body is complete.
    Complete,
    /// The peer stopped in the middle, or the chunks are malformed.
    Broken,
    /// The body is longer than the limit. `bytes` exceeds the limit by at most one read.
    OverLimit,
}

impl<'a, S: Io> RequestBody<'a, S> {
    /// Returns the body behind a head that was just removed from the connection.
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

    /// Returns whether the announced length is above a limit. A body that is sent in chunks has none.
    pub fn announces_more_than(&self, bytes_max: u64) -> bool {
        self.announced_bytes.is_some_and(|it| it > bytes_max)
    }

    /// Reads to the end, or until there are more than `bytes_max` bytes. A body of known length is
    /// read directly into its memory. Only the bytes that came together with the head are copied.
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

    /// Reads to the end and discards everything, whatever the length. Returns false if the body is
    /// broken.
    pub async fn read_and_forget(&mut self) -> bool {
        while self.next_piece().await.is_some() {}
        !self.is_broken
    }

    /// Discards the bytes that the handler left unread. Returns true if the connection must be
    /// closed because there are too many. `is_closing` means that the connection ends in any case.
    /// A peer that waits for "100 Continue" does not get it any more.
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

    /// Returns the next bytes, never empty, or `None` at the end and after a failure.
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

    /// Reads until the front of the unread bytes is a piece of the body. Returns the length of the
    /// piece, or 0 at the end.
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

    /// Sends "100 Continue" if the peer waits for it. Like most servers, sends it even if the body
    /// has arrived already.
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
