use super::*;

fn pointer(text: &str) -> JsonPointer {
    text.parse().expect("a pointer")
}

fn find(at: &str, body: &str) -> Option<String> {
    pointer(at).find(body.as_bytes()).map(|found| match found {
        Found::Text(text) => format!("text {text}"),
        Found::Raw(raw) => format!("raw {raw}"),
    })
}

/// The examples of section 5 of RFC 6901.
#[test]
fn the_examples_of_the_rfc() {
    let body = r#"{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8}"#;
    for (at, value) in [
        ("", format!("raw {body}")),
        ("/foo", r#"raw ["bar","baz"]"#.to_owned()),
        ("/foo/0", "text bar".to_owned()),
        ("/", "raw 0".to_owned()),
        ("/a~1b", "raw 1".to_owned()),
        ("/c%d", "raw 2".to_owned()),
        ("/e^f", "raw 3".to_owned()),
        ("/g|h", "raw 4".to_owned()),
        ("/i\\j", "raw 5".to_owned()),
        ("/k\"l", "raw 6".to_owned()),
        ("/ ", "raw 7".to_owned()),
        ("/m~0n", "raw 8".to_owned()),
    ] {
        assert_eq!(find(at, body), Some(value), "{at}");
        assert_eq!(pointer(at).to_string(), at);
    }
    assert_eq!(pointer("/a~1b//m~0n/0").tokens(), ["a/b", "", "m~n", "0"]);
    assert!(pointer("").tokens().is_empty());
}

#[test]
fn places_that_have_no_value() {
    for (at, body) in [
        ("/id", r#"{"ID":1}"#),
        ("/id", r#"{"id":null}"#),
        ("/id", "[1]"),
        ("/id", "7"),
        ("/id", r#""id""#),
        ("/id", "true"),
        ("/id/x", r#"{"id":1}"#),
        ("/2", "[0,1]"),
        ("/-", "[0,1]"),
        ("/01", "[0,1]"),
        ("/+1", "[0,1]"),
        ("/-1", "[0,1]"),
        ("/99999999999999999999999", "[0,1]"),
        ("/1/2", "[0,1]"),
    ] {
        assert_eq!(find(at, body), None, "{at} of {body}");
    }
    assert_eq!(find("/1", "[0,1]").as_deref(), Some("raw 1"));
}

#[test]
fn numbers_stay_as_they_are_written() {
    let of = |number: &str| find("/id", &format!(r#"{{"id": {number} }}"#));
    // Both are the same number if they are read as a float of 64 bits.
    assert_ne!(of("18446744073709551617"), of("18446744073709551618"));
    assert_ne!(of("1"), of("1.0"));
    assert_eq!(of("-1e999").as_deref(), Some("raw -1e999"));
}

#[test]
fn strings_are_compared_without_their_escapes() {
    let body = r#"{"\u0069d":"\u0041\n\ud83d\ude00"}"#;
    assert_eq!(find("/id", body).as_deref(), Some("text A\n😀"));
    // A string is not the number of the same digits.
    assert_ne!(find("/id", r#"{"id":"1"}"#), find("/id", r#"{"id":1}"#));
}

#[test]
fn the_last_of_two_equal_names_counts() {
    assert_eq!(
        find("/a", r#"{"a":1,"b":0,"a":2}"#).as_deref(),
        Some("raw 2")
    );
    assert_eq!(find("/a/x", r#"{"a":{"x":1},"a":{}}"#), None);
}

#[test]
fn bodies_that_are_no_json_have_no_value() {
    let deep = "[".repeat(100_000);
    let deep_object = r#"{"id":"#.repeat(100_000);
    for body in [
        "",
        "id",
        "{",
        r#"{"id":1"#,
        r#"{"id":1} x"#,
        r#"{"id":01}"#,
        r#"{"id":"\ud800"}"#,
        r#"{"id":"\x"}"#,
        "{\"id\":\"a\nb\"}",
        r#"{"id":1,}"#,
        "\u{feff}{\"id\":1}",
        &deep,
        &deep_object,
    ] {
        assert_eq!(find("/id", body), None, "{:.60}", body);
    }
    assert_eq!(pointer("/id").find(b"{\"id\":\"\xff\"}"), None);
    assert_eq!(pointer("/id").find(b"\xff"), None);
}

#[test]
fn cut_and_changed_bodies_never_panic() {
    let body = br#"{"a":[1,{"id":"x\u0041\ud83d\ude00","n":-1.5e3}],"b":{"id":null}}"#;
    let at = pointer("/a/1/id");
    assert!(at.find(body).is_some());
    let mut rng = fastrand::Rng::with_seed(7);
    for end in 0..body.len() {
        assert_eq!(at.find(&body[..end]), None);
    }
    for _ in 0..20_000 {
        let mut changed = body.to_vec();
        for _ in 0..rng.usize(1..4) {
            let place = rng.usize(..changed.len());
            changed[place] = rng.u8(..);
        }
        // Any answer will do.
        let _ = at.find(&changed);
    }
}

#[test]
fn texts_that_are_no_pointer_are_refused_with_advice() {
    for (text, advice) in [
        ("id", "write /id"),
        ("/a~2", "write ~0"),
        ("/a~", "write ~0"),
        (&"/a".repeat(101), "at most 100"),
    ] {
        let error = text
            .parse::<JsonPointer>()
            .expect_err("no pointer")
            .to_string();
        assert!(error.contains(advice), "{error}");
    }
    let longest = pointer(&"/a".repeat(100));
    let body = format!("{}1{}", r#"{"a":"#.repeat(100), "}".repeat(100));
    assert_eq!(longest.find(body.as_bytes()), Some(Found::Raw("1")));
}
