//! The errors of a connection and of a publish. Each says what was attempted and keeps its source.

use std::fmt;
use std::io;
use std::time::Duration;

use thiserror::Error;
use upgrade::UpgradeError;

/// The reason why a connection to an nsqd could not be made, or ended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The address could not be reached.
    #[error("failed to connect - {0}")]
    Dial(#[source] io::Error),
    /// The address could not be reached within `dial_timeout`.
    #[error("failed to connect - no connection within {0:?}")]
    DialTimeout(Duration),
    /// nsqd was reached, and the handshake was not over within this time: TLS, IDENTIFY, compression, AUTH and SUB.
    #[error("failed to connect - the handshake was not over within {0:?}")]
    HandshakeTimeout(Duration),
    /// nsqd sent more messages than RDY permits.
    #[error(
        "nsqd sent more messages than RDY permits: {waiting} wait for the application, and RDY was {ready} at most"
    )]
    ReadyExceeded {
        /// The messages of the connection that wait for the application.
        waiting: usize,
        /// The highest RDY that the connection had.
        ready: u32,
    },
    /// nsqd closed the connection.
    #[error("nsqd closed the connection")]
    Closed,
    /// Reading from the connection failed.
    #[error("read failed - {0}")]
    Read(#[source] io::Error),
    /// Writing to the connection failed.
    #[error("write failed - {0}")]
    Write(#[source] io::Error),
    /// Nothing came from nsqd within `read_timeout`.
    #[error("read timed out - nsqd was silent for {0:?}")]
    ReadTimeout(Duration),
    /// nsqd took no byte within `write_timeout`.
    #[error("write timed out - nsqd took nothing for {0:?}")]
    WriteTimeout(Duration),
    /// nsqd refused the IDENTIFY, with this text.
    #[error("failed to IDENTIFY - {0}")]
    Identify(String),
    /// nsqd answered the IDENTIFY with JSON that has no such form.
    #[error("failed to IDENTIFY - the answer is not understood: {0}")]
    Negotiation(#[source] serde_json::Error),
    /// The configuration asks for TLS, and this nsqd does not offer it. The client never continues in plain text.
    #[error(
        "TLS was asked for, and nsqd does not offer it; start nsqd with --tls-cert and --tls-key, or unset tls_v1"
    )]
    TlsRefused,
    /// nsqd began an upgrade that the client did not ask for.
    #[error("nsqd began {0}, which the client did not ask for")]
    UpgradeUnasked(&'static str),
    /// TLS or compression failed.
    #[error("upgrade failed - {0}")]
    Upgrade(#[from] UpgradeError),
    /// The host of the address is no name that a certificate can have.
    #[error("TLS needs a host name or an IP address, not {0:?}")]
    ServerName(String),
    /// nsqd requires authorization, and the configuration has no `auth_secret`.
    #[error("Auth Required: nsqd wants a secret; set auth_secret")]
    AuthRequired,
    /// nsqd refused the secret, with this text.
    #[error("auth failed - {0}")]
    Auth(String),
    /// nsqd answered AUTH with JSON that has no such form.
    #[error("auth failed - the answer is not understood: {0}")]
    AuthAnswer(#[source] serde_json::Error),
    /// nsqd refused the subscription, with this text.
    #[error("failed to SUB - {0}")]
    Subscribe(String),
    /// The address is that of an HTTP server.
    #[error(
        "a nsqd TCP endpoint is required: this address belongs to an HTTP server (nsqd has TCP on port 4150 by \
         default, and HTTP on port 4151)"
    )]
    HttpEndpoint,
    /// A frame announced a size that no frame has.
    #[error("nsqd sent no frame: its size would be {announced}")]
    FrameSize {
        /// The announced size, in bytes.
        announced: i32,
    },
    /// A frame announced more bytes than `max_msg_size` allows.
    #[error("nsqd announced a frame of {bytes} bytes, and max_msg_size allows {bytes_max}")]
    FrameTooLarge {
        /// The announced size, in bytes.
        bytes: usize,
        /// `max_msg_size`, in bytes.
        bytes_max: usize,
    },
    /// A frame of an unknown type.
    #[error("{}", frame_type_text(*.number))]
    FrameType {
        /// The type, as it came.
        number: i32,
    },
    /// A message frame that is too short for a message.
    #[error("nsqd sent a message of {bytes} bytes, fewer than 26")]
    ShortMessage {
        /// The length of its data, in bytes.
        bytes: usize,
    },
    /// nsqd sent a response or an error for which no command waits, with this text.
    #[error("nsqd sent {0:?}, for which no command waits")]
    Unexpected(String),
    /// nsqd refused a message by this error. It closed the connection, and carried out no command behind this one.
    #[error("nsqd refused this publish or one before it: {0}")]
    Refused(ErrorFrame),
    /// The client gave the connection up, because a publish had no answer within its timeout.
    #[error("a publish had no answer for {0:?}")]
    AnswerTimeout(Duration),
    /// The application closed or dropped the client.
    #[error("stopped")]
    Stopped,
}

/// The bytes of nsqlookupd's `E_BAD_PROTOCOL` at the place of a frame's type. nsqlookupd sends no type.
const LOOKUPD_ANSWER: &[u8; 4] = b"E_BA";

fn frame_type_text(number: i32) -> String {
    if number.to_be_bytes() == *LOOKUPD_ANSWER {
        return "a nsqd TCP endpoint is required: this address is the TCP port of an nsqlookupd (nsqd has TCP on port \
                4150 by default; clients ask nsqlookupd through HTTP, on port 4161)"
            .to_owned();
    }
    format!("nsqd sent a frame of the unknown type {number}")
}

/// The connection of a message or of a command is gone. nsqd will deliver the message again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not connected")]
pub struct ConnectionLost;

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
        self.0.split(' ').next().unwrap_or_default()
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
