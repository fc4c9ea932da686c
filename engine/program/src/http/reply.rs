//! The answer of a program and its conversion to a response, with NSQ's two styles and their
//! headers.

use std::borrow::Cow;
use std::fmt;
use std::future::poll_fn;
use std::io::Write as _;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;

use wire::go_json::to_string;
use wire::json_object;

use super::host_names::HostNames;
use crate::metrics;

const JSON: &str = "application/json; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";

/// The header that client libraries look for. They treat an answer without it as one of NSQ before
/// 1.0 and find no data.
const MARKER: (&str, &str) = ("X-Nsq-Content-Type", "nsq; version=1.0");

/// An error for the client: a status, a word, and perhaps a reason, which NSQ's programs do not give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The status.
    pub status: StatusCode,
    /// The word, without characters that JSON escapes.
    pub code: &'static str,
    /// What is wrong, and what to do.
    pub reason: Option<Cow<'static, str>>,
}

impl Failure {
    /// The failure of a request for a reason that is not the client's fault.
    pub const INTERNAL: Failure = Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL_ERROR");
    /// The failure of a request whose path has no route.
    pub const NOT_FOUND: Failure = Failure::new(StatusCode::NOT_FOUND, "NOT_FOUND");

    /// The failure of a request that would change something, and that a browser marks as sent by a page of another site.
    pub const FORBIDDEN_ORIGIN: Failure = Failure::new(StatusCode::FORBIDDEN, "FORBIDDEN_ORIGIN");

    /// Returns a failure.
    pub const fn new(status: StatusCode, code: &'static str) -> Failure {
        Failure {
            status,
            code,
            reason: None,
        }
    }

    /// Returns the failure with a reason.
    #[must_use]
    pub fn because(mut self, reason: impl Into<Cow<'static, str>>) -> Failure {
        self.reason = Some(reason.into());
        self
    }

    /// Returns a failure with status 400.
    pub const fn bad(code: &'static str) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, code)
    }

    /// Returns a failure with status 413.
    pub const fn too_large(code: &'static str) -> Failure {
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, code)
    }
}

/// The later parts of a long body. Each call makes one part.
struct Parts(Box<PollNext>);

type PollNext = dyn FnMut(&mut Context<'_>) -> Poll<Option<String>> + Send;

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parts")
    }
}

/// The answer to a request. It becomes a response when it is written.
#[derive(Debug)]
pub struct Reply {
    status: StatusCode,
    is_v1: bool,
    content_type: Option<&'static str>,
    /// True when the content type follows from the body, because the handler gave none.
    is_sniffed: bool,
    header: Option<(&'static str, String)>,
    /// The body, or its first part.
    body: Bytes,
    /// The other parts of the body.
    rest: Option<Parts>,
    must_close: bool,
}

/// The properties of a request that determine the form of its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    pub(super) is_http_11: bool,
    /// True for HEAD: the answer has only a head.
    pub(super) is_head: bool,
    /// True when the request lets the connection continue.
    pub(super) keeps_alive: bool,
}

impl Reply {
    fn new(status: StatusCode, is_v1: bool, body: impl Into<Bytes>) -> Reply {
        let body = body.into();
        // Go examines the body when no type is given. All texts of NSQ's programs count as text.
        let content_type = (!body.is_empty()).then_some(TEXT);
        Reply {
            status,
            is_v1,
            content_type,
            is_sniffed: true,
            header: None,
            body,
            rest: None,
            must_close: false,
        }
    }

    /// Returns a text in the plain style: the answer to `/ping` and to requests without an
    /// endpoint.
    pub fn plain(status: StatusCode, body: impl Into<Bytes>) -> Reply {
        Reply::new(status, false, body)
    }

    /// Returns a success with a text, which may be empty.
    pub fn text(body: impl Into<Bytes>) -> Reply {
        Reply::new(StatusCode::OK, true, body)
    }

    /// Returns a JSON document.
    pub fn json(status: StatusCode, body: String) -> Reply {
        Reply::new(status, true, body).with_type(JSON)
    }

    /// Returns a text of metrics.
    pub fn metrics(text: impl Into<Bytes>) -> Reply {
        Reply::plain(StatusCode::OK, text).with_type(metrics::CONTENT_TYPE)
    }

    /// Returns the answer with further parts behind its body, which is too long for one piece of memory. `poll_next` makes
    /// the next part when the one before has left, and returns `None` behind the last one. A client of HTTP/1.1 gets the
    /// body in chunks. For another client, the connection ends with the body.
    #[must_use]
    pub fn and_more(
        mut self,
        poll_next: impl FnMut(&mut Context<'_>) -> Poll<Option<String>> + Send + 'static,
    ) -> Reply {
        self.rest = Some(Parts(Box::new(poll_next)));
        self
    }

    /// Returns a page for browsers.
    pub fn html(body: String) -> Reply {
        Reply::plain(StatusCode::OK, body).with_type(HTML)
    }

    fn with_type(mut self, content_type: &'static str) -> Reply {
        self.content_type = Some(content_type);
        self.is_sniffed = false;
        self
    }

    /// Adds a header that tells browsers not to guess another type.
    pub fn and_no_sniffing(mut self) -> Reply {
        self.header = Some(("X-Content-Type-Options", "nosniff".to_string()));
        self.is_sniffed = false;
        self
    }

    /// Returns an error. Its word and its reason are in a JSON object.
    pub fn failure(failure: Failure) -> Reply {
        let reason = failure.reason.map(|reason| json_object! { reason });
        let body = to_string(&json_object! { message: failure.code, #[serde(flatten)] reason });
        Reply::json(failure.status, body)
    }

    /// Returns the answer to a request whose `Host` is no name of the server.
    pub(super) fn misdirected(host: &str) -> Reply {
        let failure = Failure::new(StatusCode::MISDIRECTED_REQUEST, "MISDIRECTED_HOST");
        Reply::failure(failure.because(HostNames::advice(host)))
    }

    pub(super) fn wrong_method(allow: String) -> Reply {
        let failure = Failure::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED");
        let mut reply = Reply::failure(failure);
        reply.header = Some(("Allow", allow));
        reply
    }

    pub(super) fn options(allow: Option<String>) -> Reply {
        let mut reply = Reply::plain(StatusCode::OK, "");
        reply.header = allow.map(|allow| ("Allow", allow));
        reply
    }

    /// Returns a redirect. A browser shows a link; a method other than GET is repeated at the new
    /// location.
    pub(super) fn redirect(is_get: bool, location: String) -> Reply {
        let mut reply = if is_get {
            let link = escape_html(&location);
            let body = format!("<a href=\"{link}\">Moved Permanently</a>.\n\n");
            Reply::plain(StatusCode::MOVED_PERMANENTLY, body).with_type(HTML)
        } else {
            Reply::plain(StatusCode::TEMPORARY_REDIRECT, "")
        };
        reply.header = Some(("Location", location));
        reply
    }

    /// Returns the answer, which ends the connection if `must_close` is true.
    pub(super) fn and_close(mut self, must_close: bool) -> Reply {
        self.must_close |= must_close;
        self
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns true when the connection continues after this answer.
    pub(super) fn keeps_alive(&self, exchange: Exchange) -> bool {
        let has_end = self.rest.is_none() || exchange.is_http_11;
        exchange.keeps_alive && !self.must_close && has_end
    }

    /// Appends the answer as it is sent, in the order of Go's server: the handler's headers by
    /// name, then the server's headers.
    pub(super) fn write(&self, out: &mut Vec<u8>, exchange: Exchange, date: &str) {
        out.reserve(256 + self.body.len());
        let version = if exchange.is_http_11 {
            "HTTP/1.1 "
        } else {
            "HTTP/1.0 "
        };
        push(
            out,
            &[
                version,
                self.status.as_str(),
                " ",
                reason(self.status),
                "\r\n",
            ],
        );
        let (named, sniffed) = if self.is_sniffed {
            (None, self.content_type)
        } else {
            (self.content_type, None)
        };
        let own = self
            .header
            .as_ref()
            .map(|(name, value)| (*name, value.as_str()));
        let (before, after) = match own {
            Some(("Allow", _)) => (own, None),
            _ => (None, own),
        };
        let named = named.map(|content_type| ("Content-Type", content_type));
        let marker = self.is_v1.then_some(MARKER);
        // The handler's headers consist of our own words or parts of a request line, so they
        // contain no line end.
        for (name, value) in [before, named, after, marker].into_iter().flatten() {
            push(out, &[name, ": ", value, "\r\n"]);
        }
        push(out, &["Date: ", date, "\r\n"]);
        // An answer to HEAD with an empty body has no length. HTTP/1.0 has no chunks.
        if self.rest.is_some() {
            if exchange.is_http_11 {
                out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
            }
        } else if !(exchange.is_head && self.body.is_empty()) {
            // Writing to memory does not fail.
            let _ = write!(out, "Content-Length: {}\r\n", self.body.len());
        }
        if let Some(content_type) = sniffed {
            push(out, &["Content-Type: ", content_type, "\r\n"]);
        }
        push(
            out,
            &[match (exchange.is_http_11, self.keeps_alive(exchange)) {
                (true, true) => "",
                (true, false) => "Connection: close\r\n",
                (false, true) => "Connection: keep-alive\r\n",
                // HTTP/1.0 ends a connection without this header. The server names the end only
                // when it is the server's decision.
                (false, false) if self.must_close => "Connection: close\r\n",
                (false, false) => "",
            }],
        );
        out.extend_from_slice(b"\r\n");
        if !exchange.is_head {
            push_part(out, &self.body, self.rest.is_some() && exchange.is_http_11);
        }
    }

    /// Appends the next part of the body as it is sent, once it is made. Returns false without a change after the last
    /// part.
    pub(super) async fn write_rest(&mut self, out: &mut Vec<u8>, exchange: Exchange) -> bool {
        let Some(Parts(next)) = self.rest.as_mut().filter(|_| !exchange.is_head) else {
            return false;
        };
        if let Some(part) = poll_fn(next).await {
            push_part(out, part.as_bytes(), exchange.is_http_11);
            return true;
        }
        self.rest = None;
        if exchange.is_http_11 {
            out.extend_from_slice(b"0\r\n\r\n");
        }
        true
    }
}

/// Appends a part of a body. An empty chunk would end the body.
fn push_part(out: &mut Vec<u8>, part: &[u8], is_chunk: bool) {
    if !is_chunk {
        out.extend_from_slice(part);
    } else if !part.is_empty() {
        // Writing to memory does not fail.
        let _ = write!(out, "{:x}\r\n", part.len());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
}

fn push(out: &mut Vec<u8>, parts: &[&str]) {
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Returns the reason phrase of a status. Go has older words for some.
fn reason(status: StatusCode) -> &'static str {
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => "Request Entity Too Large",
        other => other.canonical_reason().unwrap_or_default(),
    }
}

/// The answer of Go's server to input that is not a request. The connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    status: &'static str,
    body: &'static str,
}

impl Refusal {
    pub(super) const MALFORMED: Refusal = Refusal::of("400 Bad Request");
    pub(super) const NO_HOST: Refusal =
        Refusal::of("400 Bad Request: missing required Host header");
    pub(super) const BAD_HOST: Refusal = Refusal::of("400 Bad Request: malformed Host header");
    pub(super) const LONG_TARGET: Refusal = Refusal::of("414 Request URI Too Long");
    pub(super) const LONG_HEAD: Refusal = Refusal::of("431 Request Header Fields Too Large");
    pub(super) const ENCODING: Refusal = Refusal {
        status: "501 Not Implemented",
        body: "Unsupported transfer encoding",
    };
    pub(super) const VERSION: Refusal =
        Refusal::of("505 HTTP Version Not Supported: unsupported protocol version");

    const fn of(status: &'static str) -> Refusal {
        Refusal {
            status,
            body: status,
        }
    }

    /// Appends the answer as it is sent, without date and length.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        let Refusal { status, body } = self;
        // Writing to memory does not fail.
        let _ = write!(
            out,
            "HTTP/1.1 {status}\r\nContent-Type: {TEXT}\r\nConnection: close\r\n\r\n{body}"
        );
    }
}

/// Escapes a text like Go's `html.EscapeString`.
pub fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '\'' => escaped.push_str("&#39;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&#34;"),
            c => escaped.push(c),
        }
    }
    escaped
}
