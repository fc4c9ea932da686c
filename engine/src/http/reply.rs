//! What a handler answers, and how it becomes a response: nsqd's two styles and their headers.

use std::io::Write as _;

use bytes::Bytes;
use http::StatusCode;

use super::go_text::JsonObject;

const JSON: &str = "application/json; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";

/// Client libraries take an answer without it for one of nsqd before 1.0, and see no data.
const MARKER: (&str, &str) = ("X-Nsq-Content-Type", "nsq; version=1.0");

/// An error as clients see it: a status and a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure(pub(super) StatusCode, pub(super) &'static str);

impl Failure {
    pub(super) const INTERNAL: Failure =
        Failure(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL_ERROR");
    pub(super) const EXITING: Failure = Failure(StatusCode::SERVICE_UNAVAILABLE, "EXITING");
    pub(super) const TOPIC_NOT_FOUND: Failure = Failure(StatusCode::NOT_FOUND, "TOPIC_NOT_FOUND");
    pub(super) const CHANNEL_NOT_FOUND: Failure =
        Failure(StatusCode::NOT_FOUND, "CHANNEL_NOT_FOUND");

    pub(super) const fn bad(code: &'static str) -> Failure {
        Failure(StatusCode::BAD_REQUEST, code)
    }

    pub(super) const fn too_large(code: &'static str) -> Failure {
        Failure(StatusCode::PAYLOAD_TOO_LARGE, code)
    }
}

/// A response before it is one.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    status: StatusCode,
    is_v1: bool,
    content_type: Option<&'static str>,
    header: Option<(&'static str, String)>,
    body: Bytes,
    must_close: bool,
}

/// What the request has to say about the form of its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    pub(super) is_http_11: bool,
    /// HEAD: the answer's head only.
    pub(super) is_head: bool,
    /// The request lets the connection go on.
    pub(super) keeps_alive: bool,
}

impl Exchange {
    /// Of input that is no request.
    pub(super) const NONE: Exchange = Exchange {
        is_http_11: true,
        is_head: false,
        keeps_alive: false,
    };
}

impl Reply {
    fn new(status: StatusCode, is_v1: bool, body: impl Into<Bytes>) -> Reply {
        let body = body.into();
        // Go looks at the body where no type is given. All of nsqd's texts look like text.
        let content_type = (!body.is_empty()).then_some(TEXT);
        Reply {
            status,
            is_v1,
            content_type,
            header: None,
            body,
            must_close: false,
        }
    }

    /// The plain style: `/ping` only.
    pub(super) fn plain(status: StatusCode, body: impl Into<Bytes>) -> Reply {
        Reply::new(status, false, body)
    }

    /// Success with a text, or with nothing.
    pub(super) fn text(body: impl Into<Bytes>) -> Reply {
        Reply::new(StatusCode::OK, true, body)
    }

    pub(super) fn json(status: StatusCode, body: String) -> Reply {
        let mut reply = Reply::new(status, true, body);
        reply.content_type = Some(JSON);
        reply
    }

    pub(super) fn failure(failure: Failure) -> Reply {
        let mut body = String::new();
        let mut object = JsonObject::new(&mut body);
        object.text("message", failure.1);
        object.end();
        Reply::json(failure.0, body)
    }

    /// To plain HTTP where it is not served. Not by the encoder: nsqd writes it with these spaces.
    pub(super) fn tls_required(https_port: u16) -> Reply {
        let body = format!(r#"{{"message": "TLS_REQUIRED", "https_port": {https_port}}}"#);
        Reply::json(StatusCode::FORBIDDEN, body)
    }

    pub(super) fn wrong_method(allow: String) -> Reply {
        let failure = Failure(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED");
        let mut reply = Reply::failure(failure);
        reply.header = Some(("Allow", allow));
        reply
    }

    pub(super) fn options(allow: Option<String>) -> Reply {
        let mut reply = Reply::plain(StatusCode::OK, "");
        reply.header = allow.map(|allow| ("Allow", allow));
        reply
    }

    /// Browsers see a link; other methods than GET are told to repeat themselves elsewhere.
    pub(super) fn redirect(is_get: bool, location: String) -> Reply {
        let mut reply = if is_get {
            let link = escape_html(&location);
            let body = format!("<a href=\"{link}\">Moved Permanently</a>.\n\n");
            Reply::plain(StatusCode::MOVED_PERMANENTLY, body)
        } else {
            Reply::plain(StatusCode::TEMPORARY_REDIRECT, "")
        };
        reply.content_type = is_get.then_some(HTML);
        reply.header = Some(("Location", location));
        reply
    }

    /// An error of the protocol, which ends the connection.
    pub(super) fn protocol_error(status: StatusCode, body: &'static str) -> Reply {
        Reply::plain(status, body).and_close(true)
    }

    /// Whether the connection is to end with this answer.
    pub(super) fn and_close(mut self, must_close: bool) -> Reply {
        self.must_close |= must_close;
        self
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// Whether the connection goes on after this answer.
    pub(super) fn keeps_alive(&self, exchange: Exchange) -> bool {
        exchange.keeps_alive && !self.must_close
    }

    /// Appends the answer as it goes over the wire.
    pub(super) fn write(&self, out: &mut Vec<u8>, exchange: Exchange, date: &str) {
        out.reserve(256 + self.body.len());
        let mut push = |text: &str| out.extend_from_slice(text.as_bytes());
        push(match exchange.is_http_11 {
            true => "HTTP/1.1 ",
            false => "HTTP/1.0 ",
        });
        push(self.status.as_str());
        push(" ");
        push(self.status.canonical_reason().unwrap_or_default());
        push("\r\n");
        let mut field = |name: &str, value: &str| {
            for part in [name, ": ", value, "\r\n"] {
                push(part);
            }
        };
        if let Some(content_type) = self.content_type {
            field("Content-Type", content_type);
        }
        if self.is_v1 {
            let (name, value) = MARKER;
            field(name, value);
        }
        if let Some((name, value)) = &self.header {
            // Our own words, or part of a request line: no line end is in it.
            field(name, value);
        }
        match (exchange.is_http_11, self.keeps_alive(exchange)) {
            (true, true) => {}
            (true, false) => field("Connection", "close"),
            (false, true) => field("Connection", "keep-alive"),
            // The usual end of HTTP/1.0, unless it is not the peer's own wish.
            (false, false) if self.must_close => field("Connection", "close"),
            (false, false) => {}
        }
        // An empty body has no length that HEAD could ask for.
        if !(exchange.is_head && self.body.is_empty()) {
            // Writing to memory does not fail.
            let _ = write!(out, "Content-Length: {}\r\n", self.body.len());
        }
        for part in ["Date: ", date, "\r\n\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
        if !exchange.is_head {
            out.extend_from_slice(&self.body);
        }
    }
}

/// As Go's `html.EscapeString`.
fn escape_html(text: &str) -> String {
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
