use super::*;
use test_support::rows;

fn owned(entries: &[&str]) -> Vec<String> {
    entries.iter().map(|&entry| entry.to_owned()).collect()
}

mod dead_letter {
    use super::super::*;
    use super::{owned, rows};

    fn read(entries: &[&str]) -> Result<DeadLetterRules, String> {
        dead_letters(&owned(entries))
    }

    #[test]
    fn rules_are_read() {
        let mut expected = DeadLetterRules::default();
        expected
            .add("orders", "billing", 5, "orders.dead")
            .expect("right");
        expected.add("*", "*", 65535, "dead").expect("right");
        for entries in [
            [
                "orders/billing,max-attempts=5,topic=orders.dead",
                "*/*,max-attempts=65535,topic=dead",
            ],
            [
                " orders/billing, topic=orders.dead, max-attempts=5 ",
                "*/*,topic = dead,max-attempts = 65535",
            ],
        ] {
            assert_eq!(read(&entries), Ok(expected.clone()));
        }
        assert!(read(&[]).expect("right").is_empty());
    }

    #[test]
    fn a_rule_that_never_counts_is_an_error() {
        let read = read(&[
            "*/*,max-attempts=5,topic=dead",
            "x/*,max-attempts=3,topic=x.dead",
        ]);
        let why = read.expect_err("the second rule has no effect");
        test_support::assert_like(&why, "--dead-letter: the rule x/* never counts, …");
        assert!(why.ends_with(" put x/* before */*"), "{why}");
    }

    #[test]
    fn wrong_rules_are_explained() {
        let form = "must be <topic>/<channel>,max-attempts=<n>,topic=<dead-letter topic>";
        for [entry, why] in rows(
            r#"                                          | begins with "", and {form}
             orders,max-attempts=5,topic=d             | begins with "orders", and {form}
             o/c                                       | lacks max-attempts=, and {form}
             o/c,max-attempts=5                        | lacks topic=, and {form}
             o/c,5,d                                   | has "5", and {form}
             o/c,max-attempts=5,topic=d,               | has "", and {form}
             o/c,attempts=5,topic=d                    | has "attempts=5", and {form}
             o/c,max-attempts=5,max-attempts=5,topic=d | has max-attempts twice
             o/c,max-attempts=x,topic=d                | has max-attempts=x, which is no number from 1 to 65535
             o/c,max-attempts=65536,topic=d            | has max-attempts=65536, which is no number from 1 to 65535
             o/c,max-attempts=0,topic=d                | must allow 1 to 65535 attempts
             o/c,max-attempts=1,topic=o                | may send dead letters round in a circle: o has a rule of its own, which must stand behind this one"#,
        ) {
            let fine = "fine/c,max-attempts=1,topic=d";
            let why = why.replace("{form}", form);
            let expected = format!("--dead-letter: {entry:?} {why}");
            assert_eq!(read(&[fine, entry]), Err(expected));
        }
    }
}

mod duplicates {
    use super::super::*;
    use super::{owned, rows};

    fn read(entries: &[&str]) -> Result<DedupRules, String> {
        dedup(&owned(entries))
    }

    #[test]
    fn entries_have_a_pattern_and_a_key() {
        let mut expected = DedupRules::default();
        for (pattern, window, memory_bytes) in [
            ("orders", 1024, 1_048_576),
            ("a_*-b", 64, 65_536),
            ("x#ephemeral", 64, 65_536),
            ("*", 1_048_576, 1 << 30),
        ] {
            let rule = PublisherRule {
                window,
                memory_bytes,
            };
            expected.add(pattern, DedupRule::Publisher(rule));
        }
        let entries = [
            "orders=publisher",
            "a_*-b=publisher,window=64,memory=65536",
            " x#ephemeral = publisher , memory = 65536 , window = 64 ",
            "*=publisher,memory=1073741824,window=1048576",
        ];
        assert_eq!(read(&entries), Ok(expected));
    }

    #[test]
    fn keys_in_the_content() {
        let pointer = JsonPointer::parse("/order/id").expect("a pointer");
        let rule = |key, window, memory| {
            let rule = ContentRule::new(key, window, memory);
            DedupRule::Content(rule.expect("it fits"))
        };
        let mut expected = DedupRules::default();
        let default = ContentRule::WINDOW_DEFAULT;
        expected.add("a", rule(ContentKey::Body, default, None));
        let count = KeyWindow::Count(50_000);
        expected.add("b.*", rule(ContentKey::Json(pointer), count, None));
        let hour = KeyWindow::Time(Duration::from_secs(3600));
        expected.add("*", rule(ContentKey::Body, hour, Some(1 << 20)));
        let entries = [
            "a=body",
            "b.*=json:/order/id,window=50000",
            "* = body , memory = 1048576 , window = 1h",
        ];
        assert_eq!(read(&entries), Ok(expected));
    }

    #[test]
    fn a_rule_that_never_counts_is_an_error() {
        let why = "--dedup: the rule x never counts, because the first rule that fits counts, and * fits all its topics; put \
                   x before *";
        assert_eq!(read(&["*=publisher", "x=body"]), Err(why.to_owned()));
    }

    #[test]
    fn an_entry_that_is_wrong_is_named_with_its_form() {
        for [entry, why] in rows(
            r#"orders                               | there is no =
             =publisher                           | the pattern is empty
             or ders=publisher                    | ' ' is in no name of a topic
             x=                                   | "" is no key
             x=sender                             | "sender" is no key
             x=publisher,                         | "" is neither window=... nor memory=...
             x=publisher,size=4                   | "size=4" is neither window=... nor memory=...
             x=publisher,window=64,window=64      | window is given twice
             x=publisher,window                   | the window "" is not a multiple of 64 from 64 to 1048576
             x=publisher,window=65                | the window "65" is not a multiple of 64 from 64 to 1048576
             x=publisher,window=0                 | the window "0" is not a multiple of 64 from 64 to 1048576
             x=publisher,window=1048640           | the window "1048640" is not a multiple of 64 from 64 to 1048576
             x=publisher,memory=1k                | the memory "1k" is not a number of bytes from 65536 to 1073741824
             x=publisher,memory=65535             | the memory "65535" is not a number of bytes from 65536 to 1073741824
             x=json                               | "json" is no key
             x=json:                              | the pointer "" is empty; for the whole body, write body
             x=json:id                            | the pointer "id" must begin with a slash, as /id or /order/id
             x=json:/a~2                          | the pointer "/a~2" has a ~ that is not ~0, which stands for ~, or ~1, which stands for /
             x=body,window=0                      | the window "0" is neither a number of messages nor a duration such as 2m
             x=body,window=-2m                    | the window "-2m" is neither a number of messages nor a duration such as 2m
             x=body,window=1000000,memory=1000000 | the memory 1000000 does not fit the window, 22857344 would
             x=body,memory=5                      | the memory 5 does not fit the window, 8192 would
             x=body,memory=x                      | the memory "x" is not a number of bytes
             x=body,window=18446744073709551615   | the window needs 18446744073709551615 bytes of memory, and at most 68719476736 are possible"#,
        ) {
            let text = format!("--dedup: {entry:?} is not {DEDUP}: {why}");
            assert_eq!(read(&["fine=publisher", entry]), Err(text));
        }
    }
}

mod unclaimed {
    use super::super::*;
    use super::{owned, rows};

    fn read(entries: &[&str]) -> Result<UnclaimedRules, String> {
        unclaimed(&owned(entries))
    }

    #[test]
    fn entries_have_a_pattern_and_a_policy() {
        let mut expected = UnclaimedRules::default();
        let keep = UnclaimedBounds::KEEP;
        expected.add("orders", keep);
        expected.add(
            "logs.*",
            UnclaimedBounds {
                bytes: 1_000_000,
                ..keep
            },
        );
        let age = Duration::from_secs(90);
        expected.add("a_*-b", UnclaimedBounds { age, ..keep });
        expected.add("c", UnclaimedBounds { bytes: 5, age });
        expected.add("*", UnclaimedBounds::DROP);
        let entries = [
            "orders=keep",
            "logs.*=bytes:1000000",
            "a_*-b=age:1m30s",
            "c=age:90s+bytes:5",
            "*=drop",
        ];
        assert_eq!(read(&entries), Ok(expected));
    }

    #[test]
    fn an_entry_that_never_counts_is_an_error() {
        let why = "--unclaimed-messages: the rule logs.a never counts, because the first rule that fits counts, and logs.* \
                   fits all its topics; put logs.a before logs.*";
        assert_eq!(read(&["logs.*=drop", "logs.a=keep"]), Err(why.to_owned()));
    }

    #[test]
    fn an_entry_that_is_wrong_is_named_with_its_forms() {
        for [entry, why] in rows(
            r#"orders           | there is no =
             =drop            | the pattern is empty
             or ders=drop     | ' ' is in no name of a topic
             x#ephemeral=drop | '#' is in no name of a topic
             x=lose           | "lose" is no policy
             x=               | "" is no policy
             x=bytes:1k       | "1k" is not a number of bytes
             x=bytes:-1       | "-1" is not a number of bytes
             x=age:10         | "10" is not a duration such as 10m
             x=age:-1s        | "-1s" is not a duration such as 10m
             x=bytes:1+       | "" is no policy"#,
        ) {
            let text = format!("--unclaimed-messages: {entry:?} is not {UNCLAIMED}: {why}");
            assert_eq!(read(&["fine=drop", entry]), Err(text));
        }
    }
}

#[test]
fn entries_name_topics_and_channels() {
    let read = |entries: &[&str]| required(&owned(entries));
    let mut expected = Required::default();
    let topic = TopicName::new(b"orders").expect("a name");
    let channel = ChannelName::new(b"billing").expect("a name");
    expected.add(topic, Some(channel)).expect("not ephemeral");
    assert_eq!(read(&["orders/billing"]), Ok(expected.clone()));
    assert_eq!(read(&["orders", "orders/billing", "orders"]), Ok(expected));
    assert_eq!(read(&[]), Ok(Required::default()));
    for [entry, why] in rows(
        r#"              | "" is not topic or topic/channel: "" is not a valid name
         a b           | "a b" is not topic or topic/channel: "a b" is not a valid name
         a/            | "a/" is not topic or topic/channel: "" is not a valid name
         a/b/c         | "a/b/c" is not topic or topic/channel: "b/c" is not a valid name
         a#ephemeral   | "a#ephemeral" cannot always exist: a#ephemeral is ephemeral, so it ends with its last consumer
         a/b#ephemeral | "a/b#ephemeral" cannot always exist: b#ephemeral is ephemeral, so it ends with its last consumer"#,
    ) {
        assert_eq!(read(&["fine", entry]), Err(format!("--create: {why}")));
    }
}
