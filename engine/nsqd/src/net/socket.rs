//! [`Stream`]: the socket of a connection on the reactor. A stream reads when there is something, writes several slices
//! at once, and can move to another shard.

use crate::net::address::Peer;
use crate::reactor::{self, Sent, Source};
use socket2::Socket;
use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll};

/// The most bytes of one `recv`, which copies them: some 100 us.
const RECEIVED_BYTES_MAX: usize = 1024 * 1024;

/// A connection's socket.
pub(crate) struct Stream {
    /// In front of the socket, because a source must be dropped before its descriptor is closed.
    source: Source,
    socket: Socket,
    /// Bytes that came from the socket on another shard, in front of what is in the socket.
    unread: RefCell<Vec<u8>>,
}

/// A stream on its way to another shard.
pub(crate) struct MovingStream {
    descriptor: OwnedFd,
    unread: Vec<u8>,
}

impl Stream {
    /// The stream of an accepted socket.
    pub(super) fn new(socket: Socket) -> io::Result<Stream> {
        socket.set_nonblocking(true)?;
        Ok(Stream::of(socket, Vec::new()))
    }

    /// Takes a socket that is non-blocking.
    fn of(socket: Socket, unread: Vec<u8>) -> Stream {
        Stream {
            source: Source::new(),
            socket,
            unread: RefCell::new(unread),
        }
    }

    /// The stream that another shard gave away.
    pub(crate) fn adopt(moving: MovingStream) -> Stream {
        Stream::of(Socket::from(moving.descriptor), moving.unread)
    }

    /// The stream for another shard.
    pub(crate) fn into_moving(self) -> MovingStream {
        let mut unread = self.unread.into_inner();
        self.source.stop_receiving(&mut unread);
        MovingStream {
            descriptor: self.socket.into(),
            unread,
        }
    }

    /// Network and own address, for log lines: `tcp 127.0.0.1:4150`.
    pub(crate) fn local_text(&self) -> String {
        match self.socket.local_addr() {
            Ok(address) if address.is_unix() => format!("unix {}", Peer::of(&address)),
            Ok(address) => format!("tcp {}", Peer::of(&address)),
            Err(_) => "tcp ?".to_owned(),
        }
    }

    /// Reads what is there; 0 is the end. A task whose budget is spent reads behind the others.
    pub(crate) fn poll_read(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        std::task::ready!(self.source.poll_budget(cx));
        let room = buffer.len().min(RECEIVED_BYTES_MAX);
        let buffer = &mut buffer[..room];
        if !self.unread.borrow().is_empty() {
            return Poll::Ready(Ok(self.take_unread(buffer)));
        }
        if let Some(received) = self.source.poll_received(cx, buffer) {
            return received;
        }
        loop {
            std::task::ready!(self.source.poll_readable(cx, self.socket.as_fd()));
            match (&self.socket).read(buffer) {
                Ok(bytes) => {
                    self.source.count_read(bytes);
                    if bytes < buffer.len() {
                        // The engine reports what comes after this read, and the end. On epoll, one case is late: an
                        // urgent byte, or a descriptor on a unix socket, ends a read early. The bytes behind it wait
                        // for the peer's next bytes. No NSQ client sends either.
                        self.source.expect_no_more();
                    }
                    return Poll::Ready(Ok(bytes));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.source.expect_no_more(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// The readiness of the socket, which counts the work of the running task. [`Stream::poll_read`] counts what it reads.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    fn take_unread(&self, buffer: &mut [u8]) -> usize {
        let mut unread = self.unread.borrow_mut();
        let bytes = unread.len().min(buffer.len());
        self.source.count_work(bytes);
        buffer[..bytes].copy_from_slice(&unread[..bytes]);
        unread.drain(..bytes);
        if unread.is_empty() {
            *unread = Vec::new();
        }
        bytes
    }

    /// Stops the engine's receiving for a connection that is not read now. What has come waits in memory of its own,
    /// which leaves the engine's buffers to other connections.
    pub(crate) fn hold_back(&self) {
        self.source.let_gather();
        self.source.take_received(&mut self.unread.borrow_mut());
    }

    /// Writes as much as the socket takes now. `Ok(None)`: nothing at all.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        loop {
            // The standard library ignores SIGPIPE, so a broken connection is an error here.
            let written = match slices {
                // Without a list, which the kernel would have to fetch and check.
                [only] => (&self.socket).write(only),
                _ => (&self.socket).write_vectored(slices),
            };
            return match written {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
                Err(error) => Err(error),
            };
        }
    }

    /// Stages bytes that leave with [`reactor::send_staged`]. Returns false if the caller has to send them. The stream
    /// must live until then.
    pub(crate) fn stage(&self, slices: &[IoSlice<'_>]) -> bool {
        reactor::stage_send(&self.socket, slices)
    }

    /// Wakes the task when there is room to write. To be called when there was none.
    pub(crate) fn wait_writable(&self, cx: &Context<'_>) {
        self.source.wait_writable(cx, self.socket.as_fd());
    }

    /// Tells the peer that nothing follows.
    ///
    /// # Errors
    /// The system's answer.
    pub(crate) fn shut_down(&self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }
}

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

#[cfg(test)]
mod tests;
