//! The query string, parsed like Go's `url.ParseQuery`, and percent escapes.

use std::borrow::Cow;
use std::fmt;

/// The keys and values of a query. The first value of a key counts.
#[derive(Debug, Default)]
pub struct Query<'a> {
    pairs: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

/// The reason why a query is refused. The texts are Go's, for the log.
#[derive(Debug, PartialEq, Eq)]
pub enum QueryError {
    /// Pairs are separated by `&` only.
    Semicolon,
    /// A percent sign without two hexadecimal digits behind it.
    Escape(String),
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueryError::Semicolon => write!(f, "invalid semicolon separator in query"),
            QueryError::Escape(escape) => write!(f, "invalid URL escape {escape:?}"),
        }
    }
}

impl<'a> Query<'a> {
    /// Parses a query without the question mark.
    ///
    /// # Errors
    /// The query is refused as a whole, for the first error in it.
    pub fn parse(text: &'a str) -> Result<Query<'a>, QueryError> {
        let mut query = Query::default();
        for piece in text.split('&').filter(|piece| !piece.is_empty()) {
            if piece.contains(';') {
                return Err(QueryError::Semicolon);
            }
            let (key, value) = piece.split_once('=').unwrap_or((piece, ""));
            query.pairs.push((unescape(key)?, unescape(value)?));
        }
        Ok(query)
    }

    /// Returns the value of a key, or `None` if the query does not have the key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs
            .iter()
            .find(|(known, _)| known == key)
            .map(|(_, value)| &**value)
    }

    /// Returns the value of a key, or `None` if the value is empty or missing.
    pub fn get_filter(&self, key: &str) -> Option<String> {
        self.get(key)
            .filter(|value| !value.is_empty())
            .map(str::to_string)
    }

    /// Returns a boolean as `/stats` reads it: `true`, `1`, `false`, `0`. Any other value gives the
    /// default.
    pub fn get_switch(&self, key: &str, default: bool) -> bool {
        match self.get(key) {
            Some("true" | "1") => true,
            Some("false" | "0") => false,
            _ => default,
        }
    }
}

fn unescape(text: &str) -> Result<Cow<'_, str>, QueryError> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Ok(Cow::Borrowed(text));
    }
    let bytes = text.replace('+', " ");
    let bytes = percent_decode(bytes.as_bytes()).map_err(QueryError::Escape)?;
    // Go keeps other bytes unchanged. No name and no number contains such bytes, so nothing is
    // lost.
    Ok(Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Replaces each `%XX`. The error is the invalid escape.
pub(super) fn percent_decode(text: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    if !text.contains(&b'%') {
        return Ok(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        match after {
            [high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                decoded.push(hex_value(*high) << 4 | hex_value(*low));
                rest = after;
            }
            _ => {
                let escape = &after[..after.len().min(2)];
                return Err(format!("%{}", String::from_utf8_lossy(escape)));
            }
        }
    }
    Ok(Cow::Owned(decoded))
}

fn hex_value(digit: u8) -> u8 {
    let value = char::from(digit).to_digit(16);
    value.expect("it is a hexadecimal digit") as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_as_go_reads_them() {
        let query = Query::parse("topic=a%23ephemeral&x&topic=b&&y=1+2%2B3&%7a=%C3%a9&=e").unwrap();
        assert_eq!(
            query.get("topic"),
            Some("a#ephemeral"),
            "the first one counts"
        );
        assert_eq!(query.get("x"), Some(""));
        assert_eq!(query.get("y"), Some("1 2+3"));
        assert_eq!(query.get("z"), Some("é"));
        assert_eq!(query.get(""), Some("e"));
        assert_eq!(query.get("Topic"), None);
        assert_eq!(query.get_filter("x"), None);
        assert!(Query::parse("").unwrap().get("topic").is_none());
    }

    #[test]
    fn bad_queries_have_gos_texts() {
        let check = |text: &str, expected: &str| {
            assert_eq!(Query::parse(text).unwrap_err().to_string(), expected);
        };
        check("topic=a;b", "invalid semicolon separator in query");
        check("a=%zz1", "invalid URL escape \"%zz\"");
        check("a%=1", "invalid URL escape \"%\"");
        check("a=%4", "invalid URL escape \"%4\"");
    }

    #[test]
    fn switches_take_four_words() {
        let query = Query::parse("a=true&b=1&c=false&d=0&e=True&f=").unwrap();
        let values = ["a", "b", "c", "d", "e", "f", "g"].map(|key| query.get_switch(key, true));
        assert_eq!(values, [true, true, false, false, true, true, true]);
        assert!(!query.get_switch("e", false));
    }
}
