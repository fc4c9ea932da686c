use super::super::headers::parse;
use super::*;

fn headers(custom: &[&str]) -> Headers {
    let custom: Vec<String> = custom.iter().map(|text| (*text).to_owned()).collect();
    let content_type = HeaderValue::from_static("text/plain");
    Headers::new(Some(content_type), parse(&custom).expect("good headers"))
}

fn post(url: &str) -> Hop {
    let target = Target::parse(url).expect("a URL");
    Hop::new(Method::POST, target, Bytes::from_static(b"body"))
}

/// Returns the request line and the headers in the order of the wire.
fn shown(hop: &Hop, headers: &Headers) -> Vec<String> {
    let request = hop.request(headers);
    let mut lines = vec![format!("{} {}", request.method(), request.uri())];
    lines.extend(
        request
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().expect("ASCII"))),
    );
    lines
}

fn redirected(hop: &Hop, status: u16, location: &str) -> Hop {
    let mut answer = HeaderMap::new();
    answer.insert(LOCATION, location.parse().expect("a value"));
    let status = StatusCode::from_u16(status).expect("a status");
    let next = hop.redirect(status, &answer).expect("a good redirect");
    next.expect("a redirect")
}

#[test]
fn a_request_has_the_headers_of_gos_client() {
    assert_eq!(
        shown(&post("http://h:81/a?b=1"), &headers(&["X-A: 1"])),
        [
            "POST http://h:81/a?b=1",
            "host: h:81",
            "user-agent: nsq_to_http v1.3.0",
            "content-length: 4",
            "content-type: text/plain",
            "x-a: 1",
            "accept-encoding: gzip",
        ]
    );
    let get = Hop::new(
        Method::GET,
        Target::parse("http://h?x=1").unwrap(),
        Bytes::new(),
    );
    let headers = Headers::new(None, Vec::new());
    assert_eq!(
        shown(&get, &headers),
        [
            "GET http://h/?x=1",
            "host: h",
            "user-agent: nsq_to_http v1.3.0",
            "accept-encoding: gzip",
        ]
    );
}

#[test]
fn a_user_becomes_an_authorization() {
    let lines = shown(&post("http://us%20er:p%40ss@h/a"), &headers(&["B: 1"]));
    assert_eq!(lines[0], "POST http://h/a");
    assert_eq!(lines[1], "host: h");
    assert_eq!(
        lines[4],
        format!("authorization: Basic {}", STANDARD.encode("us er:p@ss"))
    );
    assert_eq!(lines[5], "b: 1");
    // A header of the command line is stronger.
    let lines = shown(
        &post("http://u:p@h/"),
        &headers(&["Authorization: Bearer x"]),
    );
    assert!(
        lines.contains(&"authorization: Bearer x".to_owned()),
        "{lines:?}"
    );
    assert_eq!(
        lines.iter().filter(|line| line.starts_with("auth")).count(),
        1
    );
}

#[test]
fn a_host_of_the_command_line_is_sent_to_the_first_server_only() {
    let headers = headers(&["Host: virtual"]);
    let hop = post("http://h/a");
    assert_eq!(shown(&hop, &headers)[1], "host: virtual");
    assert_eq!(shown(&redirected(&hop, 307, "/b"), &headers)[1], "host: h");
}

#[test]
fn redirects_turn_a_post_into_a_get_or_repeat_it() {
    let headers = headers(&["X-A: 1", "A-X: 2"]);
    for status in [301, 302, 303] {
        assert_eq!(
            shown(&redirected(&post("http://h/a/b"), status, "c?d"), &headers),
            [
                "GET http://h/a/c?d",
                "host: h",
                "user-agent: nsq_to_http v1.3.0",
                "a-x: 2",
                "referer: http://h/a/b",
                "x-a: 1",
                "accept-encoding: gzip",
            ]
        );
    }
    for status in [307, 308] {
        let next = redirected(&post("http://h/a"), status, "http://i:9/");
        let lines = shown(&next, &headers);
        assert_eq!(lines[..2], ["POST http://i:9/", "host: i:9"]);
        assert!(lines.contains(&"content-length: 4".to_owned()), "{lines:?}");
        assert!(
            lines.contains(&"content-type: text/plain".to_owned()),
            "{lines:?}"
        );
    }
}

#[test]
fn secrets_stay_with_their_host() {
    let headers = headers(&["Authorization: Bearer x", "Cookie: y", "X-A: 1"]);
    let first = post("https://h/a");
    let count = |hop: &Hop| {
        let lines = shown(hop, &headers);
        lines
            .iter()
            .filter(|line| line.starts_with("auth") || line.starts_with("cookie"))
            .count()
    };
    assert_eq!(count(&first), 2);
    assert_eq!(count(&redirected(&first, 307, "https://sub.h/")), 2);
    let elsewhere = redirected(&first, 307, "https://other/");
    assert_eq!(count(&elsewhere), 0);
    // The way back does not bring the secrets back.
    assert_eq!(count(&redirected(&elsewhere, 307, "https://h/")), 0);
    // An unencrypted server does not learn where the redirect came from.
    let plain = shown(&redirected(&first, 302, "http://h/"), &headers);
    assert!(
        !plain.iter().any(|line| line.starts_with("referer")),
        "{plain:?}"
    );
}

#[test]
fn ten_requests_are_the_limit() {
    let mut hop = post("http://h/0");
    for number in 1..10 {
        hop = redirected(&hop, 307, &format!("/{number}"));
    }
    let mut answer = HeaderMap::new();
    answer.insert(LOCATION, HeaderValue::from_static("/10"));
    let status = StatusCode::TEMPORARY_REDIRECT;
    let refused = hop.redirect(status, &answer).expect_err("ten requests");
    assert_eq!(refused, RedirectError::TooMany);
}

#[test]
fn other_answers_are_no_redirects() {
    let mut answer = HeaderMap::new();
    let hop = post("http://h/");
    assert!(hop.redirect(StatusCode::FOUND, &answer).unwrap().is_none());
    answer.insert(LOCATION, HeaderValue::from_static("/b"));
    for status in [200, 201, 300, 304, 305, 500] {
        let status = StatusCode::from_u16(status).unwrap();
        assert!(hop.redirect(status, &answer).unwrap().is_none(), "{status}");
    }
    for location in ["http://", "ftp://h/", "http://[::1/"] {
        answer.insert(LOCATION, location.parse().unwrap());
        let refused = hop.redirect(StatusCode::FOUND, &answer);
        assert!(
            matches!(refused, Err(RedirectError::Location(_))),
            "{location}"
        );
    }
}
