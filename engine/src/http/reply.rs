//! What a handler answers, and how it becomes a response: nsqd's two styles and their headers.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION};
use hyper::{Response, StatusCode};

use super::go_text::JsonObject;

const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// Client libraries take an answer without it for one of nsqd before 1.0, and see no data.
const MARKER_NAME: HeaderName = HeaderName::from_static("x-nsq-content-type");
const MARKER_VALUE: HeaderValue = HeaderValue::from_static("nsq; version=1.0");

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
    content_type: Option<HeaderValue>,
    header: Option<(HeaderName, String)>,
    body: Bytes,
    must_close: bool,
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

    pub(super) fn wrong_method(allow: String) -> Reply {
        let failure = Failure(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED");
        let mut reply = Reply::failure(failure);
        reply.header = Some((ALLOW, allow));
        reply
    }

    pub(super) fn options(allow: Option<String>) -> Reply {
        let mut reply = Reply::plain(StatusCode::OK, "");
        reply.header = allow.map(|allow| (ALLOW, allow));
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
        reply.header = Some((LOCATION, location));
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

    pub(super) fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(self.body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if let Some(content_type) = self.content_type {
            headers.insert(CONTENT_TYPE, content_type);
        }
        if self.is_v1 {
            headers.insert(MARKER_NAME, MARKER_VALUE);
        }
        if let Some((name, value)) = self.header
            // What hyper accepted in a request line is fine in a header.
            && let Ok(value) = HeaderValue::try_from(value)
        {
            headers.insert(name, value);
        }
        if self.must_close {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
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
