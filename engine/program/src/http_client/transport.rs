//! The connections below the HTTP library: TLS, and heads of answers that the library can read.
//!
//! The library's own TLS takes fewer certificates than Go's. Its parser takes at most 128 header lines, and none that are
//! folded. So [`HeadTransport`] gives it a short head with the same meaning.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};

use httparse::{EMPTY_HEADER, ParserConfig, Response, Status};
use rustls::{ClientConnection, StreamOwned};
use upgrade::pki_types::ServerName;
use upgrade::{ClientConfig, ClientTls, client_config, system_authorities};
use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport,
    TransportAdapter,
};

use super::HttpTls;

/// Most bytes of the head of an answer. Go's client has the same limit.
const HEAD_BYTES_MAX: usize = 10 << 20;

/// Most bytes of an answer that is not HTTP, or has a malformed head, that the library gets to say what is wrong.
const MALFORMED_BYTES_MAX: usize = 16 << 10;

/// The beginning of an answer.
const HTTP: &[u8] = b"HTTP/";

/// The headers that the library or its caller acts on.
const HEADERS: [&str; 5] = [
    "connection",
    "content-encoding",
    "content-length",
    "location",
    "transfer-encoding",
];

/// Adds TLS to the connections of HTTPS.
#[derive(Debug)]
pub(super) struct TlsConnector {
    tls: HttpTls,
    /// The configuration with the authorities of the system, once they have been read.
    of_system: OnceLock<Arc<ClientConfig>>,
}

impl TlsConnector {
    pub(super) fn new(tls: HttpTls) -> TlsConnector {
        TlsConnector {
            tls,
            of_system: OnceLock::new(),
        }
    }

    fn config(&self) -> io::Result<Arc<ClientConfig>> {
        let only_tls13 = match &self.tls {
            HttpTls::Config(config) => return Ok(config.clone()),
            HttpTls::System { only_tls13 } => *only_tls13,
        };
        if let Some(config) = self.of_system.get() {
            return Ok(config.clone());
        }
        let config = system_authorities().and_then(|roots| {
            client_config(&ClientTls {
                authorities: Some(roots),
                cert_and_key: None,
                only_tls13,
            })
        });
        let config = config.map_err(io::Error::other)?;
        Ok(self.of_system.get_or_init(|| config).clone())
    }
}

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = Either<In, TlsTransport>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        let Some(transport) = chained else {
            return Ok(None);
        };
        if !details.needs_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let host = details.uri.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|error| Error::Io(io::Error::other(error)))?;
        let session = ClientConnection::new(self.config()?, name).map_err(io::Error::other)?;
        let mut socket = TransportAdapter::new(transport.boxed(), details.current_time.clone());
        socket.set_timeout(details.timeout);
        let mut stream = StreamOwned::new(session, socket);
        stream.conn.complete_io(&mut stream.sock)?;
        Ok(Some(Either::B(TlsTransport {
            buffers: buffers(details),
            stream,
        })))
    }
}

/// A connection with TLS.
pub(super) struct TlsTransport {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
}

impl fmt::Debug for TlsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsTransport").finish_non_exhaustive()
    }
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.sock.set_timeout(timeout);
        let output = &self.buffers.output()[..amount];
        Ok(io::Write::write_all(&mut self.stream, output)?)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.sock.set_timeout(timeout);
        let bytes = io::Read::read(&mut self.stream, self.buffers.input_append_buf())?;
        self.buffers.input_appended(bytes);
        Ok(bytes > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.sock.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

/// Puts a [`HeadTransport`] on each connection.
#[derive(Debug)]
pub(super) struct HeadConnector;

impl<In: Transport> Connector<In> for HeadConnector {
    type Out = HeadTransport<In>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        Ok(chained.map(|inner| HeadTransport {
            inner,
            buffers: buffers(details),
            head: None,
        }))
    }
}

/// A connection that shortens the heads of answers.
#[derive(Debug)]
pub(super) struct HeadTransport<In> {
    inner: In,
    buffers: LazyBuffers,
    /// The part of the head that was read. `None` inside a body.
    head: Option<Vec<u8>>,
}

impl<In: Transport> HeadTransport<In> {
    /// Gives bytes to the library.
    fn deliver(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let space = self.buffers.input_append_buf();
        let room = space.len();
        let Some(space) = space.get_mut(..bytes.len()) else {
            return Err(Error::LargeResponseHeader(bytes.len(), room));
        };
        space.copy_from_slice(bytes);
        self.buffers.input_appended(bytes.len());
        Ok(())
    }

    /// Takes what was read of a head, and delivers the head once it is whole.
    fn take_head(&mut self, mut head: Vec<u8>) -> Result<(), Error> {
        let input = self.inner.buffers().input();
        // The end can begin in what was read before.
        let searched = head.len().saturating_sub(3);
        let taken = input.len().min(HEAD_BYTES_MAX + 1 - head.len());
        let before = head.len();
        head.extend_from_slice(&input[..taken]);
        let end = end_of_head(&head, searched);
        if let Some(end) = end {
            head.truncate(end);
        }
        self.inner.buffers().input_consume(head.len() - before);
        let malformed_bytes = head.len().min(MALFORMED_BYTES_MAX);
        if !HTTP.starts_with(&head[..head.len().min(HTTP.len())]) {
            return self.deliver(&head[..malformed_bytes]);
        }
        if head.len() > HEAD_BYTES_MAX {
            return Err(Error::LargeResponseHeader(head.len(), HEAD_BYTES_MAX));
        }
        if end.is_none() {
            self.head = Some(head);
            return Ok(());
        }
        match short_head(&head) {
            Some(short) if short.is_empty() => self.head = Some(short),
            Some(short) => self.deliver(&short)?,
            None => self.deliver(&head[..malformed_bytes])?,
        }
        Ok(())
    }
}

impl<In: Transport> Transport for HeadTransport<In> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.head = Some(Vec::new());
        let mut output = &self.buffers.output()[..amount];
        while !output.is_empty() {
            let space = self.inner.buffers().output();
            let bytes = output.len().min(space.len());
            space[..bytes].copy_from_slice(&output[..bytes]);
            self.inner.transmit_output(bytes, timeout)?;
            output = &output[bytes..];
        }
        Ok(())
    }

    /// Returns true without input while the head is not whole. The library then asks again, with what is left of the time.
    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let has_input = self.inner.maybe_await_input(timeout)?;
        if !has_input && self.inner.buffers().input().is_empty() {
            return Ok(false);
        }
        if let Some(head) = self.head.take() {
            self.take_head(head)?;
            return Ok(true);
        }
        let space = self.buffers.input_append_buf();
        let input = self.inner.buffers().input();
        let bytes = input.len().min(space.len());
        space[..bytes].copy_from_slice(&input[..bytes]);
        self.inner.buffers().input_consume(bytes);
        self.buffers.input_appended(bytes);
        Ok(bytes > 0)
    }

    fn is_open(&mut self) -> bool {
        self.inner.buffers().input().is_empty() && self.inner.is_open()
    }

    fn is_tls(&self) -> bool {
        self.inner.is_tls()
    }
}

fn buffers(details: &ConnectionDetails<'_>) -> LazyBuffers {
    let config = details.config;
    LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size())
}

/// Returns the number of bytes up to the empty line that ends a head. Bytes before `searched` have no end. Like Go, this
/// takes lines without a carriage return.
fn end_of_head(head: &[u8], searched: usize) -> Option<usize> {
    (searched..head.len()).find_map(|at| match &head[at..] {
        [b'\n', b'\n', ..] => Some(at + 2),
        [b'\n', b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

/// Returns the status line and [`HEADERS`] of a whole head, each header in one line. The text is empty for an interim answer
/// (status 1xx), which another answer follows. `None`: the head is malformed.
fn short_head(head: &[u8]) -> Option<Vec<u8>> {
    let lines = head.iter().filter(|byte| **byte == b'\n').count();
    let mut headers = vec![EMPTY_HEADER; lines];
    let mut response = Response::new(&mut headers);
    let parsed = ParserConfig::default()
        .allow_obsolete_multiline_headers_in_responses(true)
        .allow_spaces_after_header_name_in_responses(true)
        .parse_response(&mut response, head);
    let (Ok(Status::Complete(_)), Some(version), Some(code)) =
        (parsed, response.version, response.code)
    else {
        return None;
    };
    if (100..200).contains(&code) && code != 101 {
        return Some(Vec::new());
    }
    let mut short = format!("HTTP/1.{version} {code}\r\n").into_bytes();
    for header in response.headers.iter() {
        if !HEADERS
            .iter()
            .any(|name| header.name.eq_ignore_ascii_case(name))
        {
            continue;
        }
        short.extend_from_slice(header.name.as_bytes());
        short.push(b':');
        let lines = header.value.split(|byte| matches!(byte, b'\r' | b'\n'));
        for line in lines
            .map(<[u8]>::trim_ascii)
            .filter(|line| !line.is_empty())
        {
            short.push(b' ');
            short.extend_from_slice(line);
        }
        short.extend_from_slice(b"\r\n");
    }
    short.extend_from_slice(b"\r\n");
    Some(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_shortened() {
        let short = |head: &str| {
            assert_eq!(
                end_of_head(head.as_bytes(), 0),
                Some(head.len()),
                "{head:?}"
            );
            let short = short_head(head.as_bytes());
            short.map(|short| String::from_utf8(short).expect("its input is text"))
        };
        let is = |text: &str| Some(text.to_owned());
        assert_eq!(
            short("HTTP/1.1 200 OK\r\nX: 1\r\nContent-length: 5\r\n\r\n"),
            is("HTTP/1.1 200\r\nContent-length: 5\r\n\r\n")
        );
        assert_eq!(
            short("HTTP/1.0 302\nX: 1\n y\nLocation:\n http://h\r\n\t/x\nConnection : close\n\n"),
            is("HTTP/1.0 302\r\nLocation: http://h /x\r\nConnection: close\r\n\r\n")
        );
        assert_eq!(short("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"), is(""));
        assert_eq!(short("HTTP/1.1 200 OK\r\nno colon\r\n\r\n"), None);
        assert_eq!(short("HTTP/1.1 200 OK\r\n folded: first\r\n\r\n"), None);
        assert_eq!(end_of_head(b"HTTP/1.1 200 OK\r\nX: 1\r\n", 0), None);
        assert_eq!(end_of_head(b"ab\n\nc", 2), Some(4));
    }
}
