//! HTML and SVG as text. Whatever comes from outside goes through [`escape`].

use std::borrow::Cow;

/// `text` with the characters that mean something in HTML and SVG replaced, for use between tags
/// and within quoted attributes. Control characters, which neither knows, become U+FFFD.
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

/// Appends formatted text to a `String`; writing to one cannot fail.
macro_rules! put {
    ($out:expr, $($arguments:tt)*) => {{
        use std::fmt::Write as _;
        write!($out, $($arguments)*).expect("writing to a String cannot fail");
    }};
}
pub(crate) use put;

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
}
