//! [`Headers`]: the headers of each request.

use http::header::{
    ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, TE, TRAILER, TRANSFER_ENCODING, USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue};

/// The name of the tool in requests.
const AGENT: HeaderValue = HeaderValue::from_static("nsq_to_http v1.3.0");

/// The headers that are the same for all requests: `User-Agent`, `Content-Type`, and those of the
/// command line.
#[derive(Clone, Debug)]
pub(super) struct Headers {
    /// A `Host` of the command line.
    pub(super) host: Option<HeaderValue>,
    pub(super) user_agent: HeaderValue,
    /// The other headers, but for `Accept-Encoding: gzip`, sorted by name.
    pub(super) others: Vec<(HeaderName, HeaderValue)>,
    /// True if the command line has no `Accept-Encoding`. Like Go's client, the tool then asks for
    /// compressed answers, behind all other headers.
    pub(super) asks_for_gzip: bool,
}

impl Headers {
    /// Puts the headers in the order of the wire. The headers of the command line come last, so they
    /// replace others.
    pub(super) fn new(
        content_type: Option<HeaderValue>,
        custom: Vec<(HeaderName, HeaderValue)>,
    ) -> Headers {
        let mut all = HeaderMap::new();
        all.insert(USER_AGENT, AGENT);
        all.extend(content_type.map(|value| (CONTENT_TYPE, value)));
        for (name, value) in custom {
            all.insert(name, value);
        }
        let host = all.remove(HOST);
        let user_agent = all.remove(USER_AGENT).unwrap_or(AGENT);
        let asks_for_gzip = !all.contains_key(ACCEPT_ENCODING);
        let mut others: Vec<(HeaderName, HeaderValue)> = all
            .into_iter()
            .filter_map(|(name, value)| Some((name?, value)))
            .collect();
        others.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
        Headers {
            host,
            user_agent,
            others,
            asks_for_gzip,
        }
    }
}

/// Parses the headers of the command line, each `name: value`. The error is the reason for the user.
pub(super) fn parse(texts: &[String]) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    texts.iter().map(|text| parse_one(text)).collect()
}

fn parse_one(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let parts = text
        .split_once(':')
        .map(|(name, value)| (name.trim(), value.trim()));
    let Some((name, value)) = parts.filter(|(name, value)| !name.is_empty() && !value.is_empty())
    else {
        return Err(format!(
            "--header value format should be 'name: value', not {text:?}"
        ));
    };
    let name: HeaderName = name
        .parse()
        .map_err(|_| format!("--header has no valid name of a header: {name:?}"))?;
    if [CONTENT_LENGTH, TRANSFER_ENCODING, TRAILER, TE].contains(&name) {
        return Err(format!(
            "--header cannot set {name}: nsq_to_http sets the framing of requests itself"
        ));
    }
    let value = HeaderValue::from_bytes(value.as_bytes())
        .map_err(|_| format!("--header has no valid value for {name}: {value:?}"))?;
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(content_type: Option<&'static str>, custom: &[&str], expected: &[&str]) {
        let custom: Vec<String> = custom.iter().map(|text| (*text).to_owned()).collect();
        let content_type = content_type.map(HeaderValue::from_static);
        let headers = Headers::new(content_type, parse(&custom).expect("good headers"));
        let host = headers.host.map(|value| (HOST, value));
        let all = host
            .into_iter()
            .chain([(USER_AGENT, headers.user_agent)])
            .chain(headers.others);
        let all = all.map(|(name, value)| format!("{name}: {}", value.to_str().expect("ASCII")));
        assert_eq!(all.collect::<Vec<_>>(), expected);
        let has_encoding = expected
            .iter()
            .any(|line| line.starts_with("accept-encoding"));
        assert_eq!(headers.asks_for_gzip, !has_encoding);
    }

    #[test]
    fn the_last_of_two_values_counts() {
        let agent = "user-agent: nsq_to_http v1.3.0";
        check(None, &[], &[agent]);
        let custom = ["X-Z: 1", " b :  2:3 ", "X-Z:4"];
        check(
            Some("a/b"),
            &custom,
            &[agent, "b: 2:3", "content-type: a/b", "x-z: 4"],
        );
    }

    #[test]
    fn the_command_line_replaces_headers() {
        let custom = [
            "content-type: c/d",
            "User-Agent: me",
            "host: h",
            "Accept-Encoding: br",
        ];
        let expected = [
            "host: h",
            "user-agent: me",
            "accept-encoding: br",
            "content-type: c/d",
        ];
        check(Some("a/b"), &custom, &expected);
    }

    #[test]
    fn a_header_without_name_or_value_is_refused() {
        let refused = |text: &str| parse(&[text.to_owned()]).expect_err("it is refused");
        for text in ["", "a", "a:", ":b", " : b", "a=b"] {
            let expected = format!("--header value format should be 'name: value', not {text:?}");
            assert_eq!(refused(text), expected);
        }
        assert!(refused("a b: c").contains("no valid name of a header: \"a b\""));
        assert!(refused("a: b\nc").contains("no valid value for a"));
        assert!(refused("Content-Length: 3").contains("cannot set content-length"));
    }
}
