//! [`LookupdError`].

use std::fmt;
use std::io;

use reqwest::StatusCode;
use wire::go_error::system_text;

use super::{ANSWER_BYTES_MAX, NAMES_MAX, NODES_MAX, UNKNOWN_TOPIC};
use crate::config::{OptionError, without_password};

/// The reason why an nsqlookupd could not be asked.
#[derive(Debug)]
pub struct LookupdError {
    address: String,
    reason: Reason,
}

/// The cause of the failure.
#[derive(Debug)]
pub(super) enum Reason {
    MissingPort,
    List,
    Url(url::ParseError),
    Scheme(String),
    Secret,
    Option(OptionError),
    Http(reqwest::Error),
    Status(u16, String),
    Json(serde_json::Error),
    TooLarge,
    TooManyTopics,
    TooManyNodes,
}

/// The most bytes that are shown of a refusal that is not in the words of NSQ.
const SHOWN_BYTES_MAX: usize = 200;

impl Reason {
    /// Returns the reason of a refusal: the code in the body, or the beginning of the body.
    pub(super) fn refused(status: StatusCode, body: &[u8]) -> Reason {
        let mut message = nsq_http::Refusal::read(body).message;
        if message.is_empty() {
            let shown = &body[..body.len().min(SHOWN_BYTES_MAX)];
            message = String::from_utf8_lossy(shown).into_owned();
        }
        Reason::Status(status.as_u16(), message)
    }
}

impl LookupdError {
    pub(super) fn new(address: &str, reason: Reason) -> LookupdError {
        LookupdError {
            address: without_password(address).into_owned(),
            reason,
        }
    }

    /// Returns the address of the nsqlookupd, as it was given, without a password.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns true if the address itself is wrong, so that later requests fail, too.
    #[must_use]
    pub fn is_address_wrong(&self) -> bool {
        matches!(
            self.reason,
            Reason::MissingPort | Reason::List | Reason::Url(_) | Reason::Scheme(_)
        )
    }

    /// Returns true if the nsqlookupd does not know the topic.
    pub(super) fn is_of_unknown_topic(&self) -> bool {
        matches!(&self.reason, Reason::Status(404, message) if message == UNKNOWN_TOPIC)
    }

    /// Returns the HTTP status of a refusal.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self.reason {
            Reason::Status(status, _) => Some(status),
            _ => None,
        }
    }
}

impl fmt::Display for LookupdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nsqlookupd {}: ", self.address)?;
        match &self.reason {
            Reason::MissingPort => f.write_str(
                "missing port: write host:port, as in 127.0.0.1:4161 (nsqlookupd has HTTP on port 4161 by default)",
            ),
            Reason::List => f.write_str("this is a list: give each address by itself"),
            Reason::Url(error) => write!(f, "the address is no URL: {error}"),
            Reason::Scheme(scheme) => write!(f, "{scheme:?} is neither http nor https"),
            Reason::Secret => f.write_str("auth_secret has characters that a header cannot have"),
            Reason::Option(error) => error.fmt(f),
            Reason::Http(error) if is_not_http(error) => f.write_str(
                "an nsqlookupd HTTP endpoint is required: this address does not speak HTTP (nsqlookupd has HTTP on port \
                 4161 by default, and TCP on port 4160)",
            ),
            Reason::Http(error) => f.write_str(&cause_of(error)),
            Reason::Status(404, message) => write!(
                f,
                "got response 404 {message:?}: this address has no such page, so it is not that of an nsqlookupd \
                 (nsqlookupd has HTTP on port 4161 by default, and nsqd on port 4151)"
            ),
            Reason::Status(status, message) => write!(f, "got response {status} {message:?}"),
            Reason::Json(error) => write!(f, "the answer is not understood: {error}"),
            Reason::TooLarge => write!(f, "the answer has more than {ANSWER_BYTES_MAX} bytes"),
            Reason::TooManyTopics => write!(f, "the answer names more than {NAMES_MAX} topics"),
            Reason::TooManyNodes => write!(f, "the answer names more than {NODES_MAX} nodes"),
        }
    }
}

/// Returns true if an answer came that is not HTTP.
fn is_not_http(error: &reqwest::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<hyper::Error>() {
            return error.is_parse();
        }
        source = error.source();
    }
    false
}

/// Returns the first cause of an error of the HTTP library, such as `connection refused`. The layers between only name parts
/// of the library.
fn cause_of(error: &reqwest::Error) -> String {
    let mut cause: &(dyn std::error::Error + 'static) = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    match cause.downcast_ref::<io::Error>() {
        Some(error) => system_text(error),
        None => cause.to_string(),
    }
}

impl std::error::Error for LookupdError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.reason {
            Reason::Url(error) => Some(error),
            Reason::Option(error) => Some(error),
            Reason::Http(error) => Some(error),
            Reason::Json(error) => Some(error),
            _ => None,
        }
    }
}
