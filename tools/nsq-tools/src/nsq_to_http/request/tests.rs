use super::*;

fn headers(custom: &[&str]) -> Headers {
    let custom: Vec<String> = custom.iter().map(|text| (*text).to_owned()).collect();
    let content_type = HeaderValue::from_static("text/plain");
    Headers::new(
        Some(content_type),
        parse_headers(&custom).expect("good headers"),
    )
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
    assert_eq!(refused, "stopped after 10 redirects");
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
        let refused = hop.redirect(StatusCode::FOUND, &answer).unwrap_err();
        let expected = format!("the server redirects to {location:?}, which is no URL");
        assert_eq!(refused, expected);
    }
}

fn check_headers(content_type: Option<&'static str>, custom: &[&str], expected: &[&str]) {
    let custom: Vec<String> = custom.iter().map(|text| (*text).to_owned()).collect();
    let content_type = content_type.map(HeaderValue::from_static);
    let headers = Headers::new(content_type, parse_headers(&custom).expect("good headers"));
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
    check_headers(None, &[], &[agent]);
    let custom = ["X-Z: 1", " b :  2:3 ", "X-Z:4"];
    check_headers(
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
    check_headers(Some("a/b"), &custom, &expected);
}

#[test]
fn a_header_without_name_or_value_is_refused() {
    let refused = |text: &str| parse_headers(&[text.to_owned()]).expect_err("it is refused");
    for text in ["", "a", "a:", ":b", " : b", "a=b"] {
        let expected = format!("--header value format should be 'name: value', not {text:?}");
        assert_eq!(refused(text), expected);
    }
    assert!(refused("a b: c").contains("no valid name of a header: \"a b\""));
    assert!(refused("a: b\nc").contains("no valid value for a"));
    assert!(refused("Content-Length: 3").contains("cannot set content-length"));
}

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
