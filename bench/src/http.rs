//! HTTP/1.1 as far as nsqd's interface needs it: publishing over a kept-alive connection
//! ([`request`], [`Response::parse`]) and the administrator's calls ([`call`]).
//!
//! No client library is used, because the load path writes requests into the same buffer and reads answers in the same
//! loop as V2. `httparse` parses the answers.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait for an administrator's call.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of an error answer that an error message shows.
const BODY_BYTES_SHOWN: usize = 200;
const HEADERS_MAX: usize = 32;

/// Appends a POST's head for a body of `body_bytes`.
pub fn request(out: &mut Vec<u8>, path: &str, host: &str, body_bytes: usize) {
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {body_bytes}\r\n\r\n");
    out.extend_from_slice(head.as_bytes());
}

/// Returns the content length that headers state.
pub fn content_length(headers: &[httparse::Header<'_>]) -> Option<usize> {
    let is_length =
        |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case("content-length");
    let value = headers.iter().find(is_length)?.value;
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response<'a> {
    /// The status code, such as 200.
    pub status: u16,
    /// The body.
    pub body: &'a [u8],
    /// Bytes of input that the answer took, head and body.
    pub consumed: usize,
}

impl<'a> Response<'a> {
    /// Returns the answer at the front of `input`; `None` when the answer is not complete.
    /// Fails when the input is no HTTP answer, or the answer has no length.
    pub fn parse(input: &'a [u8]) -> Result<Option<Response<'a>>, String> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Response::new(&mut headers);
        let parsed = head
            .parse(input)
            .map_err(|error| format!("not an HTTP answer: {error}"))?;
        let httparse::Status::Complete(head_bytes) = parsed else {
            return Ok(None);
        };
        let length = content_length(head.headers).ok_or("an HTTP answer without a length")?;
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

/// Sends a request without a body to a daemon's HTTP address, and returns the body of the answer. Each call has a
/// connection of its own and speaks HTTP/1.0, so that the answer is in one piece and ends with the connection.
/// Fails when the daemon cannot be reached or does not answer 200, in words.
pub fn call(address: SocketAddr, method: &str, path: &str) -> Result<Vec<u8>, String> {
    let failed = |why: &str| format!("{method} http://{address}{path}: {why}");
    let mut input = exchange(address, method, path).map_err(|error| failed(&error.to_string()))?;
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let parsed = head.parse(&input);
    let (Some(status), Ok(httparse::Status::Complete(at))) = (head.code, parsed) else {
        return Err(failed("no HTTP answer"));
    };
    let body = input.split_off(at);
    if status != 200 {
        let shown = String::from_utf8_lossy(&body[..body.len().min(BODY_BYTES_SHOWN)]);
        return Err(failed(&format!("answer {status}, {}", shown.trim())));
    }
    Ok(body)
}

fn exchange(address: SocketAddr, method: &str, path: &str) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, CALL_TIMEOUT)?;
    stream.set_read_timeout(Some(CALL_TIMEOUT))?;
    stream.set_write_timeout(Some(CALL_TIMEOUT))?;
    let head = format!("{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut input = Vec::new();
    stream.read_to_end(&mut input)?;
    Ok(input)
}

#[cfg(test)]
mod tests;
