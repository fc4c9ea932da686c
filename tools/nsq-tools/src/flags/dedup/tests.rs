use super::*;
use test_support::assert_like;

#[test]
fn each_filter_has_its_options() {
    let inverse = |slots| Plan::Inverse { slots };
    let window = Duration::from_secs(3600);
    let forgetful = |false_positives| Plan::Forgetful {
        window,
        rate: 10.0,
        false_positives,
    };
    let roaring = Plan::Roaring {
        numbers: 5,
        sources: 2,
        source: Some("/from".parse().expect("a pointer")),
    };
    let memcached = |address: &str, prefix: &str, lease: Option<u64>| MemcachedOptions {
        prefix: prefix.to_owned(),
        lease: lease.map(Duration::from_secs),
        window,
        ..MemcachedOptions::new(address)
    };
    let own = memcached("10.0.0.1:11211", "a:", Some(90));
    let usual = memcached("unix:///run/memcached", "nsq:", None);
    for (key, options, filter) in [
        ("body", "", inverse(1_000_000)),
        ("json:/order/id", ",filter=inverse,slots=7", inverse(7)),
        (
            "body",
            ",window=1h,rate=1000,forgotten=0.9",
            inverse(1_563_461),
        ),
        (
            "body",
            ",filter=forgetful,window=1h,rate=10",
            forgetful(0.001),
        ),
        (
            "json:",
            ",filter=forgetful,rate=10,window=60m,false-positives=1e-6",
            forgetful(1e-6),
        ),
        (
            "json:/n",
            ",filter=roaring,numbers=5,sources=2,source=/from",
            roaring,
        ),
        (
            "body",
            ",filter=memcached,address=10.0.0.1:11211,prefix=a:,lease=90s,window=1h,when-unavailable=handle",
            Plan::Memcached(own, WhenUnavailable::Handle),
        ),
        (
            "body",
            ",filter=memcached,address=unix:///run/memcached",
            Plan::Memcached(usual, WhenUnavailable::Wait),
        ),
    ] {
        let value = format!("{key}{options}");
        let dedup = Dedup::parse(&value).unwrap_or_else(|why| panic!("{value}: {why}"));
        assert_eq!((dedup.key_text().as_str(), dedup.filter), (key, filter));
    }
}

#[test]
fn wrong_values_are_refused_with_advice() {
    // Earlier versions had the filter time-limited.
    let cases = "\
        id | begin with body, or with json:
        json:id | write /id
        body,bloom | write name=value
        body,filter=bloom | choose inverse, forgetful, roaring or memcached
        body,filter=time-limited,rate=1,window=1h | there is no filter \"time-limited\": choose inverse, forgetful, roaring or memcached
        body,slots=0 | a whole number above zero
        body,slots=1,slots=2 | slots is given twice
        body,slots= | slots has no value
        body,slots=1,window=1h | give slots, or window and rate, and not both
        body,window=1h | window needs rate
        body,window=-1h,rate=1 | a duration above zero
        body,rate=1 | this filter has no option rate; it has: filter, window, slots
        body,filter=forgetful | this filter needs window
        body,filter=forgetful,window=1h,rate=-1 | above zero
        body,filter=forgetful,rate=1,window=1h,false-positives=1 | between 0 and 1
        body,filter=roaring | use json:/pointer of a number
        json:/n,filter=roaring,source=from | write /from
        body,filter=memcached | needs address=host:port
        body,filter=memcached,address=a:1,when-unavailable=stop | choose wait, or handle
        body,filter=memcached,address=a:1,slots=1 | no option slots";
    for case in cases.lines() {
        let (value, advice) = case.trim().split_once(" | ").expect("a value and advice");
        let why = Dedup::parse(value).expect_err(value);
        assert!(why.contains(advice), "{value}: {why}");
        assert!(check(value).is_err());
    }
    assert_eq!(check(""), Ok(()));
}

#[test]
fn sizes_that_make_no_filter_are_an_error_at_the_start() {
    for (value, advice) in [
        (
            "body,filter=forgetful,rate=1e15,window=1h",
            "rate is 1000000000000000, and must be smaller: the filter does not fit into the memory",
        ),
        (
            "body,filter=memcached,address=a:1,lease=2s,window=1s",
            "the window must be at least as long as the lease",
        ),
    ] {
        let dedup = Dedup::parse(value).expect("each value alone is right");
        let why = dedup.make().expect_err("together they are not");
        assert!(
            why.starts_with("--dedup: ") && why.contains(advice),
            "{why}"
        );
    }
}

#[test]
fn filters_that_may_drop_fresh_messages_say_so() {
    let warning = |value: &str| Dedup::parse(value).expect("right").filter.warning();
    let text =
        warning("body,filter=forgetful,window=1m,rate=10,false-positives=0.01").expect("a warning");
    assert!(text.contains("up to 0.01 of the fresh messages"), "{text}");
    for value in [
        "body",
        "json:/n,filter=roaring",
        "body,filter=memcached,address=a:1",
    ] {
        assert_eq!(warning(value), None, "{value}");
    }
}

#[test]
fn the_start_tells_the_most_memory_that_the_filter_ever_takes() {
    let described = |value: &str| {
        let plan = Dedup::parse(value).expect("right");
        let dedup = plan.make().expect("a filter");
        (plan.describe(&dedup), dedup.bytes(), dedup.bytes_max())
    };
    let (text, now, most) = described("body,slots=1000");
    assert_eq!((now, most), (16_000, 16_000));
    assert!(text.ends_with(", 16000 bytes of memory"), "{text}");
    let (text, now, most) = described("body,filter=forgetful,window=1m,rate=10");
    assert_eq!(now, most);
    assert_like(&text, &format!("…, {most} bytes of memory"));
    // The defaults: 577 GB and 283 MB in docs/explain/deduplication.md.
    let (text, now, most) = described("json:/n,filter=roaring");
    assert_eq!((now, most), (0, 576_577_025_024));
    let usual = RoaringPair::new(1_000_000, 1000).expect("valid sizes");
    let usual = usual.bytes_if_consecutive();
    assert_eq!(usual, 283_371_088);
    let expected = format!(
        "exact sets of the last 1000000 numbers of 1000 sources, 0 bytes of memory now, at most {usual} if the numbers of each \
         source follow each other, and 576577025024 otherwise"
    );
    assert_eq!(text, expected);
}

#[test]
fn the_start_makes_the_filter_and_restores_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut plan = Dedup::parse("body,slots=1000").expect("right");
    assert_eq!(plan.make().expect("a filter").bytes(), 16_000);
    plan.state = Some(directory.path().join("state"));
    let first = plan.make().expect("a filter");
    assert_eq!(
        plan.describe(&first),
        format!(
            "inverse Bloom filter with 1000 slots, 16000 bytes of memory, new in {}",
            directory.path().join("state").display()
        )
    );
    first.save().expect("the directory is there");
    drop(first);
    let second = plan.make().expect("a filter");
    assert!(second.is_restored());
    assert!(plan.describe(&second).contains(", restored from "));
    drop(second);
    let key = std::mem::replace(&mut plan.key, Dedup::parse("json:/id").expect("right").key);
    let why = plan.make().expect_err("another key");
    assert!(why.contains("or choose the key of the saved one"), "{why}");
    plan.key = key;
    plan.filter = Plan::Inverse { slots: 2000 };
    let why = plan.make().expect_err("another size");
    assert_like(&why, "…remove the file to begin with an empty filter…");
}
