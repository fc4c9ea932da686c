use super::*;

#[test]
fn an_ipv6_address_gets_brackets() {
    assert_eq!(host_port("::1", 4151), "[::1]:4151");
    assert_eq!(host_port("[::1]", 4151), "[::1]:4151");
    assert_eq!(host_port("h", 4151), "h:4151");
}

#[test]
fn queries_are_escaped_and_leave_empty_values_out() {
    assert_eq!(query(&[]), "");
    assert_eq!(
        query(&[
            ("format", "json"),
            ("topic", "a#ephemeral"),
            ("channel", "")
        ]),
        "?format=json&topic=a%23ephemeral"
    );
}

#[test]
fn values_of_a_query_are_escaped_as_in_go() {
    let mut out = String::new();
    push_query_value(&mut out, b"se cret&=%/\xff\"~-_.");
    assert_eq!(out, "se+cret%26%3D%25%2F%FF%22~-_.");
}

#[test]
fn a_refused_request_goes_to_the_port_that_the_answer_names() {
    let body = r#"{"message":"TLS_REQUIRED","https_port":4152}"#;
    for (url, body, expected) in [
        (
            "http://h:4151/stats?a=b",
            body,
            Some("https://h:4152/stats?a=b"),
        ),
        ("http://[::1]:1/x", body, Some("https://[::1]:4152/x")),
        ("http://h:4151", r#"{"https_port":1}"#, Some("https://h:1")),
        ("http://[::1]:1?x", "{}", None),
        ("http://[::1]:1?x", r#"{"https_port":0}"#, None),
        ("http://h:4151/x", r#"{"https_port":65536}"#, None),
        ("http://h:1/auth", "forbidden", None),
        ("https://h:4152/x", body, None),
        ("http://h/auth", body, None),
        ("http://[::1]/x", body, None),
        ("http://::1:1/x", body, None),
        (
            "http://user:pw@h:4151/auth",
            body,
            Some("https://user:pw@h:4152/auth"),
        ),
        ("http://user:pw@auth.example/auth", body, None),
    ] {
        let found = https_url(url, 403, body.as_bytes());
        assert_eq!(found.as_deref(), expected, "{url} {body}");
    }
    assert_eq!(https_url("http://h:4151/x", 401, body.as_bytes()), None);
}
