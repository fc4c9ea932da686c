//! The cases of one tool, as its JSON file has them.

// The items are public for the test, not for other crates.
#![allow(unreachable_pub)]

use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A body or an input: text, or the bytes of what is no UTF-8.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Bytes {
    Text(String),
    Raw(Vec<u8>),
}

impl Bytes {
    /// Returns the form of these bytes in the case files.
    pub fn of(bytes: Vec<u8>) -> Bytes {
        match String::from_utf8(bytes) {
            Ok(text) => Bytes::Text(text),
            Err(error) => Bytes::Raw(error.into_bytes()),
        }
    }

    pub fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::Text(text) => text.as_bytes(),
            Bytes::Raw(bytes) => bytes,
        }
    }
}

/// The messages of one topic before the tool starts. The topic has the channel `c`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    pub topic: String,
    pub messages: Vec<Bytes>,
    /// The messages are deferred by this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defer_ms: Option<u32>,
}

/// The event after which the outcome is complete.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// The tool ends by itself.
    #[default]
    Ended,
    /// The tool has answered every message of the sources. Then SIGTERM ends the tool.
    Answered,
}

/// An outcome of ours that is meant to be another one than that of the original.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    pub why: String,
    /// Words of the line in docs/reference/differences-tools.md.
    pub doc: String,
    /// The parts of our outcome that differ. `null` stands for a part that ours has not.
    pub ours: serde_json::Map<String, Value>,
}

/// One input of one tool, and what the original did with this input.
///
/// In `args`, `{source}` stands for the address of the nsqd with the sources, and `{source_http}` for its HTTP
/// address. `{lookupd}` stands for the HTTP address of an nsqlookupd that knows this nsqd. `{first}` and `{second}` are two destinations: nsqds, or HTTP servers behind `http://`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Source>,
    pub args: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Bytes>,
    /// The statuses with which an HTTP server answers its requests. The last one counts for all further requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub statuses: Vec<u16>,
    #[serde(default)]
    pub until: Until,
    /// The order of the lines, requests and messages says nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub any_order: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
    /// The outcome of the original.
    #[serde(default)]
    pub original: Value,
}

impl Case {
    /// Returns the outcome that our tool must have.
    pub fn expected(&self) -> Value {
        let mut expected = self.original.clone();
        if let (Some(difference), Some(parts)) = (&self.difference, expected.as_object_mut()) {
            for (name, part) in &difference.ours {
                match part {
                    Value::Null => parts.remove(name),
                    part => parts.insert(name.clone(), part.clone()),
                };
            }
        }
        expected
    }
}

fn path(tool: &str) -> PathBuf {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/side_by_side");
    PathBuf::from(directory).join(format!("{tool}.json"))
}

/// Reads the cases of a tool.
pub fn read(tool: &str) -> Vec<Case> {
    let path = path(tool);
    let text = fs::read_to_string(&path).expect("the tool has a file of cases");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Writes the cases of a tool, with new records.
pub fn write(tool: &str, cases: &[Case]) {
    let mut text = serde_json::to_string_pretty(cases).expect("cases are JSON");
    text.push('\n');
    fs::write(path(tool), text).expect("the file of cases can be written");
}
