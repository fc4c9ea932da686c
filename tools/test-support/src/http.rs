//! Sends one HTTP request per connection, over a plain socket.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::TIMEOUT;

/// A response with its complete body.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// The headers in the order of the wire, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body without its framing.
    pub body: Vec<u8>,
}

impl Response {
    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the body as JSON. Panics if it is not JSON.
    pub fn json(&self) -> serde_json::Value {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("not JSON ({error}): {}", self.text()),
        }
    }

    /// Returns the field `message` of the JSON. Panics if there is none.
    pub fn message(&self) -> String {
        let message = self.json()["message"].as_str().map(str::to_owned);
        message.unwrap_or_else(|| panic!("no message: {}", self.text()))
    }

    /// Returns the first header of this name (in lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Panics with the body if the status differs.
    pub fn expect_status(self, status: u16) -> Response {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }

    /// Expects an error in the broker's style: this status and `{"message":"CODE"}`.
    pub fn expect_error(self, status: u16, code: &str) -> Response {
        let expected = format!("{{\"message\":\"{code}\"}}");
        assert_eq!((self.status, self.text()), (status, expected));
        self
    }
}

/// Sends a request and reads the whole response. Panics if there is none.
pub fn http(address: SocketAddr, method: &str, target: &str, body: &[u8]) -> Response {
    http_with_headers(address, method, target, &[], body)
}

/// Sends a request with further header lines, each `Name: value`.
pub fn http_with_headers(
    address: SocketAddr,
    method: &str,
    target: &str,
    headers: &[&str],
    body: &[u8],
) -> Response {
    match try_http(address, method, target, headers, body) {
        Ok(response) => response,
        Err(error) => panic!("{method} http://{address}{target}: {error}"),
    }
}

/// Sends a request and reads the whole response.
///
/// # Errors
/// There is no whole response.
pub fn try_http(
    address: SocketAddr,
    method: &str,
    target: &str,
    headers: &[&str],
    body: &[u8],
) -> io::Result<Response> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut bytes = format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\n").into_bytes();
    bytes.extend_from_slice(b"Connection: close\r\n");
    for header in headers {
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    if method != "GET" && method != "HEAD" {
        bytes.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    // A server may answer before it has read the whole body (413), so only the answer counts.
    let sent = stream.write_all(&bytes);
    let mut answer = Vec::new();
    let received = stream.read_to_end(&mut answer);
    if answer.is_empty() {
        sent?;
        received?;
    }
    parse(&answer, method == "HEAD")
}

/// Parses a whole response, the chunks of its body included. Skips interim responses (`100
/// Continue`) in front of it.
pub fn parse(bytes: &[u8], is_head: bool) -> io::Result<Response> {
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let end = bytes
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .ok_or_else(|| invalid("the response has no end of headers"))?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines
        .next()
        .and_then(|line| line.split(' ').nth(1))
        .and_then(|status| status.parse().ok())
        .ok_or_else(|| invalid("the response has no status"))?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let mut response = Response {
        status,
        headers,
        body: Vec::new(),
    };
    let rest = &bytes[end + 4..];
    if (100..200).contains(&response.status) {
        return parse(rest, is_head);
    }
    response.body = if is_head {
        Vec::new()
    } else if response.header("transfer-encoding") == Some("chunked") {
        unchunk(rest).ok_or_else(|| invalid("the chunked body is cut off"))?
    } else if let Some(length) = response.header("content-length") {
        let length: usize = length.parse().map_err(|_| invalid("bad Content-Length"))?;
        rest.get(..length)
            .ok_or_else(|| invalid("the body is cut off"))?
            .to_vec()
    } else {
        rest.to_vec()
    };
    Ok(response)
}

/// Returns the content of a chunked body, or None if the body is not complete.
fn unchunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line_end = rest.windows(2).position(|window| window == b"\r\n")?;
        let line = std::str::from_utf8(&rest[..line_end]).ok()?;
        let size = usize::from_str_radix(line.split(';').next()?.trim(), 16).ok()?;
        rest = &rest[line_end + 2..];
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size + 2..)?;
    }
}
