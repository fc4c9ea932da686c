//! Writes JSON as Go's `encoding/json` does. Tools and tests compare these bytes, so small
//! differences count: `<` is escaped, 1.0 is `1`.

use std::fmt::Write;

/// Appends `text` as the inside of a JSON string, without the quotes around it.
///
/// Go also escapes characters that could end a script element or a JavaScript line: `<`, `>`, `&`,
/// U+2028 and U+2029. The Go version of nsqd 1.3.0 has no short form for backspace and form feed.
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

/// Appends a JSON string.
pub fn push_string(out: &mut String, text: &str) {
    out.push('"');
    escape_into(out, text);
    out.push('"');
}

/// Appends a JSON string of bytes that may not be UTF-8: U+FFFD stands for each invalid byte, as in
/// Go.
pub fn push_bytes(out: &mut String, bytes: &[u8]) {
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        escape_into(out, chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| "\\ufffd"));
    }
    out.push('"');
}

/// Appends a JSON number: the shortest decimal that reads back as the same value.
pub fn push_float(out: &mut String, value: f64) {
    let magnitude = value.abs();
    if magnitude == 0.0 || (1e-6..1e21).contains(&magnitude) {
        let _ = write!(out, "{value}");
        return;
    }
    // Rust writes 1e21 and 1e-7 where Go writes 1e+21 and 1e-7.
    let text = format!("{value:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if !exponent.starts_with('-') => {
            let _ = write!(out, "{digits}e+{exponent}");
        }
        _ => out.push_str(&text),
    }
}

/// A JSON object under construction: keys in the order of the calls, no white space.
#[derive(Debug)]
pub struct JsonObject<'a> {
    out: &'a mut String,
    is_empty: bool,
}

impl<'a> JsonObject<'a> {
    /// Begins an object at the end of `out`.
    pub fn new(out: &'a mut String) -> JsonObject<'a> {
        out.push('{');
        JsonObject {
            out,
            is_empty: true,
        }
    }

    /// Ends the object. Without this call the object has no closing brace.
    pub fn end(self) {
        self.out.push('}');
    }

    /// Writes the key. The caller appends the value to the returned text.
    pub fn key(&mut self, key: &str) -> &mut String {
        if !self.is_empty {
            self.out.push(',');
        }
        self.is_empty = false;
        push_string(self.out, key);
        self.out.push(':');
        self.out
    }

    /// Adds a text.
    pub fn text(&mut self, key: &str, value: &str) {
        push_string(self.key(key), value);
    }

    /// Adds a text, unless it is empty.
    pub fn text_unless_empty(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.text(key, value);
        }
    }

    /// Adds an integer.
    pub fn number(&mut self, key: &str, value: impl Into<i128>) {
        let _ = write!(self.key(key), "{}", value.into());
    }

    /// Adds an integer, unless it is 0.
    pub fn number_unless_zero(&mut self, key: &str, value: u64) {
        if value != 0 {
            self.number(key, value);
        }
    }

    /// Adds a boolean.
    pub fn boolean(&mut self, key: &str, value: bool) {
        self.key(key).push_str(if value { "true" } else { "false" });
    }
}

/// Appends a JSON array. `push` writes each element.
pub fn push_array<T>(
    out: &mut String,
    elements: impl IntoIterator<Item = T>,
    mut push: impl FnMut(&mut String, T),
) {
    out.push('[');
    for (index, element) in elements.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        push(out, element);
    }
    out.push(']');
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
        // Captured from nsqd.
        check("bob <x>", r"bob \u003cx\u003e");
        check("&\u{2028}\u{2029}", r"\u0026\u2028\u2029");
    }

    #[test]
    fn serde_reads_back_the_written_text() {
        let text: String = (0..=0x3000).filter_map(char::from_u32).collect();
        let mut json = "\"".to_owned();
        escape_into(&mut json, &text);
        json.push('"');
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }

    #[test]
    fn strings() {
        let check = |text: &str, expected: &str| {
            let mut out = String::new();
            push_string(&mut out, text);
            assert_eq!(out, expected);
        };
        check("a#b", "\"a#b\"");
        check("\"\\/", r#""\"\\/""#);
        check("\n\r\t\u{8}\u{c}\0", r#""\n\r\t\u0008\u000c\u0000""#);
        check(
            "<&>\u{2028}\u{2029}\u{7f}é",
            "\"\\u003c\\u0026\\u003e\\u2028\\u2029\u{7f}é\"",
        );
    }

    #[test]
    fn floats() {
        let check = |value: f64, expected: &str| {
            let mut out = String::new();
            push_float(&mut out, value);
            assert_eq!(out, expected);
        };
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
        let mut out = String::new();
        push_bytes(&mut out, b"a\xff\xc3\xa9\xe2\x82<");
        assert_eq!(out, "\"a\\ufffdé\\ufffd\\ufffd\\u003c\"");
    }

    #[test]
    fn objects_keep_the_order_of_their_keys() {
        let mut out = "x".to_owned();
        let mut object = JsonObject::new(&mut out);
        object.text("b", "<");
        object.text_unless_empty("no", "");
        object.number("a", -1);
        object.number_unless_zero("no", 0);
        object.boolean("c", true);
        push_array(object.key("d"), [1.0, 0.5], push_float);
        JsonObject::new(object.key("e")).end();
        object.end();
        let expected = r#"x{"b":"\u003c","a":-1,"c":true,"d":[1,0.5],"e":{}}"#;
        assert_eq!(out, expected);
    }
}
