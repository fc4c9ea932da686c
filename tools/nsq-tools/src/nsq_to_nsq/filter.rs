//! [`Filter`]: decides which JSON messages are forwarded, and which of their fields. [`Key`]: the part of a message that
//! decides its destination with `--key-json-field`. [`Ranking`]: the destinations in the order of preference for a key.

use std::collections::BTreeSet;

use bytes::Bytes;
use ringq_client::dedup::{JsonPointer, PointerError};
use serde_json::value::RawValue;
use wire::go_json::push;

use super::json::{self, Object, push_value};

/// The conditions and the selection of the command line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Filter {
    /// The field that a message must have.
    pub(super) require: Option<Requirement>,
    /// The fields that are forwarded. An empty list forwards the message unchanged.
    pub(super) whitelist: Vec<String>,
}

/// A field that a message must have.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Requirement {
    /// The name of the field.
    pub(super) field: String,
    /// The value that the field must have: the same string, or the same number.
    pub(super) value: Option<String>,
}

/// The result for one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Filtered {
    /// This body is to be published.
    Forward(Bytes),
    /// The message does not meet the requirement.
    Unwanted,
    /// The message is not a JSON object.
    NotAnObject,
    /// The message lacks the field whose value is required.
    LacksField,
}

impl Filter {
    /// Returns true if the filter forwards every message unchanged, without a look at its body.
    pub(super) fn is_off(&self) -> bool {
        self.require.is_none() && self.whitelist.is_empty()
    }

    /// Applies the filter to a body.
    pub(super) fn apply(&self, body: &Bytes) -> Filtered {
        if self.is_off() {
            return Filtered::Forward(body.clone());
        }
        let text = json::go_text(body);
        let Some(object) = Object::parse(&text) else {
            return Filtered::NotAnObject;
        };
        if let Some(require) = &self.require {
            match (object.field(&require.field), &require.value) {
                (None, None) => return Filtered::Unwanted,
                (None, Some(_)) => return Filtered::LacksField,
                (Some(_), None) => {}
                (Some(value), Some(expected)) if is_equal(value, expected) => {}
                (Some(_), Some(_)) => return Filtered::Unwanted,
            }
        }
        if self.whitelist.is_empty() {
            return Filtered::Forward(body.clone());
        }
        Filtered::Forward(Bytes::from(self.selection(&object)))
    }

    /// Returns an object with the fields of the whitelist that exist, sorted by name.
    fn selection(&self, object: &Object<'_>) -> String {
        let names: BTreeSet<&str> = self.whitelist.iter().map(String::as_str).collect();
        let mut out = "{".to_owned();
        for name in names {
            if let Some(value) = object.field(name) {
                if out.len() > 1 {
                    out.push(',');
                }
                push(&mut out, name);
                out.push(':');
                push_value(&mut out, value);
            }
        }
        out + "}"
    }
}

/// Compares a value in JSON with the text of the command line.
fn is_equal(value: &str, expected: &str) -> bool {
    if let Some(text) = json::string(value) {
        return text == expected;
    }
    let (Some(value), Ok(expected)) = (json::number(value), expected.parse::<f64>()) else {
        return false;
    };
    value.is_finite() && value == expected
}

/// The place of the key in a JSON message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// The names of the fields, from the outermost inward. In an array, a decimal number is the
    /// place of an element.
    path: Vec<String>,
}

impl Key {
    /// Parses a JSON pointer (RFC 6901), which begins with a slash, or the name of a field.
    ///
    /// # Errors
    /// The pointer is wrong.
    pub(super) fn parse(text: &str) -> Result<Key, PointerError> {
        let path = if text.starts_with('/') {
            text.parse::<JsonPointer>()?.tokens().to_vec()
        } else {
            vec![text.to_owned()]
        };
        Ok(Key { path })
    }

    /// Returns the key of a body. A string is its characters, and another value its JSON in the form
    /// in which whitelisted fields are written. Returns `None` if the body is not JSON or lacks the
    /// key.
    pub(super) fn of(&self, body: &[u8]) -> Option<String> {
        let text = json::go_text(body);
        // The check of the whole text; what follows only looks for the parts.
        let mut value = Object::parse(&text)?.field(&self.path[0])?;
        for name in &self.path[1..] {
            value = match value.as_bytes().first()? {
                b'{' => Object::parse(value)?.field(name)?,
                b'[' => element(value, name)?,
                _ => return None,
            };
        }
        Some(json::string(value).unwrap_or_else(|| {
            let mut out = String::new();
            push_value(&mut out, value);
            out
        }))
    }
}

fn element<'a>(array: &'a str, place: &str) -> Option<&'a str> {
    let is_place = place == "0" || !place.starts_with(['0', '+']);
    let elements: Vec<&RawValue> = serde_json::from_str(array).ok()?;
    let place: usize = is_place.then(|| place.parse().ok()).flatten()?;
    elements.get(place).map(|value| value.get())
}

/// The destinations, with the hash of each name.
#[derive(Clone, Debug)]
pub(super) struct Ranking {
    hashes: Vec<u64>,
}

impl Ranking {
    /// Returns the ranking for these destinations.
    pub(super) fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Ranking {
        let hashes = names.into_iter().map(|name| hash(name.as_bytes()));
        Ranking {
            hashes: hashes.collect(),
        }
    }

    /// Returns the places of all destinations, best first (rendezvous hashing). The order depends on
    /// the key and on the names only, not on the order of the names or on other destinations. So a
    /// further destination takes its share of the keys from all others, and no key moves between
    /// the others.
    pub(super) fn of(&self, key: &str) -> Vec<usize> {
        let key = hash(key.as_bytes());
        let mut places: Vec<usize> = (0..self.hashes.len()).collect();
        places.sort_by_key(|place| {
            let hash = self.hashes[*place];
            (std::cmp::Reverse(mix(key ^ hash)), hash)
        });
        places
    }
}

/// Returns the 64-bit FNV-1a hash.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Returns the output of splitmix64 for this state: each bit of the input changes half of the bits.
fn mix(state: u64) -> u64 {
    let mut x = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests;
