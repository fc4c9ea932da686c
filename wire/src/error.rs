//! [`WireError`]: what a peer is told when something is wrong, in nsqd's exact words.

use std::fmt::{self, Write};

use crate::id::MessageId;

/// The codes of nsqd's errors (protocol-v2 §19).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// The first four bytes are not the magic.
    BadProtocol,
    /// Unknown command, wrong state, wrong parameters.
    Invalid,
    /// Not a topic name.
    BadTopic,
    /// Not a channel name.
    BadChannel,
    /// IDENTIFY or AUTH body, or what encloses an MPUB's messages.
    BadBody,
    /// A published message.
    BadMessage,
    /// PUB could not be carried out.
    PubFailed,
    /// MPUB could not be carried out.
    MpubFailed,
    /// DPUB could not be carried out.
    DpubFailed,
    /// SUB could not be carried out.
    SubFailed,
    /// IDENTIFY: negotiation or upgrade failed.
    IdentifyFailed,
    /// A command that needs AUTH before it.
    AuthFirst,
    /// The auth server did not answer as it should.
    AuthFailed,
    /// Not allowed.
    Unauthorized,
    /// AUTH without any auth server configured.
    AuthDisabled,
    /// The answer to AUTH could not be given.
    AuthError,
    /// FIN of a message that is not in flight to this client.
    FinFailed,
    /// REQ of a message that is not in flight to this client, or that could not be put back.
    ReqFailed,
    /// TOUCH of a message that is not in flight to this client.
    TouchFailed,
}

impl ErrorCode {
    /// The code as it is sent.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorCode::BadProtocol => "E_BAD_PROTOCOL",
            ErrorCode::Invalid => "E_INVALID",
            ErrorCode::BadTopic => "E_BAD_TOPIC",
            ErrorCode::BadChannel => "E_BAD_CHANNEL",
            ErrorCode::BadBody => "E_BAD_BODY",
            ErrorCode::BadMessage => "E_BAD_MESSAGE",
            ErrorCode::PubFailed => "E_PUB_FAILED",
            ErrorCode::MpubFailed => "E_MPUB_FAILED",
            ErrorCode::DpubFailed => "E_DPUB_FAILED",
            ErrorCode::SubFailed => "E_SUB_FAILED",
            ErrorCode::IdentifyFailed => "E_IDENTIFY_FAILED",
            ErrorCode::AuthFirst => "E_AUTH_FIRST",
            ErrorCode::AuthFailed => "E_AUTH_FAILED",
            ErrorCode::Unauthorized => "E_UNAUTHORIZED",
            ErrorCode::AuthDisabled => "E_AUTH_DISABLED",
            ErrorCode::AuthError => "E_AUTH_ERROR",
            ErrorCode::FinFailed => "E_FIN_FAILED",
            ErrorCode::ReqFailed => "E_REQ_FAILED",
            ErrorCode::TouchFailed => "E_TOUCH_FAILED",
        }
    }

    /// Whether the connection ends with it. Only a consumer's late answer is forgiven: its message
    /// may have timed out meanwhile, which is nobody's mistake.
    #[must_use]
    pub fn is_fatal(self) -> bool {
        use ErrorCode::{FinFailed, ReqFailed, TouchFailed};
        !matches!(self, FinFailed | ReqFailed | TouchFailed)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// An error to be sent: code, space, description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireError {
    /// Which kind.
    pub code: ErrorCode,
    /// The whole text, code included, for logs. Where nsqd repeats bytes of the peer's that are not
    /// UTF-8, U+FFFD stands for them here; [`WireError::data`] has them as they are.
    pub text: String,
    /// Whether the connection ends once the error is sent. See [`ErrorCode::is_fatal`].
    pub fatal: bool,
    /// What is sent, if `text` could not hold it.
    exact: Option<Box<[u8]>>,
}

impl WireError {
    /// `code`, a space, and `description`.
    #[must_use]
    pub fn new(code: ErrorCode, description: impl fmt::Display) -> WireError {
        let text = format!("{code} {description}");
        WireError {
            code,
            text,
            fatal: code.is_fatal(),
            exact: None,
        }
    }

    /// `code`, a space, `before`, `raw` as it is, `after`: nsqd's `%s` of what a peer sent.
    #[must_use]
    pub(crate) fn with_raw(code: ErrorCode, before: &str, raw: &[u8], after: &str) -> WireError {
        let mut error = WireError::new(code, before);
        match str::from_utf8(raw) {
            Ok(raw) => error.text.extend([raw, after]),
            Err(_) => {
                let exact = [error.text.as_bytes(), raw, after.as_bytes()].concat();
                error.text = String::from_utf8_lossy(&exact).into_owned();
                error.exact = Some(exact.into());
            }
        }
        error
    }

    /// The data of the error frame.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        self.exact.as_deref().unwrap_or(self.text.as_bytes())
    }

    /// The first four bytes were not [`crate::decode::MAGIC_V2`]. The only error without description.
    #[must_use]
    pub fn bad_protocol() -> WireError {
        let code = ErrorCode::BadProtocol;
        WireError {
            code,
            text: code.as_str().to_owned(),
            fatal: true,
            exact: None,
        }
    }

    /// `E_INVALID` and `text`.
    #[must_use]
    pub fn invalid(text: impl fmt::Display) -> WireError {
        WireError::new(ErrorCode::Invalid, text)
    }

    /// FIN of `id` found no such message: `cause` is `ID not in flight` or
    /// `client does not own message`. Not fatal.
    #[must_use]
    pub fn fin_failed(id: &MessageId, cause: &str) -> WireError {
        WireError::of_message(ErrorCode::FinFailed, "FIN ", id, cause)
    }

    /// REQ of `id` failed: the causes of FIN, `exiting`, `ID already deferred`, or the disk's. Not
    /// fatal.
    #[must_use]
    pub fn req_failed(id: &MessageId, cause: &str) -> WireError {
        WireError::of_message(ErrorCode::ReqFailed, "REQ ", id, cause)
    }

    /// TOUCH of `id` failed: the causes of FIN. Not fatal.
    #[must_use]
    pub fn touch_failed(id: &MessageId, cause: &str) -> WireError {
        WireError::of_message(ErrorCode::TouchFailed, "TOUCH ", id, cause)
    }

    fn of_message(code: ErrorCode, verb: &str, id: &MessageId, cause: &str) -> WireError {
        // A client may have made the id up, of any sixteen bytes; they go back to it as they came.
        WireError::with_raw(code, verb, id.as_bytes(), &format!(" failed {cause}"))
    }

    /// A publish failed: `exiting`, or the disk's error.
    ///
    /// # Panics
    /// When `verb` is not `PUB`, `MPUB` or `DPUB`.
    #[must_use]
    pub fn pub_failed(verb: &str, cause: &str) -> WireError {
        let code = match verb {
            "PUB" => ErrorCode::PubFailed,
            "MPUB" => ErrorCode::MpubFailed,
            "DPUB" => ErrorCode::DpubFailed,
            _ => panic!("{verb} does not publish"),
        };
        WireError::new(code, format_args!("{verb} failed {cause}"))
    }

    /// SUB failed: `exiting`, `consumers for <topic>:<channel> exceeds limit of <n>`, or
    /// `to deleted topic/channel`.
    #[must_use]
    pub fn sub_failed(cause: &str) -> WireError {
        WireError::new(ErrorCode::SubFailed, format_args!("SUB failed {cause}"))
    }

    /// The answer to IDENTIFY or an upgrade failed.
    #[must_use]
    pub fn identify_failed(cause: &str) -> WireError {
        WireError::new(
            ErrorCode::IdentifyFailed,
            format_args!("IDENTIFY failed {cause}"),
        )
    }

    /// AUTH, but no auth server is configured.
    #[must_use]
    pub fn auth_disabled() -> WireError {
        WireError::new(ErrorCode::AuthDisabled, "AUTH disabled")
    }

    /// AUTH by a client that already is authorised.
    #[must_use]
    pub fn auth_already_set() -> WireError {
        WireError::invalid("AUTH already set")
    }

    /// `verb` (PUB, MPUB, DPUB, SUB) by a client that is not authorised for anything yet.
    #[must_use]
    pub fn auth_first(verb: &str) -> WireError {
        WireError::new(
            ErrorCode::AuthFirst,
            format_args!("AUTH required before {verb}"),
        )
    }

    /// The auth server gave no usable answer. Details are for the log only.
    #[must_use]
    pub fn auth_failed() -> WireError {
        WireError::new(ErrorCode::AuthFailed, "AUTH failed")
    }

    /// The answer to AUTH could not be encoded or sent.
    #[must_use]
    pub fn auth_error(cause: &str) -> WireError {
        WireError::new(ErrorCode::AuthError, format_args!("AUTH error {cause}"))
    }

    /// The auth server knows the client and grants it nothing.
    #[must_use]
    pub fn no_authorizations() -> WireError {
        WireError::new(ErrorCode::Unauthorized, "AUTH no authorizations found")
    }

    /// `verb` on this topic and channel (empty for a publish) is not granted.
    #[must_use]
    pub fn unauthorized(verb: &str, topic: &str, channel: &str) -> WireError {
        let (topic, channel) = (quote(topic.as_bytes()), quote(channel.as_bytes()));
        let description = format_args!("AUTH failed for {verb} on {topic} {channel}");
        WireError::new(ErrorCode::Unauthorized, description)
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl std::error::Error for WireError {}

/// `bytes` in double quotes as Go's `%q` writes them (protocol-v2 §5).
///
/// What is printable beyond ASCII is taken from the Unicode tables of Rust's standard library, which
/// draw the same line as Go's: letters, marks, numbers, punctuation, symbols. The editions differ:
/// a character newer than Go 1.19 (Unicode 13) stays as it is here and is escaped there.
#[must_use]
pub fn quote(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            quote_char(&mut out, c);
        }
        for byte in chunk.invalid() {
            hex_byte(&mut out, *byte);
        }
    }
    out.push('"');
    out
}

fn quote_char(out: &mut String, c: char) {
    match c {
        '"' | '\\' => out.extend(['\\', c]),
        ' '..='~' => out.push(c),
        '\x07' => out.push_str("\\a"),
        '\x08' => out.push_str("\\b"),
        '\x0c' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\x0b' => out.push_str("\\v"),
        '\0'..='\x7f' => hex_byte(out, c as u8),
        _ if is_printable(c) => out.push(c),
        _ => {
            let (width, letter) = if c <= '\u{ffff}' { (4, 'u') } else { (8, 'U') };
            write!(out, "\\{letter}{:0width$x}", u32::from(c)).expect("a String takes all");
        }
    }
}

fn hex_byte(out: &mut String, byte: u8) {
    write!(out, "\\x{byte:02x}").expect("a String takes all");
}

/// Whether a character beyond ASCII is printable. `str::escape_debug` knows, but also escapes a mark
/// at the start of a text, for there is nothing to put it on; so there is a letter before it here.
fn is_printable(c: char) -> bool {
    let mut buffer = [b'a'; 1 + char::MAX.len_utf8()];
    let bytes = 1 + c.encode_utf8(&mut buffer[1..]).len();
    str::from_utf8(&buffer[..bytes]).is_ok_and(|text| text.escape_debug().nth(1) == Some(c))
}

#[cfg(test)]
mod tests;
