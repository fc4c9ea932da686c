use super::*;

#[test]
fn texts_are_those_of_nsqd() {
    let id = MessageId(*b"18a2f03533269000");
    let table = [
        (WireError::bad_protocol(), "E_BAD_PROTOCOL"),
        (
            WireError::invalid("AUTH already set"),
            "E_INVALID AUTH already set",
        ),
        (WireError::auth_already_set(), "E_INVALID AUTH already set"),
        (
            WireError::pub_failed("PUB", "exiting"),
            "E_PUB_FAILED PUB failed exiting",
        ),
        (
            WireError::pub_failed("MPUB", "exiting"),
            "E_MPUB_FAILED MPUB failed exiting",
        ),
        (
            WireError::pub_failed("DPUB", "open f: no such file or directory"),
            "E_DPUB_FAILED DPUB failed open f: no such file or directory",
        ),
        (
            WireError::sub_failed("consumers for r:ch exceeds limit of 2"),
            "E_SUB_FAILED SUB failed consumers for r:ch exceeds limit of 2",
        ),
        (
            WireError::sub_failed("to deleted topic/channel"),
            "E_SUB_FAILED SUB failed to deleted topic/channel",
        ),
        (
            WireError::identify_failed("tls: first record does not look like a TLS handshake"),
            "E_IDENTIFY_FAILED IDENTIFY failed tls: first record does not look like a TLS handshake",
        ),
        (WireError::auth_disabled(), "E_AUTH_DISABLED AUTH disabled"),
        (
            WireError::auth_first("PUB"),
            "E_AUTH_FIRST AUTH required before PUB",
        ),
        (WireError::auth_failed(), "E_AUTH_FAILED AUTH failed"),
        (
            WireError::no_authorizations(),
            "E_UNAUTHORIZED AUTH no authorizations found",
        ),
        (
            WireError::unauthorized("PUB", "other", ""),
            r#"E_UNAUTHORIZED AUTH failed for PUB on "other" """#,
        ),
        (
            WireError::fin_failed(&id, "ID not in flight"),
            "E_FIN_FAILED FIN 18a2f03533269000 failed ID not in flight",
        ),
        (
            WireError::req_failed(&id, "ID already deferred"),
            "E_REQ_FAILED REQ 18a2f03533269000 failed ID already deferred",
        ),
        (
            WireError::touch_failed(&id, "client does not own message"),
            "E_TOUCH_FAILED TOUCH 18a2f03533269000 failed client does not own message",
        ),
    ];
    for (error, text) in table {
        assert_eq!(error.text, text);
        assert_eq!(error.data(), text.as_bytes());
        assert_eq!(error.to_string(), text);
        assert!(text.starts_with(error.code.as_str()), "{text}");
        let forgiven = ["E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED"];
        assert_eq!(
            error.is_fatal(),
            !forgiven.contains(&error.code.as_str()),
            "{text}"
        );
    }
}

#[test]
fn the_peers_own_bytes_go_back_as_they_came() {
    let error = WireError::with_raw(ErrorCode::Invalid, "invalid command ", b"\xff\xfe%s\0X", "");
    assert_eq!(error.data(), b"E_INVALID invalid command \xff\xfe%s\0X");
    assert_eq!(
        error.text,
        "E_INVALID invalid command \u{fffd}\u{fffd}%s\0X"
    );

    let error = WireError::with_raw(ErrorCode::Invalid, "invalid command ", "é".as_bytes(), "!");
    assert_eq!(
        (error.data(), &*error.text),
        (error.text.as_bytes(), "E_INVALID invalid command é!")
    );

    let id = MessageId(*b"\xff123456789abcdef");
    let error = WireError::fin_failed(&id, "ID not in flight");
    assert_eq!(
        error.data(),
        b"E_FIN_FAILED FIN \xff123456789abcdef failed ID not in flight"
    );
}

#[test]
fn quoting_is_gos() {
    let check = |bytes: &[u8], quoted: &str| assert_eq!(quote(bytes), quoted);
    // Captured from nsqd.
    check(b"a\"\xff\xc3\xa9\x09\x01", "\"a\\\"\\xff\u{e9}\\t\\x01\"");
    check(b"\xc2\xa0", r#""\u00a0""#);
    check(b"\x7f", r#""\x7f""#);

    check(b"", r#""""#);
    check(b"a:b 'c' \\", r#""a:b 'c' \\""#);
    check(
        b"\x07\x08\x0c\n\r\t\x0b\0\x1f",
        r#""\a\b\f\n\r\t\v\x00\x1f""#,
    );
    // C1 controls, soft hyphen, spaces and separators, private use, beyond the first plane.
    check(
        "\u{80}\u{ad}\u{2003}\u{2028}\u{feff}".as_bytes(),
        r#""\u0080\u00ad\u2003\u2028\ufeff""#,
    );
    check(
        "\u{e000}\u{1d173}\u{10ffff}".as_bytes(),
        r#""\ue000\U0001d173\U0010ffff""#,
    );
    // Letters, marks (even at the start), numbers, punctuation, symbols, U+FFFD itself.
    check(
        "\u{301}日本½—€😀\u{fffd}".as_bytes(),
        "\"\u{301}日本½—€😀\u{fffd}\"",
    );
    // Every invalid byte is escaped by itself: cut off, overlong, a surrogate, beyond the end.
    check(b"\xe2\x82A", r#""\xe2\x82A""#);
    check(b"\xc0\xaf\xed\xa0\x80", r#""\xc0\xaf\xed\xa0\x80""#);
    check(b"\xf4\x90\x80\x80", r#""\xf4\x90\x80\x80""#);
}

#[test]
#[should_panic(expected = "SUB does not publish")]
fn only_publishing_verbs_can_fail_to_publish() {
    let _ = WireError::pub_failed("SUB", "exiting");
}
