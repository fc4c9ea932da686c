use super::*;

#[test]
fn a_get_succeeds_only_with_200() {
    let get = Endpoint::get("http://h/?x=%s").expect("a template");
    let post = Endpoint::post("http://h").expect("a URL");
    let check = |code: u16, expected: [bool; 2]| {
        let status = StatusCode::from_u16(code).expect("a status");
        assert_eq!(
            [get.accepts(status), post.accepts(status)],
            expected,
            "{code}"
        );
    };
    check(200, [true, true]);
    for code in [201, 202, 204, 299] {
        check(code, [false, true]);
    }
    for code in [199, 300, 304, 400, 404, 429, 500, 503] {
        check(code, [false, false]);
    }
}

#[test]
fn a_message_can_be_too_long_for_a_url() {
    let get = Endpoint::get("http://h/?x=%s").expect("a template");
    assert!(get.request(&Bytes::from(vec![b'a'; 65_000])).is_ok());
    // Each of these bytes takes three characters.
    let why = get.request(&Bytes::from(vec![b'&'; 22_000]));
    assert_eq!(why.expect_err("it is too long"), "uri too long");
}

#[test]
fn wrong_addresses_are_refused() {
    let post = |url: &str| Endpoint::post(url).expect_err("it is refused");
    assert!(post("h:80/a").starts_with("invalid POST address \"h:80/a\" - "));
    assert!(post("ftp://h/").contains("http:// or https://"));
    let get = |url: &str| Endpoint::get(url).expect_err("it is refused");
    let start = "invalid GET address - must be a printf string";
    for url in ["http://h/", "http://h/%s%s", "http://h/%d?x=%s"] {
        assert!(get(url).starts_with(start), "{}", get(url));
    }
    assert!(get("h/%s").starts_with("invalid GET address \"h/%s\" - "));
}

#[test]
fn the_message_is_escaped_as_in_a_form() {
    let template = GetTemplate::parse("http://h/?x=%s&y=1").expect("one %s");
    let url = |body: &[u8]| template.url(body);
    assert_eq!(url(b""), "http://h/?x=&y=1");
    let mut body = "a b&c=d/é%".as_bytes().to_vec();
    body.extend(b"\xff~*'()!");
    assert_eq!(
        url(&body),
        "http://h/?x=a+b%26c%3Dd%2F%C3%A9%25%C3%BF~%2A%27%28%29%21&y=1".replace("%C3%BF", "%FF")
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
