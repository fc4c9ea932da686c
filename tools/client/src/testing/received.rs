//! [`Received`]: a command of a client, as a mock server sees it.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use wire::command::Command;
use wire::id::MessageId;

/// A command of a client. Its display is the command as text, without sizes: `PUB orders one`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Received {
    /// `IDENTIFY`, with its JSON.
    Identify(serde_json::Value),
    /// `AUTH`, with the secret.
    Auth(Bytes),
    /// `SUB`.
    Sub {
        /// The topic.
        topic: String,
        /// The channel.
        channel: String,
    },
    /// `PUB`.
    Pub {
        /// The topic.
        topic: String,
        /// The message.
        body: Bytes,
    },
    /// `MPUB`.
    Mpub {
        /// The topic.
        topic: String,
        /// The messages.
        bodies: Vec<Bytes>,
    },
    /// `DPUB`.
    Dpub {
        /// The topic.
        topic: String,
        /// The deferral.
        delay: Duration,
        /// The message.
        body: Bytes,
    },
    /// `RDY`.
    Rdy(u32),
    /// `FIN`.
    Fin(MessageId),
    /// `REQ`.
    Req {
        /// The message.
        id: MessageId,
        /// The delay.
        delay: Duration,
    },
    /// `TOUCH`.
    Touch(MessageId),
    /// `CLS`.
    Cls,
    /// `NOP`.
    Nop,
}

impl Received {
    pub(super) fn new(command: &Command<'_>) -> Received {
        let copy = Bytes::copy_from_slice;
        match *command {
            // A client of this crate sends JSON. What another one sends shows in the test as a string.
            Command::Identify { body } => Received::Identify(
                serde_json::from_slice(body)
                    .unwrap_or_else(|_| String::from_utf8_lossy(body).into_owned().into()),
            ),
            Command::Auth { secret } => Received::Auth(copy(secret)),
            Command::Sub { topic, channel } => Received::Sub {
                topic: topic.to_string(),
                channel: channel.to_string(),
            },
            Command::Pub { topic, body, .. } => Received::Pub {
                topic: topic.to_string(),
                body: copy(body),
            },
            Command::Mpub { topic, batch, .. } => Received::Mpub {
                topic: topic.to_string(),
                bodies: batch.into_iter().map(copy).collect(),
            },
            Command::Dpub {
                topic, defer, body, ..
            } => Received::Dpub {
                topic: topic.to_string(),
                delay: defer,
                body: copy(body),
            },
            Command::Rdy { count } => Received::Rdy(count),
            Command::RdyIgnored => Received::Rdy(0),
            Command::Fin { id } => Received::Fin(id),
            Command::Req { id, timeout, .. } => Received::Req { id, delay: timeout },
            Command::Touch { id } => Received::Touch(id),
            Command::Cls => Received::Cls,
            Command::Nop => Received::Nop,
        }
    }
}

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

impl fmt::Display for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Received::Identify(_) => f.write_str("IDENTIFY"),
            Received::Auth(secret) => write!(f, "AUTH {}", text(secret)),
            Received::Sub { topic, channel } => write!(f, "SUB {topic} {channel}"),
            Received::Pub { topic, body } => write!(f, "PUB {topic} {}", text(body)),
            Received::Mpub { topic, bodies } => {
                write!(f, "MPUB {topic}")?;
                bodies
                    .iter()
                    .try_for_each(|body| write!(f, " {}", text(body)))
            }
            Received::Dpub { topic, delay, body } => {
                write!(f, "DPUB {topic} {} {}", delay.as_millis(), text(body))
            }
            Received::Rdy(count) => write!(f, "RDY {count}"),
            Received::Fin(id) => write!(f, "FIN {}", text(id.as_bytes())),
            Received::Req { id, delay } => {
                write!(f, "REQ {} {}", text(id.as_bytes()), delay.as_millis())
            }
            Received::Touch(id) => write!(f, "TOUCH {}", text(id.as_bytes())),
            Received::Cls => f.write_str("CLS"),
            Received::Nop => f.write_str("NOP"),
        }
    }
}
