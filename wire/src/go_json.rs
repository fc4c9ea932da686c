//! JSON text as Go's `encoding/json` writes it, and reads it: keys in any case, `null` for anything,
//! unknown keys ignored. Errors are in Go's words where there are some.

use serde_json::{Map, Value};
use std::fmt::Write;

/// Appends `text` as the inside of a JSON string, without the quotes around it.
///
/// Go also escapes what could end a script element or a JavaScript line: `<`, `>`, `&`, U+2028 and
/// U+2029. Backspace and form feed have no short form in the Go that nsqd 1.3.0 is built with.
pub fn escape_into(out: &mut String, text: &str) {
    out.reserve(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\x1f' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                write!(out, "\\u{:04x}", u32::from(c)).expect("a String takes all");
            }
            _ => out.push(c),
        }
    }
}

/// Reads a document.
pub fn parse(bytes: &[u8]) -> Result<Value, String> {
    // Go replaces what is not Unicode instead of refusing it.
    let text = String::from_utf8_lossy(bytes);
    serde_json::from_str(&text).map_err(|error| match error.classify() {
        serde_json::error::Category::Eof => "unexpected end of JSON input".to_string(),
        _ => error.to_string(),
    })
}

/// Go matches keys without regard to case, also across Unicode's odd folds of `s` and `k`.
fn is_key(given: &str, key: &str) -> bool {
    let folded = given.chars().map(|c| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    });
    folded.eq(key.chars())
}

/// The field's value; an exact key is preferred, `null` is like no field at all.
pub fn field<'a>(fields: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    let any_case = || {
        fields
            .iter()
            .find(|(given, _)| is_key(given, key))
            .map(|(_, value)| value)
    };
    fields
        .get(key)
        .or_else(any_case)
        .filter(|value| !value.is_null())
}

/// The fields of an object; `None` for `null`. `place` names it in the error.
pub fn object<'a>(value: &'a Value, place: &str) -> Result<Option<&'a Map<String, Value>>, String> {
    match value {
        Value::Null => Ok(None),
        Value::Object(fields) => Ok(Some(fields)),
        other => Err(wrong_type(other, place, "object")),
    }
}

/// The elements of a field's array; none for `null` or no field.
pub fn array<'a>(fields: &'a Map<String, Value>, key: &str) -> Result<&'a [Value], String> {
    match field(fields, key) {
        None => Ok(&[]),
        Some(Value::Array(values)) => Ok(values),
        Some(other) => Err(wrong_type(other, key, "array")),
    }
}

/// A field's text; empty for `null` or no field.
pub fn string(fields: &Map<String, Value>, key: &str) -> Result<String, String> {
    match field(fields, key) {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(wrong_type(other, key, "string")),
    }
}

/// A field's truth value; false for `null` or no field.
pub fn boolean(fields: &Map<String, Value>, key: &str) -> Result<bool, String> {
    match field(fields, key) {
        None => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(other) => Err(wrong_type(other, key, "bool")),
    }
}

/// A field's integer; 0 for `null` or no field. As in Go, `1.0` and `1e3` are none.
pub fn integer(fields: &Map<String, Value>, key: &str) -> Result<i64, String> {
    match field(fields, key) {
        None => Ok(0),
        Some(Value::Number(number)) => number.as_i64().ok_or_else(|| {
            format!("json: cannot unmarshal number {number} into {key} of type int")
        }),
        Some(other) => Err(wrong_type(other, key, "int")),
    }
}

/// An array's element that is to be a text; `place` names the array in the error.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_gos() {
        let check = |text: &str, expected: &str| {
            let mut out = "x".to_owned();
            escape_into(&mut out, text);
            assert_eq!(out, format!("x{expected}"));
        };
        check("", "");
        check("plain /' é😀\x7f", "plain /' é😀\x7f");
        check("\"\\\n\r\t", r#"\"\\\n\r\t"#);
        check("\0\x08\x0c\x1f", r"\u0000\u0008\u000c\u001f");
        // Captured (protocol-v2 §11.1).
        check("bob <x>", r"bob \u003cx\u003e");
        check("&\u{2028}\u{2029}", r"\u0026\u2028\u2029");
    }

    #[test]
    fn serde_reads_back_what_was_written() {
        let text: String = (0..=0x3000).filter_map(char::from_u32).collect();
        let mut json = "\"".to_owned();
        escape_into(&mut json, &text);
        json.push('"');
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
