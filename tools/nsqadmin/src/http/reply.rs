//! [`Reply`]: an answer, and its conversion to a response.

use std::convert::Infallible;
use std::io::Write as _;

use ::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    ETAG, HeaderName, HeaderValue, LOCATION, VARY,
};
use ::http::{Response, StatusCode};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::ext::ReasonPhrase;
use serde::Serialize;
use wire::go_json::to_string;
use wire::json_object;

use crate::cluster::{Refusal, Warnings};

const JSON: &str = "application/json; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";

/// The types of graphite's answers that a browser may show as such.
const HARMLESS: [&str; 4] = [
    "application/json",
    "image/png",
    "image/svg+xml",
    "application/pdf",
];

/// Shortest body that is compressed, in bytes. A shorter one fits into one packet anyway.
const COMPRESSED_BYTES_MIN: usize = 1024;

/// The body of a response.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The answer to an HTTP request.
#[derive(Debug)]
pub struct Reply {
    /// The status.
    pub status: StatusCode,
    headers: Vec<(HeaderName, HeaderValue)>,
    bytes: Bytes,
    /// The body in place of `bytes`.
    stream: Option<Body>,
    can_be_compressed: bool,
}

impl Reply {
    /// Returns an answer of this content type.
    pub fn new(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Reply {
        let content_type = HeaderValue::from_static(content_type);
        Reply {
            status,
            headers: vec![(CONTENT_TYPE, content_type)],
            bytes: body.into(),
            stream: None,
            can_be_compressed: true,
        }
    }

    /// Returns a text without NSQ's marker: the answer to `/ping`, and errors of files.
    pub fn plain(status: StatusCode, body: impl Into<Bytes>) -> Reply {
        Reply::new(status, TEXT, body)
    }

    /// Returns a text of the API. An empty text has no content type, as in the original.
    pub fn text(body: impl Into<Bytes>) -> Reply {
        let body = body.into();
        let is_empty = body.is_empty();
        let mut reply = Reply::new(StatusCode::OK, TEXT, body);
        if is_empty {
            reply.headers.clear();
        }
        reply.marked()
    }

    /// Returns a JSON document of the API.
    pub fn json(body: impl Into<Bytes>) -> Reply {
        Reply::new(StatusCode::OK, JSON, body).marked()
    }

    /// Returns a JSON object of the API with these fields. `message` comes last.
    pub fn object(warnings: &Warnings, fields: impl Serialize) -> Reply {
        let message = warnings.message();
        Reply::json(to_string(
            &json_object! { #[serde(flatten)] fields, message },
        ))
    }

    /// Returns an error of the API.
    pub fn refusal(refusal: &Refusal) -> Reply {
        let json = to_string(&json_object! { message: &refusal.message });
        Reply::json(json).with_status(refusal.status)
    }

    /// Returns a page with its rules for browsers.
    pub fn html(body: impl Into<Bytes>, policy: &str) -> Reply {
        Reply::new(StatusCode::OK, HTML, body)
            .with(CONTENT_SECURITY_POLICY, policy)
            .with(CACHE_CONTROL, "no-cache")
    }

    /// Returns the same answer with another status.
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Reply {
        self.status = status;
        self
    }

    /// Returns a file of the page.
    pub fn file(content_type: &'static str, content: Bytes) -> Reply {
        let mut reply = Reply::new(StatusCode::OK, content_type, content);
        // These files are compressed already.
        reply.can_be_compressed =
            !content_type.starts_with("image/p") && !content_type.starts_with("font/woff");
        reply
    }

    /// Returns an answer without a body.
    pub fn empty(status: StatusCode) -> Reply {
        Reply {
            headers: Vec::new(),
            can_be_compressed: false,
            ..Reply::new(status, TEXT, "")
        }
    }

    /// Returns graphite's answer: JSON or a picture. A browser shows everything else as text, and runs no script of it, which
    /// would have the rights of nsqadmin's own page.
    pub fn forwarded(status: StatusCode, content_type: Option<&HeaderValue>, body: Bytes) -> Reply {
        let is_harmless = |value: &&HeaderValue| {
            let value = value.as_bytes().to_ascii_lowercase();
            let mut harmless = HARMLESS.iter();
            harmless.any(|harmless| value.starts_with(harmless.as_bytes()))
        };
        let mut reply = Reply::new(status, TEXT, body);
        if let Some(harmless) = content_type.filter(is_harmless) {
            reply.headers = vec![(CONTENT_TYPE, harmless.clone())];
        }
        reply.can_be_compressed = false;
        reply.with(CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox")
    }

    /// Returns a stream of events.
    pub fn events(body: Body) -> Reply {
        let mut reply = Reply::new(StatusCode::OK, "text/event-stream", "");
        reply.stream = Some(body);
        reply.can_be_compressed = false;
        // A proxy such as nginx would hold the events back otherwise.
        reply
            .with(CACHE_CONTROL, "no-store")
            .with(HeaderName::from_static("x-accel-buffering"), "no")
    }

    /// Returns a redirect. A browser shows a link; a method other than GET is repeated at the new
    /// location. `location` comes from the path of a request, which has no characters of HTML.
    pub fn redirect(is_get: bool, location: &str) -> Reply {
        let reply = if is_get {
            let link = location.replace('&', "&amp;").replace('\'', "&#39;");
            let body = format!("<a href=\"{link}\">Moved Permanently</a>.\n\n");
            Reply::new(StatusCode::MOVED_PERMANENTLY, HTML, body)
        } else {
            Reply::empty(StatusCode::TEMPORARY_REDIRECT)
        };
        reply.with(LOCATION, location)
    }

    /// Returns the answer to OPTIONS.
    pub fn options(allow: Option<String>) -> Reply {
        let reply = Reply::empty(StatusCode::OK);
        match allow {
            Some(allow) => reply.with(ALLOW, &allow),
            None => reply,
        }
    }

    /// Returns the answer to a method that the path does not have.
    pub fn wrong_method(allow: &str) -> Reply {
        let status = StatusCode::METHOD_NOT_ALLOWED;
        Reply::refusal(&Refusal::new(status, "METHOD_NOT_ALLOWED")).with(ALLOW, allow)
    }

    fn marked(self) -> Reply {
        self.with(
            HeaderName::from_static("x-nsq-content-type"),
            "nsq; version=1.0",
        )
        .with(CACHE_CONTROL, "no-store")
    }

    /// Adds a header. A value that no header can have is left out.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: &str) -> Reply {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.push((name, value));
        }
        self
    }

    /// Adds the headers by which a browser recognises that it has the file already.
    #[must_use]
    pub fn with_etag(self, etag: &str) -> Reply {
        self.with(ETAG, etag).with(CACHE_CONTROL, "no-cache")
    }

    /// Returns the response.
    pub fn into_response(self, accepts_gzip: bool) -> Response<Body> {
        let mut response = Response::new(Body::default());
        *response.status_mut() = self.status;
        if self.status == StatusCode::PAYLOAD_TOO_LARGE {
            // Go's name of the status.
            let reason = ReasonPhrase::from_static(b"Request Entity Too Large");
            response.extensions_mut().insert(reason);
        }
        let headers = response.headers_mut();
        headers.extend(self.headers);
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "same-origin"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        if self.can_be_compressed {
            headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        let body = self.stream.unwrap_or_else(|| {
            let mut bytes = self.bytes;
            let is_long = bytes.len() >= COMPRESSED_BYTES_MIN;
            if accepts_gzip
                && is_long
                && self.can_be_compressed
                && let Some(compressed) = gzip(&bytes)
            {
                headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                bytes = compressed;
            }
            headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
            Full::new(bytes).boxed_unsync()
        });
        *response.body_mut() = body;
        response
    }
}

/// Compresses a body. Memory does not fail, but the library's signature says that it may.
fn gzip(bytes: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::new(4));
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().map(Bytes::from)
}
