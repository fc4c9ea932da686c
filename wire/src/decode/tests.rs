//! The answers to commands and to bad ones are recorded (`engine/nsqd/tests/differential/*.case`). What is here shows on no
//! wire: the bytes that the decoder asks for, and what nsqd does not have.

use proptest::prelude::*;

use super::*;

mod cuts;

const ID: &str = "18a2f03533269000";

use ClientState::{Closing, Init, Subscribed};

/// The expected result for the first command of an input. The texts are those of error frames.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Expected<'a> {
    /// This command, and it takes all of the input.
    Is(Command<'a>),
    /// A rejection that creates no topic.
    No(&'a [u8]),
    /// An incomplete command: the number of bytes the input must hold, and the error for a peer
    /// that ends here.
    More(usize, &'a str),
    /// An incomplete command that creates this topic when the peer ends here.
    MoreBut(&'a str, usize, &'a str),
}

use Expected::{Is, More, MoreBut, No};

fn check(input: impl AsRef<[u8]>, state: ClientState, expected: Expected<'_>) {
    check_in(input, &context(state, &Limits::default()), expected);
}

/// Returns the context of a usual client.
fn context(state: ClientState, limits: &Limits) -> Context<'_> {
    Context {
        state,
        heartbeats: true,
        tls_missing: false,
        req_uncounted: false,
        has_numbers: false,
        limits,
    }
}

fn check_in(input: impl AsRef<[u8]>, context: &Context<'_>, expected: Expected<'_>) {
    let input = input.as_ref();
    let shown = input[..input.len().min(200)].escape_ascii();
    let mut decoder = Decoder::default();
    let decoded = decoder.decode(input, context);
    let name = |topic: Option<TopicName<'_>>| topic.map(|t| t.as_str().to_owned());
    let check_reject = |text: &[u8]| {
        let Decoded::Reject {
            error,
            creates_topic,
        } = &decoded
        else {
            panic!("{shown}: {decoded:?}");
        };
        let data = error.data().escape_ascii().to_string();
        assert_eq!(data, text.escape_ascii().to_string(), "{shown}");
        assert!(
            error.is_fatal() && text.starts_with(error.code.as_str().as_bytes()),
            "{error:?}"
        );
        assert_eq!(*creates_topic, None, "{shown}");
    };
    match expected {
        Is(command) => {
            assert_eq!(
                decoded,
                Decoded::Command {
                    command,
                    consumed: input.len()
                },
                "{shown}"
            );
        }
        No(text) => check_reject(text),
        More(needs, text) | MoreBut(_, needs, text) => {
            assert_eq!(decoded, Decoded::NeedMore(needs), "{shown}");
            let told = decoder.finish(input, context);
            let topic = if let MoreBut(topic, ..) = expected {
                Some(topic)
            } else {
                None
            };
            match told {
                None => assert_eq!(text, "", "{shown}"),
                Some((error, creates_topic)) => {
                    assert_eq!(error.text, text, "{shown}");
                    assert_eq!(name(creates_topic).as_deref(), topic, "{shown}");
                }
            }
            return;
        }
    }
    // A second decode gives the same result, and the end of the input changes nothing.
    assert_eq!(
        decoder.decode(input, context),
        decoded,
        "{shown}: not repeatable"
    );
    let told = decoder.finish(input, context);
    match decoded {
        Decoded::Reject {
            error,
            creates_topic,
        } => assert_eq!(told, Some((error, creates_topic))),
        _ => assert_eq!(told, None),
    }
}

fn id() -> MessageId {
    MessageId(*ID.as_bytes().first_chunk().unwrap())
}

/// Returns a line and a body with its size.
fn with_body(line: &str, body: &[u8]) -> Vec<u8> {
    with_size(line, body.len() as i32, body)
}

fn with_size(line: &str, size: i32, body: &[u8]) -> Vec<u8> {
    [line.as_bytes(), b"\n", &size.to_be_bytes(), body].concat()
}

/// Inputs that end too early. Each gets the number of bytes that the decoder needs, the topic that the end of the input
/// creates, and the error for the peer.
#[test]
fn an_incomplete_command_says_what_it_needs() {
    const PUB_SIZE: &str = "E_BAD_MESSAGE PUB failed to read message body size";
    const PUB_BODY: &str = "E_BAD_MESSAGE PUB failed to read message body";
    const DPUB_SIZE: &str = "E_BAD_MESSAGE DPUB failed to read message body size";
    const DPUB_BODY: &str = "E_BAD_MESSAGE DPUB failed to read message body";
    const FIRST_SIZE: &str = "E_BAD_MESSAGE MPUB failed to read message(0) body size";
    const SECOND_SIZE: &str = "E_BAD_MESSAGE MPUB failed to read message(1) body size";
    const MPUB_BODY: &str = "E_BAD_MESSAGE MPUB failed to read message body";
    let long_line = [&b"NOP "[..], &[b'x'; 16_379]].concat();
    let long_body = with_size("PUB t", 1_048_576, &[b'x'; 1000]);
    for (input, needs, topic, text) in [
        (&b""[..], 1, None, ""),
        (b"PUB t", 6, None, ""),
        (&long_line, 16_384, None, ""),
        (b"PUB t\n", 10, None, PUB_SIZE),
        (b"PUB t\n\0\0\0", 10, None, PUB_SIZE),
        (b"PUB t\n\0\0\0\x02", 12, None, PUB_BODY),
        (b"PUB t\n\0\0\0\x02h", 12, None, PUB_BODY),
        (&long_body, 1_048_586, None, PUB_BODY),
        (b"DPUB t 1\n", 13, None, DPUB_SIZE),
        (b"DPUB t 1\n\0\0\0\x01", 14, None, DPUB_BODY),
        (
            b"MPUB t\n",
            11,
            Some("t"),
            "E_BAD_BODY MPUB failed to read body size",
        ),
        (
            b"MPUB t\n\0\x50\0\0",
            15,
            Some("t"),
            "E_BAD_BODY MPUB failed to read message count",
        ),
        (
            b"MPUB t\n\0\0\0\x09\0\x0f\xff\xff",
            19,
            Some("t"),
            FIRST_SIZE,
        ),
        (
            b"MPUB t\n\0\0\0\x09\0\0\0\x01\0\x10\0\0",
            1_048_595,
            Some("t"),
            MPUB_BODY,
        ),
        // A size follows the first body, and nothing is decided without that size.
        (
            b"MPUB t\n\0\0\0\x0f\0\0\0\x02\0\0\0\x01",
            24,
            Some("t"),
            MPUB_BODY,
        ),
        (
            b"MPUB t\n\0\0\0\x0f\0\0\0\x02\0\0\0\x01a",
            24,
            Some("t"),
            SECOND_SIZE,
        ),
        (
            b"MPUB t\n\0\0\0\x0f\0\0\0\x02\0\0\0\x01a\0\0\0\x02",
            26,
            Some("t"),
            MPUB_BODY,
        ),
        (
            b"IDENTIFY\n",
            13,
            None,
            "E_BAD_BODY IDENTIFY failed to read body size",
        ),
        (
            b"IDENTIFY\n\0\x50\0\0",
            5_242_893,
            None,
            "E_BAD_BODY IDENTIFY failed to read body",
        ),
        (
            b"AUTH\n\0\0\0",
            9,
            None,
            "E_BAD_BODY AUTH failed to read body size",
        ),
        (
            b"AUTH\n\0\0\0\x01",
            10,
            None,
            "E_BAD_BODY AUTH failed to read body",
        ),
    ] {
        let expected = match topic {
            Some(topic) => MoreBut(topic, needs, text),
            None => More(needs, text),
        };
        check(input, Init, expected);
    }
}

/// The limits below zero and above a `u32` show the order of the checks, and the largest count.
#[test]
fn odd_limits_hold_too() {
    let odd = Limits {
        body_bytes_max: -5,
        rdy_count_max: i64::MAX,
        ..Limits::default()
    };
    for verb in ["IDENTIFY", "AUTH"] {
        let text = format!("E_BAD_BODY {verb} body too big -1 > -5");
        check_in(
            with_size(verb, -1, b""),
            &context(Init, &odd),
            No(text.as_bytes()),
        );
    }
    let count = u32::MAX;
    let ready = Is(Command::Rdy { count });
    check_in("RDY 4294967296\n", &context(Subscribed, &odd), ready);
}

/// A requeue after a time that is too long is clamped, which only the log shows.
#[test]
fn requeue_clamps() {
    let hour = 3_600_000_000_000;
    for (number, timeout_ns, clamped_from_ns) in [
        ("3600000", hour, None),
        ("3600001", hour, Some(3_600_001_000_000)),
        ("18446744073710", 448_384, None),
        ("18446744073709551615", 0, Some(-1_000_000)),
    ] {
        let command = Command::Req {
            id: id(),
            timeout: Duration::from_nanos(timeout_ns),
            clamped_from_ns,
            is_counted: true,
        };
        check(format!("REQ {ID} {number}\n"), Subscribed, Is(command));
    }
}

#[test]
fn requeue_without_an_attempt() {
    let limits = Limits::default();
    let agreed = Context {
        req_uncounted: true,
        ..context(Subscribed, &limits)
    };
    let req = |is_counted| {
        Is(Command::Req {
            id: id(),
            timeout: Duration::from_millis(7),
            clamped_from_ns: None,
            is_counted,
        })
    };
    let with = |rest: &str| format!("REQ {ID} 7{rest}\n");
    check_in(with(" uncounted"), &agreed, req(false));
    check_in(with(" uncounted\r"), &agreed, req(false));
    // Like nsqd, ignores what follows the last known parameter.
    check_in(with(" uncounted more"), &agreed, req(false));
    check_in(with(""), &agreed, req(true));
    for (rest, text) in [
        (" Uncounted", "E_INVALID REQ unknown option Uncounted"),
        (" 0", "E_INVALID REQ unknown option 0"),
        (" ", "E_INVALID REQ unknown option "),
    ] {
        check_in(with(rest), &agreed, No(text.as_bytes()));
    }
    // Without the agreement, the third parameter means nothing, as in nsqd.
    for rest in [" uncounted", " 0", " ", " a b"] {
        check(with(rest), Subscribed, req(true));
    }
}

#[test]
fn numbers_of_publishes() {
    let limits = Limits::default();
    let numbered = Context {
        has_numbers: true,
        ..context(Init, &limits)
    };
    let t = TopicName::new(b"t").unwrap();
    let number = crate::origin::Number::new(7);
    let publish = || {
        Is(Command::Pub {
            topic: t,
            body: b"x",
            number,
        })
    };
    check_in(with_body("PUB t 7", b"x"), &numbered, publish());
    check_in(with_body("PUB t 7 more", b"x"), &numbered, publish());
    let dpub = Is(Command::Dpub {
        topic: t,
        defer: Duration::from_millis(5),
        body: b"x",
        number,
    });
    check_in(with_body("DPUB t 5 7", b"x"), &numbered, dpub);
    let refuse = |input: Vec<u8>, text: &str| check_in(input, &numbered, No(text.as_bytes()));
    for (line, verb) in [("PUB t", "PUB"), ("MPUB t", "MPUB"), ("DPUB t 5", "DPUB")] {
        let text = format!("E_INVALID {verb} insufficient number of parameters");
        refuse(with_body(line, b"x"), &text);
        for wrong in ["", "-1", "x", "9223372036854775808"] {
            let text = format!("E_INVALID {verb} could not parse message number {wrong}");
            refuse(with_body(&format!("{line} {wrong}"), b"x"), &text);
        }
    }
    let mpub = |number: u64| {
        let mut out = Vec::new();
        crate::encode::mpub_numbered(&mut out, t, number, [b"a", b"b"]);
        out
    };
    let input = mpub(crate::origin::NUMBER_MAX - 1);
    let decoded = Decoder::default().decode(&input, &numbered);
    let Decoded::Command {
        command: Command::Mpub { batch, number, .. },
        consumed,
    } = decoded
    else {
        panic!("{decoded:?}");
    };
    assert_eq!(consumed, input.len());
    assert_eq!(
        (batch.count(), number),
        (2, crate::origin::Number::new(crate::origin::NUMBER_MAX - 1))
    );
    refuse(
        mpub(crate::origin::NUMBER_MAX),
        "E_INVALID MPUB message number 9223372036854775807 plus 2 messages is above 9223372036854775807",
    );
    // Without the agreement, the parameter means nothing, as in nsqd.
    let plain = Is(Command::Pub {
        topic: t,
        body: b"x",
        number: None,
    });
    check(with_body("PUB t 7", b"x"), Init, plain);
}

#[test]
fn numbers_wrap_around() {
    let table: [(&[u8], Option<u64>); 8] = [
        (b"", Some(0)),
        (b"00", Some(0)),
        (b"18446744073709551615", Some(u64::MAX)),
        (b"18446744073709551616", Some(0)),
        (
            b"99999999999999999999999",
            Some(99_999_999_999_999_999_999_999_u128 as u64),
        ),
        (b"1 ", None),
        (b"/", None),
        (b":", None),
    ];
    for (word, expected) in table {
        assert_eq!(number(word), expected, "{}", word.escape_ascii());
    }
}

#[test]
fn less_input_than_was_asked_for_costs_nothing_and_reset_forgets() {
    let limits = Limits::default();
    let context = context(Init, &limits);
    let mut decoder = Decoder::default();
    let input = with_body("PUB t", b"hello");
    assert_eq!(
        decoder.decode(&input[..12], &context),
        Decoded::NeedMore(15)
    );
    assert_eq!(
        decoder.decode(&input[..14], &context),
        Decoded::NeedMore(15)
    );
    decoder.reset();
    assert_eq!(
        decoder.decode(b"NOP\n", &context),
        Decoded::Command {
            command: Command::Nop,
            consumed: 4
        }
    );
}

#[test]
fn errors_and_progress_stay_small() {
    // Each connection has one, and there may be many thousands of connections.
    assert!(size_of::<Decoder>() <= 32);
    assert!(size_of::<Decoded<'_>>() <= 96);
}

proptest! {
    /// The shortcut accepts no line that the decoder refuses. The inputs are lines that are nearly
    /// FINs.
    #[test]
    fn the_shortcut_for_fins_agrees(
        id in "[0-9a-f]{16}",
        changes in prop::collection::vec((0..FIN_BYTES, any::<u8>()), 0..3),
        behind in "(NOP\n|FIN )?",
    ) {
        let mut input = format!("FIN {id}\n{behind}").into_bytes();
        for (at, byte) in changes {
            input[at] = byte;
        }
        let limits = Limits::default();
        let context = context(Subscribed, &limits);
        let decoded = Decoder::default().decode(&input, &context);
        if let Some(found) = fin(input.first_chunk().unwrap()) {
            let Decoded::Command { command: Command::Fin { id }, consumed } = decoded else {
                panic!("{decoded:?} is no FIN")
            };
            prop_assert_eq!((id.decode(), consumed), (Some(found), FIN_BYTES));
        } else if let Decoded::Command { command: Command::Fin { id }, consumed: FIN_BYTES } = decoded {
            // Another command may have this length, such as a FIN with a shorter id and CR LF.
            prop_assert_eq!(id.decode(), None);
        }
    }
}
