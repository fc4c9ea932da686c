//! Writes JSON as Go's `encoding/json` does. Tools and tests compare these bytes, so small
//! differences count: `<` is escaped, 1.0 is `1`.

use std::io::{self, Write};

use serde::{Serialize, Serializer};
use serde_json::ser::{CharEscape, CompactFormatter, Formatter};
use serde_json::value::RawValue;

/// Go also escapes characters that could end a script element or a JavaScript line.
const ESCAPED: [char; 5] = ['<', '>', '&', '\u{2028}', '\u{2029}'];

/// Returns a value as JSON. It must be one that JSON has: the keys of its maps are texts.
pub fn to_string(value: &(impl Serialize + ?Sized)) -> String {
    let mut json = String::new();
    push(&mut json, value);
    json
}

/// Appends a value as JSON, like [`to_string`].
pub fn push(out: &mut String, value: &(impl Serialize + ?Sized)) {
    let written = value.serialize(&mut serializer(out));
    written.expect("a String takes all, and JSON has the value");
}

/// Appends a list as JSON, one element after the other.
pub fn push_list(out: &mut String, elements: impl IntoIterator<Item: Serialize>) {
    let written = serializer(out).collect_seq(elements);
    written.expect("a String takes all, and JSON has the elements");
}

fn serializer(out: &mut String) -> serde_json::Serializer<Text<'_>, GoFormatter> {
    serde_json::Serializer::with_formatter(Text(out), GoFormatter)
}

/// Returns JSON that is ready, such as a number with three decimals, as a value.
pub fn raw(json: String) -> Box<RawValue> {
    RawValue::from_string(json).expect("the text is JSON")
}

/// Returns a text of bytes that may not be UTF-8: `\ufffd` stands for each invalid byte, as in Go.
pub fn bytes(bytes: &[u8]) -> Box<RawValue> {
    let mut json = "\"".to_owned();
    for chunk in bytes.utf8_chunks() {
        let text = to_string(chunk.valid());
        json.push_str(&text[1..text.len() - 1]);
        json.push_str(&"\\ufffd".repeat(chunk.invalid().len()));
    }
    raw(json + "\"")
}

/// Returns whether a field is left out that has Go's `omitempty`, for `skip_serializing_if`.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Writes an empty list as `null`, like a nil slice of Go, for `serialize_with`.
pub fn null_if_empty<T: Serialize, S: Serializer>(list: &[T], to: S) -> Result<S::Ok, S::Error> {
    (!list.is_empty()).then_some(list).serialize(to)
}

/// Makes a value whose JSON is an object with these fields, in this order:
/// `json_object! { message: "OK", depth: 3 }`. A field without a value has that of the variable of the same name.
/// `#[serde(flatten)]` before a field puts the fields of its value in its place, and nothing in the place of a `None`.
#[macro_export]
macro_rules! json_object {
    ($($(#[$attribute:meta])* $field:ident $(: $value:expr)?),+ $(,)?) => {{
        // The type of each field is a parameter with the field's name.
        #[allow(non_camel_case_types)]
        let object = {
            #[derive(::serde::Serialize)]
            struct JsonFields<$($field),+> {
                $($(#[$attribute])* $field: $field,)+
            }
            JsonFields { $($field $(: $value)?),+ }
        };
        object
    }};
}

/// An object with these keys and values, in this order.
pub struct Object<'a, K, V>(pub &'a [(K, V)]);

impl<K: Serialize, V: Serialize> Serialize for Object<'_, K, V> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// A text that grows. Serde writes each part of it as a whole, so each write is UTF-8.
struct Text<'a>(&'a mut String);

impl Write for Text<'_> {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        let text = str::from_utf8(part).map_err(io::Error::other)?;
        self.0.push_str(text);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Go's spelling, where it differs from serde's.
struct GoFormatter;

impl Formatter for GoFormatter {
    fn write_string_fragment<W>(&mut self, out: &mut W, text: &str) -> io::Result<()>
    where
        W: ?Sized + Write,
    {
        let mut done = 0;
        for (at, found) in text.match_indices(ESCAPED) {
            out.write_all(&text.as_bytes()[done..at])?;
            for c in found.chars() {
                write!(out, "\\u{:04x}", u32::from(c))?;
            }
            done = at + found.len();
        }
        out.write_all(&text.as_bytes()[done..])
    }

    fn write_char_escape<W>(&mut self, out: &mut W, escape: CharEscape) -> io::Result<()>
    where
        W: ?Sized + Write,
    {
        match escape {
            // The Go version of nsqd 1.3.0 has no short form for these two.
            CharEscape::Backspace => out.write_all(b"\\u0008"),
            CharEscape::FormFeed => out.write_all(b"\\u000c"),
            other => CompactFormatter.write_char_escape(out, other),
        }
    }

    /// Writes the shortest decimal that reads back as the same value.
    fn write_f64<W>(&mut self, out: &mut W, value: f64) -> io::Result<()>
    where
        W: ?Sized + Write,
    {
        let magnitude = value.abs();
        if magnitude == 0.0 || (1e-6..1e21).contains(&magnitude) {
            return write!(out, "{value}");
        }
        // Rust writes 1e21 and 1e-7 where Go writes 1e+21 and 1e-7.
        let text = format!("{value:e}");
        match text.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => {
                write!(out, "{digits}e+{exponent}")
            }
            _ => out.write_all(text.as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serde_reads_back_the_written_text() {
        let text: String = (0..=0x3000).filter_map(char::from_u32).collect();
        let json = to_string(&text);
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }

    #[test]
    fn strings() {
        let check = |text: &str, expected: &str| assert_eq!(to_string(text), expected);
        check("", "\"\"");
        check("a#b", "\"a#b\"");
        check("plain /' é😀\x7f", "\"plain /' é😀\x7f\"");
        check("\"\\/", r#""\"\\/""#);
        check(
            "\n\r\t\u{8}\u{c}\0\x1f",
            r#""\n\r\t\u0008\u000c\u0000\u001f""#,
        );
        // Captured from nsqd.
        check("bob <x>", r#""bob \u003cx\u003e""#);
        check(
            "<&>\u{2028}\u{2029}\u{7f}é",
            "\"\\u003c\\u0026\\u003e\\u2028\\u2029\u{7f}é\"",
        );
    }

    #[test]
    fn floats() {
        let check = |value: f64, expected: &str| assert_eq!(to_string(&value), expected);
        check(0.0, "0");
        check(1.0, "1");
        check(0.99, "0.99");
        check(7055112.0, "7055112");
        check(102215749.5, "102215749.5");
        check(1e20, "100000000000000000000");
        check(1.5e21, "1.5e+21");
        check(1e-6, "0.000001");
        check(1e-7, "1e-7");
        check(-2.5, "-2.5");
    }

    #[test]
    fn bytes_that_are_no_text_are_marked() {
        let json = to_string(&bytes(b"a\"\xff\xc3\xa9\xe2\x82<"));
        assert_eq!(json, "\"a\\\"\\ufffdé\\ufffd\\ufffd\\u003c\"");
    }

    #[test]
    fn objects_without_a_type_have_the_fields_that_are_there() {
        let check = |depth: Option<u64>, expected: &str| {
            let depth = depth.map(|depth| json_object! { depth });
            let object = json_object! { z: "<", #[serde(flatten)] depth, r#for: [true] };
            assert_eq!(to_string(&object), expected);
        };
        check(None, r#"{"z":"\u003c","for":[true]}"#);
        check(Some(3), r#"{"z":"\u003c","depth":3,"for":[true]}"#);
    }

    #[test]
    fn lists_are_appended() {
        let mut out = "x".to_owned();
        push_list(&mut out, ["<", "b"]);
        push_list(&mut out, [0_u8; 0]);
        assert_eq!(out, r#"x["\u003c","b"][]"#);
    }

    #[test]
    fn objects_keep_the_order_of_their_fields() {
        #[derive(Serialize)]
        struct Fields {
            b: &'static str,
            #[serde(skip_serializing_if = "is_default")]
            no: u64,
            a: i8,
            c: bool,
            d: [f64; 2],
            #[serde(serialize_with = "null_if_empty")]
            e: Vec<u8>,
            #[serde(serialize_with = "null_if_empty")]
            f: Vec<u8>,
            g: Box<RawValue>,
            h: Object<'static, &'static str, u8>,
        }
        let mut out = "x".to_owned();
        let object = Fields {
            b: "<",
            no: 0,
            a: -1,
            c: true,
            d: [1.0, 0.5],
            e: Vec::new(),
            f: vec![1],
            g: raw("1.000".to_owned()),
            h: Object(&[("b", 1), ("a", 2)]),
        };
        push(&mut out, &object);
        let expected = r#"x{"b":"\u003c","a":-1,"c":true,"d":[1,0.5],"e":null,"f":[1],"g":1.000,"h":{"b":1,"a":2}}"#;
        assert_eq!(out, expected);
    }
}
