use super::*;
use diskq_log::Random;

/// Returns whether the whole text is one JSON value.
fn is_json(text: &[u8]) -> bool {
    let mut scanner = JsonScanner::new(text);
    scanner.skip_value().is_some() && scanner.peek().is_none()
}

fn is_json_for_serde(text: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok()
}

#[test]
fn values() {
    let whole = concat!(
        r#"1|-0|0.5e-10|1E+2|true|false|null|""|[]|{}| [ 1 , 2 ] |{"a":{"b":[]}}|[[],{},[{}]]|"#,
        r#"{"a":1,"a":2}|"\u00e9\n\""|"#,
        "\t\r\n7\n"
    );
    for text in whole.split('|') {
        assert!(is_json(text.as_bytes()), "{text}");
    }
    let broken = concat!(
        r#"| |01|-|+1|1.|.5|1e|tru|truex|nul|[|]|[1|[1,|[1,]|[,]|{|{"a"|{"a":|{"a":1|{"a":1,|{"a":1,}|"#,
        r#"{a:1}|{1:1}|{"a" 1}|[1}|{"a":1]|"|"\|"\x"|"\u12"|"\u12g4"|1 2|[]]|NaN|Infinity|'a'|"#,
        r#"/*c*/1|"\u|{{}}|[1 2]|"#,
        "\"\n\"|\u{feff}1"
    );
    for text in broken.split('|') {
        assert!(!is_json(text.as_bytes()), "{text}");
    }
}

#[test]
fn a_deep_value_takes_no_stack_and_has_a_bound() {
    let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
    assert!(is_json(&nested(DEPTH_MAX as usize)));
    // The innermost container is empty, so the scanner does not enter it.
    assert!(is_json(&nested(DEPTH_MAX as usize + 1)));
    assert!(!is_json(&nested(DEPTH_MAX as usize + 2)));
    assert!(!is_json(&vec![b'['; 10_000_000]));
    assert!(!is_json(&b"{\"a\":".repeat(1_000_000)));
}

/// Random texts of the characters that matter, and valid texts with changes: the scanner accepts what serde_json does.
#[test]
fn beside_another_parser() {
    const PIECES: &str = "{|}|[|]|,|:|\"|\"a\"|\"\\u0041\"|\\|1|-|0|.|e|true|null| |\n|\"b\":|\
        {\"c\":1}|[2]|é|\"\\n\"|12.5e-3|\u{1}";
    const WHOLE: [&str; 4] = [
        "{\"id\":17,\"tags\":[\"a\",\"b\"],\"at\":{\"x\":-1.5e3,\"y\":null}}",
        "[[1,2],[true,false],{\"k\":\"v\\u00e9\"}]",
        "{\"a\":{\"b\":{\"c\":[{\"d\":\"\"}]}}}",
        "\"a \\\\ string \\\" with \\/ escapes\"",
    ];
    let pieces: Vec<&str> = PIECES.split('|').collect();
    assert_eq!(pieces.len(), 26);
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..30_000 {
        let mut random = Random::new(seed);
        let mut text = Vec::new();
        if seed % 2 == 0 {
            for _ in 0..1 + random.below(12) {
                text.extend(pieces[random.below(26) as usize].bytes());
            }
        } else {
            text.extend(WHOLE[random.below(4) as usize].bytes());
            for _ in 0..random.below(3) {
                let at = random.below(text.len() as u64) as usize;
                match random.below(3) {
                    0 => text.truncate(at),
                    1 => drop(text.remove(at)),
                    _ => text[at] = pieces[random.below(26) as usize].as_bytes()[0],
                }
                if text.is_empty() {
                    break;
                }
            }
        }
        if std::str::from_utf8(&text).is_err() {
            continue;
        }
        let (is_whole, expected) = (is_json(&text), is_json_for_serde(&text));
        let shown = String::from_utf8_lossy(&text);
        assert_eq!(is_whole, expected, "{shown}");
        accepted += u32::from(expected);
        refused += u32::from(!expected);
    }
    assert!(accepted > 3_000 && refused > 10_000, "{accepted} {refused}");
}

#[test]
fn any_bytes_do_no_harm() {
    for seed in 0..20_000 {
        let mut random = Random::new(seed);
        let text: Vec<u8> = (0..random.below(30)).map(|_| random.draw() as u8).collect();
        let mut scanner = JsonScanner::new(&text);
        while scanner.skip_value().is_some() && scanner.take(b',').is_some() {}
        assert!(scanner.at() <= text.len());
    }
}
