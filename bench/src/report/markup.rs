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
mod tests {
    use super::*;

    #[test]
    fn what_would_be_markup_is_text() {
        assert_eq!(escape("plain, ünï"), "plain, ünï");
        assert_eq!(
            escape("<script>alert(\"1\" && '2')</script>"),
            "&lt;script&gt;alert(&quot;1&quot; &amp;&amp; &#39;2&#39;)&lt;/script&gt;"
        );
        assert_eq!(escape("a\0b\u{1b}[1mc\nd"), "a\u{fffd}b\u{fffd}[1mc\nd");
    }

    #[test]
    fn json_cannot_end_its_element() {
        let data = ["</script><script>alert(1)</script>", "<!--", "a\"b"];
        let text = json(&data);
        assert!(!text.contains('<'), "{text}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), data);
        assert_eq!(json(&[1.5, f64::NAN, f64::INFINITY]), "[1.5,null,null]");
    }
}
