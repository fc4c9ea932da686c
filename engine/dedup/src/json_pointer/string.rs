//! The strings of a JSON text without their escapes.

use std::borrow::Cow;

/// Returns the bytes that a string stands for. [`JsonScanner::string`](super::scanner::JsonScanner::string) has returned
/// the string. A string without escapes costs no allocation. Half of a surrogate pair has three bytes.
pub(super) fn decoded(string: &[u8]) -> Cow<'_, [u8]> {
    if !string.contains(&b'\\') {
        return Cow::Borrowed(string);
    }
    let mut bytes = Vec::with_capacity(string.len());
    let mut rest = string;
    while let Some(at) = rest.iter().position(|it| *it == b'\\') {
        bytes.extend_from_slice(&rest[..at]);
        let (code, length) = escape(&rest[at..]);
        push_character(&mut bytes, code);
        rest = &rest[at + length..];
    }
    bytes.extend_from_slice(rest);
    Cow::Owned(bytes)
}

/// Returns the character of the escape that a text begins with, and the bytes of the escape.
fn escape(text: &[u8]) -> (u32, usize) {
    if let Some(unit) = code_unit(text) {
        let low = code_unit(&text[6..]).filter(|it| (0xDC00..0xE000).contains(it));
        return match low {
            Some(low) if (0xD800..0xDC00).contains(&unit) => {
                (0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00), 12)
            }
            _ => (unit, 6),
        };
    }
    let code = match text.get(1) {
        Some(b'b') => 8,
        Some(b'f') => 12,
        Some(b'n') => b'\n',
        Some(b'r') => b'\r',
        Some(b't') => b'\t',
        Some(other) => *other,
        None => b'\\',
    };
    (u32::from(code), text.len().min(2))
}

/// Returns the code unit of an escape `\uXXXX` that a text begins with.
fn code_unit(text: &[u8]) -> Option<u32> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    let digits = std::str::from_utf8(digits).ok()?;
    u32::from_str_radix(digits, 16).ok()
}

fn push_character(bytes: &mut Vec<u8>, code: u32) {
    if let Some(character) = char::from_u32(code) {
        bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        return;
    }
    // Half of a surrogate pair.
    bytes.push(0xE0 | (code >> 12) as u8);
    bytes.push(0x80 | (code >> 6 & 0x3F) as u8);
    bytes.push(0x80 | (code & 0x3F) as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskq_log::Random;

    /// Only a string that the scanner has taken is decoded, but no other must panic either.
    #[test]
    fn any_bytes_do_no_harm() {
        for seed in 0..20_000 {
            let mut random = Random::new(seed);
            let text: Vec<u8> = (0..random.below(30)).map(|_| random.draw() as u8).collect();
            assert!(decoded(&text).len() <= text.len());
        }
    }

    #[test]
    fn decoded_strings() {
        let decode = |text: &str| String::from_utf8(decoded(text.as_bytes()).into_owned());
        for (text, expected) in [
            ("", ""),
            ("plain é", "plain é"),
            (r#"\"\\\/\b\f\n\r\t"#, "\"\\/\u{8}\u{c}\n\r\t"),
            (r"\u0041\u00e9\u20AC", "Aé€"),
            (r"\ud83d\ude00!", "😀!"),
            (r"\u0000", "\0"),
        ] {
            assert_eq!(decode(text).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(*decoded(br"\ud83dx"), *b"\xed\xa0\xbdx");
        let reversed = decoded(br"\ude00\ud83d");
        assert_eq!(*reversed, *b"\xed\xb8\x80\xed\xa0\xbd");
    }
}
