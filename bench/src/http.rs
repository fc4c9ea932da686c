//! HTTP/1.1 as far as nsqd's interface needs it: publishing over a kept-alive connection
//! ([`request`], [`Response::parse`]) and the administrator's calls ([`Admin`]).
//!
//! Our own few lines instead of a library: the load path writes requests into the same buffer and
//! reads answers in the same loop as V2, which no client library lets one do. Parsing is `httparse`.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait for an administrator's call.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of an error answer that are shown.
const BODY_BYTES_SHOWN: usize = 200;
/// Headers an answer may have.
const HEADERS_MAX: usize = 32;

/// Appends a POST's head for a body of `body_bytes`.
pub fn request(out: &mut Vec<u8>, path: &str, host: &str, body_bytes: usize) {
    out.extend_from_slice(b"POST ");
    out.extend_from_slice(path.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    out.extend_from_slice(host.as_bytes());
    out.extend_from_slice(b"\r\nContent-Length: ");
    out.extend_from_slice(body_bytes.to_string().as_bytes());
    out.extend_from_slice(b"\r\n\r\n");
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response<'a> {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: &'a [u8],
    /// Bytes of input it takes.
    pub consumed: usize,
}

impl<'a> Response<'a> {
    /// The answer at the front of `input`; `None` when it is not complete.
    /// Fails when it is no answer, or one without a length.
    pub fn parse(input: &'a [u8]) -> Result<Option<Response<'a>>, String> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Response::new(&mut headers);
        let parsed = head
            .parse(input)
            .map_err(|error| format!("not an HTTP answer: {error}"))?;
        let httparse::Status::Complete(head_bytes) = parsed else {
            return Ok(None);
        };
        let length = head
            .headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case("content-length"))
            .and_then(|header| std::str::from_utf8(header.value).ok()?.trim().parse().ok());
        let length: usize = length.ok_or("an HTTP answer without a length")?;
        let Some(body) = input.get(head_bytes..head_bytes.saturating_add(length)) else {
            return Ok(None);
        };
        Ok(Some(Response {
            status: head.code.unwrap_or(0),
            body,
            consumed: head_bytes + length,
        }))
    }
}

/// Calls to a daemon's HTTP address, one at a time, blocking.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    stream: Option<TcpStream>,
}

impl Admin {
    /// For the daemon at this address. Nothing is connected yet.
    pub fn new(address: SocketAddr) -> Admin {
        Admin {
            address,
            stream: None,
        }
    }

    /// The address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A POST without a body over the kept-alive connection; the answer must be 200.
    /// Fails when the daemon cannot be reached or refuses, in words.
    pub fn post(&mut self, path: &str) -> Result<(), String> {
        let address = self.address;
        let failed = |error: io::Error| format!("POST http://{address}{path}: {error}");
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect().map_err(failed)?,
        };
        let mut out = Vec::new();
        request(&mut out, path, &self.address.to_string(), 0);
        stream.write_all(&out).map_err(failed)?;
        let mut input = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            let bytes = stream.read(&mut chunk).map_err(failed)?;
            if bytes == 0 {
                return Err(failed(ErrorKind::UnexpectedEof.into()));
            }
            input.extend_from_slice(&chunk[..bytes]);
            if let Some(response) = Response::parse(&input)? {
                if response.status != 200 {
                    let answer = shown(response.status, response.body);
                    return Err(format!("POST http://{address}{path}: {answer}"));
                }
                self.stream = Some(stream);
                return Ok(());
            }
        }
    }

    /// A GET over a connection of its own, as HTTP/1.0: the answer ends with the connection, in one
    /// piece.
    /// Fails when the daemon cannot be reached or does not answer 200, in words.
    pub fn get(&self, path: &str) -> Result<Vec<u8>, String> {
        let failed = |error: io::Error| format!("GET http://{}{path}: {error}", self.address);
        let mut stream = self.connect().map_err(failed)?;
        let head = format!("GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address);
        stream.write_all(head.as_bytes()).map_err(failed)?;
        let mut input = Vec::new();
        stream.read_to_end(&mut input).map_err(failed)?;
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Response::new(&mut headers);
        let parsed = head.parse(&input);
        let (status, Ok(httparse::Status::Complete(at))) = (head.code, parsed) else {
            return Err(format!("GET http://{}{path}: no HTTP answer", self.address));
        };
        let body = input.split_off(at);
        match status {
            Some(200) => Ok(body),
            _ => {
                let answer = shown(status.unwrap_or(0), &body);
                Err(format!("GET http://{}{path}: {answer}", self.address))
            }
        }
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.address, CALL_TIMEOUT)?;
        stream.set_read_timeout(Some(CALL_TIMEOUT))?;
        stream.set_write_timeout(Some(CALL_TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// An answer that is not 200, for the user.
fn shown(status: u16, body: &[u8]) -> String {
    let body = &body[..body.len().min(BODY_BYTES_SHOWN)];
    format!("answer {status}, {}", String::from_utf8_lossy(body).trim())
}

#[cfg(test)]
mod tests;
