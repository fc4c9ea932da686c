use super::*;

fn filter(require: Option<(&str, Option<&str>)>, whitelist: &[&str]) -> Filter {
    Filter {
        require: require.map(|(field, value)| Requirement {
            field: field.to_owned(),
            value: value.map(str::to_owned),
        }),
        whitelist: whitelist.iter().map(|name| (*name).to_owned()).collect(),
    }
}

fn forward(body: impl AsRef<[u8]>) -> Filtered {
    Filtered::Forward(Bytes::copy_from_slice(body.as_ref()))
}

fn apply(filter: &Filter, body: impl AsRef<[u8]>) -> Filtered {
    filter.apply(&Bytes::copy_from_slice(body.as_ref()))
}

#[test]
fn a_filter_without_conditions_looks_at_nothing() {
    let filter = Filter::default();
    assert!(filter.is_off());
    assert_eq!(apply(&filter, b"\xff{"), forward(b"\xff{"));
}

#[test]
fn a_required_field_must_exist() {
    let filter = filter(Some(("a", None)), &[]);
    let check =
        |body: &str, expected: Filtered| assert_eq!(apply(&filter, body), expected, "{body}");
    check(r#"{"a":null}"#, forward(r#"{"a":null}"#));
    check(r#" {"a" : 1}"#, forward(r#" {"a" : 1}"#));
    check(r#"{"b":{"a":1}}"#, Filtered::Unwanted);
    check(r#"{"A":1}"#, Filtered::Unwanted);
    check("null", Filtered::Unwanted);
    check(r#"{"\u0061":1}"#, forward(r#"{"\u0061":1}"#));
}

#[test]
fn a_required_value_is_a_string_or_a_number() {
    let check = |value: &str, body: &str, expected: &str| {
        let expected = match expected {
            "forward" => forward(body),
            "unwanted" => Filtered::Unwanted,
            "lacks" => Filtered::LacksField,
            other => unreachable!("{other}"),
        };
        let filter = filter(Some(("a", Some(value))), &[]);
        assert_eq!(apply(&filter, body), expected, "{value} {body}");
    };
    check("2", r#"{"a":2.0}"#, "forward");
    check("2", r#"{"a":"2"}"#, "forward");
    check("2.0", r#"{"a":2}"#, "forward");
    check("2.0", r#"{"a":"2"}"#, "unwanted");
    check("2", r#"{"a":3}"#, "unwanted");
    check("2", r#"{}"#, "lacks");
    check("2", "null", "lacks");
    check("x", r#"{"a":"x"}"#, "forward");
    check("x", r#"{"a":"\u0078"}"#, "forward");
    check("x", r#"{"a":2}"#, "unwanted");
    for other in ["true", "null", "[2]", r#"{"a":2}"#] {
        check("true", &format!(r#"{{"a":{other}}}"#), "unwanted");
        check("2", &format!(r#"{{"a":{other}}}"#), "unwanted");
    }
    // The last field of the same name counts.
    check("2", r#"{"a":2,"a":3}"#, "unwanted");
    check("2", r#"{"a":3,"a":2}"#, "forward");
    // No number of JSON is infinite.
    check("inf", r#"{"a":1e400}"#, "unwanted");
}

#[test]
fn only_objects_are_filtered() {
    let filter = filter(None, &["a"]);
    for body in [
        "",
        "not json",
        "[]",
        "1",
        "\"a\"",
        "true",
        "{",
        "{}x",
        "{}{}",
        r#"{"a":}"#,
        r#"{"a":1,}"#,
        r#"{'a':1}"#,
        r#"{"a":01}"#,
        r#"{"a":+1}"#,
        r#"{"a":.5}"#,
        r#"{"a":NaN}"#,
        r#"{a:1}"#,
        "{\"a\":\"\n\"}",
        r#"{"a":"\x"}"#,
        r#"{"a":"\u12"}"#,
        "\u{feff}{}",
        r#"{"b":tru}"#,
        r#"{"b":[1,]}"#,
        "nul",
        "null null",
    ] {
        assert_eq!(apply(&filter, body), Filtered::NotAnObject, "{body:?}");
    }
    assert_eq!(apply(&filter, "\r\n\t null "), forward("{}"));
    assert_eq!(apply(&filter, " {} \n"), forward("{}"));
}

/// The outputs are those of the original, except where a comment says otherwise.
#[test]
fn the_whitelist_selects_and_sorts_fields() {
    let check = |names: &[&str], body: &str, expected: &str| {
        assert_eq!(
            apply(&filter(None, names), body),
            forward(expected),
            "{body}"
        );
    };
    let letters = ["a", "b", "f", "big", "n", "s", "o", "t"];
    check(
        &letters,
        r#"{"b":1,"a":2.0,"f":1.5,"n":null,"s":"x<y>&é\u2028","o":{"z":1,"y":[1,2.50,1e3]},"t":true}"#,
        "{\"a\":2,\"b\":1,\"f\":1.5,\"n\":null,\"o\":{\"y\":[1,2.5,1000],\"z\":1},\
         \"s\":\"x\\u003cy\\u003e\\u0026é\\u2028\",\"t\":true}",
    );
    check(
        &["a", "d", "e", "neg", "tiny"],
        r#"{"d":1e21,"e":0.1,"neg":-0.0,"tiny":1e-7}"#,
        r#"{"d":1e+21,"e":0.1,"neg":0,"tiny":1e-7}"#,
    );
    // The original prints 9007199254740992 and 12345678901234567000.
    check(
        &letters,
        r#"{"a":9007199254740993,"big":12345678901234567890}"#,
        r#"{"a":9007199254740993,"big":12345678901234567890}"#,
    );
    check(
        &letters,
        r#"{"a":-0.0,"b":[-0.0,-0,1.0,1e5,123456789012345680000]}"#,
        r#"{"a":0,"b":[-0,-0,1,100000,123456789012345680000]}"#,
    );
    check(
        &letters,
        r#"{"a":1e2,"b":1E+2,"f":1.0e-2}"#,
        r#"{"a":100,"b":100,"f":0.01}"#,
    );
    check(&["x"], r#"{"a":1}"#, "{}");
    check(&["a", "a"], r#"{"a":1,"a":2}"#, r#"{"a":2}"#);
    check(&[""], r#"{"":1,"a":2}"#, r#"{"":1}"#);
    check(&["<"], r#"{"<":1}"#, r#"{"\u003c":1}"#);
}

#[test]
fn inner_values_are_written_again() {
    let check = |value: &str, expected: &str| {
        let body = format!(r#"{{"a":{value}}}"#);
        let expected = format!(r#"{{"a":{expected}}}"#);
        assert_eq!(
            apply(&filter(None, &["a"]), &body),
            forward(expected),
            "{value}"
        );
    };
    check("{}", "{}");
    check(" [ ] ", "[]");
    check("[[],[[]],{}]", "[[],[[]],{}]");
    check(
        r#"{"b":{"d":1,"c":[{"z":0,"y":"}"}]},"a":"]"}"#,
        r#"{"a":"]","b":{"c":[{"y":"}","z":0}],"d":1}}"#,
    );
    check(r#"{"a":1,"b":2,"a":{"c":3}}"#, r#"{"a":{"c":3},"b":2}"#);
    check(r#"{"a":[1,2],"a":3}"#, r#"{"a":3}"#);
    check(r#"{"":"","a":""}"#, r#"{"":"","a":""}"#);
    check(
        r#"["a" , "b\"c\\" , true , null,false, -1.50e0]"#,
        r#"["a","b\"c\\",true,null,false,-1.5]"#,
    );
    check(
        r#""\/\b\f\n\r\t\u0041\ud83d\ude00""#,
        r#""/\u0008\u000c\n\r\tA😀""#,
    );
    // A key that is an escape, and keys that sort by bytes.
    check(r#"{"\u00e9":1,"z":2,"Z":3}"#, r#"{"Z":3,"z":2,"é":1}"#);
}

#[test]
fn characters_that_are_none_are_replaced() {
    let replaced = |body: &[u8], expected: &str| {
        assert_eq!(apply(&filter(None, &["a"]), body), forward(expected));
    };
    replaced(br#"{"a":"\ud800"}"#, "{\"a\":\"\u{fffd}\"}");
    replaced(br#"{"a":"\ud800\u0041"}"#, "{\"a\":\"\u{fffd}A\"}");
    replaced(br#"{"a":"\ud800\ud800"}"#, "{\"a\":\"\u{fffd}\u{fffd}\"}");
    replaced(br#"{"a":"x\udc00y"}"#, "{\"a\":\"x\u{fffd}y\"}");
    replaced(
        b"{\"a\":\"\xff\xe2\x82\"}",
        "{\"a\":\"\u{fffd}\u{fffd}\u{fffd}\"}",
    );
    replaced(br#"{"a":{"\udfff":1}}"#, "{\"a\":{\"\u{fffd}\":1}}");
    // A key with half a surrogate pair does not hide the other fields.
    replaced(br#"{"\ud800":1,"a":2}"#, r#"{"a":2}"#);
}

#[test]
fn deep_nesting_needs_no_deep_stack() {
    let depth = 100_000;
    let value = "[".repeat(depth) + &"]".repeat(depth);
    let body = format!(r#"{{"a":{value}}}"#);
    assert_eq!(apply(&filter(None, &["a"]), &body), forward(&body));
    let value = r#"{"a":"#.repeat(depth) + "1" + &"}".repeat(depth);
    let body = format!(r#"{{"a":{value}}}"#);
    assert_eq!(apply(&filter(None, &["a"]), &body), forward(&body));
}

#[test]
fn the_output_reads_back_as_the_same_values() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let value = random_value(&mut random, 4);
        let body = serde_json::json!({ "a": value, "b": 1 }).to_string();
        let Filtered::Forward(out) = apply(&filter(None, &["a"]), &body) else {
            panic!("seed {seed}: {body}");
        };
        let out: serde_json::Value = serde_json::from_slice(&out).expect("the output is JSON");
        assert_eq!(out, serde_json::json!({ "a": value }), "seed {seed}");
    }
}

fn random_value(random: &mut fastrand::Rng, depth: usize) -> serde_json::Value {
    use serde_json::Value;
    match random.u8(0..if depth == 0 { 4 } else { 6 }) {
        0 => Value::Null,
        1 => Value::Bool(random.bool()),
        2 => Value::from(random.i64(..) >> random.u32(0..64)),
        3 => Value::String((0..random.usize(0..8)).map(|_| random.char(..)).collect()),
        4 => (0..random.usize(0..4))
            .map(|_| random_value(random, depth - 1))
            .collect(),
        _ => (0..random.usize(0..4))
            .map(|_| {
                let key = random.char(..).to_string();
                (key, random_value(random, depth - 1))
            })
            .collect::<serde_json::Map<_, _>>()
            .into(),
    }
}

#[test]
fn a_key_is_a_field_or_a_pointer() {
    let check = |key: &str, body: &str, expected: Option<&str>| {
        assert_eq!(
            Key::parse(key).unwrap().of(body.as_bytes()).as_deref(),
            expected,
            "{key} {body}"
        );
    };
    let body = r#"{"id":"x","n":1.0,"user":{"id":7,"a/b":"s","~":true},"list":[{"id":"first"},2],"z":null,"o":{"b":1, "a":2}}"#;
    check("id", body, Some("x"));
    check("/id", body, Some("x"));
    check("n", body, Some("1"));
    check("/user/id", body, Some("7"));
    check("/user/a~1b", body, Some("s"));
    check("/user/~0", body, Some("true"));
    check("/list/0/id", body, Some("first"));
    check("/list/1", body, Some("2"));
    check("/list/00", body, None);
    check("/list/2", body, None);
    check("/list/x", body, None);
    check("/list/-", body, None);
    check("z", body, Some("null"));
    check("o", body, Some(r#"{"a":2,"b":1}"#));
    check("/id/x", body, None);
    check("missing", body, None);
    check("/user/missing", body, None);
    check("id", "not json", None);
    check("id", r#"{"id":1} x"#, None);
    check("id", "[1]", None);
    check("id", "null", None);
    check("/", r#"{"":1}"#, Some("1"));
}

#[test]
fn equal_numbers_and_strings_are_the_same_key() {
    let key = Key::parse("id").unwrap();
    let of = |value: &str| key.of(format!(r#"{{"id":{value}}}"#).as_bytes());
    assert_eq!(of("17"), of("17.0"));
    assert_eq!(of("17"), of("1.7e1"));
    assert_eq!(of("17"), of("\"17\""));
    assert_ne!(of("9007199254740993"), of("9007199254740992"));
}

#[test]
fn the_ranking_is_fixed_for_ever() {
    // Other programs may compute the destination of a key, so these values never change.
    let ranking = Ranking::new(["10.0.0.1:4150", "10.0.0.2:4150", "10.0.0.3:4150"]);
    assert_eq!(hash(b"a"), 0xaf63_dc4c_8601_ec8c);
    assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
    let orders: Vec<Vec<usize>> = ["", "alice", "bob", "17"].map(|key| ranking.of(key)).into();
    assert_eq!(orders, EXPECTED_ORDERS);
}

const EXPECTED_ORDERS: [[usize; 3]; 4] = [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1]];

#[test]
fn keys_spread_evenly() {
    let names: Vec<String> = (0..5).map(|n| format!("nsqd-{n}:4150")).collect();
    let ranking = Ranking::new(names.iter().map(String::as_str));
    let mut firsts = [0_u32; 5];
    for key in 0..50_000 {
        firsts[ranking.of(&key.to_string())[0]] += 1;
    }
    for count in firsts {
        assert!((9_500..10_500).contains(&count), "{firsts:?}");
    }
}

#[test]
fn a_further_destination_moves_only_the_keys_that_it_gets() {
    let three = Ranking::new(["a:1", "b:1", "c:1"]);
    let four = Ranking::new(["a:1", "b:1", "c:1", "d:1"]);
    let mut moved = 0;
    for key in 0..10_000 {
        let key = key.to_string();
        let (before, after) = (three.of(&key), four.of(&key));
        if after[0] == 3 {
            moved += 1;
        } else {
            assert_eq!(before[0], after[0]);
        }
        // Without the new destination, the order is the old one.
        assert_eq!(
            after.into_iter().filter(|i| *i != 3).collect::<Vec<_>>(),
            before
        );
    }
    assert!((2_200..2_800).contains(&moved), "{moved}");
}

#[test]
fn the_order_of_the_names_does_not_matter() {
    let forward = Ranking::new(["a:1", "b:1", "c:1"]);
    let backward = Ranking::new(["c:1", "b:1", "a:1"]);
    for key in ["x", "y", "z", ""] {
        let mirrored: Vec<usize> = backward.of(key).into_iter().map(|i| 2 - i).collect();
        assert_eq!(forward.of(key), mirrored);
    }
}
