//! [`ContentKey`]: what makes two messages of a topic equal.

use crate::fingerprint::{Fingerprint, KeyHasher};
use crate::json_pointer::JsonPointer;
use std::fmt;

/// Bytes of a stored message that are searched however short the new message is.
const SEARCHED_MIN: usize = 256;

/// The part of a message by which two messages of a topic are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentKey {
    /// The whole body.
    Body,
    /// A value in the body, which is JSON.
    Json(JsonPointer),
}

impl ContentKey {
    /// Returns the fingerprint of a message's key. `None`: the message has no key.
    #[inline]
    pub(crate) fn fingerprint(&self, hasher: &KeyHasher, body: &[u8]) -> Option<Fingerprint> {
        match self {
            ContentKey::Body => Some(hasher.fingerprint(&[body])),
            ContentKey::Json(pointer) => Some(pointer.find(body)?.fingerprint(hasher)),
        }
    }

    /// Returns whether a stored message and a new one have the same key. `None`: the value lies so far back in the
    /// stored message that the search would take much longer than that of the new message. Otherwise, a batch of
    /// thousands of tiny messages would have thousands of large ones searched.
    pub(crate) fn is_same(&self, stored: &[u8], new: &[u8]) -> Option<bool> {
        let ContentKey::Json(pointer) = self else {
            return Some(stored == new);
        };
        let searched = stored.len().min(new.len() * 2 + SEARCHED_MIN);
        match (pointer.find(&stored[..searched]), pointer.find(new)) {
            (Some(stored), Some(new)) => Some(stored.is_same(&new)),
            (None, Some(_)) if searched < stored.len() => None,
            _ => Some(false),
        }
    }
}

/// The key as the flag has it: `body`, or `json:` and a pointer.
impl fmt::Display for ContentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ContentKey::Body => f.write_str("body"),
            ContentKey::Json(pointer) => write!(f, "json:{pointer}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_have_equal_fingerprints() {
        let pointer = JsonPointer::parse("/id").expect("a pointer");
        let hasher = KeyHasher::new([5; 16]);
        let check = |key: &ContentKey, a: &[u8], b: &[u8], is_same: bool| {
            assert_eq!(key.is_same(a, b), Some(is_same));
            let [a, b] = [a, b].map(|it| key.fingerprint(&hasher, it));
            assert_eq!(a.is_some() && a == b, is_same);
        };
        check(&ContentKey::Body, b"a", b"a", true);
        check(&ContentKey::Body, b"a", b"a ", false);
        let key = ContentKey::Json(pointer);
        assert_eq!(key.to_string(), "json:/id");
        check(&key, br#"{"id":1}"#, br#"{"id":1,"x":2}"#, true);
        check(&key, br#"{"id":1}"#, br#"{"id":2}"#, false);
        // Two messages without the key are never equal.
        check(&key, b"{}", b"{}", false);
    }

    /// Regression: each tiny copy of a message of 1 MiB had all of that message searched. An MPUB of 5 MB held up the
    /// shard for minutes.
    #[test]
    fn a_short_copy_has_no_long_message_searched() {
        let key = ContentKey::Json(JsonPointer::parse("/id").expect("a pointer"));
        let padding = "x".repeat(1000);
        let far = format!(r#"{{"text":"{padding}","id":1}}"#);
        let near = format!(r#"{{"id":1,"text":"{padding}"}}"#);
        assert_eq!(key.is_same(far.as_bytes(), br#"{"id":1}"#), None);
        assert_eq!(key.is_same(near.as_bytes(), br#"{"id":1}"#), Some(true));
        assert_eq!(key.is_same(far.as_bytes(), far.as_bytes()), Some(true));
        assert_eq!(key.is_same(far.as_bytes(), near.as_bytes()), Some(true));
        let other = near.replace(":1,", ":2,");
        assert_eq!(key.is_same(far.as_bytes(), other.as_bytes()), Some(false));
    }
}
