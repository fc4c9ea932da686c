//! HTML as text. Whatever comes from a result goes through [`escape`], or through [`json`].

use std::borrow::Cow;

use serde::Serialize;

/// Replaces the characters that mean something in HTML, for text between tags and within quoted
/// attributes. Control characters, which HTML does not know, become U+FFFD.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    let special = |c: char| {
        matches!(c, '&' | '<' | '>' | '"' | '\'') || (c.is_control() && c != '\n' && c != '\t')
    };
    if !text.contains(special) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c if special(c) => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

/// Writes data as JSON for a `<script>` element. No text can end the element: JSON has `<` in strings
/// only, where it may be escaped. A number that is not finite becomes `null`.
pub(crate) fn json(data: &impl Serialize) -> String {
    let json = serde_json::to_string(data).expect("plain data");
    json.replace('<', "\\u003c")
}

#[cfg(test)]
mod tests;
