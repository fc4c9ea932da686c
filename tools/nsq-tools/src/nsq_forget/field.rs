//! [`Field`]: a place in a JSON message, and the values there.

use ringq_client::dedup::JsonPointer;
use serde_json::Value;

/// A place in a JSON message: the name of a field of the object, or a JSON pointer (RFC 6901).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field(String);

impl Field {
    /// Returns the place that a user names. A name that begins with a slash is a JSON pointer.
    ///
    /// # Errors
    /// The text is empty, or a wrong JSON pointer. The error is the reason for the user.
    pub(super) fn parse(text: &str) -> Result<Field, String> {
        if text.is_empty() {
            return Err("the name of a field is empty".to_owned());
        }
        if text.starts_with('/') {
            // The check alone: the search of serde_json takes the text, and does not see wrong escapes.
            let pointer = text.parse::<JsonPointer>();
            pointer.map_err(|error| error.to_string())?;
        }
        Ok(Field(text.to_owned()))
    }

    /// Returns the values at this place: a text, a number or a boolean, or those of an array.
    pub(super) fn values(&self, message: &Value) -> Vec<String> {
        let found = if self.0.starts_with('/') {
            message.pointer(&self.0)
        } else {
            message.get(&self.0)
        };
        match found {
            Some(Value::Array(values)) => values.iter().filter_map(scalar).collect(),
            Some(value) => scalar(value).into_iter().collect(),
            None => Vec::new(),
        }
    }
}

/// Returns a message as JSON. The error is the reason for the log.
pub(super) fn parse(body: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(body).map_err(|error| format!("the message is not JSON: {error}"))
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(boolean) => Some(boolean.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(field: &str, message: &str, expected: &[&str]) {
        let message = parse(message.as_bytes()).unwrap();
        assert_eq!(Field::parse(field).unwrap().values(&message), expected);
    }

    #[test]
    fn values_are_found() {
        let message =
            r#"{"a":"x","b":{"c/d":2.50,"e":[1,"two",null,{},true,[3]]},"n":null,"o":{},"/s":1}"#;
        check("a", message, &["x"]);
        check("/a", message, &["x"]);
        check("/b/c~1d", message, &["2.5"]);
        check("/b/e", message, &["1", "two", "true"]);
        check("/b/e/1", message, &["two"]);
        for nothing in ["n", "o", "absent", "/b/absent", "b/c"] {
            check(nothing, message, &[]);
        }
        check("a", "[1]", &[]);
        check("/0", "[\"\\u0041\"]", &["A"]);
    }

    #[test]
    fn mistakes_say_what_is_wrong() {
        assert_eq!(
            Field::parse("").unwrap_err(),
            "the name of a field is empty"
        );
        let error = Field::parse("/a~2").unwrap_err();
        assert_eq!(
            error,
            "the JSON pointer \"/a~2\" has a tilde that is not followed by 0 or 1; write ~0 for a tilde and ~1 for a slash"
        );
        assert!(Field::parse("a~2").is_ok() && Field::parse("/a~0~1").is_ok());
        let error = parse(b"{").unwrap_err();
        assert!(error.starts_with("the message is not JSON: "), "{error}");
    }
}
