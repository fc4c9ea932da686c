//! [`ContentKey`]: what makes two messages of a topic equal.

use crate::dedup::fingerprint::{Fingerprint, KeyHasher};
use crate::dedup::json_pointer::JsonPointer;
use std::fmt;

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
            ContentKey::Body => Some(hasher.fingerprint(|key| key.add(body))),
            ContentKey::Json(pointer) => {
                let value = pointer.find(body)?;
                Some(hasher.fingerprint(|key| value.add_to(key)))
            }
        }
    }

    /// Returns whether two messages have the same key.
    pub(crate) fn is_same(&self, a: &[u8], b: &[u8]) -> bool {
        match self {
            ContentKey::Body => a == b,
            ContentKey::Json(pointer) => match (pointer.find(a), pointer.find(b)) {
                (Some(a), Some(b)) => a.is_same(&b),
                _ => false,
            },
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
            assert_eq!(key.is_same(a, b), is_same);
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
}
