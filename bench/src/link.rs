//! [`Link`]: one nonblocking connection with its unsent output and its unfinished input.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use socket2::{Domain, Protocol, Socket, Type};

/// Most output that is put together before the socket has to take some, in bytes.
pub const OUTPUT_BYTES_MAX: usize = 256 * 1024;

/// A connection. It may still be in the making: writing is possible when the poller says so.
#[derive(Debug)]
pub struct Link {
    stream: TcpStream,
    /// Bytes to be sent, the first `sent` of which are gone.
    pub output: Vec<u8>,
    sent: usize,
    /// Input behind the last complete frame.
    rest: Vec<u8>,
}

/// What a read brought.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// So many new bytes.
    Bytes(usize),
    /// Nothing now.
    Later,
    /// The other side has closed.
    End,
}

impl Link {
    /// Begins to connect, without waiting.
    ///
    /// # Errors
    /// When the system refuses a socket or the address at once.
    pub fn connect(address: SocketAddr) -> io::Result<Link> {
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        match socket.connect(&address.into()) {
            Ok(()) => {}
            // EINPROGRESS has no kind of its own.
            Err(error)
                if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        Ok(Link::new(socket.into()))
    }

    /// A connection that is there. The stream must be nonblocking.
    #[must_use]
    pub fn new(stream: TcpStream) -> Link {
        Link {
            stream,
            output: Vec::new(),
            sent: 0,
            rest: Vec::new(),
        }
    }

    /// The socket, for the poller.
    #[must_use]
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Bytes that wait to be sent.
    #[inline]
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Writes what the socket takes; true when nothing is left.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn flush(&mut self) -> io::Result<bool> {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // Still in the making: the poller will say when.
                Err(error) if error.kind() == ErrorKind::NotConnected => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        } else if self.sent >= OUTPUT_BYTES_MAX {
            self.output.drain(..self.sent);
            self.sent = 0;
        }
        Ok(self.unsent() == 0)
    }

    /// Reads once into `scratch`, behind what was left of the last time. Returns the outcome and the
    /// length of the whole; the caller handles it and gives the rest back by [`Link::keep`].
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn read(&mut self, scratch: &mut Vec<u8>, most: usize) -> io::Result<(ReadOutcome, usize)> {
        let kept = self.rest.len();
        if scratch.len() < kept + most {
            scratch.resize(kept + most, 0);
        }
        scratch[..kept].copy_from_slice(&self.rest);
        loop {
            return match self.stream.read(&mut scratch[kept..kept + most]) {
                Ok(0) => Ok((ReadOutcome::End, kept)),
                Ok(bytes) => {
                    self.rest.clear();
                    Ok((ReadOutcome::Bytes(bytes), kept + bytes))
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    Ok((ReadOutcome::Later, kept))
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
        }
    }

    /// Keeps input for the next read.
    pub fn keep(&mut self, rest: &[u8]) {
        self.rest.clear();
        self.rest.extend_from_slice(rest);
    }
}
