//! The filter of a peek.

use memchr::memmem;
use serde_json::Value;

/// The conditions that a body must fulfil, all of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    /// The bytes of this text are in the body.
    pub(super) contains: Option<String>,
    /// The body is JSON, and has a value at this JSON pointer.
    pub(super) pointer: Option<String>,
    /// This value: a string as it is, everything else as compact JSON.
    pub(super) equals: Option<String>,
}

impl Filter {
    /// True if there is no condition.
    pub(super) fn accepts_all(&self) -> bool {
        *self == Filter::default()
    }

    pub(super) fn accepts(&self, body: &[u8]) -> bool {
        if let Some(text) = &self.contains
            && memmem::find(body, text.as_bytes()).is_none()
        {
            return false;
        }
        let Some(pointer) = &self.pointer else {
            return true;
        };
        let Ok(value) = serde_json::from_slice::<Value>(body) else {
            return false;
        };
        match (value.pointer(pointer), &self.equals) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(Value::String(found)), Some(equals)) => found == equals,
            (Some(found), Some(equals)) => {
                let text = found.to_string();
                text == *equals
            }
        }
    }
}
