//! [`WireError`]: an error that the broker sends to a peer, in nsqd's exact words.

use std::fmt::{self, Write};

use crate::id::MessageId;

/// The codes of nsqd's errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// The first four bytes are not the magic.
    BadProtocol,
    /// A command is unknown, is not allowed in this state or has wrong parameters.
    Invalid,
    /// A topic name is not valid.
    BadTopic,
    /// A channel name is not valid.
    BadChannel,
    /// The body of an IDENTIFY or AUTH, or the size or count of an MPUB, is bad.
    BadBody,
    /// A published message is bad.
    BadMessage,
    /// A PUB failed.
    PubFailed,
    /// An MPUB failed.
    MpubFailed,
    /// A DPUB failed.
    DpubFailed,
    /// A SUB failed.
    SubFailed,
    /// The negotiation or upgrade after an IDENTIFY failed.
    IdentifyFailed,
    /// A command needs AUTH before it.
    AuthFirst,
    /// The auth server gave no usable answer.
    AuthFailed,
    /// The client is not authorised for the command.
    Unauthorized,
    /// A client sent AUTH, but no auth server is configured.
    AuthDisabled,
    /// FIN of a message that is not in flight to this client.
    FinFailed,
    /// REQ of a message that is not in flight to this client.
    ReqFailed,
    /// TOUCH of a message that is not in flight to this client.
    TouchFailed,
}

impl ErrorCode {
    /// Returns the code as it is sent.
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
            ErrorCode::FinFailed => "E_FIN_FAILED",
            ErrorCode::ReqFailed => "E_REQ_FAILED",
            ErrorCode::TouchFailed => "E_TOUCH_FAILED",
        }
    }

    /// Returns true when the connection ends with the error. Only a consumer's late FIN, REQ or
    /// TOUCH is not fatal: its message may have timed out meanwhile, which is nobody's mistake.
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

/// An error to send: a code, a space and a description.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct WireError {
    /// The code of the error.
    pub code: ErrorCode,
    /// The whole text for logs, code included. If nsqd repeats bytes of the peer that are not
    /// UTF-8, U+FFFD stands for them here. [`WireError::data`] has the original bytes.
    pub text: String,
    /// The bytes to send, if they are not UTF-8 and `text` cannot hold them.
    exact: Option<Box<[u8]>>,
}

impl WireError {
    /// Makes an error of `code`, a space, and `description`.
    pub fn new(code: ErrorCode, description: impl fmt::Display) -> WireError {
        WireError {
            code,
            text: format!("{code} {description}"),
            exact: None,
        }
    }

    /// Makes an error of `code`, a space, `before`, the unchanged bytes `raw`, and `after`. nsqd
    /// formats the peer's bytes with `%s`.
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

    /// Returns true when the connection ends once the error is sent.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        self.code.is_fatal()
    }

    /// The data of the error frame.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        self.exact.as_deref().unwrap_or(self.text.as_bytes())
    }

    /// The first four bytes were not [`crate::decode::MAGIC_V2`]. No other error lacks a
    /// description.
    pub fn bad_protocol() -> WireError {
        let code = ErrorCode::BadProtocol;
        WireError {
            code,
            text: code.as_str().to_owned(),
            exact: None,
        }
    }

    /// Makes an `E_INVALID` with `text`.
    pub fn invalid(text: impl fmt::Display) -> WireError {
        WireError::new(ErrorCode::Invalid, text)
    }

    /// FIN of `id` found no such message: `cause` is `ID not in flight` or
    /// `client does not own message`. Not fatal.
    pub fn fin_failed(id: &MessageId, cause: &str) -> WireError {
        WireError::of_message(ErrorCode::FinFailed, "FIN ", id, cause)
    }

    /// REQ of `id` failed: `cause` is a cause of FIN. nsqd has more causes, such as `exiting`. Not
    /// fatal.
    pub fn req_failed(id: &MessageId, cause: &str) -> WireError {
        WireError::of_message(ErrorCode::ReqFailed, "REQ ", id, cause)
    }

    /// TOUCH of `id` failed: `cause` is a cause of FIN. Not fatal.
    pub fn touch_failed(id: &MessageId, cause: &str) -> WireError {
        WireError::of_message(ErrorCode::TouchFailed, "TOUCH ", id, cause)
    }

    fn of_message(code: ErrorCode, verb: &str, id: &MessageId, cause: &str) -> WireError {
        // A client may have made up the id from any sixteen bytes. The answer repeats them
        // unchanged.
        WireError::with_raw(code, verb, id.as_bytes(), &format!(" failed {cause}"))
    }

    /// A publish failed: `cause` is `exiting`, the reason why the topic is set aside, or the disk's
    /// error.
    ///
    /// # Panics
    /// When `verb` is not `PUB`, `MPUB` or `DPUB`.
    pub fn pub_failed(verb: &str, cause: &str) -> WireError {
        let code = match verb {
            "PUB" => ErrorCode::PubFailed,
            "MPUB" => ErrorCode::MpubFailed,
            "DPUB" => ErrorCode::DpubFailed,
            _ => panic!("{verb} does not publish"),
        };
        WireError::new(code, format_args!("{verb} failed {cause}"))
    }

    /// SUB failed: `cause` is `exiting`, `consumers for <topic>:<channel> exceeds limit of <n>`, the
    /// reason why the topic is set aside, or the disk's error.
    pub fn sub_failed(cause: &str) -> WireError {
        WireError::new(ErrorCode::SubFailed, format_args!("SUB failed {cause}"))
    }

    /// The answer to IDENTIFY or an upgrade failed.
    pub fn identify_failed(cause: &str) -> WireError {
        let description = format_args!("IDENTIFY failed {cause}");
        WireError::new(ErrorCode::IdentifyFailed, description)
    }

    /// A client sent AUTH, but no auth server is configured.
    pub fn auth_disabled() -> WireError {
        WireError::new(ErrorCode::AuthDisabled, "AUTH disabled")
    }

    /// A client that is already authorised sent AUTH.
    pub fn auth_already_set() -> WireError {
        WireError::invalid("AUTH already set")
    }

    /// A client that is not authorised for anything yet sent `verb` (PUB, MPUB, DPUB or SUB).
    pub fn auth_first(verb: &str) -> WireError {
        let description = format_args!("AUTH required before {verb}");
        WireError::new(ErrorCode::AuthFirst, description)
    }

    /// The auth server gave no usable answer. Only the log gets the details.
    pub fn auth_failed() -> WireError {
        WireError::new(ErrorCode::AuthFailed, "AUTH failed")
    }

    /// The auth server knows the client and grants it nothing.
    pub fn no_authorizations() -> WireError {
        WireError::new(ErrorCode::Unauthorized, "AUTH no authorizations found")
    }

    /// The client has no grant for `verb` on this topic and channel. The channel is empty for a
    /// publish.
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

/// Puts `bytes` in double quotes as Go's `%q` writes them.
///
/// The Unicode tables of Rust's standard library decide which characters beyond ASCII are
/// printable. They agree with Go's rule: letters, marks, numbers, punctuation, symbols. Only the
/// editions differ: a character newer than Go 1.19 (Unicode 13) stays unchanged here, whereas Go
/// escapes it.
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

/// Returns true when a character beyond ASCII is printable. `str::escape_debug` decides, but it
/// also escapes a mark at the start of a text, so this function puts a letter before the character.
fn is_printable(c: char) -> bool {
    let mut buffer = [b'a'; 1 + char::MAX.len_utf8()];
    let bytes = 1 + c.encode_utf8(&mut buffer[1..]).len();
    str::from_utf8(&buffer[..bytes]).is_ok_and(|text| text.escape_debug().nth(1) == Some(c))
}

#[cfg(test)]
mod tests;
