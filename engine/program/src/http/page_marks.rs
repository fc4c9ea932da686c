//! [`PageMarks`]: what a browser says about the page that sends a request.
//!
//! A page of any site can send requests to any address that its visitor's browser reaches (cross-site request forgery). No
//! script of a page can set `Origin`, `Sec-Fetch-Site` or `Host`. Programs that are no browsers set none of the first two.

use ::http::HeaderMap;

/// The header fields with which a browser marks the page that sends a request, and those that name the server.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageMarks<'a> {
    site: Option<&'a [u8]>,
    origin: Option<&'a [u8]>,
    host: Option<&'a [u8]>,
    forwarded_host: Option<&'a [u8]>,
}

impl<'a> PageMarks<'a> {
    /// Notes a header field, if it is one of the marks.
    pub fn note(&mut self, name: &str, value: &'a [u8]) {
        let is = |mark: &str| name.eq_ignore_ascii_case(mark);
        let mark = if is("sec-fetch-site") {
            &mut self.site
        } else if is("origin") {
            &mut self.origin
        } else if is("host") {
            &mut self.host
        } else if is("x-forwarded-host") {
            &mut self.forwarded_host
        } else {
            return;
        };
        // No browser sends a mark twice. An empty mark is no mark of an own page.
        *mark = Some(match mark {
            None => value,
            Some(_) => b"",
        });
    }

    /// Returns the page's origin, such as `https://nsq.example.com`. `None`: the request names none.
    #[must_use]
    pub fn origin(&self) -> Option<&'a [u8]> {
        self.origin
    }

    /// Returns true if the request comes from a page that the server itself has not sent.
    ///
    /// `Sec-Fetch-Site` is the browser's own judgement, so it counts first. Browsers send it to HTTPS and loopback
    /// addresses only. They send `Origin` with each request that is neither GET nor HEAD (Chrome, Firefox and Safari since
    /// 2020 at the latest). The page is the server's own if its origin has the host and port of the request, or those that
    /// a proxy in front has noted. No page can set `X-Forwarded-Host` of a request to another site, because that needs a
    /// permission in the answer to OPTIONS. Go's `http.CrossOriginProtection` has the same rule.
    #[must_use]
    pub fn are_of_other_site(&self) -> bool {
        if let Some(site) = self.site {
            return !matches!(site, b"same-origin" | b"none");
        }
        let Some(origin) = self.origin else {
            return false;
        };
        let mut hosts = [self.host, self.forwarded_host].into_iter().flatten();
        !hosts.any(|host| is_origin_of(origin, host))
    }
}

impl<'a> From<&'a HeaderMap> for PageMarks<'a> {
    fn from(headers: &'a HeaderMap) -> PageMarks<'a> {
        let mut marks = PageMarks::default();
        for (name, value) in headers {
            marks.note(name.as_str(), value.as_bytes());
        }
        marks
    }
}

/// Returns true if the origin, such as `https://h:1`, has this host and port. The scheme is that of the proxy in front,
/// which the server may not know.
fn is_origin_of(origin: &[u8], host: &[u8]) -> bool {
    let http = origin.strip_prefix(b"http://").map(|it| (it, &b":80"[..]));
    let https = || Some((origin.strip_prefix(b"https://")?, &b":443"[..]));
    let Some((authority, scheme_port)) = http.or_else(https) else {
        return false;
    };
    let without_port = |text: &'_ [u8]| text.strip_suffix(scheme_port).unwrap_or(text).len();
    let (authority, host) = (
        &authority[..without_port(authority)],
        &host[..without_port(host)],
    );
    !authority.is_empty() && authority.eq_ignore_ascii_case(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_other_sites_are_recognised() {
        let check = |fields: &[(&str, &str)], expected: bool| {
            let mut marks = PageMarks::default();
            for (name, value) in fields {
                marks.note(name, value.as_bytes());
            }
            assert_eq!(marks.are_of_other_site(), expected, "{fields:?}");
        };
        check(&[("Host", "h:4171")], false);
        check(&[("Host", "h:4171"), ("Origin", "http://h:4171")], false);
        check(&[("Host", "h"), ("Origin", "https://h")], false);
        check(&[("Host", "H:443"), ("Origin", "https://h")], false);
        check(
            &[("Host", "[fd::80]"), ("Origin", "http://[fd::80]")],
            false,
        );
        check(&[("Host", "h:80"), ("Origin", "https://h")], true);
        check(&[("Host", "h"), ("Origin", "https://h:8443")], true);
        check(&[("Host", "h:4171"), ("Origin", "http://evil:4171")], true);
        for origin in [
            "null",
            "",
            "http://",
            "https://",
            "ftp://h",
            "h",
            "http://hh",
            "http://h.evil",
        ] {
            check(&[("Host", "h"), ("Origin", origin)], true);
        }
        check(&[("Host", ""), ("Origin", "http://")], true);
        check(&[("Origin", "http://h")], true);
        let proxied = [
            ("Host", "127.0.0.1:4171"),
            ("X-Forwarded-Host", "h"),
            ("Origin", "https://h"),
        ];
        check(&proxied, false);
        // A proxy may change Host, and the browser's own judgement counts then.
        for (site, expected) in [
            ("same-origin", false),
            ("none", false),
            ("same-site", true),
            ("cross-site", true),
            ("", true),
        ] {
            let marks = [
                ("Host", "inner"),
                ("Origin", "https://outer"),
                ("Sec-Fetch-Site", site),
            ];
            check(&marks, expected);
            check(&[("Host", "h"), ("sec-fetch-site", site)], expected);
        }
        let own = [("Host", "h"), ("Origin", "https://h")];
        check(&[own[0], own[1], ("Sec-Fetch-Site", "cross-site")], true);
        check(&[own[0], own[1], ("Origin", "https://h")], true);
        let twice = ("Sec-Fetch-Site", "same-origin");
        check(&[own[0], twice, twice], true);
    }
}
