//! [`JsonPointer`]: the value in a body that is the message's key.

mod scanner;

use crate::fingerprint::{Fingerprint, KeyHasher};
use scanner::JsonScanner;
use std::borrow::Cow;
use std::fmt;

/// Bytes of a body that are searched: 1 MiB. A longer search would hold up the other clients of the shard.
pub(crate) const SEARCHED_MAX: usize = 1 << 20;
/// The most reference tokens of a pointer.
pub(crate) const TOKENS_MAX: usize = 32;
/// The most bytes of a pointer.
pub(crate) const POINTER_BYTES_MAX: usize = 1024;

/// A JSON pointer (RFC 6901) with at least one reference token.
///
/// If an object has several members of one name, the first one counts. The search goes up to the end of the value, and
/// does not look at the rest of the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPointer {
    text: Box<str>,
    tokens: Box<[Token]>,
}

/// One reference token.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    name: Box<[u8]>,
    /// The element of an array that the token means.
    index: Option<u32>,
}

/// The reason why a text is no pointer to a key. Its text completes a sentence that begins with the pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonPointerError {
    /// The text is empty: it means the whole body.
    WholeBody,
    /// The text does not begin with a slash.
    NoSlash,
    /// A tilde stands before something else than 0 or 1.
    Tilde,
    /// The text has too many bytes or tokens.
    TooLong,
}

impl fmt::Display for JsonPointerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JsonPointerError::WholeBody => f.write_str("is empty; for the whole body, write body"),
            JsonPointerError::NoSlash => {
                f.write_str("must begin with a slash, as /id or /order/id")
            }
            JsonPointerError::Tilde => {
                f.write_str("has a ~ that is not ~0, which stands for ~, or ~1, which stands for /")
            }
            JsonPointerError::TooLong => write!(
                f,
                "is too long: it may have {TOKENS_MAX} reference tokens, and {POINTER_BYTES_MAX} bytes"
            ),
        }
    }
}

/// The value of a key in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'b> {
    /// A string without its quotes, and with its escapes. Strings are compared decoded.
    String(&'b [u8]),
    /// The bytes of any other value. They are compared as they are: `1` and `1.0` are different keys.
    Other(&'b [u8]),
}

impl Value<'_> {
    /// Returns the fingerprint of the value. A string, a string that is no text, and another value are different keys
    /// although they have the same bytes: what is hashed begins with another byte for each.
    pub(crate) fn fingerprint(&self, hasher: &KeyHasher) -> Fingerprint {
        match self {
            Value::String(string) => match decoded(string) {
                Ok(text) => hasher.fingerprint(&[b"\"", &text]),
                Err(raw) => hasher.fingerprint(&[b"\\", raw]),
            },
            Value::Other(bytes) => hasher.fingerprint(&[bytes]),
        }
    }

    /// Returns whether two values are the same key.
    pub(crate) fn is_same(&self, other: &Value<'_>) -> bool {
        match (self, other) {
            (Value::String(a), Value::String(b)) => decoded(a) == decoded(b),
            (Value::Other(a), Value::Other(b)) => a == b,
            _ => false,
        }
    }
}

impl JsonPointer {
    /// Parses a pointer.
    ///
    /// # Errors
    /// The text is no pointer, or points to the whole body, or is too long.
    pub fn parse(text: &str) -> Result<JsonPointer, JsonPointerError> {
        if text.is_empty() {
            return Err(JsonPointerError::WholeBody);
        }
        let tokens = text.strip_prefix('/').ok_or(JsonPointerError::NoSlash)?;
        if text.len() > POINTER_BYTES_MAX || tokens.split('/').count() > TOKENS_MAX {
            return Err(JsonPointerError::TooLong);
        }
        let tokens = tokens
            .split('/')
            .map(token)
            .collect::<Option<Box<[Token]>>>();
        Ok(JsonPointer {
            text: text.into(),
            tokens: tokens.ok_or(JsonPointerError::Tilde)?,
        })
    }

    /// Finds the value in a body. `None`: the body is no JSON up to the value, or has no such value, or the value is
    /// `null` or an empty string. Producers write these two when they have no value, so they identify no message.
    pub(crate) fn find<'b>(&self, body: &'b [u8]) -> Option<Value<'b>> {
        let mut scanner = JsonScanner::new(&body[..body.len().min(SEARCHED_MAX)]);
        for token in &self.tokens {
            match scanner.peek()? {
                b'{' => enter_object(&mut scanner, &token.name)?,
                b'[' => enter_array(&mut scanner, token.index?)?,
                _ => return None,
            }
        }
        let first = scanner.peek()?;
        let start = scanner.at();
        let value = if first == b'"' {
            Value::String(scanner.string()?)
        } else {
            scanner.skip_value()?;
            Value::Other(scanner.since(start))
        };
        // The value is in a container, so it does not end the text.
        let is_whole = matches!(scanner.peek()?, b',' | b'}' | b']');
        let is_key = !matches!(value, Value::String(b"") | Value::Other(b"null"));
        (is_whole && is_key).then_some(value)
    }
}

/// The text of the pointer.
impl fmt::Display for JsonPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns the bytes that a string stands for. A string without escapes costs no allocation.
///
/// # Errors
/// The string with its escapes, if it is no text, for example because it has half of a surrogate pair.
fn decoded(string: &[u8]) -> Result<Cow<'_, [u8]>, &[u8]> {
    let text = || serde_json::from_slice::<String>(&[b"\"", string, b"\""].concat());
    match string.contains(&b'\\').then(text) {
        Some(Ok(text)) => Ok(Cow::Owned(text.into_bytes())),
        Some(Err(_)) => Err(string),
        None => Ok(Cow::Borrowed(string)),
    }
}

/// `None`: a tilde stands before something else than 0 or 1.
fn token(text: &str) -> Option<Token> {
    let is_escape = |rest: &str| rest.starts_with('0') || rest.starts_with('1');
    if !text.split('~').skip(1).all(is_escape) {
        return None;
    }
    let name = text.replace("~1", "/").replace("~0", "~");
    let is_index =
        text == "0" || !text.starts_with('0') && text.bytes().all(|it| it.is_ascii_digit());
    Some(Token {
        name: name.into_bytes().into(),
        index: text.parse().ok().filter(|_| is_index),
    })
}

/// Goes to the value of the first member of this name. `None`: there is none, or the object is no JSON up to there.
fn enter_object(scanner: &mut JsonScanner<'_>, name: &[u8]) -> Option<()> {
    scanner.take(b'{')?;
    loop {
        let found = scanner.name()?;
        // An escape is longer than what it stands for.
        if found.len() >= name.len() && decoded(found).is_ok_and(|it| *it == *name) {
            return Some(());
        }
        scanner.skip_value()?;
        scanner.take(b',')?;
    }
}

/// Goes to the element of this index. `None`: there is none, or the array is no JSON up to there.
fn enter_array(scanner: &mut JsonScanner<'_>, index: u32) -> Option<()> {
    scanner.take(b'[')?;
    for _ in 0..index {
        scanner.skip_value()?;
        scanner.take(b',')?;
    }
    (scanner.peek()? != b']').then_some(())
}

#[cfg(test)]
mod tests;
