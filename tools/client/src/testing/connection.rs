//! [`MockConnection`]: the server's side of a connection. [`Received`]: a command of a client, as a mock server sees
//! it.

use std::fmt;
use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use wire::command::Command;
use wire::decode::{ClientState, Context, Decoded, Decoder, MAGIC_V2};
use wire::encode;
use wire::frame::{HEADER_BYTES, write_header};
use wire::id::MessageId;
use wire::limits::Limits;
use wire::origin::Number;

/// The answer to IDENTIFY, unless the test chooses another one.
pub(super) const ANSWER: &str = r#"{"max_rdy_count":2500,"version":"1.3.0","max_msg_timeout":900000,"msg_timeout":60000,"tls_v1":false,"deflate":false,"snappy":false,"auth_required":false}"#;
/// The answer of an nsqd that takes numbers.
pub(super) const NUMBERED_ANSWER: &str = r#"{"publisher_id":true,"max_rdy_count":2500,"version":"1.3.0","max_msg_timeout":900000,"msg_timeout":60000,"tls_v1":false,"deflate":false,"snappy":false,"auth_required":false}"#;

/// Far above what a test sends.
const LIMITS: Limits = Limits {
    message_bytes_max: i32::MAX,
    body_bytes_max: i32::MAX,
    rdy_count_max: i64::MAX,
    // nsqd shortens longer delays. The mock shows the delay that the client sent.
    req_timeout_max: Duration::from_secs(365 * 24 * 3600),
};

/// The server's side of a connection. Dropping it closes the connection.
#[derive(Debug)]
pub struct MockConnection {
    stream: DuplexStream,
    input: BytesMut,
    decoder: Decoder,
    state: ClientState,
    has_magic: bool,
    /// True when the client and the answer to IDENTIFY have agreed on numbers.
    has_numbers: bool,
    /// True after an agreement on uncounted requeues.
    has_uncounted: bool,
}

impl MockConnection {
    pub(super) fn new(stream: DuplexStream) -> MockConnection {
        MockConnection {
            stream,
            input: BytesMut::new(),
            decoder: Decoder::default(),
            state: ClientState::Init,
            has_magic: false,
            has_numbers: false,
            has_uncounted: false,
        }
    }

    /// Reads IDENTIFY and answers it. Returns the client's JSON.
    ///
    /// # Panics
    /// If the client sends anything else.
    pub async fn handshake(&mut self) -> serde_json::Value {
        self.handshake_with(ANSWER).await
    }

    /// Reads IDENTIFY, and answers that this nsqd takes numbers, if the client has a publisher id. Then each publish
    /// has a number. Returns the client's JSON.
    ///
    /// # Panics
    /// If the client sends anything else.
    pub async fn handshake_with_numbers(&mut self) -> serde_json::Value {
        self.handshake_with(NUMBERED_ANSWER).await
    }

    /// Reads IDENTIFY and answers it by `answer`. Returns the client's JSON.
    ///
    /// # Panics
    /// If the client sends anything else.
    pub async fn handshake_with(&mut self, answer: &str) -> serde_json::Value {
        match self.command().await {
            Some(Received::Identify(body)) => {
                self.agree(&body, answer);
                self.respond(answer).await;
                body
            }
            other => panic!("IDENTIFY is expected: {other:?}"),
        }
    }

    /// Notes whether the publishes of a client with this IDENTIFY have numbers after this answer, and whether its
    /// requeues may be uncounted.
    pub(super) fn agree(&mut self, identify: &serde_json::Value, answer: &str) {
        let answer = serde_json::from_str::<serde_json::Value>(answer);
        let agrees = |key| answer.as_ref().is_ok_and(|answer| answer[key] == true);
        self.has_numbers = agrees("publisher_id") && identify.get("publisher_id").is_some();
        self.has_uncounted = agrees("req_uncounted") && identify["req_uncounted"] == true;
    }

    /// Reads the next command. `None` means that the client has closed the connection, or that the connection broke.
    ///
    /// # Panics
    /// If the client sends what is no command, or no magic first.
    pub async fn command(&mut self) -> Option<Received> {
        loop {
            if let Some(command) = self.buffered() {
                return Some(command);
            }
            match self.stream.read_buf(&mut self.input).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// Takes the next command of the bytes that have come.
    fn buffered(&mut self) -> Option<Received> {
        if !self.has_magic {
            let magic = self.input.first_chunk()?;
            assert_eq!(*magic, MAGIC_V2, "the magic comes first");
            self.input.advance(MAGIC_V2.len());
            self.has_magic = true;
        }
        let context = Context {
            state: self.state,
            heartbeats: true,
            tls_missing: false,
            req_uncounted: self.has_uncounted,
            has_numbers: self.has_numbers,
            limits: &LIMITS,
        };
        let (received, consumed) = match self.decoder.decode(&self.input, &context) {
            Decoded::NeedMore(_) => return None,
            Decoded::Command { command, consumed } => (Received::new(&command), consumed),
            other => panic!("the client sent what is no command: {other:?}"),
        };
        self.input.advance(consumed);
        match received {
            Received::Sub { .. } => self.state = ClientState::Subscribed,
            Received::Cls => self.state = ClientState::Closing,
            _ => {}
        }
        Some(received)
    }

    /// Reads the next command, which must be `text` in the form that [`Received`] displays.
    ///
    /// # Panics
    /// If the client sends anything else.
    pub async fn expect(&mut self, text: &str) {
        let command = self.command().await;
        let command = command.map_or("the end".to_owned(), |command| command.to_string());
        assert_eq!(command, text);
    }

    /// Sends a response: `OK`, or JSON.
    pub async fn respond(&mut self, data: &str) {
        let mut frame = Vec::new();
        encode::response(&mut frame, data.as_bytes());
        self.send(&frame).await;
    }

    /// Sends an error: `E_BAD_TOPIC ...`. nsqd closes the connection after most errors. Here the test does.
    ///
    /// # Panics
    /// If the text is longer than a frame can be.
    pub async fn fail(&mut self, text: &str) {
        self.send(&error_frame(text)).await;
    }

    /// Sends a heartbeat.
    pub async fn heartbeat(&mut self) {
        self.send(encode::HEARTBEAT).await;
    }

    /// Sends a message. Its id is `number` in 16 hexadecimal digits.
    pub async fn deliver(&mut self, number: u64, attempts: u16, body: &str) {
        let frame = message(&id(number), attempts, body.as_bytes());
        self.send(&frame).await;
    }

    /// Sends bytes as they are. Bytes for a client that has gone away are lost, as on a real network.
    pub async fn send(&mut self, bytes: &[u8]) {
        let _: io::Result<()> = self.stream.write_all(bytes).await;
    }

    /// Closes the connection. The client still receives what was sent.
    pub fn close(self) {}
}

/// Returns the id of a message: 16 hexadecimal digits.
pub(super) fn id(number: u64) -> MessageId {
    let digits = format!("{number:016x}");
    MessageId(digits.as_bytes().try_into().expect("16 digits"))
}

/// Returns the frame of an error.
pub(super) fn error_frame(text: &str) -> Vec<u8> {
    let size = u32::try_from(text.len() + 4).expect("an error is short");
    let mut frame = size.to_be_bytes().to_vec();
    frame.extend_from_slice(&1_u32.to_be_bytes());
    frame.extend_from_slice(text.as_bytes());
    frame
}

/// Returns the frame of a message, whose timestamp is 1 s of Unix time.
pub(super) fn message(id: &MessageId, attempts: u16, body: &[u8]) -> Vec<u8> {
    let mut header = [0; HEADER_BYTES];
    let bytes = u32::try_from(body.len()).expect("a body is shorter than 4 GiB");
    write_header(&mut header, bytes, 1_000_000_000, attempts, id);
    let mut frame = header.to_vec();
    frame.extend_from_slice(body);
    frame
}

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
    fn new(command: &Command<'_>) -> Received {
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
