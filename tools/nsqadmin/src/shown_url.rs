//! URLs as logs, answers and the page show them: without secrets.

use std::borrow::Cow;

use url::Url;

/// The text that stands for a secret.
const SECRET: &str = "xxxxx";

/// Returns a URL without the user and the password that it may have. The rest stays as it is written.
pub fn without_user(url: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Cow::Borrowed(url);
    };
    let authority = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..authority].rfind('@') {
        Some(at) => Cow::Owned(format!("{scheme}://{}", &rest[at + 1..])),
        None => Cow::Borrowed(url),
    }
}

/// Returns the value of a flag whose URL may have secrets: the password, or the user alone, and the query are not shown. Nothing of
/// a text that is no URL is shown.
pub fn masked(url: &str) -> String {
    let Ok(mut parsed) = Url::parse(url) else {
        return if url.is_empty() { "" } else { SECRET }.to_owned();
    };
    let has_password = parsed.password().is_some();
    let has_user = !parsed.username().is_empty();
    if !has_password && !has_user && parsed.query().is_none() {
        return url.to_owned();
    }
    // These calls fail only for URLs without a host, which have no user.
    let _ = match (has_password, has_user) {
        (true, _) => parsed.set_password(Some(SECRET)),
        (false, true) => parsed.set_username(SECRET),
        (false, false) => Ok(()),
    };
    if parsed.query().is_some() {
        parsed.set_query(Some(SECRET));
    }
    parsed.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_user() {
        for (url, expected) in [
            ("http://u:p@h:1/x?y=a@b", "http://h:1/x?y=a@b"),
            ("http://token@h", "http://h"),
            ("http://a@b:c@h/", "http://h/"),
            ("http://h/@x", "http://h/@x"),
            ("http://h?u@x", "http://h?u@x"),
            ("h:4151", "h:4151"),
        ] {
            assert_eq!(without_user(url), expected);
        }
    }

    #[test]
    fn secrets_are_masked() {
        for (url, expected) in [
            ("http://u:secret@h/x", "http://u:xxxxx@h/x"),
            ("http://token@h/x", "http://xxxxx@h/x"),
            ("http://h/x?token=secret", "http://h/x?xxxxx"),
            ("http://h/x", "http://h/x"),
            ("http://h", "http://h"),
            ("http://u:pa/ss@h", "xxxxx"),
            ("", ""),
        ] {
            assert_eq!(masked(url), expected);
        }
    }
}
