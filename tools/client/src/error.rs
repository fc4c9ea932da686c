//! The errors of a connection and of a publish. Each says what was attempted and keeps its source.

use std::fmt;
use std::io;
use std::time::Duration;

use upgrade::UpgradeError;

/// The reason why a connection to an nsqd could not be made, or ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The address could not be reached.
    Dial(io::Error),
    /// The address could not be reached within `dial_timeout`.
    DialTimeout(Duration),
    /// nsqd was reached, and the handshake was not over within this time: TLS, IDENTIFY, compression, AUTH and SUB.
    HandshakeTimeout(Duration),
    /// nsqd sent more messages than RDY permits.
    ReadyExceeded {
        /// The messages of the connection that wait for the application.
        waiting: usize,
        /// The highest RDY that the connection had.
        ready: u32,
    },
    /// nsqd closed the connection.
    Closed,
    /// Reading from the connection failed.
    Read(io::Error),
    /// Writing to the connection failed.
    Write(io::Error),
    /// Nothing came from nsqd within `read_timeout`.
    ReadTimeout(Duration),
    /// nsqd took no byte within `write_timeout`.
    WriteTimeout(Duration),
    /// nsqd refused the IDENTIFY, with this text.
    Identify(String),
    /// nsqd answered the IDENTIFY with JSON that has no such form.
    Negotiation(serde_json::Error),
    /// The configuration asks for TLS, and this nsqd does not offer it. The client never continues in plain text.
    TlsRefused,
    /// nsqd began an upgrade that the client did not ask for.
    UpgradeUnasked(&'static str),
    /// TLS or compression failed.
    Upgrade(UpgradeError),
    /// The host of the address is no name that a certificate can have.
    ServerName(String),
    /// nsqd requires authorization, and the configuration has no `auth_secret`.
    AuthRequired,
    /// nsqd refused the secret, with this text.
    Auth(String),
    /// nsqd answered AUTH with JSON that has no such form.
    AuthAnswer(serde_json::Error),
    /// nsqd refused the subscription, with this text.
    Subscribe(String),
    /// The address is that of an HTTP server.
    HttpEndpoint,
    /// A frame announced a size that no frame has.
    FrameSize {
        /// The announced size, in bytes.
        announced: i32,
    },
    /// A frame announced more bytes than `max_msg_size` allows.
    FrameTooLarge {
        /// The announced size, in bytes.
        bytes: usize,
        /// `max_msg_size`, in bytes.
        bytes_max: usize,
    },
    /// A frame of an unknown type.
    FrameType {
        /// The type, as it came.
        number: i32,
    },
    /// A message frame that is too short for a message.
    ShortMessage {
        /// The length of its data, in bytes.
        bytes: usize,
    },
    /// nsqd sent a response or an error for which no command waits, with this text.
    Unexpected(String),
    /// nsqd refused a message by this error. It closed the connection, and carried out no command behind this one.
    Refused(ErrorFrame),
    /// The client gave the connection up, because a publish had no answer within its timeout.
    AnswerTimeout(Duration),
    /// The application closed or dropped the client.
    Stopped,
}

/// The bytes of nsqlookupd's `E_BAD_PROTOCOL` at the place of a frame's type. nsqlookupd sends no type.
const LOOKUPD_ANSWER: &[u8; 4] = b"E_BA";

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionError::Dial(error) => write!(f, "failed to connect - {error}"),
            ConnectionError::DialTimeout(limit) => {
                write!(f, "failed to connect - no connection within {limit:?}")
            }
            ConnectionError::HandshakeTimeout(limit) => {
                write!(f, "failed to connect - the handshake was not over within {limit:?}")
            }
            ConnectionError::ReadyExceeded { waiting, ready } => write!(
                f,
                "nsqd sent more messages than RDY permits: {waiting} wait for the application, and RDY was {ready} at \
                 most"
            ),
            ConnectionError::Closed => f.write_str("nsqd closed the connection"),
            ConnectionError::Read(error) => write!(f, "read failed - {error}"),
            ConnectionError::Write(error) => write!(f, "write failed - {error}"),
            ConnectionError::ReadTimeout(limit) => {
                write!(f, "read timed out - nsqd was silent for {limit:?}")
            }
            ConnectionError::WriteTimeout(limit) => {
                write!(f, "write timed out - nsqd took nothing for {limit:?}")
            }
            ConnectionError::Identify(text) => write!(f, "failed to IDENTIFY - {text}"),
            ConnectionError::Negotiation(error) => {
                write!(f, "failed to IDENTIFY - the answer is not understood: {error}")
            }
            ConnectionError::TlsRefused => f.write_str(
                "TLS was asked for, and nsqd does not offer it; start nsqd with --tls-cert and --tls-key, or unset \
                 tls_v1",
            ),
            ConnectionError::UpgradeUnasked(name) => {
                write!(f, "nsqd began {name}, which the client did not ask for")
            }
            ConnectionError::Upgrade(error) => write!(f, "upgrade failed - {error}"),
            ConnectionError::ServerName(host) => {
                write!(f, "TLS needs a host name or an IP address, not {host:?}")
            }
            ConnectionError::AuthRequired => {
                f.write_str("Auth Required: nsqd wants a secret; set auth_secret")
            }
            ConnectionError::Auth(text) => write!(f, "auth failed - {text}"),
            ConnectionError::AuthAnswer(error) => {
                write!(f, "auth failed - the answer is not understood: {error}")
            }
            ConnectionError::Subscribe(text) => write!(f, "failed to SUB - {text}"),
            ConnectionError::HttpEndpoint => f.write_str(
                "a nsqd TCP endpoint is required: this address belongs to an HTTP server (nsqd has TCP on port 4150 \
                 by default, and HTTP on port 4151)",
            ),
            ConnectionError::FrameSize { announced } => {
                write!(f, "nsqd sent no frame: its size would be {announced}")
            }
            ConnectionError::FrameTooLarge { bytes, bytes_max } => write!(
                f,
                "nsqd announced a frame of {bytes} bytes, and max_msg_size allows {bytes_max}"
            ),
            ConnectionError::FrameType { number } if number.to_be_bytes() == *LOOKUPD_ANSWER => f.write_str(
                "a nsqd TCP endpoint is required: this address is the TCP port of an nsqlookupd (nsqd has TCP on port \
                 4150 by default; clients ask nsqlookupd through HTTP, on port 4161)",
            ),
            ConnectionError::FrameType { number } => {
                write!(f, "nsqd sent a frame of the unknown type {number}")
            }
            ConnectionError::ShortMessage { bytes } => {
                write!(f, "nsqd sent a message of {bytes} bytes, fewer than 26")
            }
            ConnectionError::Unexpected(text) => {
                write!(f, "nsqd sent {text:?}, for which no command waits")
            }
            ConnectionError::Refused(error) => {
                write!(f, "nsqd refused this publish or one before it: {error}")
            }
            ConnectionError::AnswerTimeout(limit) => {
                write!(f, "a publish had no answer for {limit:?}")
            }
            ConnectionError::Stopped => f.write_str("stopped"),
        }
    }
}

impl std::error::Error for ConnectionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ConnectionError::Dial(error)
            | ConnectionError::Read(error)
            | ConnectionError::Write(error) => Some(error),
            ConnectionError::Negotiation(error) | ConnectionError::AuthAnswer(error) => Some(error),
            ConnectionError::Upgrade(error) => Some(error),
            _ => None,
        }
    }
}

impl From<UpgradeError> for ConnectionError {
    fn from(error: UpgradeError) -> ConnectionError {
        ConnectionError::Upgrade(error)
    }
}

/// The connection of a message or of a command is gone. nsqd will deliver the message again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLost;

impl fmt::Display for ConnectionLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not connected")
    }
}

impl std::error::Error for ConnectionLost {}

/// An error frame of nsqd: a code, a space, and a description.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ErrorFrame(String);

impl ErrorFrame {
    pub(crate) fn new(data: &[u8]) -> ErrorFrame {
        ErrorFrame(String::from_utf8_lossy(data).into_owned())
    }

    /// Returns the code: `E_BAD_TOPIC`.
    #[must_use]
    pub fn code(&self) -> &str {
        self.0
            .split_once(' ')
            .map_or(self.0.as_str(), |(code, _)| code)
    }

    /// Returns the whole text of the frame.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Returns true when nsqd closes the connection after this frame. After `E_FIN_FAILED`, `E_REQ_FAILED` and
    /// `E_TOUCH_FAILED`, nsqd keeps the connection: the message had timed out.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        !matches!(
            self.code(),
            "E_FIN_FAILED" | "E_REQ_FAILED" | "E_TOUCH_FAILED"
        )
    }
}

impl fmt::Display for ErrorFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The knowledge of a producer about the message of a publish that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// No nsqd has the message. To publish it again makes no duplicate.
    NotStored,
    /// An nsqd may have the message. To publish it again may make a duplicate.
    Unknown,
    /// An nsqd has the message. A message that should reach several nsqds has this outcome for some.
    Stored,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::NotStored => "not stored",
            Outcome::Unknown => "unknown outcome",
            Outcome::Stored => "stored",
        })
    }
}
