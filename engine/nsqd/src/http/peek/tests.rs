//! The parameters, the filter and the JSON. `engine/nsqd/tests/peek.rs` has the answers of a real broker.

use super::question::{Filter, Wanted, shown_place};
use engine_rules::{PeekFrom, PeekPlace};
use program::http::Query;
use wire::id::MessageId;

fn parse(text: &str, is_of_channel: bool) -> Result<Wanted, String> {
    let query = Query::parse(text).expect("it is well-formed");
    let wanted = Wanted::from_query(&query, is_of_channel);
    wanted.map_err(|bad| format!("{bad:?}"))
}

#[test]
fn parameters_have_bounds_and_say_them() {
    let wanted = parse("topic=t", false).unwrap();
    assert_eq!(
        (wanted.from, wanted.limit, wanted.body_bytes_max),
        (PeekFrom::Oldest, 10, 4096)
    );
    let place = PeekPlace::new(u64::MAX, 17);
    let text = format!(
        "topic=t&channel=c&from=in_flight&limit=100&max_body=0&cursor={}",
        shown_place(place)
    );
    let wanted = parse(&text, true).unwrap();
    assert_eq!(
        (wanted.place, wanted.from),
        (Some(place), PeekFrom::InFlight)
    );
    let wanted = parse("topic=t&from=published&since=0f3c7a5e61c01003", false).unwrap();
    let PeekFrom::Published { since } = wanted.from else {
        panic!("{wanted:?}");
    };
    assert_eq!(MessageId::new(since, 1), MessageId(*b"0f3c7a5e61c01003"));
    for list in [0, 1, u8::MAX] {
        let place = PeekPlace {
            list,
            at: (3, u64::MAX),
        };
        let text = format!("topic=t&channel=c&cursor={}", shown_place(place));
        assert_eq!(parse(&text, true).unwrap().place, Some(place), "{text}");
    }
    for (text, is_of_channel, part) in [
        ("", false, "MISSING_ARG_TOPIC"),
        ("topic=*", false, "INVALID_ARG_TOPIC"),
        ("topic=t", true, "MISSING_ARG_CHANNEL"),
        ("topic=t&channel=*", true, "INVALID_ARG_CHANNEL"),
        (
            "topic=t&from=in_flight",
            false,
            "channels also have in_flight, requeued",
        ),
        (
            "topic=t&channel=c&from=published",
            true,
            "topics also have published",
        ),
        ("topic=t&from=attempts", false, "requeued and attempts"),
        ("topic=t&from=back", false, "INVALID_ARG_FROM"),
        ("topic=t&limit=0", false, "a number from 1 to 100"),
        ("topic=t&limit=101", false, "INVALID_ARG_LIMIT"),
        ("topic=t&max_body=-1", false, "INVALID_ARG_MAX_BODY"),
        ("topic=t&cursor=1", false, "INVALID_ARG_CURSOR"),
        ("topic=t&cursor=x.y", false, "value of next"),
        ("topic=t&cursor=1.2.100", false, "value of next"),
        ("topic=t&from=published&since=1", false, "INVALID_ARG_SINCE"),
        (
            "topic=t&from=published&since=0F3c7a5e61c01000",
            false,
            "the id of a message",
        ),
        (
            "topic=t&since=0f3c7a5e61c01000",
            false,
            "since needs from=published",
        ),
        ("topic=t&json=id", false, "INVALID_ARG_JSON"),
        ("topic=t&equals=1", false, "INVALID_ARG_EQUALS"),
    ] {
        let error = parse(text, is_of_channel).expect_err(text);
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn a_filter_accepts_what_fulfils_all_conditions() {
    let check = |contains: &str, pointer: &str, equals: Option<&str>, expected: bool| {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let filter = Filter {
            contains: given(contains),
            pointer: given(pointer),
            equals: equals.map(str::to_owned),
        };
        let body = br#"{"id": 7, "a/b": {"name": "x y"}, "list": [1, {"ok": true}]}"#;
        assert_eq!(filter.accepts(body), expected, "{filter:?}");
        assert_eq!(
            filter.accepts(b"no JSON \xff x y"),
            pointer.is_empty() && expected
        );
    };
    check("", "", None, true);
    check("x y", "", None, true);
    check("x z", "", None, false);
    check("", "/id", None, true);
    check("", "/id", Some("7"), true);
    check("", "/id", Some("8"), false);
    check("", "/a~1b/name", Some("x y"), true);
    check("", "/list/1", Some("{\"ok\":true}"), true);
    check("", "/list/2", None, false);
    check("x z", "/id", Some("7"), false);
}
