//! JSON text as Go's `encoding/json` writes it.

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
