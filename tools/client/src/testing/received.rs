//! [`Received`]: a command of a client, as a mock server sees it.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use wire::command::Command;
use wire::id::MessageId;
use wire::origin::Number;

/// A command of a client. Its display is the command as text, without sizes: `PUB orders one`. With a number it is
/// `PUB orders 17 one`.
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
        /// The number of the message, if the client and the server have agreed on numbers.
        number: Option<u64>,
        /// The message.
        body: Bytes,
    },
    /// `MPUB`.
    Mpub {
        /// The topic.
        topic: String,
        /// The number of the first message, as in `Pub`.
        number: Option<u64>,
        /// The messages.
        bodies: Vec<Bytes>,
    },
    /// `DPUB`.
    Dpub {
        /// The topic.
        topic: String,
        /// The deferral.
        delay: Duration,
        /// The number of the message, as in `Pub`.
        number: Option<u64>,
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
        /// False if the delivery is not to count as an attempt (`uncounted`).
        is_counted: bool,
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
            Command::Pub {
                topic,
                number,
                body,
                ..
            } => Received::Pub {
                topic: topic.to_string(),
                number: number.map(Number::get),
                body: copy(body),
            },
            Command::Mpub {
                topic,
                number,
                batch,
                ..
            } => Received::Mpub {
                topic: topic.to_string(),
                number: number.map(Number::get),
                bodies: batch.into_iter().map(copy).collect(),
            },
            Command::Dpub {
                topic,
                defer,
                number,
                body,
                ..
            } => Received::Dpub {
                topic: topic.to_string(),
                delay: defer,
                number: number.map(Number::get),
                body: copy(body),
            },
            Command::Rdy { count } => Received::Rdy(count),
            Command::RdyIgnored => Received::Rdy(0),
            Command::Fin { id } => Received::Fin(id),
            Command::Req {
                id,
                timeout,
                is_counted,
                ..
            } => Received::Req {
                id,
                delay: timeout,
                is_counted,
            },
            Command::Touch { id } => Received::Touch(id),
            Command::Cls => Received::Cls,
            Command::Nop => Received::Nop,
        }
    }
}

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// A number as a further word, if there is one.
struct Word(Option<u64>);

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |number| write!(f, " {number}"))
    }
}

impl fmt::Display for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Received::Identify(_) => f.write_str("IDENTIFY"),
            Received::Auth(secret) => write!(f, "AUTH {}", text(secret)),
            Received::Sub { topic, channel } => write!(f, "SUB {topic} {channel}"),
            Received::Pub {
                topic,
                number,
                body,
            } => write!(f, "PUB {topic}{} {}", Word(*number), text(body)),
            Received::Mpub {
                topic,
                number,
                bodies,
            } => {
                write!(f, "MPUB {topic}{}", Word(*number))?;
                bodies
                    .iter()
                    .try_for_each(|body| write!(f, " {}", text(body)))
            }
            Received::Dpub {
                topic,
                delay,
                number,
                body,
            } => {
                let (delay, number) = (delay.as_millis(), Word(*number));
                write!(f, "DPUB {topic} {delay}{number} {}", text(body))
            }
            Received::Rdy(count) => write!(f, "RDY {count}"),
            Received::Fin(id) => write!(f, "FIN {}", text(id.as_bytes())),
            Received::Req {
                id,
                delay,
                is_counted,
            } => {
                let end = if *is_counted { "" } else { " uncounted" };
                let id = text(id.as_bytes());
                write!(f, "REQ {id} {}{end}", delay.as_millis())
            }
            Received::Touch(id) => write!(f, "TOUCH {}", text(id.as_bytes())),
            Received::Cls => f.write_str("CLS"),
            Received::Nop => f.write_str("NOP"),
        }
    }
}
