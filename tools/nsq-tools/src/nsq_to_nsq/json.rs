//! The JSON of messages, in the form of the original: it decodes and encodes with Go's `encoding/json`. One rule differs:
//! a number is never changed in value.
//!
//! ```text
//!   text ──Object──► the text of each field ──read──► nodes ──print──► text
//! ```
//!
//! An object checks the whole text, so each value is known by its first character from then on. `read` and `print` keep
//! their own stack and take linear time, so no nesting of a message exhausts a thread.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;
use wire::go_json::push;

/// The fields of a JSON object in the order of its text. `null` is an object without fields.
#[derive(Debug)]
pub(super) struct Object<'a> {
    fields: Vec<(String, &'a str)>,
}

impl<'a> Object<'a> {
    /// Parses an object, and checks the whole text. Returns `None` for other JSON and for no JSON.
    pub(super) fn parse(text: &'a str) -> Option<Object<'a>> {
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
    pub(super) fn field(&self, name: &str) -> Option<&'a str> {
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
pub(super) fn string(value: &str) -> Option<String> {
    let text: Text = serde_json::from_str(value).ok()?;
    value.starts_with('"').then_some(text.0)
}

/// Returns the body as text. U+FFFD stands for each byte that is not UTF-8, as in Go.
pub(super) fn go_text(body: &[u8]) -> Cow<'_, str> {
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

/// The first float above the 64-bit integers.
const TWO_TO_63: f64 = (1_u64 << 63) as f64;

/// Returns the value of a JSON number as a 64-bit float, which is infinite beyond the range of
/// floats. Returns `None` for the text of another value.
pub(super) fn number(text: &str) -> Option<f64> {
    let is_number = text.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Appends a number. The original reads each number as a 64-bit float and prints that float, which damages integers beyond
/// 2^53 and long fractions. Here such a number keeps its text. Every other number has the original's form: `2.0` becomes
/// `2`, and `1e3` becomes `1000`.
///
/// With `is_field`, the number is a field of the object itself. The original prints such a number as an integer, if the number
/// is whole and fits.
fn push_number(out: &mut String, text: &str, is_field: bool) {
    let start = out.len();
    if let Some(value) = number(text).filter(|value| value.is_finite()) {
        let is_integer = value.trunc() == value && (-TWO_TO_63..TWO_TO_63).contains(&value);
        if is_field && is_integer {
            push(out, &(value as i64));
        } else {
            push(out, &value);
        }
        if Decimal::of(&out[start..]) == Decimal::of(text) {
            return;
        }
    }
    out.truncate(start);
    out.push_str(text);
}

/// The exact value of a decimal number: 0.`digits` times ten to the power of `exponent`.
///
/// Invariant: the first and the last digit are not 0. Zero has no digits, no sign and exponent 0.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    digits: Vec<u8>,
    exponent: i128,
}

impl Decimal {
    /// Returns the value of a JSON number.
    fn of(text: &str) -> Decimal {
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let unsigned = mantissa.trim_start_matches('-');
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
        let leading = digits.iter().take_while(|digit| **digit == b'0').count();
        let mut digits = digits[leading..].to_vec();
        while digits.last() == Some(&b'0') {
            digits.pop();
        }
        if digits.is_empty() {
            return Decimal {
                is_negative: false,
                digits,
                exponent: 0,
            };
        }
        // An exponent beyond 128 bits has no equal among printed floats, so any large one will do.
        let exponent: i128 = exponent.parse().unwrap_or(i128::MAX / 4);
        Decimal {
            is_negative: mantissa.starts_with('-'),
            digits,
            exponent: exponent + whole.len() as i128 - leading as i128,
        }
    }
}

/// A value. Inner values are places in the list of all nodes.
enum Node<'a> {
    /// A string, a number or a literal: its text.
    Scalar(&'a str),
    Array(Vec<usize>),
    /// The fields: in the order of the text while the object is read, and sorted from then on.
    Object(Vec<(String, usize)>),
}

/// Appends the value of a field.
pub(super) fn push_value(out: &mut String, value: &str) {
    match value.as_bytes().first() {
        Some(b'{' | b'[') => print(out, &read(value)),
        _ if number(value).is_some() => push_number(out, value, true),
        _ => push_scalar(out, value),
    }
}

/// Returns the nodes of an object or array. The first node is the object or array itself.
fn read(text: &str) -> Vec<Node<'_>> {
    let mut nodes = Vec::new();
    // The objects and arrays whose end has not come, each with the key that waits for its value.
    let mut open: Vec<(usize, Option<String>)> = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.bytes().next() {
        let mut end = 1;
        match first {
            b' ' | b'\t' | b'\r' | b'\n' | b',' | b':' => {}
            b'}' | b']' => {
                if let Some((node, _)) = open.pop() {
                    sort_fields(&mut nodes[node]);
                }
            }
            b'{' | b'[' => {
                let node = match first {
                    b'{' => Node::Object(Vec::new()),
                    _ => Node::Array(Vec::new()),
                };
                add(&mut nodes, &mut open, node);
                open.push((nodes.len() - 1, None));
            }
            b'"' => {
                end = string_end(rest);
                let parent = open.last_mut().map(|(node, key)| (&nodes[*node], key));
                match parent {
                    Some((Node::Object(_), key @ None)) => *key = string(&rest[..end]),
                    _ => add(&mut nodes, &mut open, Node::Scalar(&rest[..end])),
                }
            }
            _ => {
                let is_end = |c| matches!(c, ' ' | '\t' | '\r' | '\n' | ',' | '}' | ']');
                end = rest.find(is_end).unwrap_or(rest.len());
                add(&mut nodes, &mut open, Node::Scalar(&rest[..end]));
            }
        }
        rest = &rest[end..];
    }
    nodes
}

/// Adds a node to the list and to the innermost object or array.
fn add<'a>(nodes: &mut Vec<Node<'a>>, open: &mut [(usize, Option<String>)], node: Node<'a>) {
    let place = nodes.len();
    if let Some((parent, key)) = open.last_mut() {
        match &mut nodes[*parent] {
            Node::Array(elements) => elements.push(place),
            Node::Object(fields) => fields.push((key.take().unwrap_or_default(), place)),
            Node::Scalar(_) => {}
        }
    }
    nodes.push(node);
}

/// Sorts the fields of an object by name. The last one of several fields with the same name stays.
fn sort_fields(node: &mut Node<'_>) {
    if let Node::Object(fields) = node {
        fields.reverse();
        // The sort is stable, so the last one of the text is now the first of its name.
        fields.sort_by(|(a, _), (b, _)| a.cmp(b));
        fields.dedup_by(|(later, _), (first, _)| later == first);
    }
}

fn print(out: &mut String, nodes: &[Node<'_>]) {
    // The nodes that are being printed, each with its next inner value.
    let mut stack = vec![(0, 0)];
    while let Some((node, next)) = stack.last_mut() {
        let (name, inner, brackets) = match &nodes[*node] {
            Node::Scalar(text) => {
                push_scalar(out, text);
                stack.pop();
                continue;
            }
            Node::Array(elements) => (None, elements.get(*next), ['[', ']']),
            Node::Object(fields) => {
                let (name, inner) = fields.get(*next).map(|(name, inner)| (name, inner)).unzip();
                (name, inner, ['{', '}'])
            }
        };
        if *next == 0 {
            out.push(brackets[0]);
        }
        let Some(inner) = inner else {
            out.push(brackets[1]);
            stack.pop();
            continue;
        };
        if *next > 0 {
            out.push(',');
        }
        if let Some(name) = name {
            push(out, name);
            out.push(':');
        }
        *next += 1;
        stack.push((*inner, 0));
    }
}

/// Appends a string, a number of an inner value, or a literal.
fn push_scalar(out: &mut String, value: &str) {
    if let Some(text) = string(value) {
        push(out, &text);
    } else if number(value).is_some() {
        push_number(out, value, false);
    } else {
        out.push_str(value);
    }
}

/// Returns the length of the string at the front, with its quotes.
fn string_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

#[cfg(test)]
mod tests;
