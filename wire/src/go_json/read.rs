//! Reads JSON as leniently as Go: keys in any case, `null` for any value, unknown keys ignored.

use serde_json::{Map, Value};

/// Parses a document.
pub fn parse(bytes: &[u8]) -> Result<Value, String> {
    // Go replaces bytes that are not UTF-8 instead of refusing them.
    let text = String::from_utf8_lossy(bytes);
    serde_json::from_str(&text).map_err(|error| match error.classify() {
        serde_json::error::Category::Eof => "unexpected end of JSON input".to_string(),
        _ => error.to_string(),
    })
}

/// Folds the case of a key with Unicode's simple folding, as far as it leads to ASCII. Go also
/// folds two letters beyond ASCII to ASCII.
pub(crate) fn fold(key: &str) -> String {
    key.chars()
        .map(|c| match c {
            '\u{17f}' => 's',
            '\u{212a}' => 'k',
            c => c.to_ascii_lowercase(),
        })
        .collect()
}

/// Returns the value of a field. An exact key is preferred; `null` counts as a missing field.
pub fn field<'a>(fields: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    let any_case = || {
        let found = fields.iter().find(|(given, _)| fold(given) == key);
        found.map(|(_, value)| value)
    };
    let value = fields.get(key).or_else(any_case);
    value.filter(|value| !value.is_null())
}

/// Returns the fields of an object, or `None` for `null`. `place` names the object in the error.
pub fn object<'a>(value: &'a Value, place: &str) -> Result<Option<&'a Map<String, Value>>, String> {
    match value {
        Value::Null => Ok(None),
        Value::Object(fields) => Ok(Some(fields)),
        other => Err(wrong_type(other, place, "object")),
    }
}

/// Returns the elements of a field's array, or none for `null` or a missing field.
pub fn array<'a>(fields: &'a Map<String, Value>, key: &str) -> Result<&'a [Value], String> {
    match field(fields, key) {
        None => Ok(&[]),
        Some(Value::Array(values)) => Ok(values),
        Some(other) => Err(wrong_type(other, key, "array")),
    }
}

/// Returns the text of a field, or an empty one for `null` or a missing field.
pub fn string(fields: &Map<String, Value>, key: &str) -> Result<String, String> {
    match field(fields, key) {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(wrong_type(other, key, "string")),
    }
}

/// Returns the boolean of a field, or false for `null` or a missing field.
pub fn boolean(fields: &Map<String, Value>, key: &str) -> Result<bool, String> {
    match field(fields, key) {
        None => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(other) => Err(wrong_type(other, key, "bool")),
    }
}

/// Returns the integer of a field, or 0 for `null` or a missing field. As in Go, `1.0` and `1e3`
/// are not integers.
pub fn integer(fields: &Map<String, Value>, key: &str) -> Result<i64, String> {
    match field(fields, key) {
        None => Ok(0),
        Some(Value::Number(number)) => number.as_i64().ok_or_else(|| {
            format!("json: cannot unmarshal number {number} into {key} of type int")
        }),
        Some(other) => Err(wrong_type(other, key, "int")),
    }
}

/// Returns an array's element as text. `place` names the array in the error.
pub fn text<'a>(value: &'a Value, place: &str) -> Result<&'a str, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Null => Ok(""),
        other => Err(wrong_type(other, place, "string")),
    }
}

fn wrong_type(value: &Value, place: &str, wanted: &str) -> String {
    let given = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {given} into {place} of type {wanted}")
}
