//! [`Failed`]: a request to a server that failed, in words and by its kind.

use nsq_http::Refusal;
use reqwest::{Method, StatusCode};
use wire::go_error::system_text;

use crate::shown_url::without_user;

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The reason, as the answer of nsqadmin shows it.
    pub why: String,
    /// The kind of the failure.
    pub kind: FailureKind,
    /// The server's own words about a mistake of the client of nsqadmin, if the failure is such a mistake.
    pub refused: Option<Refused>,
}

/// The words with which a server of NSQ refuses a request because of the client's mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// A status 4xx.
    pub status: StatusCode,
    /// The code, such as `INVALID_FOR`.
    pub code: String,
    /// The reason, or an empty text.
    pub reason: String,
}

/// The kinds of failures that lead to different answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The server could not be reached: no connection, or no such host.
    Unreachable,
    /// The connection ended before the answer did, or the answer took too long.
    NoAnswer,
    /// The server does not know the topic or the channel.
    NotFound,
    /// The server answered with another status than 200.
    Refused,
    /// The answer is too long, or cannot be read.
    NotUnderstood,
}

impl FailureKind {
    /// Returns the word for `/metrics`. A server that does not know a topic has not failed.
    pub(super) fn reason(self) -> Option<&'static str> {
        match self {
            FailureKind::Unreachable => Some("unreachable"),
            FailureKind::NoAnswer => Some("no_answer"),
            FailureKind::NotFound => None,
            FailureKind::Refused => Some("refused"),
            FailureKind::NotUnderstood => Some("not_understood"),
        }
    }

    /// Returns true if there was an answer.
    pub(super) fn is_answer(self) -> bool {
        !matches!(self, FailureKind::Unreachable | FailureKind::NoAnswer)
    }
}

impl Refused {
    /// Reads the answer of a server. `None` for answers that are no mistake of the client: those of other programs, those
    /// about the rights of nsqadmin, and those about paths that the server does not have.
    pub(super) fn read(status: StatusCode, body: &[u8]) -> Option<Refused> {
        let is_of_client = status.is_client_error()
            && !matches!(status.as_u16(), 401 | 403 | 405 | 407 | 408 | 429);
        let Refusal { message, reason } = Refusal::read(body);
        let is_code = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        let has_code = !message.is_empty() && message.bytes().all(is_code);
        (is_of_client && has_code && message != "NOT_FOUND").then_some(Refused {
            status,
            code: message,
            reason,
        })
    }

    /// Returns the code and the reason.
    pub fn text(&self) -> String {
        match self.reason.as_str() {
            "" => self.code.clone(),
            reason => format!("{}: {reason}", self.code),
        }
    }
}

pub(super) fn verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "Post",
        _ => "Get",
    }
}

/// Returns the failure of a request without an answer, in Go's words where Go has some.
pub(super) fn failed(method: &Method, url: &str, error: &reqwest::Error) -> Failed {
    let is_unreachable = error.is_connect();
    Failed {
        why: format!(
            "{} {:?}: {}",
            verb(method),
            without_user(url),
            reason(url, error)
        ),
        kind: if is_unreachable {
            FailureKind::Unreachable
        } else {
            FailureKind::NoAnswer
        },
        refused: None,
    }
}

/// Returns the cause of an error of the HTTP library, without the URL.
pub fn reason(url: &str, error: &reqwest::Error) -> String {
    let mut sources = Vec::new();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(error) = cause.downcast_ref::<std::io::Error>()
            && error.raw_os_error().is_some()
        {
            let url = without_user(url);
            let authority = url.split("://").nth(1).unwrap_or(&url);
            let authority = authority.split(['/', '?']).next().unwrap_or(authority);
            return match error.kind() {
                std::io::ErrorKind::ConnectionReset => format!("read: {}", system_text(error)),
                _ => format!("dial tcp {authority}: connect: {}", system_text(error)),
            };
        }
        sources.push(cause.to_string());
        source = cause.source();
    }
    match (error.is_timeout(), error.is_connect()) {
        (true, true) => {
            "no connection in time (--http-client-connect-timeout, --http-client-request-timeout)"
                .to_string()
        }
        (true, false) => "no answer in time (--http-client-request-timeout)".to_string(),
        (false, _) => sources.pop().unwrap_or_else(|| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_of_nsq_about_a_mistake_of_the_client_are_passed_on() {
        let read = |status: u16, body: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            Refused::read(status, body.as_bytes()).map(|refused| refused.text())
        };
        let text = |text: &str| Some(text.to_owned());
        let with_reason = r#"{"message":"INVALID_FOR","reason":"no unit"}"#;
        assert_eq!(read(400, with_reason), text("INVALID_FOR: no unit"));
        let missing = r#"{"message":"CHANNEL_NOT_FOUND"}"#;
        assert_eq!(read(404, missing), text("CHANNEL_NOT_FOUND"));
        let old = r#"{"status_code":404,"status_txt":"TOPIC_NOT_FOUND","data":null}"#;
        assert_eq!(read(404, old), text("TOPIC_NOT_FOUND"));
        for (status, body) in [
            (403, r#"{"message":"TLS_REQUIRED"}"#),
            (404, r#"{"message":"NOT_FOUND"}"#),
            (405, r#"{"message":"METHOD_NOT_ALLOWED"}"#),
            (500, r#"{"message":"INTERNAL_ERROR"}"#),
            (503, r#"{"message":"EXITING"}"#),
            (404, r#"{"message":"no such host"}"#),
            (404, r#"{"message":""}"#),
            (404, "404 page not found"),
        ] {
            assert_eq!(read(status, body), None, "{status} {body}");
        }
    }
}
