//! [`redacted`]: a URL for the log, without its password.

/// The text in place of a password, as in Go's `URL.Redacted`.
const MASK: &str = "xxxxx";

/// Returns the URL with its password masked. The text does not have to be a right URL: everything between the first `:`
/// behind the scheme and the last `@` counts as the password, if a host could follow.
pub(super) fn redacted(url: &str) -> String {
    let begin = url.find("//").map_or(0, |at| at + 2);
    let (scheme, rest) = url.split_at(begin);
    // A password with an unescaped `/`, `?` or `#` makes a wrong URL, and is a password all the same.
    let authority = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let at = match rest[..authority].rfind('@') {
        Some(at) => Some(at),
        None if has_port(&rest[..authority]) => None,
        None => rest.rfind('@'),
    };
    let Some(at) = at else {
        return url.to_owned();
    };
    let (user, host) = rest.split_at(at);
    match user.split_once(':') {
        Some((name, _)) => format!("{scheme}{name}:{MASK}{host}"),
        None => url.to_owned(),
    }
}

/// Returns true for a host with or without a port.
fn has_port(authority: &str) -> bool {
    match authority.rsplit_once(':') {
        Some((_, port)) => port
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b']'),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_masked() {
        let check = |url: &str, expected: &str| assert_eq!(redacted(url), expected);
        check(
            "http://us:pw@h:80/a@b?c=d:e@f",
            "http://us:xxxxx@h:80/a@b?c=d:e@f",
        );
        check("https://us:@h", "https://us:xxxxx@h");
        check("http://:p:w@[::1]:80/%s", "http://:xxxxx@[::1]:80/%s");
        check("http://us:p@w@h/", "http://us:xxxxx@h/");
        // The text of a wrong URL.
        check("http://us:p/w@h/x", "http://us:xxxxx@h/x");
        check("us:pw@h", "us:xxxxx@h");
        check("//us:pw@h", "//us:xxxxx@h");
    }

    #[test]
    fn other_urls_stay() {
        for url in [
            "http://h",
            "http://h:80/a:b@c",
            "http://[::1]:80/x@y",
            "http://us@h/",
            "http://h/?mail=a:b@c",
            "/relative:a",
            "",
        ] {
            assert_eq!(redacted(url), url);
        }
    }
}
