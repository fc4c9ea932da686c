use super::*;
use diskq_log::Random;

fn pointer(text: &str) -> JsonPointer {
    JsonPointer::parse(text).expect("a pointer")
}

fn fingerprint(pointer: &JsonPointer, body: &[u8]) -> Option<Fingerprint> {
    Some(pointer.find(body)?.fingerprint(&KeyHasher::new([1; 16])))
}

#[test]
fn pointers() {
    for text in [
        "/", "/id", "/a/b/c", "/a~1b", "/m~0n", "/a/0/b", "/é", "//", "/ ",
    ] {
        assert_eq!(pointer(text).to_string(), text);
    }
    for (text, error) in [
        ("", JsonPointerError::WholeBody),
        ("id", JsonPointerError::NoSlash),
        ("#/id", JsonPointerError::NoSlash),
        ("/a~", JsonPointerError::Tilde),
        ("/a~2", JsonPointerError::Tilde),
        ("/~/a", JsonPointerError::Tilde),
    ] {
        assert_eq!(JsonPointer::parse(text), Err(error), "{text}");
    }
    let long = format!("/{}", "a".repeat(POINTER_BYTES_MAX));
    assert_eq!(JsonPointer::parse(&long), Err(JsonPointerError::TooLong));
    let deep = "/a".repeat(TOKENS_MAX + 1);
    assert_eq!(JsonPointer::parse(&deep), Err(JsonPointerError::TooLong));
    assert!(JsonPointer::parse(&"/a".repeat(TOKENS_MAX)).is_ok());
}

#[test]
fn values() {
    let string = |text: &'static str| Some(Value::String(text.as_bytes()));
    let other = |text: &'static str| Some(Value::Other(text.as_bytes()));
    for (path, body, expected) in [
        ("/id", r#"{"id":"7"}"#, string("7")),
        ("/id", r#"{"id":7}"#, other("7")),
        (
            "/id",
            r#" { "a" : [ 1 , {"id": 3} ] , "id" : 7.50 } "#,
            other("7.50"),
        ),
        ("/id", r#"{"id":true}"#, other("true")),
        ("/id", r#"{"id":[1, 2]}"#, other("[1, 2]")),
        ("/id", r#"{"id":{"a":[]},"b":1}"#, other(r#"{"a":[]}"#)),
        ("/id", r#"{"\u0069d":1}"#, other("1")),
        (r"/\ud83d", r#"{"\\ud83d":1}"#, other("1")),
        (r"/\ud83d", r#"{"\ud83d":1}"#, None),
        ("/id", r#"{"id":1,"id":2}"#, other("1")),
        ("/id", r#"{"id":1} trailing"#, other("1")),
        ("/id", r#"{"id":1,broken"#, other("1")),
        ("/a~1b/m~0n", r#"{"a/b":{"m~n":"x"}}"#, string("x")),
        ("/", r#"{"":1}"#, other("1")),
        ("/a/1", r#"{"a":[5,6,7]}"#, other("6")),
        ("/a/0/b", r#"{"a":[{"b":"q"}]}"#, string("q")),
        ("/1", r#"{"1":9}"#, other("9")),
        ("/0", "[3]", other("3")),
        ("/01", "[3,4]", None),
        ("/-", "[3,4]", None),
        ("/1", "[3]", None),
        ("/0", "[]", None),
        ("/99999999999", "[3]", None),
        ("/id", r#"{"id":null}"#, None),
        ("/id", r#"{"id":""}"#, None),
        ("/id", r#"{"ID":1}"#, None),
        ("/id", "{}", None),
        ("/id", "17", None),
        ("/id", "", None),
        ("/id", "no JSON", None),
        ("/id", r#"{"id":1"#, None),
        ("/id", r#"{"id":12abc}"#, None),
        ("/id", r#"{"id":}"#, None),
        ("/id", r#"{"x":{]},"id":1}"#, None),
        ("/id", r#"{"x":1 "id":1}"#, None),
        ("/id", r#"{"id" 1}"#, None),
        ("/a/b", r#"{"a":1,"b":2}"#, None),
    ] {
        let found = pointer(path).find(body.as_bytes());
        assert_eq!(found, expected, "{path} in {body}");
    }
}

#[test]
fn what_is_the_same_key() {
    let pointer = pointer("/id");
    for (a, b, is_same) in [
        (r#"{"id":"a\u0062"}"#, r#"{"x":1,"id":"ab"}"#, true),
        (r#"{"id":"\u00e9"}"#, r#"{"id":"é"}"#, true),
        (r#"{"id": 1 }"#, r#"{"id":1,"again":true}"#, true),
        (r#"{"id":1}"#, r#"{"id":"1"}"#, false),
        (r#"{"id":1}"#, r#"{"id":1.0}"#, false),
        (r#"{"id":1}"#, r#"{"id":2}"#, false),
        (r#"{"id":[1,2]}"#, r#"{"id":[1, 2]}"#, false),
        (r#"{"id":"true"}"#, r#"{"id":true}"#, false),
        (r#"{"id":"\ud800"}"#, r#"{"id":"\ud801"}"#, false),
        (r#"{"id":"\ud83d"}"#, r#"{"x":1,"id":"\ud83d"}"#, true),
        (r#"{"id":"\ud83d"}"#, r#"{"id":"\\ud83d"}"#, false),
    ] {
        let find = |text: &'static str| pointer.find(text.as_bytes()).expect("a value");
        assert_eq!(find(a).is_same(&find(b)), is_same, "{a} {b}");
        let fingerprints = [a, b].map(|it| fingerprint(&pointer, it.as_bytes()));
        assert_eq!(fingerprints[0] == fingerprints[1], is_same, "{a} {b}");
    }
}

/// A value behind the searched part is not found, and no body makes the search long.
#[test]
fn a_search_has_a_bound() {
    let value = |before: usize| {
        let body = format!(r#"{{"fill":"{}","id":7}}"#, "x".repeat(before));
        pointer("/id").find(body.as_bytes()).is_some()
    };
    assert!(value(SEARCHED_MAX - 100));
    assert!(!value(SEARCHED_MAX));
    let deep = b"[".repeat(5_000_000);
    assert_eq!(pointer("/0/0/0").find(&deep), None);
    let deep = b"{\"a\":".repeat(1_000_000);
    assert_eq!(pointer("/id").find(&deep), None);
}

/// Bodies with changed, added and removed bytes: a value that is found is the same as the one that another parser
/// finds, if that parser accepts the body and no name comes twice.
#[test]
fn beside_another_parser() {
    const BODY: &str =
        r#"{"a":{"b":[{"c":"x\u0041y"},2,{"d":-1.5e3}],"e":"é"},"id":"k-17","n":[[],{}]}"#;
    const PATHS: [&str; 7] = [
        "/id", "/a/b/0/c", "/a/b/1", "/a/b/2/d", "/a/e", "/n/0", "/a/b/5",
    ];
    const BYTES: &[u8] = b"{}[],:\"\\ux01 ea-.\x00\xff";
    let mut found = 0;
    for seed in 0..40_000 {
        let mut random = Random::new(seed);
        let mut body = BODY.as_bytes().to_vec();
        for _ in 0..random.below(4) {
            let at = random.below(body.len().max(1) as u64) as usize;
            let byte = BYTES[random.below(BYTES.len() as u64) as usize];
            match random.below(4) {
                0 => body.insert(at, byte),
                _ if body.is_empty() => {}
                1 => drop(body.remove(at)),
                2 if random.below(4) == 0 => body.truncate(at.max(1)),
                _ => body[at] = byte,
            }
        }
        let path = PATHS[random.below(7) as usize];
        let value = pointer(path).find(&body);
        let Ok(parsed) = serde_json::from_slice::<serde_json::Value>(&body) else {
            continue;
        };
        let comes_twice = |name: &str| {
            let name = format!("\"{name}\":").into_bytes();
            body.windows(name.len()).filter(|it| *it == name).count() > 1
        };
        if ["id", "a", "b", "c", "d", "e"].into_iter().any(comes_twice) {
            continue;
        }
        let expected = parsed.pointer(path).filter(|it| !it.is_null() && *it != "");
        match (value, expected) {
            (Some(Value::String(string)), Some(serde_json::Value::String(expected))) => {
                let text = decoded(string).expect("a text");
                assert_eq!(*text, *expected.as_bytes(), "seed {seed}");
                found += 1;
            }
            (Some(Value::Other(bytes)), Some(expected)) => {
                let bytes: serde_json::Value = serde_json::from_slice(bytes).expect("JSON");
                assert_eq!(&bytes, expected, "seed {seed}");
                found += 1;
            }
            (None, None) => {}
            // serde_json merges the members of a name that is spelt in two ways.
            other => assert!(
                body.contains(&b'\\') && body != BODY.as_bytes(),
                "seed {seed}: {other:?}"
            ),
        }
    }
    assert!(found > 8_000, "{found}");
}

#[test]
fn decoded_strings() {
    let decode =
        |text: &str| String::from_utf8(decoded(text.as_bytes()).expect("a text").into_owned());
    for (text, expected) in [
        ("", ""),
        ("plain é", "plain é"),
        (r#"\"\\\/\b\f\n\r\t"#, "\"\\/\u{8}\u{c}\n\r\t"),
        (r"\u0041\u00e9\u20AC", "Aé€"),
        (r"\ud83d\ude00!", "😀!"),
        (r"\u0000", "\0"),
    ] {
        assert_eq!(decode(text).as_deref(), Ok(expected), "{text}");
    }
    for half in [&br"\ud83dx"[..], br"\ude00\ud83d"] {
        assert_eq!(decoded(half), Err(half));
    }
}
