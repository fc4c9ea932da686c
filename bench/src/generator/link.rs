//! [`Link`]: one nonblocking connection with its unsent output and its unfinished input. Output and input are plain
//! V2 or HTTP. TLS and compression lie between them and the socket.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;

use socket2::{Domain, Protocol, Socket, Type};
use upgrade::{Upgrade, UpgradeError, Upgrades};
use wire::encode::{FrameDecoded, decode_frame};
use wire::frame::FrameType;

/// The most output that is gathered before the socket must take some, in bytes.
pub const OUTPUT_BYTES_MAX: usize = 256 * 1024;
/// The most bytes of one write. A kernel without preemption keeps this processor while it copies them, and
/// another generator on this machine would measure that as latency.
const WRITE_BYTES_MAX: usize = 128 * 1024;
/// The most bytes of one read through TLS or compression: decompressed they may be a thousand times as
/// many.
const WIRE_READ_BYTES: usize = 32 * 1024;

/// A connection. It may still be connecting: epoll says when writing is possible.
#[derive(Debug)]
pub struct Link {
    /// The socket, for the poller.
    pub stream: TcpStream,
    /// The output. Its first `sent` bytes are sent.
    pub output: Vec<u8>,
    sent: usize,
    /// Input behind the last complete frame.
    rest: Vec<u8>,
    /// TLS and compression, if there are any.
    upgrades: Option<Box<Upgrades>>,
}

impl Link {
    /// Begins to connect, without waiting.
    /// Fails when the system refuses a socket or the address at once.
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

    /// Takes over a connected stream, which must be nonblocking.
    pub fn new(stream: TcpStream) -> Link {
        Link {
            stream,
            output: Vec::new(),
            sent: 0,
            rest: Vec::new(),
            upgrades: None,
        }
    }

    /// Tells whether TLS or compression is on.
    pub fn is_upgraded(&self) -> bool {
        self.upgrades.is_some()
    }

    /// Adds an upgrade. Output that is there already goes out as it would have before.
    /// Fails when a library fails.
    pub fn upgrade(&mut self, upgrade: Upgrade) -> io::Result<()> {
        let upgrades = self.upgrades.get_or_insert_default();
        upgrades.seal(&[IoSlice::new(&self.output[self.sent..])])?;
        self.output.clear();
        self.sent = 0;
        upgrades.push(upgrade);
        Ok(())
    }

    /// Decodes input that came in the same read as the answer that led to the last upgrade. Returns where the
    /// decoded input is.
    /// Fails when the input is not in the format of an upgrade.
    pub fn open_behind_upgrade(
        &mut self,
        scratch: &mut Vec<u8>,
        part: Range<usize>,
    ) -> io::Result<Range<usize>> {
        let Some(upgrades) = &mut self.upgrades else {
            return Ok(part);
        };
        let input = scratch[part].to_vec();
        let mut input = &input[..];
        let length = open_all(scratch, 0, |plain| upgrades.open_last(&mut input, plain))?;
        Ok(0..length)
    }

    /// Bytes that wait to be sent.
    #[inline]
    pub fn unsent(&self) -> usize {
        let sealed = |upgrades: &Upgrades| upgrades.wire.len() - upgrades.sent;
        self.output.len() - self.sent + self.upgrades.as_deref().map_or(0, sealed)
    }

    /// Writes what the socket takes; true when nothing is left.
    /// Fails when the connection is broken.
    pub fn flush(&mut self) -> io::Result<bool> {
        let Some(upgrades) = &mut self.upgrades else {
            return write(&mut self.stream, &mut self.output, &mut self.sent);
        };
        loop {
            if !write(&mut self.stream, &mut upgrades.wire, &mut upgrades.sent)? {
                return Ok(false);
            }
            if self.output.is_empty() {
                return Ok(true);
            }
            upgrades.seal(&[IoSlice::new(&self.output)])?;
            self.output.clear();
        }
    }

    /// Reads once into `scratch`, behind the rest of the last read. Returns the length of the whole input; `None`
    /// when nothing new came. The caller handles the input and gives the new rest to [`Link::keep`].
    /// Fails when the connection is broken, or closed by the other side.
    pub fn read(&mut self, scratch: &mut Vec<u8>, most: usize) -> io::Result<Option<usize>> {
        let kept = self.rest.len();
        if scratch.len() < kept + most {
            scratch.resize(kept + most, 0);
        }
        scratch[..kept].copy_from_slice(&self.rest);
        let length = match &mut self.upgrades {
            Some(upgrades) => read_and_open(&mut self.stream, upgrades, scratch, kept, most)?,
            None => kept + read_some(&mut self.stream, &mut scratch[kept..kept + most])?,
        };
        if length == kept {
            return Ok(None);
        }
        self.rest.clear();
        Ok(Some(length))
    }

    /// Keeps input for the next read.
    pub fn keep(&mut self, rest: &[u8]) {
        self.rest.clear();
        self.rest.extend_from_slice(rest);
    }
}

/// Takes the frame at `at` in the input, and moves `at` behind the frame. `None` when the frame is not complete.
/// Fails when there is no frame; in words for the user.
#[inline]
pub fn next_frame<'a>(
    input: &'a [u8],
    at: &mut usize,
) -> Result<Option<(FrameType, &'a [u8])>, String> {
    match decode_frame(&input[*at..]) {
        FrameDecoded::NeedMore(_) => Ok(None),
        FrameDecoded::Bad => Err("the daemon sent something that is no frame".into()),
        FrameDecoded::Frame {
            kind,
            data,
            consumed,
        } => {
            *at += consumed;
            Ok(Some((kind, data)))
        }
    }
}

/// Writes `bytes` from `sent` on, as far as the socket takes them; true when nothing is left.
#[inline]
fn write(stream: &mut TcpStream, bytes: &mut Vec<u8>, sent: &mut usize) -> io::Result<bool> {
    while *sent < bytes.len() {
        let most = bytes.len().min(*sent + WRITE_BYTES_MAX);
        match stream.write(&bytes[*sent..most]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(taken) => *sent += taken,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            // Still connecting: epoll will say when it is done.
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

/// Reads the bytes that the socket has; none may be there.
fn read_some(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        return match stream.read(buffer) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read,
        };
    }
}

/// Does [`Link::read`] through TLS and compression, behind the first `kept` bytes of `scratch`. The length stays when
/// a part of a record came, or a record without data.
fn read_and_open(
    stream: &mut TcpStream,
    upgrades: &mut Upgrades,
    scratch: &mut Vec<u8>,
    kept: usize,
    most: usize,
) -> io::Result<usize> {
    let mut wire = [0; WIRE_READ_BYTES];
    let bytes = read_some(stream, &mut wire[..most.min(WIRE_READ_BYTES)])?;
    if bytes == 0 {
        return Ok(kept);
    }
    let mut wire = &wire[..bytes];
    open_all(scratch, kept, |plain| upgrades.open(&mut wire, plain)).map_err(|error| {
        // TLS sends an alert to the other side. If sending fails, the first error is still the cause.
        let _ = write(stream, &mut upgrades.wire, &mut upgrades.sent);
        error.into()
    })
}

/// Decodes all input behind the first `length` bytes of `buffer`, which grows. Returns the new length.
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
