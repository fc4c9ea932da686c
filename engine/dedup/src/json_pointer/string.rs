//! [`DecodedPieces`]: the strings of a JSON text without their escapes.

/// A piece of a string without escapes, or the bytes of one escape.
pub(crate) enum Decoded<'b> {
    /// Bytes as they are.
    Raw(&'b [u8]),
    /// A character in UTF-8: its bytes, and their number. Half of a surrogate pair has three bytes.
    Character([u8; 4], usize),
}

impl Decoded<'_> {
    /// Returns the bytes that the piece stands for.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Decoded::Raw(bytes) => bytes,
            Decoded::Character(bytes, length) => &bytes[..*length],
        }
    }
}

/// The decoded pieces of a string that [`JsonScanner::string`](super::scanner::JsonScanner::string) has
/// returned.
#[derive(Clone)]
pub(crate) struct DecodedPieces<'b>(&'b [u8]);

impl<'b> DecodedPieces<'b> {
    /// Decodes a string without its quotes.
    pub(crate) fn new(string: &'b [u8]) -> DecodedPieces<'b> {
        DecodedPieces(string)
    }

    /// The code unit of an escape `\uXXXX` that the rest begins with.
    fn code_unit(&self) -> Option<u32> {
        let digits = self.0.strip_prefix(b"\\u")?.get(..4)?;
        let digits = std::str::from_utf8(digits).ok()?;
        u32::from_str_radix(digits, 16).ok()
    }

    fn unicode(&mut self, unit: u32) -> Decoded<'b> {
        self.0 = &self.0[6..];
        if (0xD800..0xDC00).contains(&unit)
            && let Some(low) = self.code_unit().filter(|it| (0xDC00..0xE000).contains(it))
        {
            self.0 = &self.0[6..];
            return character(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00));
        }
        character(unit)
    }
}

fn character(code: u32) -> Decoded<'static> {
    let mut bytes = [0; 4];
    if let Some(character) = char::from_u32(code) {
        let length = character.encode_utf8(&mut bytes).len();
        return Decoded::Character(bytes, length);
    }
    // Half of a surrogate pair.
    bytes[0] = 0xE0 | (code >> 12) as u8;
    bytes[1] = 0x80 | (code >> 6 & 0x3F) as u8;
    bytes[2] = 0x80 | (code & 0x3F) as u8;
    Decoded::Character(bytes, 3)
}

impl<'b> Iterator for DecodedPieces<'b> {
    type Item = Decoded<'b>;

    fn next(&mut self) -> Option<Decoded<'b>> {
        let first = *self.0.first()?;
        if first != b'\\' {
            let end = self.0.iter().position(|it| *it == b'\\');
            let (raw, rest) = self.0.split_at(end.unwrap_or(self.0.len()));
            self.0 = rest;
            return Some(Decoded::Raw(raw));
        }
        if let Some(unit) = self.code_unit() {
            return Some(self.unicode(unit));
        }
        let code = match self.0.get(1)? {
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            other => *other,
        };
        self.0 = &self.0[2..];
        Some(character(u32::from(code)))
    }
}

/// Returns whether two strings are equal when decoded.
pub(crate) fn are_equal(a: &[u8], b: &[u8]) -> bool {
    if !a.contains(&b'\\') && !b.contains(&b'\\') {
        return a == b;
    }
    decoded_bytes(a).eq(decoded_bytes(b))
}

/// The bytes of a decoded string.
pub(crate) fn decoded_bytes(string: &[u8]) -> impl Iterator<Item = u8> {
    DecodedPieces::new(string).flat_map(|piece| {
        let (raw, bytes, length) = match piece {
            Decoded::Raw(raw) => (raw, [0; 4], 0),
            Decoded::Character(bytes, length) => (&[][..], bytes, length),
        };
        raw.iter().copied().chain(bytes.into_iter().take(length))
    })
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
            let decoded = decoded_bytes(&text).count();
            assert!(decoded <= text.len());
        }
    }

    #[test]
    fn decoded_strings() {
        let decode = |text: &str| String::from_utf8(decoded_bytes(text.as_bytes()).collect());
        for (text, expected) in [
            ("", ""),
            ("plain é", "plain é"),
            (r#"\"\\\/\b\f\n\r\t"#, "\"\\/\u{8}\u{c}\n\r\t"),
            (r"\u0041\u00e9\u20AC", "Aé€"),
            (r"\ud83d\ude00!", "😀!"),
            (r"\u0000", "\0"),
        ] {
            assert_eq!(decode(text).as_deref(), Ok(expected), "{text}");
            assert!(are_equal(text.as_bytes(), text.as_bytes()));
        }
        let half: Vec<u8> = decoded_bytes(br"\ud83dx").collect();
        assert_eq!(half, b"\xed\xa0\xbdx");
        let reversed: Vec<u8> = decoded_bytes(br"\ude00\ud83d").collect();
        assert_eq!(reversed, b"\xed\xb8\x80\xed\xa0\xbd");
        assert!(are_equal(br"a\u0062c", b"abc"));
        assert!(!are_equal(br"a\u0062c", b"abd"));
        assert!(!are_equal(br"a\u0062", b"abc"));
    }
}
