//! [`Request`]: a request as the endpoints see it.

use std::net::SocketAddr;
use std::time::Duration;

use ::http::header::{ACCEPT, ACCEPT_ENCODING, HOST};
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderName, Method, StatusCode};
use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Limited};
use program::http::Query;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::access::cut_off;
use crate::cluster::Refusal;

/// Longest body that is read, in bytes.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// Most bytes of a key that an answer repeats.
const KEY_BYTES_MAX: usize = 64;

/// The body of a request, which has not been read yet.
pub type RequestBody = BoxBody<Bytes, BodyError>;

/// The reason why there is no more of a body.
type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// An HTTP request whose body is not read yet.
#[derive(Debug)]
pub struct Request {
    parts: Parts,
    body: Option<RequestBody>,
    /// The client's address.
    pub peer: SocketAddr,
    /// True if the request came over TLS to nsqadmin itself.
    pub is_tls: bool,
    /// The time that the body may take. `None` is no limit.
    pub(super) read_timeout: Option<Duration>,
}

impl Request {
    /// Returns a request from this client.
    pub fn new(request: ::http::Request<RequestBody>, peer: SocketAddr, is_tls: bool) -> Request {
        let (parts, body) = request.into_parts();
        Request {
            parts,
            body: Some(body),
            peer,
            is_tls,
            read_timeout: None,
        }
    }

    /// Returns the method.
    pub fn method(&self) -> &Method {
        &self.parts.method
    }

    /// Returns the path, with its percent escapes.
    pub fn path(&self) -> &str {
        self.parts.uri.path()
    }

    /// Returns path and query.
    pub fn target(&self) -> &str {
        let target = self.parts.uri.path_and_query();
        target.map_or(self.path(), |target| target.as_str())
    }

    /// Returns the query, which may be empty.
    pub fn query(&self) -> &str {
        self.parts.uri.query().unwrap_or_default()
    }

    /// Returns the headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// Returns a header as text, or an empty text.
    pub fn header(&self, name: &str) -> &str {
        let value = self.parts.headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    /// Returns the URL of the request, as the client knows it.
    pub fn url(&self) -> String {
        let is_secure = self.is_tls || self.header("x-scheme") == "https";
        let scheme = if is_secure { "https" } else { "http" };
        format!("{scheme}://{}{}", self.header(HOST.as_str()), self.target())
    }

    /// Returns the parts of a header that is a list.
    fn listed(&self, name: HeaderName) -> impl Iterator<Item = &str> {
        let values = self.parts.headers.get_all(name).iter();
        let values = values.filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(','))
    }

    /// Returns true if the client shows HTML, as a browser does that opens an address.
    pub fn accepts_html(&self) -> bool {
        self.listed(ACCEPT)
            .filter_map(|range| range.split(';').next())
            .any(|media| media.trim().eq_ignore_ascii_case("text/html"))
    }

    /// Returns true if the answer may be compressed with gzip.
    pub fn accepts_gzip(&self) -> bool {
        self.listed(ACCEPT_ENCODING).any(|coding| {
            let (name, weight) = coding.split_once(';').unwrap_or((coding, "q=1"));
            let weight = weight.trim().strip_prefix("q=").map(str::parse::<f32>);
            name.trim().eq_ignore_ascii_case("gzip") && !matches!(weight, Some(Ok(0.0)))
        })
    }

    /// Parses the query.
    ///
    /// # Errors
    /// 400 with Go's text, such as `invalid URL escape "%zz"`.
    pub fn parsed_query(&self) -> Result<Query<'_>, Refusal> {
        Query::parse(self.query()).map_err(|error| Refusal::bad(error.to_string()))
    }

    /// Reads the body.
    ///
    /// # Errors
    /// The body has more than 1 MiB (413), does not come in time (408), or ends too early (400).
    pub async fn read_body(&mut self) -> Result<Bytes, Refusal> {
        let Some(body) = self.body.take() else {
            return Ok(Bytes::new());
        };
        // The box hides the type of the body: without it, the compiler cannot tell that all answers are `Send`.
        let read = Limited::new(body, BODY_BYTES_MAX).collect().boxed();
        let read = match self.read_timeout {
            None => read.await,
            Some(limit) => match tokio::time::timeout(limit, read).await {
                Ok(read) => read,
                Err(_) => {
                    let status = StatusCode::REQUEST_TIMEOUT;
                    return Err(Refusal::new(status, "BODY_TIMEOUT"));
                }
            },
        };
        match read {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "INVALID_VALUE"))
            }
            Err(_) => Err(Refusal::bad("INVALID_BODY")),
        }
    }

    /// Reads the body as JSON, whatever the content type says.
    ///
    /// # Errors
    /// The errors are those of [`Request::read_body`], and 400 with the reason for another body.
    pub async fn read_json<T: DeserializeOwned>(&mut self) -> Result<T, Refusal> {
        let body = self.read_body().await?;
        let read = serde_json::from_slice(&body);
        read.map_err(|error| Refusal::bad(format!("INVALID_BODY: {error}")))
    }

    /// Reads the first JSON value of the body, whatever the content type says. Returns texts by
    /// their keys; a missing key is an empty text.
    ///
    /// # Errors
    /// The errors are those of [`Request::read_body`], and 400 with the reason for a body that is
    /// not a JSON object with these texts.
    pub async fn read_texts<const N: usize>(
        &mut self,
        keys: [&str; N],
    ) -> Result<[String; N], Refusal> {
        let body = self.read_body().await?;
        let texts = fields(&body).and_then(|fields| texts(&fields, keys));
        texts.map_err(Refusal::bad)
    }

    /// Does the same for an act with terms, and refuses other keys: a term that was mistyped must not count for nothing.
    ///
    /// # Errors
    /// The errors are those of [`Request::read_texts`], and 400 `INVALID_FIELD` for another key.
    pub async fn read_terms<const N: usize>(
        &mut self,
        keys: [&str; N],
    ) -> Result<[String; N], Refusal> {
        let body = self.read_body().await?;
        let fields = fields(&body).map_err(Refusal::bad)?;
        let is_known = |given: &str| keys.iter().any(|key| given.eq_ignore_ascii_case(key));
        if let Some(unknown) = fields.keys().find(|given| !is_known(given)) {
            let mut shown = unknown.clone();
            cut_off(&mut shown, KEY_BYTES_MAX);
            return Err(Refusal::bad(format!(
                "INVALID_FIELD: {shown:?} means nothing here; the fields are {}",
                keys.join(", ")
            )));
        }
        texts(&fields, keys).map_err(Refusal::bad)
    }
}

/// Returns the texts at some keys.
fn texts<const N: usize>(
    fields: &Map<String, Value>,
    keys: [&str; N],
) -> Result<[String; N], String> {
    let mut texts = [const { String::new() }; N];
    for (text, key) in texts.iter_mut().zip(keys) {
        *text = wire::go_json::string(fields, key)?;
    }
    Ok(texts)
}

/// Returns the fields of the first JSON value, which is an object or null.
fn fields(body: &[u8]) -> Result<Map<String, Value>, String> {
    let text = String::from_utf8_lossy(body);
    if text.trim().is_empty() {
        return Err("EOF".to_owned());
    }
    let mut values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    let value = match values.next() {
        Some(Ok(value)) => value,
        Some(Err(error)) if error.is_eof() => return Err("unexpected EOF".to_owned()),
        Some(Err(error)) => return Err(format!("invalid JSON: {error}")),
        None => return Err("EOF".to_owned()),
    };
    let fields = wire::go_json::object(&value, "the body")?;
    Ok(fields.cloned().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_read_as_leniently_as_in_go() {
        let check = |body: &str, expected: Result<[&str; 2], &str>| {
            let found = fields(body.as_bytes()).and_then(|it| texts(&it, ["topic", "channel"]));
            let expected = expected.map(|texts| texts.map(str::to_owned));
            assert_eq!(found, expected.map_err(str::to_owned), "{body}");
        };
        check(r#"{"topic":"t","channel":"c"}"#, Ok(["t", "c"]));
        check(
            r#" {"TOPIC":"t","channel":null,"x":[1]} trailing"#,
            Ok(["t", ""]),
        );
        check("null", Ok(["", ""]));
        check("", Err("EOF"));
        check(" \n", Err("EOF"));
        check(r#"{"topic":"t""#, Err("unexpected EOF"));
        check(
            r#"{"topic":5}"#,
            Err("json: cannot unmarshal number into topic of type string"),
        );
        check(
            "[1]",
            Err("json: cannot unmarshal array into the body of type object"),
        );
        let error = fields(b"nope").unwrap_err();
        assert!(error.starts_with("invalid JSON: "), "{error}");
    }
}
