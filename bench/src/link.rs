//! [`Link`]: one nonblocking connection with its unsent output and its unfinished input, both in plain
//! text also where TLS or compression lie between them and the socket.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;

use socket2::{Domain, Protocol, Socket, Type};
use upgrade::{Layer, Layers, UpgradeError};

/// Most output that is put together before the socket has to take some, in bytes.
pub const OUTPUT_BYTES_MAX: usize = 256 * 1024;
/// Most bytes of one write: a kernel that does not preempt itself lets nobody else have this processor while it
/// copies them, and the latency that another generator of this machine measures would be a wait for this one.
const WRITE_BYTES_MAX: usize = 128 * 1024;
/// Most bytes of one read that are opened: compressed ones can become a thousand times as many.
const WIRE_READ_BYTES: usize = 32 * 1024;

/// A connection. It may still be in the making: writing is possible when the poller says so.
#[derive(Debug)]
pub struct Link {
    stream: TcpStream,
    /// Bytes to be sent, the first `sent` of which are gone.
    pub output: Vec<u8>,
    sent: usize,
    /// Input behind the last complete frame.
    rest: Vec<u8>,
    /// TLS and compression; `None` costs nothing but the look.
    layers: Option<Box<Layers>>,
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
            layers: None,
        }
    }

    /// Whether there is a layer.
    #[must_use]
    pub fn is_upgraded(&self) -> bool {
        self.layers.is_some()
    }

    /// Adds a layer behind the output that is there, which goes out as it would have before.
    ///
    /// # Errors
    /// When a library fails.
    pub fn upgrade(&mut self, layer: Layer) -> io::Result<()> {
        let layers = self.layers.get_or_insert_default();
        layers.seal(&[IoSlice::new(&self.output[self.sent..])])?;
        self.output.clear();
        self.sent = 0;
        layers.push(layer);
        Ok(())
    }

    /// Opens input that came in one read with the reason for the last upgrade, behind it. Returns where
    /// the result is.
    ///
    /// # Errors
    /// When the other side does not keep to a format.
    pub fn open_behind_upgrade(
        &mut self,
        scratch: &mut Vec<u8>,
        part: Range<usize>,
    ) -> io::Result<Range<usize>> {
        let Some(layers) = &mut self.layers else {
            return Ok(part);
        };
        let input = scratch[part].to_vec();
        let mut input = &input[..];
        let length = open_all(scratch, 0, |plain| layers.open_last(&mut input, plain))?;
        Ok(0..length)
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
        let sealed = match &self.layers {
            Some(layers) => layers.wire.len() - layers.sent,
            None => 0,
        };
        self.output.len() - self.sent + sealed
    }

    /// Writes what the socket takes; true when nothing is left.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn flush(&mut self) -> io::Result<bool> {
        let Some(layers) = &mut self.layers else {
            return write(&mut self.stream, &mut self.output, &mut self.sent);
        };
        loop {
            if !write(&mut self.stream, &mut layers.wire, &mut layers.sent)? {
                return Ok(false);
            }
            if self.output.is_empty() {
                return Ok(true);
            }
            layers.seal(&[IoSlice::new(&self.output)])?;
            self.output.clear();
        }
    }

    /// Reads once into `scratch`, behind what was left of the last time. Returns the outcome and the
    /// length of the whole; the caller handles it and gives the rest back by [`Link::keep`].
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn read(&mut self, scratch: &mut Vec<u8>, most: usize) -> io::Result<(ReadOutcome, usize)> {
        if let Some(layers) = &mut self.layers {
            return read_and_open(&mut self.stream, layers, &mut self.rest, scratch, most);
        }
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

/// Writes what the socket takes of `bytes` behind the first `sent`; true when nothing is left.
#[inline]
fn write(stream: &mut TcpStream, bytes: &mut Vec<u8>, sent: &mut usize) -> io::Result<bool> {
    while *sent < bytes.len() {
        let most = bytes.len().min(*sent + WRITE_BYTES_MAX);
        match stream.write(&bytes[*sent..most]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(taken) => *sent += taken,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            // Still in the making: the poller will say when.
            Err(error) if error.kind() == ErrorKind::NotConnected => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if *sent == bytes.len() {
        bytes.clear();
        *sent = 0;
    } else if *sent >= OUTPUT_BYTES_MAX {
        bytes.drain(..*sent);
        *sent = 0;
    }
    Ok(bytes.len() == *sent)
}

/// As [`Link::read`], through the layers.
fn read_and_open(
    stream: &mut TcpStream,
    layers: &mut Layers,
    rest: &mut Vec<u8>,
    scratch: &mut Vec<u8>,
    most: usize,
) -> io::Result<(ReadOutcome, usize)> {
    let mut wire = [0; WIRE_READ_BYTES];
    let wire = &mut wire[..most.min(WIRE_READ_BYTES)];
    let kept = rest.len();
    let bytes = loop {
        match stream.read(wire) {
            Ok(0) => return Ok((ReadOutcome::End, kept)),
            Ok(bytes) => break bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Ok((ReadOutcome::Later, kept));
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    };
    if scratch.len() < kept {
        scratch.resize(kept, 0);
    }
    scratch[..kept].copy_from_slice(rest);
    let mut wire = &wire[..bytes];
    let length = match open_all(scratch, kept, |plain| layers.open(&mut wire, plain)) {
        Ok(length) => length,
        Err(error) => {
            // TLS wants to tell the other side; if that fails, this error is still the cause.
            let _ = write(stream, &mut layers.wire, &mut layers.sent);
            return Err(error.into());
        }
    };
    if length == kept {
        // A part of a record, or one that is the layer's own business.
        return Ok((ReadOutcome::Later, kept));
    }
    rest.clear();
    Ok((ReadOutcome::Bytes(length - kept), length))
}

/// Opens everything, behind the first `length` bytes of a buffer that grows. Returns how long they are
/// then.
fn open_all(
    buffer: &mut Vec<u8>,
    mut length: usize,
    mut open: impl FnMut(&mut [u8]) -> Result<usize, UpgradeError>,
) -> Result<usize, UpgradeError> {
    loop {
        if buffer.len() < length + WIRE_READ_BYTES {
            buffer.resize(length + WIRE_READ_BYTES, 0);
        }
        let plain = &mut buffer[length..];
        let opened = open(plain)?;
        let was_enough = opened < plain.len();
        length += opened;
        if was_enough {
            return Ok(length);
        }
    }
}
