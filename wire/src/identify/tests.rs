//! The answers are recorded (`engine/nsqd/tests/differential/identify.case`). What is here shows on no wire, or is no part of
//! NSQ.

use super::*;

/// Decodes `json`. `change` describes how the result differs from that of an empty object.
fn check(json: impl AsRef<[u8]>, change: impl FnOnce(&mut IdentifyRequest)) {
    let json = json.as_ref();
    let mut expected = IdentifyRequest::default();
    change(&mut expected);
    assert_eq!(
        IdentifyRequest::decode(json),
        Ok(expected),
        "{}",
        json.escape_ascii()
    );
}

fn check_bad(json: impl AsRef<[u8]>) {
    let json = json.as_ref();
    let error = IdentifyRequest::decode(json).expect_err(&json.escape_ascii().to_string());
    assert_eq!(error.text, "E_BAD_BODY IDENTIFY failed to decode JSON body");
    assert!(error.is_fatal());
}

#[test]
fn all_keys() {
    let json = r#"{"client_id":"c","hostname":"h","user_agent":"u","feature_negotiation":true,
        "heartbeat_interval":1,"output_buffer_timeout":2,"output_buffer_size":3,"sample_rate":4,
        "msg_timeout":5,"tls_v1":true,"snappy":true,"deflate":true,"deflate_level":6,
        "topology_region":"r","topology_zone":"z","req_uncounted":true,"publisher_id":"7f","short_id":"s","long_id":"l"}"#;
    check(json, |r| {
        *r = IdentifyRequest {
            client_id: "c".into(),
            hostname: "h".into(),
            user_agent: "u".into(),
            feature_negotiation: true,
            tls_v1: true,
            snappy: true,
            deflate: true,
            heartbeat_interval: 1,
            output_buffer_timeout: 2,
            output_buffer_size: 3,
            msg_timeout: 5,
            deflate_level: 6,
            sample_rate: 4,
            topology_region: "r".into(),
            topology_zone: "z".into(),
            req_uncounted: true,
            publisher_id: "7f".into(),
        }
    });
}

#[test]
fn the_top_level_is_an_object_or_null() {
    for json in ["{}", "null", " \t\r\n{} \t\r\n", " null "] {
        check(json, |_| {});
    }
    for json in [
        "", " ", "[]", "\"a\"", "1", "true", "nul", "{", "}", "{}x", "{}{}", "null,", "{},",
    ] {
        check_bad(json);
    }
    check_bad("\u{feff}{}");
    check_bad(b"{}\0");
    check_bad(b"{}\xff");
}

#[test]
fn the_grammar_is_strict() {
    for json in [
        r#"{"a":NaN}"#,
        r#"{"a":1,}"#,
        r#"{,}"#,
        r#"{"a":[1,]}"#,
        r#"{"a":01}"#,
        r#"{"a":+1}"#,
        r#"{"a":.5}"#,
        r#"{"a":1.}"#,
        r#"{"a":-}"#,
        r#"{"a" 1}"#,
        r#"{a:1}"#,
        r#"{'a':1}"#,
        r#"{"a":"\x"}"#,
        r#"{"a":"\u12g4"}"#,
        r#"{"a":"\u+123"}"#,
        r#"{"a":"\u123"}"#,
        r#"{"a":tru}"#,
        "{\"a\":\"\n\"}",
        "{\"a\":\"\x01\"}",
        "{\"client_id\":\"\t\"}",
        "{\"a\n\":1}",
        r#"{"a":"#,
        r#"{"a":/**/1}"#,
    ] {
        check_bad(json);
    }
    // JSON does not treat DEL and C1 as control characters.
    check("{\"client_id\":\"\x7f\u{80}\"}", |r| {
        r.client_id = "\x7f\u{80}".into()
    });
}

#[test]
fn other_keys_do_not_match() {
    assert_eq!(crate::go_json::fold("\u{212a}EY_\u{17f}S"), "key_ss");
    // A character that lower-cases to ASCII, but not by simple folding, does not match.
    check("{\"cl\u{130}ent_id\":\"c\"}", |_| {});
    check(r#"{"client-id":"c"," client_id":"c"}"#, |_| {});
}

#[test]
fn unknown_keys_of_any_shape_are_ignored() {
    check(
        r#"{"x":{"client_id":[1,{"a":null}]},"y":1e999,"z":"\ud800","client_id":"c"}"#,
        |r| {
            r.client_id = "c".into();
        },
    );
    let deep = format!(
        r#"{{"x":{}{},"client_id":"c"}}"#,
        "[".repeat(5000),
        "]".repeat(5000)
    );
    check(deep, |r| r.client_id = "c".into());
    check_bad(r#"{"x":{"y":}}"#);
    check_bad(format!(r#"{{"x":{}{}}}"#, "[".repeat(10), "]".repeat(9)));
}

/// Regression: a text lives as long as its connection, and megabytes of it were kept.
#[test]
fn long_texts_are_cut() {
    for field in [
        "client_id",
        "hostname",
        "user_agent",
        "topology_region",
        "topology_zone",
    ] {
        for (text, kept) in [
            ("x".repeat(1024), "x".repeat(1024)),
            ("x".repeat(2 << 20), "x".repeat(1024)),
            // The cut falls between characters.
            (
                "x".to_owned() + &"\u{e9}".repeat(1000),
                "x".to_owned() + &"\u{e9}".repeat(511),
            ),
        ] {
            check(format!("{{\"{field}\":\"{text}\"}}"), |request| {
                *match field {
                    "client_id" => &mut request.client_id,
                    "hostname" => &mut request.hostname,
                    "user_agent" => &mut request.user_agent,
                    "topology_region" => &mut request.topology_region,
                    _ => &mut request.topology_zone,
                } = kept;
            });
        }
    }
}

#[test]
fn invalid_characters_become_the_replacement_character() {
    let check_text = |inside: &[u8], expected: &str| {
        let json = [b"{\"client_id\":\"", inside, b"\"}"].concat();
        check(json, |r| r.client_id = expected.into());
    };
    // Each invalid byte is replaced separately.
    check_text(b"a\xffb", "a\u{fffd}b");
    check_text(b"\xe2\x82", "\u{fffd}\u{fffd}");
    check_text(b"\xed\xa0\x80", "\u{fffd}\u{fffd}\u{fffd}");
    // Halves of surrogate pairs are replaced.
    check_text(br"\ud83d\ude00", "😀");
    check_text(br"\uD83D\uDE00", "😀");
    check_text(br"\ud800", "\u{fffd}");
    check_text(br"x\udc00y", "x\u{fffd}y");
    check_text(br"\udc00\ud800", "\u{fffd}\u{fffd}");
    check_text(br"\ud800\ud83d\ude00", "\u{fffd}😀");
    check_text(br"\ud800\u0041", "\u{fffd}A");
    check_text(br"\ud800\n", "\u{fffd}\n");
    // These backslashes are text.
    check_text(br"\\ud800", r"\ud800");
    check_text(br"\\\ud800", "\\\u{fffd}");
    check_text("\\ud800é\\u00e9".as_bytes(), "\u{fffd}éé");
    check_text(b"\\ud800\xff", "\u{fffd}\u{fffd}");
    // Keys are mended too.
    check(b"{\"client_id\xff\":\"c\",\"\\ud800\":1}", |_| {});
    // Mending does not make invalid JSON valid.
    for json in [
        &b"{\"a\":\"\\ud8\"}"[..],
        b"{\"a\":\"\\ud800",
        b"{\\ud800:1}",
        b"\\",
        b"\\u",
        b"{\"\\\xff\":1}",
    ] {
        check_bad(json);
    }
}

#[test]
fn displays_as_go_does() {
    let request = IdentifyRequest {
        client_id: "cid".into(),
        hostname: "hn".into(),
        user_agent: "ua/1".into(),
        feature_negotiation: true,
        ..IdentifyRequest::default()
    };
    assert_eq!(
        request.to_string(),
        "{ClientID:cid Hostname:hn HeartbeatInterval:0 OutputBufferSize:0 OutputBufferTimeout:0 \
         FeatureNegotiation:true TLSv1:false Deflate:false DeflateLevel:0 Snappy:false SampleRate:0 \
         UserAgent:ua/1 MsgTimeout:0 TopologyRegion: TopologyZone:}"
    );
}

/// Negotiates from the defaults. Returns the settings afterwards, and the answer or error.
fn settle(json: &str, server: &ServerSettings) -> (ClientSettings, Result<Response, String>) {
    let mut client = ClientSettings::from_server(server);
    let request = IdentifyRequest::decode(json.as_bytes()).unwrap();
    let response = negotiate(&request, server, &mut client).map_err(|error| error.text);
    (client, response)
}

#[test]
fn defaults() {
    let (client, response) = settle("{}", &ServerSettings::default());
    assert_eq!(response, Ok(Response::Ok));
    assert_eq!(
        client,
        ClientSettings {
            heartbeat: Some(Duration::from_secs(30)),
            output_buffer_timeout: Some(Duration::from_millis(250)),
            output_buffer_size: 16384,
            sample_rate: 0,
            msg_timeout: Duration::from_secs(60),
            req_uncounted: false,
            publisher_id: None,
        }
    );
}

#[test]
fn limits_are_compared_in_whole_milliseconds() {
    let max = Duration::from_micros(5_000_999);
    let server = ServerSettings {
        heartbeat_interval_max: max,
        msg_timeout_max: max,
        ..ServerSettings::default()
    };
    for (json, is_allowed) in [
        (r#"{"heartbeat_interval":5000,"msg_timeout":5000}"#, true),
        (r#"{"heartbeat_interval":5001}"#, false),
        (r#"{"msg_timeout":5001}"#, false),
    ] {
        assert_eq!(settle(json, &server).1.is_ok(), is_allowed, "{json}");
    }
}

#[test]
fn only_a_client_that_asks_for_uncounted_requeues_reads_of_them() {
    let server = ServerSettings::default();
    let answer = |json: &str| match settle(json, &server) {
        (client, Ok(Response::Json(answer, _))) => (client.req_uncounted, answer),
        (client, _) => (client.req_uncounted, String::new()),
    };
    let (is_agreed, plain) = answer(r#"{"feature_negotiation":true}"#);
    assert!(!is_agreed && !plain.contains("uncounted"), "{plain}");
    let asked = r#"{"feature_negotiation":true,"req_uncounted":false}"#;
    assert_eq!(answer(asked), (false, plain.clone()));
    let (is_agreed, agreed) = answer(r#"{"feature_negotiation":true,"req_uncounted":true}"#);
    let expected = plain.replace('}', r#","req_uncounted":true}"#);
    assert_eq!((is_agreed, agreed), (true, expected));
    // Without negotiation there is no answer that could agree.
    let (is_agreed, _) = answer(r#"{"req_uncounted":true}"#);
    assert!(!is_agreed);
}

#[test]
fn only_a_client_with_an_id_numbers_its_messages() {
    let server = |takes_numbers| ServerSettings {
        takes_numbers,
        ..ServerSettings::default()
    };
    let answer = |json: &str, takes_numbers| match settle(json, &server(takes_numbers)) {
        (client, Ok(Response::Json(answer, _))) => (client.publisher_id, answer),
        (client, Ok(Response::Ok)) => (client.publisher_id, "OK".to_owned()),
        (_, Err(error)) => panic!("{error:?}"),
    };
    let (id, plain) = answer(r#"{"feature_negotiation":true}"#, true);
    assert!(id.is_none() && !plain.contains("publisher"), "{plain}");
    let asked = r#"{"feature_negotiation":true,"publisher_id":"9f86d081884c7d65"}"#;
    let with = |answer: &str| plain.replace('}', &format!(r#","publisher_id":{answer}}}"#));
    let id = Some(0x9f86_d081_884c_7d65);
    assert_eq!(answer(asked, true), (id, with("true")));
    // No topic would use the numbers.
    assert_eq!(answer(asked, false), (None, with("false")));
    // Without negotiation there is no answer that could agree.
    let (id, ok) = answer(r#"{"publisher_id":"7f"}"#, true);
    assert_eq!((id, &*ok), (None, "OK"));
    let (id, ok) = answer(r#"{"publisher_id":"no id"}"#, true);
    assert_eq!((id, &*ok), (None, "OK"));
    for wrong in ["0", "x", "-1", "00000000000000001"] {
        let json = format!(r#"{{"feature_negotiation":true,"publisher_id":"{wrong}"}}"#);
        let (_, refused) = settle(&json, &server(true));
        let error = refused.expect_err("no id");
        assert_eq!(
            error,
            format!("E_BAD_BODY IDENTIFY publisher id ({wrong}) is invalid")
        );
    }
}

#[test]
fn minus_one_switches_off() {
    let server = ServerSettings::default();
    let defaults = ClientSettings::from_server(&server);
    let check = |json: &str, change: &dyn Fn(&mut ClientSettings)| {
        let mut expected = defaults.clone();
        change(&mut expected);
        assert_eq!(settle(json, &server).0, expected, "{json}");
    };
    check(r#"{"heartbeat_interval":-1}"#, &|c| c.heartbeat = None);
    check(r#"{"output_buffer_timeout":-1}"#, &|c| {
        c.output_buffer_timeout = None
    });
    // Without a buffer there is no timeout, even if the client asks for one.
    check(
        r#"{"output_buffer_size":-1,"output_buffer_timeout":100}"#,
        &|c| {
            (c.output_buffer_size, c.output_buffer_timeout) = (1, None);
        },
    );
}

#[test]
fn settings_are_taken_over_and_zero_keeps_them() {
    let server = ServerSettings::default();
    let mut client = ClientSettings::from_server(&server);
    let json = r#"{"heartbeat_interval":2000,"output_buffer_timeout":30,"output_buffer_size":100,
        "sample_rate":20,"msg_timeout":3000,"feature_negotiation":true}"#;
    let first = IdentifyRequest::decode(json.as_bytes()).unwrap();
    let Ok(Response::Json(json, _)) = negotiate(&first, &server, &mut client) else {
        panic!()
    };
    for pair in [
        "\"msg_timeout\":3000",
        "_size\":100",
        "_buffer_timeout\":30",
        "\"sample_rate\":20",
    ] {
        assert!(json.contains(pair), "{pair} in {json}");
    }
    let settled = ClientSettings {
        heartbeat: Some(Duration::from_secs(2)),
        output_buffer_timeout: Some(Duration::from_millis(30)),
        output_buffer_size: 100,
        sample_rate: 20,
        msg_timeout: Duration::from_secs(3),
        req_uncounted: false,
        publisher_id: None,
    };
    assert_eq!(client, settled);
    // A second request that asks for nothing keeps all settings except the sample rate, for which 0
    // is a value.
    let second = IdentifyRequest::default();
    assert_eq!(negotiate(&second, &server, &mut client), Ok(Response::Ok));
    assert_eq!(
        client,
        ClientSettings {
            sample_rate: 0,
            ..settled
        }
    );
}

#[test]
fn upgrades_need_both_sides() {
    let server = ServerSettings {
        tls_available: true,
        snappy_available: true,
        deflate_available: true,
        ..ServerSettings::default()
    };
    let none = ServerSettings::default();
    let capped = ServerSettings {
        deflate_level_max: 2,
        ..server.clone()
    };
    let upgrades = |ask: &str, server: &ServerSettings| {
        let (_, response) = settle(&format!("{{\"feature_negotiation\":true{ask}}}"), server);
        let Ok(Response::Json(_, upgrades)) = response else {
            panic!("{ask}: {response:?}")
        };
        upgrades
    };
    let all = r#","tls_v1":true,"snappy":true"#;
    assert_eq!(upgrades(all, &none), []);
    assert_eq!(
        upgrades(all, &server),
        [GrantedUpgrade::Tls, GrantedUpgrade::Snappy]
    );
    let deflate = r#","deflate":true,"deflate_level":3"#;
    assert_eq!(upgrades(deflate, &server), [GrantedUpgrade::Deflate(3)]);
    assert_eq!(upgrades(deflate, &capped), [GrantedUpgrade::Deflate(2)]);
    assert_eq!(GrantedUpgrade::Deflate(2).to_string(), "deflate (level 2)");

    // Without negotiation the compressions are not compared.
    assert_eq!(
        settle(r#"{"snappy":true,"deflate":true}"#, &server).1,
        Ok(Response::Ok)
    );
}
