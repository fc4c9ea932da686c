//! [`JsonPointer`]: a place in a JSON body (RFC 6901), and the value there.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use thiserror::Error;

/// The most reference tokens of a pointer. The parser of JSON follows at most 127 levels.
const TOKENS_MAX: usize = 100;

/// A place in a JSON body by RFC 6901, such as `/order/id` or `/items/0`. `~1` stands for a slash in a name, and `~0`
/// for a tilde. The empty pointer is the whole body.
///
/// This is the only parser of pointers for the client and the tools. nsqd has a parser of its own (`engine/rules`): the
/// broker's rules depend on no client library, their pointers have tighter bounds, and their search stops at the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPointer {
    /// The pointer as RFC 6901 writes it. Two pointers to one place have equal texts.
    text: String,
    /// The reference tokens, unescaped.
    tokens: Vec<String>,
}

/// The reason why a text is no JSON pointer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PointerError {
    /// The text does not begin with a slash.
    #[error("the JSON pointer {0:?} does not begin with a slash; write /{0} for the member {0:?}")]
    NoSlash(String),
    /// A tilde stands before something else than 0 or 1.
    #[error(
        "the JSON pointer {0:?} has a tilde that is not followed by 0 or 1; write ~0 for a tilde and ~1 for a slash"
    )]
    Escape(String),
    /// The pointer has too many reference tokens.
    #[error(
        "the JSON pointer has {0} reference tokens, and must have at most {max}",
        max = TOKENS_MAX
    )]
    TooDeep(usize),
}

impl FromStr for JsonPointer {
    type Err = PointerError;

    fn from_str(text: &str) -> Result<JsonPointer, PointerError> {
        if text.is_empty() {
            return Ok(JsonPointer {
                text: String::new(),
                tokens: Vec::new(),
            });
        }
        let Some(tokens) = text.strip_prefix('/') else {
            return Err(PointerError::NoSlash(text.to_owned()));
        };
        let tokens: Option<Vec<String>> = tokens.split('/').map(unescaped).collect();
        let tokens = tokens.ok_or_else(|| PointerError::Escape(text.to_owned()))?;
        match tokens.len() {
            count if count > TOKENS_MAX => Err(PointerError::TooDeep(count)),
            _ => Ok(JsonPointer {
                text: text.to_owned(),
                tokens,
            }),
        }
    }
}

/// Writes the pointer as RFC 6901 does.
impl fmt::Display for JsonPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns the name that a reference token stands for, or `None` if an escape is wrong.
fn unescaped(token: &str) -> Option<String> {
    let mut name = String::with_capacity(token.len());
    let mut characters = token.chars();
    while let Some(character) = characters.next() {
        name.push(match character {
            '~' => match characters.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            },
            other => other,
        });
    }
    Some(name)
}

/// The value at a pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// A string, without its escapes: `"A"` and `"\u0041"` are equal.
    Text(Cow<'a, str>),
    /// Any other value, as it stands in the body: `1` and `1.0` differ.
    Raw(&'a str),
}

impl JsonPointer {
    /// Returns the reference tokens of the pointer, unescaped, from the outermost inward. In an array, a token is the
    /// decimal number of an element.
    #[must_use]
    pub fn tokens(&self) -> &[String] {
        &self.tokens
    }

    /// Returns the pointer as RFC 6901 writes it.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the value at this place. `None` if the body is no JSON, has no such place, or has `null` or an empty
    /// string there: producers write these two when they have no value. If an object has a name twice, the last one
    /// counts.
    pub(crate) fn find<'a>(&self, body: &'a [u8]) -> Option<Found<'a>> {
        let mut json = serde_json::Deserializer::from_slice(body);
        let seed = PointerWalk {
            tokens: &self.tokens,
        };
        let raw: Option<&RawValue> = seed.deserialize(&mut json).ok()?;
        json.end().ok()?;
        let raw = raw?.get();
        match raw.as_bytes().first()? {
            b'"' => {
                let Text(text): Text<'a> = serde_json::from_str(raw).ok()?;
                (!text.is_empty()).then_some(Found::Text(text))
            }
            b'n' => None,
            _ => Some(Found::Raw(raw)),
        }
    }
}

/// A string that is borrowed if it has no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Visits values that have no further ones inside.
macro_rules! nothing_inside {
    ($($visit:ident: $value:ty,)*) => {
        $(fn $visit<E>(self, _: $value) -> Result<Self::Value, E> {
            Ok(None)
        })*
    };
}

/// A walk to the value with these reference tokens. It reads all that is beside the value without keeping it.
#[derive(Clone, Copy)]
struct PointerWalk<'p> {
    tokens: &'p [String],
}

impl<'de> DeserializeSeed<'de> for PointerWalk<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        match self.tokens {
            [] => Deserialize::deserialize(from).map(Some),
            _ => from.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for PointerWalk<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let (name, rest) = self.tokens.split_first().expect("a place has tokens");
        let mut found = None;
        while let Some(Text(key)) = map.next_key()? {
            if key == *name {
                found = map.next_value_seed(PointerWalk { tokens: rest })?;
            } else {
                let IgnoredAny = map.next_value()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Self::Value, S::Error> {
        let (name, rest) = self.tokens.split_first().expect("a place has tokens");
        // An index has no sign and no leading zero. The name `-` of RFC 6901 is behind the last element: nothing is
        // there.
        let is_index = name == "0" || name.starts_with(|first: char| matches!(first, '1'..='9'));
        let index: Option<usize> = name.parse().ok().filter(|_| is_index);
        let mut found = None;
        for position in 0.. {
            if index == Some(position) {
                match seq.next_element_seed(PointerWalk { tokens: rest })? {
                    Some(value) => found = value,
                    None => break,
                }
            } else if seq.next_element::<IgnoredAny>()?.is_none() {
                break;
            }
        }
        Ok(found)
    }

    nothing_inside! {
        visit_bool: bool,
        visit_i64: i64,
        visit_u64: u64,
        visit_f64: f64,
        visit_str: &str,
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
