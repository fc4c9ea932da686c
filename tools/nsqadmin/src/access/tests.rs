use super::*;
use http::HeaderValue;

fn access(admins: &[&str], proxies: &[&str]) -> Access {
    Access {
        header: HeaderName::from_static("x-forwarded-user"),
        admin_users: admins.iter().map(ToString::to_string).collect(),
        trusted_proxies: proxies
            .iter()
            .map(|text| parse_range(text).unwrap())
            .collect(),
        allowed_origins: vec!["https://nsq.example.com".to_owned()],
        host_names: HostNames::new("vm", ["nsq.example.com".to_owned()]),
        body_readers: BodyReaders::Admins,
    }
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, value.parse().unwrap());
    }
    headers
}

#[test]
fn only_listed_users_are_admins() {
    let rules = access(&["carol", "dave"], &[]);
    assert!(rules.is_admin("dave"));
    for user in ["", "Carol", "carol ", "eve"] {
        assert!(!rules.is_admin(user), "{user:?}");
    }
    assert!(
        access(&[], &[]).is_admin(""),
        "without a list, everybody is"
    );
    // A name of the list may be an unset variable. It made every client without a user an admin.
    assert!(!access(&["carol", ""], &[]).is_admin(""));
}

#[test]
fn the_header_counts_from_trusted_proxies_only() {
    let carol = headers(&[("x-forwarded-user", "carol")]);
    let user = |proxies: &[&str], headers: &HeaderMap, peer: &str| {
        access(&["carol"], proxies).user(headers, peer.parse().unwrap())
    };
    for peer in ["192.0.2.1", "127.0.0.1"] {
        assert_eq!(user(&[], &carol, peer), "", "no proxy is trusted");
    }
    let everywhere = ["0.0.0.0/0", "::/0"];
    assert_eq!(user(&everywhere, &carol, "192.0.2.1"), "carol");
    assert_eq!(user(&everywhere, &carol, "2001:db8::1"), "carol");
    let proxies = ["10.0.0.0/8", "::1/128"];
    assert_eq!(user(&proxies, &carol, "10.1.2.3"), "carol");
    assert_eq!(user(&proxies, &carol, "::1"), "carol");
    assert_eq!(user(&proxies, &carol, "192.0.2.1"), "");
    assert_eq!(user(&everywhere, &headers(&[]), "192.0.2.1"), "");
    let twice = headers(&[("x-forwarded-user", "carol"), ("x-forwarded-user", "eve")]);
    assert_eq!(
        user(&proxies, &twice, "10.1.2.3"),
        "",
        "a client may have sent one"
    );
}

/// Such an admin was locked out in silence.
#[test]
fn a_user_may_have_a_name_that_is_not_ascii() {
    let rules = access(&["Zoë"], &["::1/128"]);
    let user = |name: &[u8]| {
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-user", HeaderValue::from_bytes(name).unwrap());
        rules.user(&headers, "::1".parse().unwrap())
    };
    assert_eq!(user("Zoë".as_bytes()), "Zoë");
    assert!(rules.is_admin(&user("Zoë".as_bytes())));
    assert_eq!(user(b"Zo\xeb"), "", "Latin-1 is another name than UTF-8");
}

#[test]
fn a_header_that_does_not_count_has_a_reason_with_the_flag_to_set() {
    let rules = access(&["carol"], &["10.0.0.0/8"]);
    let carol = headers(&[("x-forwarded-user", "carol")]);
    let why = |headers: &HeaderMap, peer: &str| rules.ignored_user(headers, peer.parse().unwrap());
    assert_eq!(why(&carol, "10.1.2.3"), None);
    assert_eq!(why(&headers(&[]), "192.0.2.1"), None, "no user is named");
    let expected = "the header x-forwarded-user from 192.0.2.1 does not count, because this address is no trusted \
                    proxy; if it is your proxy, add 192.0.2.1/32 to --trusted-proxy-cidr, beside 127.0.0.0/8,::1/128 if a \
                    proxy on this machine also counts";
    assert_eq!(why(&carol, "192.0.2.1").as_deref(), Some(expected));
    let why = why(&carol, "2001:db8::1").unwrap();
    test_support::assert_like(&why, "…add 2001:db8::1/128 to --trusted-proxy-cidr…");
}

#[test]
fn pages_of_allowed_origins_may_act() {
    let rules = access(&[], &[]);
    let check = |pairs: &[(&'static str, &str)], expected: bool| {
        assert_eq!(rules.is_own_page(&headers(pairs)), expected, "{pairs:?}");
    };
    let host = ("host", "127.0.0.1:4171");
    check(&[host], true);
    check(&[host, ("origin", "http://127.0.0.1:4171")], true);
    check(&[host, ("origin", "https://nsq.example.com")], true);
    check(&[host, ("origin", "https://nsq.example.com:8443")], false);
    let site = ("sec-fetch-site", "cross-site");
    check(&[host, site, ("origin", "https://nsq.example.com")], true);
    check(&[host, site], false);
}

/// The owner of a name let it stand for 127.0.0.1, and a page with this name was an admin, also with `--admin-user`.
#[test]
fn a_name_that_somebody_lets_stand_for_this_machine_is_recognised() {
    let rules = access(&["carol"], &["127.0.0.0/8"]);
    let check = |peer: &str, pairs: &[(&'static str, &str)], expected: Option<&str>| {
        let (headers, peer) = (headers(pairs), peer.parse().unwrap());
        assert_eq!(rules.unknown_host(&headers, peer), expected, "{pairs:?}");
    };
    let evil = ("host", "evil.example:4171");
    let found = Some("evil.example:4171");
    for peer in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
        check(peer, &[evil], found);
        check(peer, &[evil, ("x-forwarded-user", "carol")], found);
        for known in [
            "localhost:4171",
            "127.0.0.1",
            "[::1]:4171",
            "vm:4171",
            "nsq.example.com",
            "",
        ] {
            check(peer, &[("host", known)], None);
        }
        check(peer, &[], None);
    }
    check("192.0.2.1", &[evil], None);
    // A proxy on this machine. A page of the evil name can set its headers, but not `Sec-Fetch-Site`.
    let proxy = ("x-forwarded-for", "192.0.2.1");
    let (origin, site) = (
        ("origin", "http://evil.example:4171"),
        ("sec-fetch-site", "same-origin"),
    );
    check("127.0.0.1", &[evil, proxy], None);
    check("127.0.0.1", &[evil, proxy, origin], found);
    check("127.0.0.1", &[evil, proxy, origin, site], None);
    check("127.0.0.1", &[evil, origin, site], found);
}

#[test]
fn the_user_of_basic_authentication_is_read() {
    let user = |value: &str| basic_user(&headers(&[("authorization", value)]));
    assert_eq!(user("Basic Y2Fyb2w6c2VjcmV0"), "carol");
    assert_eq!(user("basic Y2Fyb2w6"), "carol");
    for value in ["Bearer Y2Fyb2w6", "Basic ???", "Basic", "Basic Y2Fyb2w="] {
        assert_eq!(user(value), "", "{value}");
    }
}

#[test]
fn bodies_are_for_those_whom_the_operator_names() {
    let readers = |body_readers, admins: &[&str]| {
        let rules = Access {
            body_readers,
            ..access(admins, &[])
        };
        (rules.may_read_bodies("carol"), rules.may_read_bodies(""))
    };
    assert_eq!(readers(BodyReaders::Admins, &["carol"]), (true, false));
    // An operator who replaces the original by ringq shows nobody more than before.
    assert_eq!(readers(BodyReaders::Admins, &[]), (false, false));
    assert_eq!(readers(BodyReaders::Everybody, &["carol"]), (true, true));
    assert_eq!(readers(BodyReaders::Nobody, &[]), (false, false));
}

#[test]
fn the_name_that_a_client_gives_itself_can_be_shown() {
    let claim = |names: &[&str]| {
        let mut headers = HeaderMap::new();
        for name in names {
            let value = HeaderValue::from_bytes(name.as_bytes()).unwrap();
            headers.append("X-Claimed-User", value);
        }
        claimed_user(&headers)
    };
    let named = |name: &str, expected: &str| {
        assert_eq!(claim(&[name]), Ok(expected.to_owned()), "{name:?}");
    };
    assert_eq!(claim(&[]), Ok(String::new()));
    named("", "");
    named(" ann b. ", "ann b.");
    named("Zoë 张伟", "Zoë 张伟");
    let longest = "é".repeat(CLAIMED_CHARS_MAX);
    named(&longest, &longest);
    let refused = |names: &[&str], why: &str| {
        let reason = claim(names).unwrap_err();
        assert!(reason.ends_with(why), "{names:?}: {reason}");
    };
    refused(&[&format!("{longest}x")], "more than 50 characters");
    refused(&["ann", "bob"], "more than one X-Claimed-User");
    for hidden in [
        "a\u{202e}b",
        "a\u{200b}",
        "a\u{2028}b",
        "a\tb",
        "a\u{85}b",
        "a\u{feff}b",
        "a\u{2066}b",
    ] {
        refused(&[hidden], "characters that cannot be seen");
    }
    let latin = HeaderValue::from_bytes(b"Zo\xeb").unwrap();
    let headers = HeaderMap::from_iter([(HeaderName::from_static("x-claimed-user"), latin)]);
    let reason = claimed_user(&headers).unwrap_err();
    assert!(reason.ends_with("not UTF-8"), "{reason}");
}

#[test]
fn ranges_have_the_addresses_with_their_prefix() {
    let check = |range: &str, inside: &[&str], outside: &[&str]| {
        let range = parse_range(range).unwrap();
        let has = |address: &&str| range_has(&range, address.parse().unwrap());
        assert!(inside.iter().all(has), "{range:?} {inside:?}");
        assert!(!outside.iter().any(has), "{range:?} {outside:?}");
    };
    check(
        "127.0.0.1/8",
        &["127.0.0.1", "127.255.0.9", "::ffff:127.0.0.1"],
        &["128.0.0.1", "::1", "::"],
    );
    check("10.1.2.3/32", &["10.1.2.3"], &["10.1.2.2"]);
    check("0.0.0.0/0", &["1.2.3.4"], &["2001:db8::1"]);
    check("2001:db8::/33", &["2001:db8:7fff::1"], &["2001:db8:8000::"]);
    check("::/0", &["::1"], &["1.2.3.4"]);
    check("::ffff:10.0.0.0/104", &["10.9.9.9"], &["11.0.0.0"]);
}

#[test]
fn a_range_can_be_a_whole_family() {
    let is_everything = |range: &str| access(&[], &[range]).trusts_everybody();
    assert!(
        ["0.0.0.0/0", "::/0", "10.0.0.0/0", "::ffff:1.2.3.4/96"].map(is_everything) == [true; 4]
    );
    assert!(["0.0.0.0/1", "::/1", "::ffff:0.0.0.0/97", "::1/96"].map(is_everything) == [false; 4]);
}

#[test]
fn other_texts_are_refused_with_gos_words() {
    for text in [
        "1.2.3.4",
        "1.2.3.4/33",
        "1.2.3/8",
        "::/129",
        "1.2.3.4/+8",
        "/8",
        "",
        "1.2.3.4/",
    ] {
        let expected = format!("invalid CIDR address: {text}");
        assert_eq!(parse_range(text), Err(expected));
    }
}

fn address(number: u32) -> IpAddr {
    IpAddr::V4(number.into())
}

#[test]
fn each_address_has_one_line_and_each_second_has_one() {
    let log = IgnoredUserLog::default();
    let start = Instant::now();
    let is_due = |number, ms| log.is_due(address(number), start + Duration::from_millis(ms));
    assert!(is_due(1, 0));
    assert!(!is_due(1, 1), "known");
    assert!(!is_due(2, 999), "too early");
    assert!(is_due(2, 1000), "not forgotten");
    assert!(!is_due(1, 5000) && !is_due(2, 5000), "known");
}

#[test]
fn memory_has_a_limit() {
    let log = IgnoredUserLog::default();
    let start = Instant::now();
    for number in 0..3 * 1000 {
        let now = start + Duration::from_secs(number.into());
        assert!(log.is_due(address(number), now));
        let told = log.0.lock();
        assert!(told.addresses.len() <= ADDRESSES_MAX);
    }
}

#[test]
fn a_long_text_ends_between_two_characters() {
    let cut = |text: &str| {
        let mut text = text.to_owned();
        cut_off(&mut text, 4);
        text
    };
    assert_eq!(cut("abcd"), "abcd");
    assert_eq!(cut("abcde"), "abcd…");
    assert_eq!(cut("abcéf"), "abc…");
}
