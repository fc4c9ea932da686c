//! Connections' sockets on the reactor: reading when there is something, gathering writes, being duplicated for another
//! shard.

use crate::net::address::Peer;
use crate::reactor::Source;
use rustix::event::{PollFd, PollFlags, Timespec};
use socket2::Socket;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll};

/// A connection's socket.
pub(crate) struct Stream {
    source: Source,
    socket: Socket,
}

impl Stream {
    /// The stream of an accepted socket.
    pub(super) fn new(socket: Socket) -> io::Result<Stream> {
        socket.set_nonblocking(true)?;
        Ok(Stream::of(socket))
    }

    /// Takes a socket that is non-blocking.
    fn of(socket: Socket) -> Stream {
        Stream {
            source: Source::new(),
            socket,
        }
    }

    /// The stream of a descriptor that another shard gave away.
    pub(crate) fn adopt(descriptor: OwnedFd) -> Stream {
        Stream::of(Socket::from(descriptor))
    }

    /// The descriptor alone, for another shard to adopt.
    pub(crate) fn into_descriptor(self) -> OwnedFd {
        self.socket.into()
    }

    /// A second descriptor of the socket, which outlives the stream.
    ///
    /// # Errors
    /// The system's answer, for example too many open files.
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.socket.as_fd().try_clone_to_owned()
    }

    /// Network and own address, for log lines: `tcp 127.0.0.1:4150`.
    pub(crate) fn local_text(&self) -> String {
        match self.socket.local_addr() {
            Ok(address) if address.is_unix() => format!("unix {}", Peer::of(&address)),
            Ok(address) => format!("tcp {}", Peer::of(&address)),
            Err(_) => "tcp ?".to_owned(),
        }
    }

    /// Reads what is there; 0 is the end.
    pub(crate) fn poll_read(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
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

    /// Returns whether the peer has ended its side, whatever is left to read.
    pub(crate) fn has_hung_up(&self) -> bool {
        const ENDS: PollFlags = PollFlags::RDHUP.union(PollFlags::HUP).union(PollFlags::ERR);
        let mut descriptors = [PollFd::new(&self.socket, ENDS)];
        let now = Timespec::default();
        // A question that fails tells nothing about the peer.
        let count = rustix::event::poll(&mut descriptors, Some(&now)).unwrap_or(0);
        count > 0 && descriptors[0].revents().intersects(ENDS)
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

#[cfg(test)]
mod tests;
