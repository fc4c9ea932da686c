//! [`GetTemplate`]: the URL of a GET request, with a place for the message.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// The characters that a form writes as `%XX`. A form writes a space as `+`.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b' ')
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// A URL in which the message takes the place of `%s`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GetTemplate {
    before: String,
    after: String,
}

impl GetTemplate {
    /// Parses a URL with exactly one `%s`. `%%` stands for a percent sign. Returns `None` for any
    /// other text.
    pub(super) fn parse(text: &str) -> Option<GetTemplate> {
        let mut parts = vec![String::new()];
        let mut characters = text.chars();
        while let Some(c) = characters.next() {
            let part = parts.last_mut()?;
            match c {
                '%' => match characters.next()? {
                    '%' => part.push('%'),
                    's' => parts.push(String::new()),
                    _ => return None,
                },
                _ => part.push(c),
            }
        }
        let [before, after] = <[String; 2]>::try_from(parts).ok()?;
        Some(GetTemplate { before, after })
    }

    /// Returns the URL for a message.
    pub(super) fn url(&self, body: &[u8]) -> String {
        let body = percent_encode(body, ESCAPED).to_string().replace(' ', "+");
        format!("{}{body}{}", self.before, self.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_escaped_as_in_a_form() {
        let template = GetTemplate::parse("http://h/?x=%s&y=1").expect("one %s");
        let url = |body: &[u8]| template.url(body);
        assert_eq!(url(b""), "http://h/?x=&y=1");
        let mut body = "a b&c=d/é%".as_bytes().to_vec();
        body.extend(b"\xff~*'()!");
        assert_eq!(
            url(&body),
            "http://h/?x=a+b%26c%3Dd%2F%C3%A9%25%C3%BF~%2A%27%28%29%21&y=1"
                .replace("%C3%BF", "%FF")
        );
        assert_eq!(url(b"-_.~\0\n+"), "http://h/?x=-_.~%00%0A%2B&y=1");
    }

    #[test]
    fn a_doubled_percent_sign_stands_for_itself() {
        let template = GetTemplate::parse("http://h/100%%/%s%%20").expect("one %s");
        assert_eq!(template.url(b"a"), "http://h/100%/a%20");
    }

    #[test]
    fn only_one_place_is_accepted() {
        for text in ["", "http://h/", "%s%s", "%d", "%", "%s%", "%%s", "a%20b%s"] {
            assert_eq!(GetTemplate::parse(text), None, "{text}");
        }
    }
}
