//! [`Link`]: a connection to an nsqlookupd, with or without TLS.

use super::address::Target;
use rustls::{ClientConnection, StreamOwned};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use upgrade::ClientConfig;
use upgrade::pki_types::ServerName;
use wire::go_error::system_text;

/// The longest time in which a peer must accept a connection, or answer the commands that were sent.
pub(super) const TIMEOUT: Duration = Duration::from_secs(1);

/// One connection.
pub(super) struct Link {
    /// The peer's IP address.
    pub(super) address: SocketAddr,
    stream: Stream,
    /// Read, but not yet taken as an answer.
    input: Vec<u8>,
}

impl Link {
    /// Connects to the first IP address of an nsqlookupd that accepts.
    ///
    /// # Errors
    /// The text for the log.
    pub(super) fn connect(
        target: &Target,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<Link, String> {
        let fail = |why: &str| format!("dial tcp {}: {why}", target.label);
        let deadline = Instant::now() + TIMEOUT;
        let mut result = Err(ErrorKind::AddrNotAvailable.into());
        for (index, address) in target.addresses.iter().enumerate() {
            // An address that never answers leaves the others their part of the time.
            let left = u32::try_from(target.addresses.len() - index).unwrap_or(u32::MAX);
            result = remaining(deadline)
                .and_then(|time| TcpStream::connect_timeout(address, time / left))
                .map(|stream| (*address, stream));
            if result.is_ok() {
                break;
            }
        }
        let (address, stream) =
            result.map_err(|error| fail(&format!("connect: {}", cause(&error))))?;
        stream
            .set_nodelay(true)
            .map_err(|error| fail(&cause(&error)))?;
        let socket = Timed {
            socket: stream,
            deadline,
        };
        let stream = match tls {
            None => Stream::Plain(socket),
            Some(config) => Stream::secure(socket, &target.host, config)
                .map_err(|why| fail(&format!("tls: {why}")))?,
        };
        Ok(Link {
            address,
            stream,
            input: Vec::new(),
        })
    }

    /// Sends bytes before the deadline.
    ///
    /// # Errors
    /// The text for the log.
    pub(super) fn write(&mut self, bytes: &[u8], deadline: Instant) -> Result<(), String> {
        self.stream.timed().deadline = deadline;
        self.stream
            .write_all(bytes)
            .and_then(|()| self.stream.flush())
            .map_err(|error| self.text("write", &error))
    }

    /// Returns the next answer, without its length.
    ///
    /// # Errors
    /// The text for the log: the connection is broken, or the answer has more than `bytes_max` bytes.
    pub(super) fn answer(
        &mut self,
        bytes_max: usize,
        deadline: Instant,
    ) -> Result<Vec<u8>, String> {
        self.stream.timed().deadline = deadline;
        loop {
            if let Some(answer) = take_answer(&mut self.input, bytes_max)? {
                return Ok(answer);
            }
            let mut buffer = [0; 4096];
            let bytes = self
                .stream
                .read(&mut buffer)
                .map_err(|error| self.text("read", &error))?;
            if bytes == 0 {
                return Err("EOF".to_owned());
            }
            self.input.extend_from_slice(&buffer[..bytes]);
        }
    }

    /// In Go's words.
    fn text(&self, verb: &str, error: &io::Error) -> String {
        let show = |address: io::Result<SocketAddr>| {
            address.map_or("?".to_owned(), |address| address.to_string())
        };
        let socket = self.stream.socket();
        let (local, peer) = (socket.local_addr(), socket.peer_addr());
        let (local, peer) = (show(local), show(peer));
        format!("{verb} tcp {local}->{peer}: {}", cause(error))
    }
}

/// A socket whose reads and writes end at a deadline. A read or write of TLS can be many of them.
struct Timed {
    socket: TcpStream,
    deadline: Instant,
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let timeout = remaining(self.deadline)?;
        self.socket.set_read_timeout(Some(timeout))?;
        self.socket.read(buffer)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let timeout = remaining(self.deadline)?;
        self.socket.set_write_timeout(Some(timeout))?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// The stream of a connection. The handshake of TLS is part of the first exchange.
enum Stream {
    Plain(Timed),
    Tls(Box<StreamOwned<ClientConnection, Timed>>),
}

impl Stream {
    fn secure(socket: Timed, host: &str, config: &Arc<ClientConfig>) -> Result<Stream, String> {
        let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
        let client =
            ClientConnection::new(config.clone(), name).map_err(|error| error.to_string())?;
        Ok(Stream::Tls(Box::new(StreamOwned::new(client, socket))))
    }

    fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(timed) => &timed.socket,
            Stream::Tls(stream) => &stream.sock.socket,
        }
    }

    fn timed(&mut self) -> &mut Timed {
        match self {
            Stream::Plain(timed) => timed,
            Stream::Tls(stream) => &mut stream.sock,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(timed) => timed.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(timed) => timed.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(timed) => timed.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}

/// Takes an answer off the front of `input`, once it is complete.
fn take_answer(input: &mut Vec<u8>, bytes_max: usize) -> Result<Option<Vec<u8>>, String> {
    let Some(size) = input.first_chunk() else {
        return Ok(None);
    };
    let size = i32::from_be_bytes(*size);
    let Ok(bytes) = usize::try_from(size) else {
        return Err(format!("response body size ({size}) is negative"));
    };
    if input.starts_with(b"HTTP") {
        return Err(
            "it answers in HTTP: the address must be nsqlookupd's --tcp-address (by default port 4160)".to_owned(),
        );
    }
    if bytes > bytes_max {
        return Err(format!(
            "response body size ({size}) is greater than limit ({bytes_max})"
        ));
    }
    if input.len() < 4 + bytes {
        return Ok(None);
    }
    let rest = input.split_off(4 + bytes);
    let mut answer = std::mem::replace(input, rest);
    answer.drain(..4);
    Ok(Some(answer))
}

fn remaining(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(ErrorKind::TimedOut.into())
    } else {
        Ok(left)
    }
}

fn cause(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "i/o timeout".to_owned(),
        _ => system_text(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use upgrade::{ClientTls, client_config};

    #[test]
    fn answers_are_taken_whole_and_within_bounds() {
        let take = |bytes: &[u8]| {
            let mut input = bytes.to_vec();
            take_answer(&mut input, 10).map(|answer| (answer, input))
        };
        assert_eq!(take(b"\0\0"), Ok((None, b"\0\0".to_vec())));
        assert_eq!(take(b"\0\0\0\x02O"), Ok((None, b"\0\0\0\x02O".to_vec())));
        let both = b"\0\0\0\x02OK\0\0\0\0";
        assert_eq!(take(both), Ok((Some(b"OK".to_vec()), b"\0\0\0\0".to_vec())));
        assert_eq!(take(b"\0\0\0\0"), Ok((Some(Vec::new()), Vec::new())));
        assert_eq!(
            take(b"HTTP/1.1 400"),
            Err("it answers in HTTP: the address must be nsqlookupd's --tcp-address (by default port 4160)".to_owned())
        );
        assert_eq!(
            take(b"\0\0\0\x0b"),
            Err("response body size (11) is greater than limit (10)".to_owned())
        );
        assert_eq!(
            take(b"\xff\xff\xff\xff"),
            Err("response body size (-1) is negative".to_owned())
        );
    }
    /// Each byte came before the timeout of its read, so a peer could keep the thread for hours.
    #[test]
    fn a_peer_that_sends_tls_byte_by_byte_is_left_at_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            // The head of a record of TLS that never ends.
            let head = [0x16, 3, 3, 0x3f, 0xff];
            for byte in head.into_iter().chain(std::iter::repeat(0)) {
                if stream.write_all(&[byte]).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let config = client_config(&ClientTls {
            authorities: None,
            cert_and_key: None,
            only_tls13: false,
        });
        let target = Target::ip("peer", address);
        let config = config.expect("no file is named");
        let mut link = Link::connect(&target, Some(&config)).expect("it listens");
        let started = Instant::now();
        let deadline = started + Duration::from_millis(200);
        let done = link
            .write(b"PING\n", deadline)
            .and_then(|()| link.answer(10, deadline));
        let error = done.expect_err("the handshake does not end");
        assert!(error.ends_with("i/o timeout"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}
