//! The notation of bytes as text. Sent and recorded bytes have the same notation.
//!
//! ```text
//! "SUB t c\n"     these bytes; also in '...'. Escapes: \n \r \t \\ \" \' \xNN
//! "a"*1000        a thousand times
//! +"body"         the length as four bytes, big endian, then the bytes
//! #-1             a number as four bytes, big endian
//! ```
//!
//! `{topic}` stands for the case's own topic, `{address}` for the daemon's first address, `{id1}` for the first message id that the case
//! received, `{id2}` for the second, and `{id}` for the latest.

use std::fmt::Write;

/// The fewest equal bytes in a row that are shown with `*`.
const RUN_BYTES_MIN: usize = 48;

/// The bytes that a case sends, in parts.
#[derive(Clone, Debug, Default)]
pub(crate) struct SentBytes(Vec<Part>);

#[derive(Clone, Debug)]
enum Part {
    /// Escaped text, repeated. If `sized` is true, its length comes first.
    Text {
        escaped: String,
        times: usize,
        sized: bool,
    },
    Word(i32),
}

/// The values of the names in braces.
#[derive(Debug, Default)]
pub struct Names {
    pub(crate) topic: String,
    /// The text of [`Addresses::tcp`](super::Addresses::tcp).
    pub(crate) address: String,
    /// Message ids in the order in which they were first received.
    pub(crate) ids: Vec<String>,
    /// The id received last.
    pub(crate) latest_id: String,
}

impl Names {
    /// Replaces the names by their values.
    pub(crate) fn fill(&self, text: &str) -> String {
        let mut filled = text
            .replace("{topic}", &self.topic)
            .replace("{address}", &self.address);
        for (index, id) in self.ids.iter().enumerate() {
            filled = filled.replace(&format!("{{id{}}}", index + 1), id);
        }
        filled.replace("{id}", &self.latest_id)
    }

    /// Replaces the ids by their names.
    pub fn hide(&self, text: &str) -> String {
        let mut hidden = text.to_owned();
        for (index, id) in self.ids.iter().enumerate() {
            hidden = hidden.replace(id, &format!("{{id{}}}", index + 1));
        }
        hidden
    }

    /// Returns the name of an id, and adds a new id.
    pub fn name(&mut self, id: &str) -> String {
        if !self.ids.iter().any(|known| known == id) {
            self.ids.push(id.to_owned());
        }
        self.latest_id = id.to_owned();
        self.hide(id)
    }
}

impl SentBytes {
    /// Parses parts to the end of the line. The error is the reason of the failure.
    pub(crate) fn parse(text: &str) -> Result<SentBytes, String> {
        let mut parts = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (part, behind) = parse_part(rest)?;
            parts.push(part);
            rest = behind.trim_start();
        }
        Ok(SentBytes(parts))
    }

    /// Returns the bytes to send.
    pub(crate) fn bytes(&self, names: &Names) -> Vec<u8> {
        let mut all = Vec::new();
        for part in &self.0 {
            match part {
                Part::Word(word) => all.extend_from_slice(&word.to_be_bytes()),
                Part::Text {
                    escaped,
                    times,
                    sized,
                } => {
                    let bytes = unescape(&names.fill(escaped)).repeat(*times);
                    if *sized {
                        let size = u32::try_from(bytes.len()).expect("bodies in cases are small");
                        all.extend_from_slice(&size.to_be_bytes());
                    }
                    all.extend_from_slice(&bytes);
                }
            }
        }
        all
    }
}

fn parse_part(text: &str) -> Result<(Part, &str), String> {
    if let Some(number) = text.strip_prefix('#') {
        let end = number.find(' ').unwrap_or(number.len());
        let word = number[..end].parse();
        let word = word.map_err(|_| format!("not a 32-bit number: #{}", &number[..end]))?;
        return Ok((Part::Word(word), &number[end..]));
    }
    let (sized, text) = match text.strip_prefix('+') {
        Some(behind) => (true, behind),
        None => (false, text),
    };
    let (escaped, mut rest) = quoted(text)?;
    let mut times = 1;
    if let Some(number) = rest.strip_prefix('*') {
        let end = number.find(' ').unwrap_or(number.len());
        times = number[..end]
            .parse()
            .map_err(|_| format!("not a count: *{}", &number[..end]))?;
        rest = &number[end..];
    }
    let part = Part::Text {
        escaped: escaped.to_owned(),
        times,
        sized,
    };
    Ok((part, rest))
}

/// Returns the escaped text between the quotes at the front, and the rest.
pub(crate) fn quoted(text: &str) -> Result<(&str, &str), String> {
    let quote = text.chars().next().filter(|first| "\"'".contains(*first));
    let quote = quote.ok_or_else(|| format!("a quote is expected at: {text}"))?;
    let mut escape = false;
    for (at, byte) in text.char_indices().skip(1) {
        if escape {
            escape = false;
        } else if byte == '\\' {
            escape = true;
        } else if byte == quote {
            return Ok((&text[1..at], &text[at + 1..]));
        }
    }
    Err(format!("the quote is not closed: {text}"))
}

/// Replaces escapes by their bytes. Any other character stands for itself.
pub(crate) fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first != b'\\' {
            bytes.push(first);
            continue;
        }
        let Some((&kind, behind)) = rest.split_first() else {
            break;
        };
        rest = behind;
        bytes.push(match kind {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'x' => {
                let digits = rest.get(..2).and_then(|two| std::str::from_utf8(two).ok());
                let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                rest = rest.get(2..).unwrap_or_default();
                byte.unwrap_or_else(|| panic!("\\x needs two hexadecimal digits in {text:?}"))
            }
            other => other,
        });
    }
    bytes
}

/// Formats bytes in the notation that `SentBytes::parse` reads.
pub fn show(bytes: &[u8]) -> String {
    let quote = if bytes.contains(&b'"') { b'\'' } else { b'"' };
    let mut shown = String::new();
    let mut plain = Vec::new();
    let flush = |plain: &mut Vec<u8>, shown: &mut String| {
        if !plain.is_empty() {
            let _ = write!(shown, " {}", escape(plain, quote));
            plain.clear();
        }
    };
    let mut rest = bytes;
    while let Some(&first) = rest.first() {
        let run = rest.iter().take_while(|byte| **byte == first).count();
        if run >= RUN_BYTES_MIN {
            flush(&mut plain, &mut shown);
            let _ = write!(shown, " {}*{run}", escape(&[first], quote));
        } else {
            plain.extend_from_slice(&rest[..run]);
        }
        rest = &rest[run..];
    }
    if shown.is_empty() || !plain.is_empty() {
        let _ = write!(shown, " {}", escape(&plain, quote));
    }
    shown.trim_start().to_owned()
}

fn escape(bytes: &[u8], quote: u8) -> String {
    let mut text = String::from(char::from(quote));
    for &byte in bytes {
        match byte {
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            b'\\' => text.push_str("\\\\"),
            byte if byte == quote => {
                text.push('\\');
                text.push(char::from(quote));
            }
            b' '..=b'~' => text.push(char::from(byte)),
            byte => {
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
    }
    text.push(char::from(quote));
    text
}
