//! [`Object`]: the fields of a JSON object, each value as its text.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

/// The fields of a JSON object in the order of its text. `null` is an object without fields.
#[derive(Debug)]
pub(crate) struct Object<'a> {
    fields: Vec<(String, &'a str)>,
}

impl<'a> Object<'a> {
    /// Parses an object, and checks the whole text. Returns `None` for other JSON and for no JSON.
    pub(crate) fn parse(text: &'a str) -> Option<Object<'a>> {
        if text.trim_matches([' ', '\t', '\r', '\n']) == "null" {
            return Some(Object { fields: Vec::new() });
        }
        let mut json = serde_json::Deserializer::from_str(text);
        let object = json.deserialize_map(Fields).ok()?;
        json.end().ok()?;
        Some(object)
    }

    /// Returns the text of a field's value. The last one of several fields with the same name
    /// counts, as in Go.
    pub(crate) fn field(&self, name: &str) -> Option<&'a str> {
        let named = |(key, _): &&(String, &str)| key == name;
        self.fields
            .iter()
            .rev()
            .find(named)
            .map(|(_, value)| *value)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Object<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
        let mut fields = Vec::new();
        while let Some(Text(key)) = map.next_key()? {
            let value: &RawValue = map.next_value()?;
            fields.push((key, value.get()));
        }
        Ok(Object { fields })
    }
}

/// A JSON string, decoded as Go decodes it: U+FFFD stands for half of a surrogate pair.
struct Text(String);

impl<'de> serde::Deserialize<'de> for Text {
    fn deserialize<D: serde::Deserializer<'de>>(json: D) -> Result<Text, D::Error> {
        struct Characters;
        impl Visitor<'_> for Characters {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Text, E> {
                Ok(Text(without_surrogates(bytes)))
            }
        }
        // serde_json refuses half a surrogate pair in a string, but not in bytes.
        json.deserialize_bytes(Characters)
    }
}

/// Returns the text in which U+FFFD stands for each surrogate of three bytes.
fn without_surrogates(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        // Each of the three bytes of a surrogate is an invalid chunk of its own: ED, A0..BF, 80..BF.
        if chunk.invalid().first() == Some(&0xed) {
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
    text
}

/// Decodes a JSON string. Returns `None` for the text of another value.
pub(crate) fn string(value: &str) -> Option<String> {
    let text: Text = serde_json::from_str(value).ok()?;
    value.starts_with('"').then_some(text.0)
}

/// Returns the body as text. U+FFFD stands for each byte that is not UTF-8, as in Go.
pub(crate) fn go_text(body: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(body) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(body.len());
    for chunk in body.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    Cow::Owned(text)
}
