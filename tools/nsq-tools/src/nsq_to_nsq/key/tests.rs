use super::*;

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
