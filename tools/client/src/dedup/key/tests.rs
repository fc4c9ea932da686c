use super::*;

fn hasher() -> KeyHasher {
    KeyHasher::new([7; 16])
}

fn fingerprint(key: &Key, scope: &str, body: &str) -> Option<FilterKey> {
    key.fingerprint(&hasher(), scope, body.as_bytes())
}

#[test]
fn topic_and_channel_belong_to_the_key() {
    let key = Key::body();
    assert_eq!(fingerprint(&key, "t", "b"), fingerprint(&key, "t", "b"));
    assert_ne!(fingerprint(&key, "t", "b"), fingerprint(&key, "u", "b"));
    assert_ne!(fingerprint(&key, "tb", ""), fingerprint(&key, "t", "b"));
}

#[test]
fn bodies_with_equal_values_at_the_pointer_are_copies() {
    let key = Key::json("/id").unwrap();
    let of = |body| fingerprint(&key, "t", body);
    assert!(of(r#"{"id":"a"}"#).is_some());
    assert_eq!(of(r#"{"id":"a"}"#), of(r#" {"x":[1], "id" : "\u0061"}"#));
    assert_ne!(of(r#"{"id":"1"}"#), of(r#"{"id":1}"#));
    assert_eq!(of(r#"{"x":1}"#), None);
    assert_eq!(of("no JSON"), None);
}

/// A filter that is restored from its file, and memcached, know keys of other settings.
#[test]
fn the_pointer_belongs_to_the_key() {
    let body = r#"{"id":"7","order":"7","a":1,"b":1}"#;
    let json = |pointer| fingerprint(&Key::json(pointer).unwrap(), "t", body).expect("a key");
    assert_eq!(json("/id"), json("/id"));
    assert_ne!(json("/id"), json("/order"));
    let number = |source, pointer| {
        let key = Key::json_number(source, pointer).unwrap();
        key.number("t", body.as_bytes()).expect("a number")
    };
    assert_eq!(number(Some("/id"), "/a"), number(Some("/id"), "/a"));
    assert_ne!(number(Some("/id"), "/a"), number(Some("/id"), "/b"));
    assert_ne!(number(Some("/id"), "/a"), number(Some("/order"), "/a"));
    assert_ne!(number(None, "/a"), number(None, "/b"));
}

/// Producers without a value write an empty string. Such messages are no copies of each other.
#[test]
fn an_empty_value_is_no_key() {
    let key = Key::json("/id").unwrap();
    for body in [r#"{"id":""}"#, r#"{"id":null}"#] {
        assert_eq!(fingerprint(&key, "t", body), None, "{body}");
    }
    assert!(fingerprint(&key, "t", r#"{"id":0}"#).is_some());
    let key = Key::json_number(Some("/from"), "/n").unwrap();
    assert_eq!(key.number("t", br#"{"from":"","n":1}"#), None);
    let key = Key::by(|body| Some(body[1..].to_vec()));
    assert_eq!(fingerprint(&key, "t", "a"), None);
    assert!(fingerprint(&key, "t", "ab").is_some());
}

#[test]
fn functions_find_keys_and_their_panics_are_no_key() {
    let key = Key::by(|body| match body {
        b"panic" => panic!("the function fails"),
        b"none" => None,
        _ => Some(body[..1].to_vec()),
    });
    let of = |body| fingerprint(&key, "t", body);
    assert_eq!(of("abc"), of("axy"));
    assert!(of("abc").is_some());
    assert_eq!(of("none"), None);
    assert_eq!(of("panic"), None);
}

#[test]
fn numbers_are_whole_and_belong_to_their_source() {
    let key = Key::json_number(Some("/from"), "/n").unwrap();
    let of = |body: &str| key.number("t", body.as_bytes());
    let one = of(r#"{"from":"a","n":1}"#).expect("a number");
    assert_eq!(MessageNumber::from(one).number, 1);
    assert_ne!(Some(one), of(r#"{"from":"b","n":1}"#));
    assert_ne!(Some(one), key.number("u", br#"{"from":"a","n":1}"#));
    for body in [
        r#"{"n":1}"#,
        r#"{"from":"a"}"#,
        r#"{"from":"a","n":"1"}"#,
        r#"{"from":"a","n":-1}"#,
        r#"{"from":"a","n":1.0}"#,
        r#"{"from":"a","n":18446744073709551616}"#,
    ] {
        assert_eq!(of(body), None, "{body}");
    }
    let largest = of(r#"{"from":"a","n":18446744073709551615}"#).expect("a number");
    assert_eq!(MessageNumber::from(largest).number, u64::MAX);
    // A filter of fingerprints takes numbers, too.
    assert!(fingerprint(&key, "t", r#"{"from":"a","n":1}"#).is_some());
    // Without a source, all numbers of a topic belong together.
    let key = Key::json_number(None, "/n").unwrap();
    assert!(key.number("t", br#"{"n":1}"#).is_some());
}
