use proptest::prelude::*;

use super::*;
use crate::batch::Batch;

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
    /// A rejection that creates this topic.
    NoBut(&'a str, &'a [u8]),
    /// An incomplete command: the number of bytes the input must hold, and the error for a peer
    /// that ends here.
    More(usize, &'a str),
    /// An incomplete command that creates this topic when the peer ends here.
    MoreBut(&'a str, usize, &'a str),
    Close,
}

use Expected::{Close, Is, More, MoreBut, No, NoBut};

fn check(input: impl AsRef<[u8]>, state: ClientState, expected: Expected<'_>) {
    let limits = Limits::default();
    check_in(
        input,
        &Context {
            state,
            heartbeats: true,
            tls_missing: false,
            req_uncounted: false,
            has_numbers: false,
            limits: &limits,
        },
        expected,
    );
}

fn check_in(input: impl AsRef<[u8]>, context: &Context<'_>, expected: Expected<'_>) {
    let input = input.as_ref();
    let shown = input[..input.len().min(200)].escape_ascii();
    let mut decoder = Decoder::default();
    let decoded = decoder.decode(input, context);
    let name = |topic: Option<TopicName<'_>>| topic.map(|t| t.as_str().to_owned());
    let check_reject = |topic: Option<&str>, text: &[u8]| {
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
        assert_eq!(name(*creates_topic).as_deref(), topic, "{shown}");
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
        No(text) => check_reject(None, text),
        NoBut(topic, text) => check_reject(Some(topic), text),
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
        Close => assert_eq!(decoded, Decoded::Close, "{shown}"),
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

fn topic(name: &str) -> TopicName<'_> {
    TopicName::new(name.as_bytes()).unwrap()
}

fn channel(name: &str) -> ChannelName<'_> {
    ChannelName::new(name.as_bytes()).unwrap()
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

#[test]
fn lines() {
    check("NOP\n", Init, Is(Command::Nop));
    check("NOP\r\n", Init, Is(Command::Nop));
    check("NOP\r\r\n", Init, No(b"E_INVALID invalid command NOP\r"));
    check("\n", Init, No(b"E_INVALID invalid command "));
    check("\r\n", Init, No(b"E_INVALID invalid command "));
    check(" NOP\n", Init, No(b"E_INVALID invalid command "));
    check("nop\n", Init, No(b"E_INVALID invalid command nop"));
    check("NOP\tx\n", Init, No(b"E_INVALID invalid command NOP\tx"));
    check("FOO bar\n", Init, No(b"E_INVALID invalid command FOO"));
    // Captured from nsqd.
    check(
        b"\xff\xfe%s\0X y\n",
        Init,
        No(b"E_INVALID invalid command \xff\xfe%s\0X"),
    );
    check(
        b"PUB t\r\r\n",
        Init,
        No(br#"E_BAD_TOPIC PUB topic name "t\r" is not valid"#),
    );
    check(
        "PUB  t\n",
        Init,
        No(br#"E_BAD_TOPIC PUB topic name "" is not valid"#),
    );
    check("", Init, More(1, ""));
    check("PUB t", Init, More(6, ""));
}

#[test]
fn a_line_has_16384_bytes_at_most() {
    let line = |bytes: usize| [&b"NOP "[..], &vec![b'x'; bytes - 4]].concat();
    check(
        [line(16383), b"\n".to_vec()].concat(),
        Init,
        Is(Command::Nop),
    );
    check(line(16383), Init, More(16384, ""));
    check(line(16384), Init, Close);
    check([line(16384), b"\n".to_vec()].concat(), Init, Close);
    check([line(16384), b"x\n".repeat(9000)].concat(), Init, Close);
    // The name of a command can be as long as the line.
    let name = vec![b'\xff'; 16383];
    let expected = [&b"E_INVALID invalid command "[..], &name].concat();
    check([&name[..], b"\n"].concat(), Init, No(&expected));
}

#[test]
fn extra_parameters_are_ignored() {
    let (t, c) = (topic("t"), channel("c"));
    check("NOP x\n", Init, Is(Command::Nop));
    check("CLS x\n", Subscribed, Is(Command::Cls));
    check("RDY 1 2\n", Subscribed, Is(Command::Rdy { count: 1 }));
    check(
        "SUB t c x\n",
        Init,
        Is(Command::Sub {
            topic: t,
            channel: c,
        }),
    );
    check(
        format!("FIN {ID} x\n"),
        Subscribed,
        Is(Command::Fin { id: id() }),
    );
    check(
        format!("TOUCH {ID} \n"),
        Subscribed,
        Is(Command::Touch { id: id() }),
    );
    check(
        with_body("PUB t foo bar", b"x"),
        Init,
        Is(Command::Pub {
            topic: t,
            body: b"x",
            number: None,
        }),
    );
    check(
        with_body("IDENTIFY x", b"{}"),
        Init,
        Is(Command::Identify { body: b"{}" }),
    );
    let defer = Duration::from_millis(5);
    check(
        with_body("DPUB t 5 x", b"x"),
        Init,
        Is(Command::Dpub {
            topic: t,
            defer,
            body: b"x",
            number: None,
        }),
    );
}

#[test]
fn states() {
    // The commands that each state refuses.
    let table: [(&str, &[ClientState]); 7] = [
        ("IDENTIFY", &[Subscribed, Closing]),
        ("AUTH", &[Subscribed, Closing]),
        ("SUB", &[Subscribed, Closing]),
        ("FIN", &[Init]),
        ("REQ", &[Init]),
        ("TOUCH", &[Init]),
        ("CLS", &[Init, Closing]),
    ];
    for (verb, states) in table {
        for state in states {
            let text = format!("E_INVALID cannot {verb} in current state");
            // The state is checked first: neither parameters nor a body are examined.
            check(format!("{verb}\n"), *state, No(text.as_bytes()));
            check(format!("{verb} x y z\n"), *state, No(text.as_bytes()));
        }
    }
    check(
        "RDY x\n",
        Init,
        No(b"E_INVALID cannot RDY in current state"),
    );
    for line in ["RDY\n", "RDY 5\n", "RDY nonsense\n"] {
        check(line, Closing, Is(Command::RdyIgnored));
    }
    for state in [Init, Subscribed, Closing] {
        check("NOP\n", state, Is(Command::Nop));
        check(
            with_body("PUB t", b"x"),
            state,
            Is(Command::Pub {
                topic: topic("t"),
                body: b"x",
                number: None,
            }),
        );
    }
    for state in [Subscribed, Closing] {
        check(format!("FIN {ID}\n"), state, Is(Command::Fin { id: id() }));
        check(
            format!("TOUCH {ID}\n"),
            state,
            Is(Command::Touch { id: id() }),
        );
    }
    check("CLS\n", Subscribed, Is(Command::Cls));
    assert_eq!([Init as u8, Subscribed as u8, Closing as u8], [0, 3, 4]);
}

#[test]
fn without_required_tls_only_identify_passes() {
    let limits = Limits::default();
    let context = Context {
        state: Init,
        heartbeats: true,
        tls_missing: true,
        req_uncounted: false,
        has_numbers: false,
        limits: &limits,
    };
    let verbs = [
        "FIN", "RDY", "REQ", "PUB", "MPUB", "DPUB", "NOP", "TOUCH", "SUB", "CLS", "AUTH", "FOO", "",
    ];
    for verb in verbs {
        let text = format!("E_INVALID cannot {verb} in current state (TLS required)");
        check_in(format!("{verb} x\n"), &context, No(text.as_bytes()));
    }
    let raw = b"E_INVALID cannot \xff in current state (TLS required)";
    check_in(b"\xff\n", &context, No(raw));
    check_in(
        with_body("IDENTIFY", b"{}"),
        &context,
        Is(Command::Identify { body: b"{}" }),
    );
    let late = Context {
        state: Subscribed,
        ..context
    };
    check_in(
        "IDENTIFY\n",
        &late,
        No(b"E_INVALID cannot IDENTIFY in current state"),
    );
}

#[test]
fn publish() {
    check(
        "PUB\n",
        Init,
        No(b"E_INVALID PUB insufficient number of parameters"),
    );
    check(
        "PUB \n",
        Init,
        No(br#"E_BAD_TOPIC PUB topic name "" is not valid"#),
    );
    check(
        "PUB a:b\n",
        Init,
        No(br#"E_BAD_TOPIC PUB topic name "a:b" is not valid"#),
    );
    // Captured from nsqd: the name is the bytes a " ff c3 a9 09 01.
    check(
        b"PUB a\"\xff\xc3\xa9\x09\x01\n",
        Init,
        No("E_BAD_TOPIC PUB topic name \"a\\\"\\xffé\\t\\x01\" is not valid".as_bytes()),
    );
    check(
        "PUB t\n",
        Init,
        More(10, "E_BAD_MESSAGE PUB failed to read message body size"),
    );
    check(
        b"PUB t\n\0\0\0",
        Init,
        More(10, "E_BAD_MESSAGE PUB failed to read message body size"),
    );
    check(
        b"PUB t\n\0\0\0\x02",
        Init,
        More(12, "E_BAD_MESSAGE PUB failed to read message body"),
    );
    check(
        b"PUB t\n\0\0\0\x02h",
        Init,
        More(12, "E_BAD_MESSAGE PUB failed to read message body"),
    );
    check(
        with_body("PUB t", b"hi"),
        Init,
        Is(Command::Pub {
            topic: topic("t"),
            body: b"hi",
            number: None,
        }),
    );
    let size = |size: i32| with_size("PUB t", size, b"");
    check(
        size(0),
        Init,
        No(b"E_BAD_MESSAGE PUB invalid message body size 0"),
    );
    check(
        size(-1),
        Init,
        No(b"E_BAD_MESSAGE PUB invalid message body size -1"),
    );
    check(
        size(i32::MIN),
        Init,
        No(b"E_BAD_MESSAGE PUB invalid message body size -2147483648"),
    );
    check(
        size(1_048_577),
        Init,
        No(b"E_BAD_MESSAGE PUB message too big 1048577 > 1048576"),
    );
    check(
        size(i32::MAX),
        Init,
        No(b"E_BAD_MESSAGE PUB message too big 2147483647 > 1048576"),
    );
    let largest = vec![b'\n'; 1_048_576];
    let largest_pub = with_body("PUB t", &largest);
    check(
        &largest_pub,
        Init,
        Is(Command::Pub {
            topic: topic("t"),
            body: &largest,
            number: None,
        }),
    );
    check(
        &largest_pub[..1000],
        Init,
        More(1_048_586, "E_BAD_MESSAGE PUB failed to read message body"),
    );
}

/// Returns an MPUB of topic `t` with this declared size, this count and these bytes behind them.
fn mpub(size: i32, count: i32, rest: &[u8]) -> Vec<u8> {
    [
        b"MPUB t\n",
        &size.to_be_bytes()[..],
        &count.to_be_bytes(),
        rest,
    ]
    .concat()
}

#[test]
fn batches() {
    check(
        "MPUB\n",
        Init,
        No(b"E_INVALID MPUB insufficient number of parameters"),
    );
    // The code appears twice.
    let text = br#"E_BAD_TOPIC E_BAD_TOPIC MPUB topic name "a:b" is not valid"#;
    check("MPUB a:b\n", Init, No(text));
    check(
        "MPUB t\n",
        Init,
        MoreBut("t", 11, "E_BAD_BODY MPUB failed to read body size"),
    );
    let size = |size: i32| with_size("MPUB t", size, b"");
    check(
        size(0),
        Init,
        NoBut("t", b"E_BAD_BODY MPUB invalid body size 0"),
    );
    check(
        size(-1),
        Init,
        NoBut("t", b"E_BAD_BODY MPUB invalid body size -1"),
    );
    check(
        size(5_242_881),
        Init,
        NoBut("t", b"E_BAD_BODY MPUB body too big 5242881 > 5242880"),
    );
    check(
        size(5_242_880),
        Init,
        MoreBut("t", 15, "E_BAD_BODY MPUB failed to read message count"),
    );
    for count in [0, -1, 1_048_576, i32::MAX] {
        let text = format!("E_BAD_BODY MPUB invalid message count {count}");
        check(mpub(9, count, b""), Init, NoBut("t", text.as_bytes()));
    }
    let no_size = "E_BAD_MESSAGE MPUB failed to read message(0) body size";
    check(mpub(9, 1_048_575, b""), Init, MoreBut("t", 19, no_size));
    let size = |size: i32| mpub(9, 1, &size.to_be_bytes());
    check(
        size(0),
        Init,
        NoBut("t", b"E_BAD_MESSAGE MPUB invalid message(0) body size 0"),
    );
    check(
        size(-1),
        Init,
        NoBut("t", b"E_BAD_MESSAGE MPUB invalid message(0) body size -1"),
    );
    check(
        size(1_048_577),
        Init,
        NoBut("t", b"E_BAD_MESSAGE MPUB message too big 1048577 > 1048576"),
    );
    check(
        size(1_048_576),
        Init,
        MoreBut(
            "t",
            1_048_595,
            "E_BAD_MESSAGE MPUB failed to read message body",
        ),
    );

    let two = b"\0\0\0\x01a\0\0\0\x02bc";
    let batch = Batch::from_packed(2, two).unwrap();
    check(
        mpub(15, 2, two),
        Init,
        Is(Command::Mpub {
            topic: topic("t"),
            batch,
            number: None,
        }),
    );
    // The declared size is compared with nothing.
    for declared in [1, 1000, 5_242_880] {
        check(
            mpub(declared, 2, two),
            Init,
            Is(Command::Mpub {
                topic: topic("t"),
                batch,
                number: None,
            }),
        );
    }
    let no_size = "E_BAD_MESSAGE MPUB failed to read message(1) body size";
    check(mpub(15, 2, &two[..5]), Init, MoreBut("t", 24, no_size));
    let no_body = "E_BAD_MESSAGE MPUB failed to read message body";
    // A size follows the first body, and nothing is decided without that size.
    check(mpub(15, 2, &two[..4]), Init, MoreBut("t", 24, no_body));
    check(mpub(15, 2, &two[..9]), Init, MoreBut("t", 26, no_body));
    let text = b"E_BAD_MESSAGE MPUB invalid message(1) body size 0";
    check(mpub(15, 2, b"\0\0\0\x01a\0\0\0\0"), Init, NoBut("t", text));
}

#[test]
fn surplus_of_a_declared_mpub_size_is_the_next_command() {
    // Captured from nsqd: size 3 too large, followed by `XX\n`.
    let input = mpub(12, 1, b"\0\0\0\x01aXX\n");
    let limits = Limits::default();
    let context = Context {
        state: Init,
        heartbeats: true,
        tls_missing: false,
        req_uncounted: false,
        has_numbers: false,
        limits: &limits,
    };
    let mut decoder = Decoder::default();
    let Decoded::Command {
        command: Command::Mpub { batch, .. },
        consumed,
    } = decoder.decode(&input, &context)
    else {
        panic!();
    };
    assert!(batch.iter().eq([b"a"]));
    check(
        &input[consumed..],
        Init,
        No(b"E_INVALID invalid command XX"),
    );
}

#[test]
fn deferred_publish() {
    check(
        "DPUB\n",
        Init,
        No(b"E_INVALID DPUB insufficient number of parameters"),
    );
    check(
        "DPUB a:b\n",
        Init,
        No(b"E_INVALID DPUB insufficient number of parameters"),
    );
    check(
        "DPUB a:b x\n",
        Init,
        No(br#"E_BAD_TOPIC DPUB topic name "a:b" is not valid"#),
    );
    for number in ["x", "-1", "+1", "1.5", "1x"] {
        let text = format!("E_INVALID DPUB could not parse timeout {number}");
        check(format!("DPUB t {number}\n"), Init, No(text.as_bytes()));
    }
    check(
        b"DPUB t \xff\n",
        Init,
        No(b"E_INVALID DPUB could not parse timeout \xff"),
    );
    // Captured from nsqd.
    let text = b"E_INVALID DPUB timeout 3600001 out of range 0-3600000";
    check("DPUB t 3600001\n", Init, No(text));
    // The value is negative after wrap-around. The error names it as it was sent.
    let text = b"E_INVALID DPUB timeout 18446744073709551615 out of range 0-3600000";
    check("DPUB t 18446744073709551615\n", Init, No(text));
    let accepted = [
        ("0", 0),
        ("", 0),
        ("1", 1_000_000),
        ("0001", 1_000_000),
        ("3600000", 3_600_000_000_000),
        // Captured from nsqd.
        ("18446744073710", 448_384),
        ("18446744073709551616", 0),
    ];
    for (number, ns) in accepted {
        let (topic, defer) = (topic("t"), Duration::from_nanos(ns));
        let input = with_body(&format!("DPUB t {number}"), b"x");
        check(
            input,
            Init,
            Is(Command::Dpub {
                topic,
                defer,
                body: b"x",
                number: None,
            }),
        );
    }
    let size = |size: i32| with_size("DPUB t 1", size, b"");
    check(
        "DPUB t 1\n",
        Init,
        More(13, "E_BAD_MESSAGE DPUB failed to read message body size"),
    );
    check(
        size(0),
        Init,
        No(b"E_BAD_MESSAGE DPUB invalid message body size 0"),
    );
    check(
        size(1_048_577),
        Init,
        No(b"E_BAD_MESSAGE DPUB message too big 1048577 > 1048576"),
    );
    check(
        size(1),
        Init,
        More(14, "E_BAD_MESSAGE DPUB failed to read message body"),
    );
}

#[test]
fn subscribe() {
    let ok = Command::Sub {
        topic: topic("t"),
        channel: channel("c#ephemeral"),
    };
    check("SUB t c#ephemeral\r\n", Init, Is(ok));
    for line in ["SUB\n", "SUB t\n", "SUB a:b\n"] {
        check(
            line,
            Init,
            No(b"E_INVALID SUB insufficient number of parameters"),
        );
    }
    check(
        "SUB a:b c:d\n",
        Init,
        No(br#"E_BAD_TOPIC SUB topic name "a:b" is not valid"#),
    );
    check(
        "SUB t \n",
        Init,
        No(br#"E_BAD_CHANNEL SUB channel name "" is not valid"#),
    );
    check(
        "SUB t c:d\n",
        Init,
        No(br#"E_BAD_CHANNEL SUB channel name "c:d" is not valid"#),
    );
    let limits = Limits::default();
    let silent = Context {
        state: Init,
        heartbeats: false,
        tls_missing: false,
        req_uncounted: false,
        has_numbers: false,
        limits: &limits,
    };
    check_in(
        "SUB\n",
        &silent,
        No(b"E_INVALID cannot SUB with heartbeats disabled"),
    );
    let again = Context {
        state: Subscribed,
        ..silent
    };
    check_in(
        "SUB\n",
        &again,
        No(b"E_INVALID cannot SUB in current state"),
    );
}

#[test]
fn ready_count() {
    let accepted = [
        ("RDY", 1),
        ("RDY ", 0),
        ("RDY 0", 0),
        ("RDY 2500", 2500),
        ("RDY 007", 7),
    ];
    for (line, count) in accepted {
        check(format!("{line}\n"), Subscribed, Is(Command::Rdy { count }));
    }
    check(
        "RDY 18446744073709551617\n",
        Subscribed,
        Is(Command::Rdy { count: 1 }),
    );
    for (number, count) in [("2501", "2501"), ("18446744073709551615", "-1")] {
        let text = format!("E_INVALID RDY count {count} out of range 0-2500");
        check(format!("RDY {number}\n"), Subscribed, No(text.as_bytes()));
    }
    for number in ["x", "-1", "1.0", "\t1"] {
        let text = format!("E_INVALID RDY could not parse count {number}");
        check(format!("RDY {number}\n"), Subscribed, No(text.as_bytes()));
    }
    let limits = Limits {
        rdy_count_max: i64::MAX,
        ..Limits::default()
    };
    let context = Context {
        state: Subscribed,
        heartbeats: true,
        tls_missing: false,
        req_uncounted: false,
        has_numbers: false,
        limits: &limits,
    };
    check_in(
        "RDY 4294967296\n",
        &context,
        Is(Command::Rdy { count: u32::MAX }),
    );
}

#[test]
fn answers_to_messages() {
    for verb in ["FIN", "TOUCH", "REQ"] {
        let text = format!("E_INVALID {verb} insufficient number of params");
        check(format!("{verb}\n"), Subscribed, No(text.as_bytes()));
        let bad = b"E_INVALID invalid message ID";
        for id in ["", "18a2f0353326900", "18a2f035332690000"] {
            check(format!("{verb} {id} 0\n"), Closing, No(bad));
        }
    }
    // Any sixteen bytes are accepted.
    let odd = MessageId(*b"\xff\0\r\tABCDEFGHIJKL");
    check(
        [b"FIN ", &odd.0[..], b"\n"].concat(),
        Subscribed,
        Is(Command::Fin { id: odd }),
    );
    // A CR as the last byte is different: it belongs to the LF.
    let bad = b"E_INVALID invalid message ID";
    check("FIN 18a2f0353326900\r\n", Subscribed, No(bad));
}

#[test]
fn requeue_clamps() {
    let req = |timeout_ns: u64, clamped_from_ns: Option<i64>| {
        let timeout = Duration::from_nanos(timeout_ns);
        Is(Command::Req {
            id: id(),
            timeout,
            clamped_from_ns,
            is_counted: true,
        })
    };
    let line = |number: &str| format!("REQ {ID} {number}\n");
    let hour = 3_600_000_000_000;
    check(line(""), Subscribed, req(0, None));
    check(line("0"), Subscribed, req(0, None));
    check(line("1500"), Closing, req(1_500_000_000, None));
    check(line("3600000"), Subscribed, req(hour, None));
    check(
        line("3600001"),
        Subscribed,
        req(hour, Some(3_600_001_000_000)),
    );
    check(line("18446744073710"), Subscribed, req(448_384, None));
    check(
        line("18446744073709551615"),
        Subscribed,
        req(0, Some(-1_000_000)),
    );
    let text = b"E_INVALID REQ insufficient number of params";
    check(format!("REQ {ID}\n"), Subscribed, No(text));
    check("REQ x\n", Subscribed, No(text));
    check("REQ x y\n", Subscribed, No(b"E_INVALID invalid message ID"));
    for number in ["-1", "x"] {
        let text = format!("E_INVALID REQ could not parse timeout {number}");
        check(line(number), Subscribed, No(text.as_bytes()));
    }
}

#[test]
fn requeue_without_an_attempt() {
    let limits = Limits::default();
    let agreed = Context {
        state: Subscribed,
        heartbeats: true,
        tls_missing: false,
        req_uncounted: true,
        has_numbers: false,
        limits: &limits,
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
        state: Init,
        heartbeats: true,
        tls_missing: false,
        req_uncounted: false,
        has_numbers: true,
        limits: &limits,
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
fn identify_and_auth() {
    for verb in ["IDENTIFY", "AUTH"] {
        let at = verb.len() + 1;
        let text = |text: &str| format!("E_BAD_BODY {verb} {text}");
        let size = |size: i32| with_size(verb, size, b"");
        check(
            format!("{verb}\n"),
            Init,
            More(at + 4, &text("failed to read body size")),
        );
        check(size(1), Init, More(at + 5, &text("failed to read body")));
        check(size(0), Init, No(text("invalid body size 0").as_bytes()));
        check(size(-1), Init, No(text("invalid body size -1").as_bytes()));
        let too_big = text("body too big 5242881 > 5242880");
        check(size(5_242_881), Init, No(too_big.as_bytes()));
        check(
            size(5_242_880),
            Init,
            More(at + 4 + 5_242_880, &text("failed to read body")),
        );
        // A limit below zero shows the order of the checks.
        let limits = Limits {
            body_bytes_max: -5,
            ..Limits::default()
        };
        let context = Context {
            state: Init,
            heartbeats: true,
            tls_missing: false,
            req_uncounted: false,
            has_numbers: false,
            limits: &limits,
        };
        check_in(
            size(-1),
            &context,
            No(text("body too big -1 > -5").as_bytes()),
        );
    }
    check(
        with_body("IDENTIFY", b"{}"),
        Init,
        Is(Command::Identify { body: b"{}" }),
    );
    check(
        with_body("AUTH", b"\n\xff"),
        Init,
        Is(Command::Auth { secret: b"\n\xff" }),
    );
    for line in ["AUTH \n", "AUTH x\n"] {
        check(
            line,
            Init,
            No(b"E_INVALID AUTH invalid number of parameters"),
        );
    }
    // The state is checked first.
    check(
        "AUTH x\n",
        Subscribed,
        No(b"E_INVALID cannot AUTH in current state"),
    );
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
    let context = Context {
        state: Init,
        heartbeats: true,
        tls_missing: false,
        req_uncounted: false,
        has_numbers: false,
        limits: &limits,
    };
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
        let context = Context { state: Subscribed, heartbeats: true, tls_missing: false, req_uncounted: false, has_numbers: false, limits: &limits };
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
