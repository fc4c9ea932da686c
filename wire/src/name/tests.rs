use proptest::prelude::*;

use super::*;

/// The rule for names in a simple and slow form.
fn slow(name: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(name) else {
        return false;
    };
    let stem = name.strip_suffix("#ephemeral").unwrap_or(name);
    let allowed = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    name.len() <= 64 && !stem.is_empty() && stem.chars().all(allowed)
}

#[test]
fn validity() {
    let check = |name: &[u8], expected: bool| {
        assert_eq!(is_valid_name(name), expected, "{}", name.escape_ascii());
        assert_eq!(slow(name), expected, "reference: {}", name.escape_ascii());
    };
    for good in [
        "a",
        ".",
        "..",
        "-",
        "_",
        "a.b-c_D9",
        "a#ephemeral",
        ".#ephemeral",
    ] {
        check(good.as_bytes(), true);
    }
    let bad: [&[u8]; 16] = [
        b"",
        b"#ephemeral",
        b"a#ephemeral#ephemeral",
        b"a#Ephemeral",
        b"a:b",
        b"a\n",
        b"a\r",
        b"a\0",
        b"a b",
        b"a#",
        b"a#ephemera",
        b"#ephemerala",
        b"a/b",
        b"\xff",
        b"\xc3\xa9",
        b"a\xc5\xbf",
    ];
    for name in bad {
        check(name, false);
    }
    check(&[b'a'; 64], true);
    check(&[b'a'; 65], false);
    // The limit includes the suffix.
    check(&[&[b'a'; 54][..], b"#ephemeral"].concat(), true);
    check(&[&[b'a'; 55][..], b"#ephemeral"].concat(), false);
}

#[test]
fn names_carry_their_text() {
    let topic = TopicName::new(b"orders#ephemeral").unwrap();
    assert_eq!(
        (topic.as_str(), topic.is_ephemeral()),
        ("orders#ephemeral", true)
    );
    let channel = ChannelName::new(b"ephemeral").unwrap();
    assert_eq!(
        (channel.as_str(), channel.is_ephemeral()),
        ("ephemeral", false)
    );
    assert_eq!(
        format!("{channel} {channel:?} {channel:>11}"),
        "ephemeral ChannelName(ephemeral)   ephemeral"
    );
    assert_eq!(TopicName::new(b"a b"), None);
    assert_eq!(ChannelName::new(b""), None);
}

proptest! {
    #[test]
    fn any_bytes_as_the_reference_says(name in prop::collection::vec(any::<u8>(), 0..80)) {
        prop_assert_eq!(is_valid_name(&name), slow(&name));
    }

    #[test]
    fn likely_names_as_the_reference_says(name in "[-._a-zA-Z0-9#:]{0,66}(#ephemeral){0,2}") {
        prop_assert_eq!(is_valid_name(name.as_bytes()), slow(name.as_bytes()));
    }
}

#[test]
fn an_invalid_name_is_explained() {
    let text = InvalidName("a\0b").to_string();
    let expected = "\"a\\0b\" is not 1 to 64 characters of a-z A-Z 0-9 . _ -, of which the last 10 may be #ephemeral";
    assert_eq!(text, expected);
}
