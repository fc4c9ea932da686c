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

/// What is no request for nsqd, and is answered by Go's server: the connection ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    /// Stands behind the version, in place of the status and its usual words.
    line: &'static str,
    body: &'static str,
}

impl Refusal {
    pub(super) const BAD_REQUEST: Refusal =
        Refusal::new(StatusCode::BAD_REQUEST, "400 Bad Request");
    pub(super) const NO_HOST: Refusal = Refusal::new(
        StatusCode::BAD_REQUEST,
        "400 Bad Request: missing required Host header",
    );
    pub(super) const TARGET_TOO_LONG: Refusal =
        Refusal::new(StatusCode::URI_TOO_LONG, "414 URI Too Long");
    pub(super) const HEAD_TOO_LARGE: Refusal = Refusal::new(
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        "431 Request Header Fields Too Large",
    );
    pub(super) const VERSION: Refusal = Refusal::new(
        StatusCode::HTTP_VERSION_NOT_SUPPORTED,
        "505 HTTP Version Not Supported: unsupported protocol version",
    );
    pub(super) const EXPECTATION: Refusal = Refusal {
        status: StatusCode::EXPECTATION_FAILED,
        line: "417 Expectation Failed",
        body: "",
    };
    pub(super) const ENCODING: Refusal = Refusal {
        status: StatusCode::NOT_IMPLEMENTED,
        line: "501 Not Implemented",
        body: "Unsupported transfer encoding",
    };

    /// The usual form: the line is the body, too.
    const fn new(status: StatusCode, line: &'static str) -> Refusal {
        Refusal {
            status,
            line,
            body: line,
        }
    }
}

/// A response before it is one.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    status: StatusCode,
    /// [`Refusal::line`]
    line: Option<&'static str>,
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
            line: None,
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
    pub(super) fn refusal(refusal: Refusal) -> Reply {
        let mut reply = Reply::plain(refusal.status, refusal.body).and_close(true);
        reply.line = Some(refusal.line);
        reply
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
        if let Some(line) = self.line {
            push(line);
        } else {
            push(self.status.as_str());
            push(" ");
            push(reason(self.status));
        }
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

/// A status in words, which are Go's.
fn reason(status: StatusCode) -> &'static str {
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => "Request Entity Too Large",
        status => status.canonical_reason().unwrap_or_default(),
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
