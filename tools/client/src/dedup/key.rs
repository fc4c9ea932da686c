//! [`Key`]: what two copies of a message have in common.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ringq_dedup::{Fingerprint, KeyHasher, MessageNumber};

use super::pointer::{Found, JsonPointer, PointerError};

/// A function of the application that finds the key in a body.
type BytesOf = dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync;
/// A function of the application that finds the number of a message in its body.
type NumberOf = dyn Fn(&[u8]) -> Option<MessageNumber> + Send + Sync;

/// The part that two copies of a message have in common. A message without a key is handled without the filter, and
/// counted.
///
/// Topic and channel belong to each key, except those of [`Key::number_by`]. So each channel handles its own copy of a
/// message, and equal bodies of two topics are two messages, also if the consumers share a [`Dedup`](super::Dedup). The
/// JSON pointers belong to the key, too. So a filter that was saved with one pointer knows no message by another
/// pointer.
pub struct Key(Kind);

enum Kind {
    Body,
    Json(JsonPointer),
    Bytes(Box<BytesOf>),
    JsonNumber {
        source: Option<JsonPointer>,
        number: JsonPointer,
    },
    Number(Box<NumberOf>),
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.name())
    }
}

impl Key {
    /// Makes the whole body the key. Two messages with equal bodies are copies, so a producer that means two messages
    /// by two equal bodies needs another key.
    #[must_use]
    pub fn body() -> Key {
        Key(Kind::Body)
    }

    /// Makes the value at a JSON pointer (RFC 6901) the key, such as `/order/id`. Strings are compared without their
    /// escapes, and all other values as they are written: `1` and `1.0` are two keys. A body that is no JSON, or has
    /// nothing, `null` or an empty string at this place, has no key.
    ///
    /// # Errors
    /// The text is no JSON pointer.
    pub fn json(pointer: &str) -> Result<Key, PointerError> {
        Ok(Key(Kind::Json(pointer.parse()?)))
    }

    /// Lets a function find the key in the body. The function runs where messages arrive, so it must not wait. If it
    /// panics or returns no byte, the message has no key. A saved filter knows keys of the function with which it was
    /// saved, so another function needs another state file.
    #[must_use]
    pub fn by(function: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync + 'static) -> Key {
        Key(Kind::Bytes(Box::new(function)))
    }

    /// Makes the whole number (64 bits, not negative) at a JSON pointer the key, as a
    /// [`RoaringPair`](ringq_dedup::RoaringPair) needs it. If there are several producers with numbers of their own,
    /// `source` is the place of the producer's name.
    ///
    /// # Errors
    /// A text is no JSON pointer.
    pub fn json_number(source: Option<&str>, number: &str) -> Result<Key, PointerError> {
        Ok(Key(Kind::JsonNumber {
            source: source.map(str::parse).transpose()?,
            number: number.parse()?,
        }))
    }

    /// Lets a function find the number of the message in the body, for a [`RoaringPair`](ringq_dedup::RoaringPair).
    /// What [`Key::by`] says about functions counts here, too.
    #[must_use]
    pub fn number_by(
        function: impl Fn(&[u8]) -> Option<MessageNumber> + Send + Sync + 'static,
    ) -> Key {
        Key(Kind::Number(Box::new(function)))
    }

    /// Returns the name of the key, with which a filter is saved. A filter knows nothing of keys with another name. All
    /// functions have the same name.
    pub(super) fn name(&self) -> String {
        match &self.0 {
            Kind::Body => "body".to_owned(),
            Kind::Json(pointer) => format!("json:{pointer}"),
            Kind::JsonNumber { source, number } => match source {
                Some(source) => format!("number json:{number} of source json:{source}"),
                None => format!("number json:{number}"),
            },
            Kind::Bytes(_) => "function".to_owned(),
            Kind::Number(_) => "number function".to_owned(),
        }
    }

    /// Returns true if the key is a number of the message.
    pub(super) fn is_number(&self) -> bool {
        matches!(self.0, Kind::JsonNumber { .. } | Kind::Number(_))
    }

    /// Returns the key of a body for a filter of numbers. `scope` is `topic/channel`.
    pub(super) fn number(&self, scope: &str, body: &[u8]) -> Option<FilterKey> {
        let number = match &self.0 {
            Kind::JsonNumber { source, number } => {
                let Found::Raw(digits) = number.find(body)? else {
                    return None;
                };
                let name = match source {
                    Some(source) => Some(source.find(body)?),
                    None => None,
                };
                let pointers = [
                    number.as_str(),
                    source.as_ref().map_or("", JsonPointer::as_str),
                ];
                MessageNumber {
                    source: source_number(scope, pointers, name.as_ref()),
                    number: digits.parse().ok()?,
                }
            }
            Kind::Number(function) => call(function, body)?,
            Kind::Body | Kind::Json(_) | Kind::Bytes(_) => return None,
        };
        Some(number.into())
    }

    /// Returns the key of a body for a filter of fingerprints. `scope` is `topic/channel`.
    pub(super) fn fingerprint(
        &self,
        hasher: &KeyHasher,
        scope: &str,
        body: &[u8],
    ) -> Option<FilterKey> {
        let of = |kind: &[u8], place: &str, value: &[u8]| {
            let parts = [scope.as_bytes(), kind, place.as_bytes(), value];
            Some(hasher.fingerprint_of_parts(&parts).into())
        };
        match &self.0 {
            Kind::Body => of(b"body", "", body),
            Kind::Json(pointer) => match pointer.find(body)? {
                Found::Text(text) => of(b"json text", pointer.as_str(), text.as_bytes()),
                Found::Raw(raw) => of(b"json", pointer.as_str(), raw.as_bytes()),
            },
            Kind::Bytes(function) => match &*call(function, body)? {
                [] => None,
                bytes => of(b"bytes", "", bytes),
            },
            Kind::JsonNumber { .. } | Kind::Number(_) => {
                let number = self.number(scope, body)?;
                of(b"number", "", &number.0.to_le_bytes())
            }
        }
    }
}

/// Calls a function of the application. `None` if the function panics.
fn call<T>(function: &(dyn Fn(&[u8]) -> Option<T> + Send + Sync), body: &[u8]) -> Option<T> {
    catch_unwind(AssertUnwindSafe(|| function(body))).unwrap_or(None)
}

/// Returns the number that stands for a source. `pointers` are those of the message's number and of the source's name.
/// The secret is a constant, so that a saved filter knows the sources again.
fn source_number(scope: &str, pointers: [&str; 2], name: Option<&Found<'_>>) -> u64 {
    let hasher = KeyHasher::new(*b"ringq dedup keys");
    let (kind, name): (&[u8], &[u8]) = match name {
        None => (b"none", b""),
        Some(Found::Text(text)) => (b"text", text.as_bytes()),
        Some(Found::Raw(raw)) => (b"raw", raw.as_bytes()),
    };
    let [number, source] = pointers.map(str::as_bytes);
    let parts = [scope.as_bytes(), number, source, kind, name];
    let Fingerprint(hash) = hasher.fingerprint_of_parts(&parts);
    hash as u64
}

/// The key of a message, as all filters of one [`Dedup`](super::Dedup) compare it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FilterKey(pub(crate) u128);

impl From<Fingerprint> for FilterKey {
    fn from(fingerprint: Fingerprint) -> FilterKey {
        FilterKey(fingerprint.0)
    }
}

impl From<MessageNumber> for FilterKey {
    fn from(number: MessageNumber) -> FilterKey {
        FilterKey(u128::from(number.source) << 64 | u128::from(number.number))
    }
}

impl From<FilterKey> for Fingerprint {
    fn from(key: FilterKey) -> Fingerprint {
        Fingerprint(key.0)
    }
}

impl From<FilterKey> for MessageNumber {
    fn from(key: FilterKey) -> MessageNumber {
        MessageNumber {
            source: (key.0 >> 64) as u64,
            number: key.0 as u64,
        }
    }
}

#[cfg(test)]
mod tests;
