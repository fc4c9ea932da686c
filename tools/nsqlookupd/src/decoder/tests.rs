use super::*;

const IDENTIFY: &str =
    r#"{"broadcast_address":"b1","tcp_port":4150,"http_port":4151,"version":"1"}"#;

/// Returns everything in the input, which comes in pieces of `step` bytes.
fn decode_in(input: &[u8], step: usize) -> Vec<Decoded> {
    let mut decoder = Decoder::default();
    let mut all = Vec::new();
    for piece in input.chunks(step) {
        decoder.push(piece);
        while let Some(decoded) = decoder.decode() {
            all.push(decoded);
        }
    }
    if let Some(refusal) = decoder.end(None) {
        all.push(Decoded::Error(refusal));
    }
    all
}

fn decode(input: &[u8]) -> Vec<Decoded> {
    let whole = decode_in(input, input.len());
    for step in [1, 2, 3, 7] {
        assert_eq!(decode_in(input, step), whole, "in pieces of {step}");
    }
    whole
}

fn identified(rest: &[u8]) -> Vec<u8> {
    let size = u32::try_from(IDENTIFY.len()).unwrap().to_be_bytes();
    [b"  V1IDENTIFY\n", &size[..], IDENTIFY.as_bytes(), rest].concat()
}

fn check_last(mut all: Vec<Decoded>, answer: &str, cause: Option<&str>) {
    match all.pop() {
        Some(Decoded::Error(refusal)) => {
            assert_eq!(refusal.text(), answer);
            assert_eq!(refusal.cause.as_deref(), cause, "{answer}");
        }
        other => panic!("{other:?} instead of {answer}"),
    }
}

#[test]
fn commands_are_decoded_however_they_come() {
    let text = |text: &str| text.to_string();
    let input = identified(
        b"PING\nREGISTER t c\r\n  REGISTER t  c\nUNREGISTER t#ephemeral extra more\nPING x y\n",
    );
    let all = decode(&input);
    assert_eq!(all[0], Decoded::Magic);
    let Decoded::Command(Command::Identify(info)) = &all[1] else {
        panic!("{:?}", all[1]);
    };
    assert_eq!(info.broadcast_address, "b1");
    let commands: Vec<Command> = all
        .into_iter()
        .skip(2)
        .map(|decoded| match decoded {
            Decoded::Command(command) => command,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        commands,
        [
            Command::Ping,
            Command::Register(text("t"), Some(text("c"))),
            Command::Register(text("t"), None),
            Command::Unregister(text("t#ephemeral"), Some(text("extra"))),
            Command::Ping,
        ]
    );
}

/// The answers to clients are recorded (`tests/differential/*.case`). The causes are for the log.
#[test]
fn errors_of_a_body_have_a_cause() {
    let check = |input: &[u8], answer: &str, cause: &str| {
        check_last(decode(&[b"  V1", input].concat()), answer, Some(cause));
    };
    let size = "E_BAD_BODY IDENTIFY failed to read body size";
    check(b"IDENTIFY\n", size, "EOF");
    check(b"IDENTIFY\n\0\0", size, "unexpected EOF");
    let body = "E_BAD_BODY IDENTIFY failed to read body";
    check(b"IDENTIFY\n\0\0\0\x09", body, "EOF");
    check(b"IDENTIFY\n\0\0\0\x09{}", body, "unexpected EOF");
    let negative = "a size of -1 bytes is not accepted";
    check(b"IDENTIFY\n\xff\xff\xff\xff", body, negative);
    let large = "a size of 1048577 bytes is not accepted";
    check(b"IDENTIFY\n\0\x10\0\x01", body, large);
    let json = "E_BAD_BODY IDENTIFY failed to decode JSON body";
    let no_json = "unexpected end of JSON input";
    check(b"IDENTIFY\n\0\0\0\0", json, no_json);
}

#[test]
fn the_answer_keeps_bytes_that_are_not_text() {
    let all = decode(b"  V1\xff\xfe x\n");
    let Some(Decoded::Error(refusal)) = all.last() else {
        panic!("{all:?}");
    };
    assert_eq!(refusal.answer, b"E_INVALID invalid command \xff\xfe");
}

#[test]
fn nothing_follows_an_error() {
    assert_eq!(decode(b"  V1nope\nPING\nPING\n").len(), 2);
    assert_eq!(decode(b"  V2PING\n"), [Decoded::BadMagic(*b"  V2")]);
}

#[test]
fn a_line_has_a_limit() {
    let longest = [b"  V1", "x".repeat(LINE_BYTES_MAX).as_bytes()].concat();
    let all = decode_in(&[&longest[..], b"\n"].concat(), 4096);
    let expected = format!("E_INVALID invalid command {}", "x".repeat(LINE_BYTES_MAX));
    check_last(all, &expected, None);
    for end in [&b"x"[..], b"x\n"] {
        let all = decode_in(&[&longest[..], end].concat(), 4096);
        check_last(all, "E_INVALID line is too long", None);
    }
}

#[test]
fn the_end_before_the_magic_has_gos_words() {
    let missing = |bytes: &[u8]| {
        let mut decoder = Decoder::default();
        decoder.push(bytes);
        while decoder.decode().is_some() {}
        decoder.missing_magic()
    };
    assert_eq!(missing(b""), Some("EOF"));
    assert_eq!(missing(b"  V"), Some("unexpected EOF"));
    assert_eq!(missing(b"  V1"), None);
    assert_eq!(missing(b"  V2"), None);
}

#[test]
fn lines_are_trimmed_as_in_go() {
    let check = |line: &[u8], expected: &[u8]| assert_eq!(trim(line), expected, "{line:?}");
    check(b"", b"");
    check(b" \t\x0b\x0c\r\n", b"");
    check(b" a b \r", b"a b");
    check("\u{85}\u{a0}a\u{2003}".as_bytes(), b"a");
    check(b" \xff ", b"\xff");
    check(b" \xff a\xff ", b"\xff a\xff");
    check(b"  a \xff", b"a \xff");
    check("\u{200b}a".as_bytes(), "\u{200b}a".as_bytes());
}

/// A read that ends inside a line leaves bytes behind, so the buffer was never empty, and grew with all input.
#[test]
fn commands_that_reads_cut_take_no_more_memory() {
    let mut decoder = Decoder::default();
    decoder.push(&identified(b"PIN"));
    for _ in 0..100_000 {
        decoder.push(b"G\nPIN");
        while decoder.decode().is_some() {}
    }
    assert!(
        decoder.input.capacity() < 64 * 1024,
        "{}",
        decoder.input.capacity()
    );
}
