//! [`Filter`]: decides which JSON messages are forwarded, and which of their fields.
//!
//! The bytes are those of the original `nsq_to_nsq`, which decodes and encodes with Go's
//! `encoding/json`. One rule differs: a number is never changed in value (`number.rs`).

use std::collections::BTreeSet;

use bytes::Bytes;
use wire::go_json::push;

use object::Object;

mod number;
pub(super) mod object;
mod rewrite;

pub(super) use rewrite::push_value;

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
        let text = object::go_text(body);
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
                rewrite::push_value(&mut out, value);
            }
        }
        out + "}"
    }
}

/// Compares a value in JSON with the text of the command line.
fn is_equal(value: &str, expected: &str) -> bool {
    if let Some(text) = object::string(value) {
        return text == expected;
    }
    let (Some(value), Ok(expected)) = (number::value(value), expected.parse::<f64>()) else {
        return false;
    };
    value.is_finite() && value == expected
}

#[cfg(test)]
mod tests;
