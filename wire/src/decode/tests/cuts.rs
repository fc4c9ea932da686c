//! However the input is cut into pieces, the decoded commands are the same.

use proptest::prelude::*;

use super::*;

/// A decoded result in a form that outlives the input.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    Command(String, usize),
    Reject(Vec<u8>, Option<String>),
    Close,
}

/// The input buffer and the state of a connection, which changes as in the broker.
struct Connection {
    buffer: Vec<u8>,
    decoder: Decoder,
    state: ClientState,
    /// The number in the last `NeedMore`.
    needs: usize,
    /// True to decode also when the decoder did not ask for it, which must make no difference.
    impatient: bool,
    limits: Limits,
    seen: Vec<Seen>,
}

impl Connection {
    fn new(limits: Limits) -> Connection {
        Connection {
            buffer: Vec::new(),
            decoder: Decoder::default(),
            state: Init,
            needs: 0,
            impatient: false,
            limits,
            seen: Vec::new(),
        }
    }

    fn is_over(&self) -> bool {
        !matches!(self.seen.last(), None | Some(Seen::Command(..)))
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.buffer.extend(bytes);
        while !self.is_over() && (self.impatient || self.buffer.len() >= self.needs) {
            let context = context(self.state, &self.limits);
            match self.decoder.decode(&self.buffer, &context) {
                Decoded::NeedMore(needs) => {
                    assert!(needs > self.buffer.len(), "asks for what is there");
                    self.needs = needs;
                    return;
                }
                Decoded::Command { command, consumed } => {
                    self.state = match command {
                        Command::Sub { .. } => Subscribed,
                        Command::Cls => Closing,
                        _ => self.state,
                    };
                    self.seen
                        .push(Seen::Command(format!("{command:?}"), consumed));
                    self.buffer.drain(..consumed);
                    self.needs = 0;
                }
                Decoded::Reject {
                    error,
                    creates_topic,
                } => {
                    self.seen.push(reject(&error, creates_topic));
                }
                Decoded::Close => self.seen.push(Seen::Close),
            }
        }
    }

    /// Ends the input. Returns all results, the error at the end included.
    fn finish(mut self) -> Vec<Seen> {
        if !self.is_over() {
            let context = context(self.state, &self.limits);
            let told = self.decoder.finish(&self.buffer, &context);
            self.seen
                .extend(told.map(|(error, topic)| reject(&error, topic)));
        }
        self.seen
    }
}

fn reject(error: &WireError, topic: Option<TopicName<'_>>) -> Seen {
    Seen::Reject(
        error.data().to_vec(),
        topic.map(|topic| topic.as_str().to_owned()),
    )
}

fn limits() -> Limits {
    Limits {
        message_bytes_max: 40,
        body_bytes_max: 60,
        ..Limits::default()
    }
}

fn whole(input: &[u8]) -> Vec<Seen> {
    let mut connection = Connection::new(limits());
    connection.receive(input);
    connection.finish()
}

fn in_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, impatient: bool) -> Vec<Seen> {
    let mut connection = Connection {
        impatient,
        ..Connection::new(limits())
    };
    for piece in pieces {
        connection.receive(piece);
    }
    connection.finish()
}

/// Checks all cuts into two pieces, and the cut into single bytes.
fn check_cuts(input: &[u8]) -> Result<(), TestCaseError> {
    let expected = whole(input);
    for at in 0..=input.len() {
        let (front, back) = input.split_at(at);
        prop_assert_eq!(&in_pieces([front, back], false), &expected, "cut at {}", at);
    }
    prop_assert_eq!(
        &in_pieces(input.chunks(1), false),
        &expected,
        "byte by byte"
    );
    prop_assert_eq!(&in_pieces(input.chunks(1), true), &expected, "impatiently");
    // A peer that ends early has got the same results up to its end, and at most one more.
    for end in 0..input.len() {
        let short = whole(&input[..end]);
        let commands = short
            .iter()
            .filter(|seen| matches!(seen, Seen::Command(..)))
            .count();
        prop_assert_eq!(&short[..commands], &expected[..commands], "ends at {}", end);
        prop_assert_eq!(
            &in_pieces(input[..end].chunks(1), false),
            &short,
            "ends at {}",
            end
        );
    }
    Ok(())
}

fn body(max: usize) -> impl Strategy<Value = Vec<u8>> {
    // LF, space and zero could be mistaken for syntax.
    let byte = prop_oneof![any::<u8>(), Just(b'\n'), Just(b' '), Just(0)];
    prop::collection::vec(byte, 1..=max)
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as i32).to_be_bytes(), bytes].concat()
}

fn line_and_body(line: String, bytes: &[u8]) -> Vec<u8> {
    [line.as_bytes(), b"\n", &sized(bytes)].concat()
}

fn name() -> impl Strategy<Value = String> {
    "[.a-zA-Z0-9_-]{1,8}(#ephemeral)?"
}

/// A command that is valid in every state.
fn publishing() -> impl Strategy<Value = Vec<u8>> {
    let batch = prop::collection::vec(body(8), 1..=5);
    prop_oneof![
        Just(b"NOP\n".to_vec()),
        Just(b"NOP extra \r\n".to_vec()),
        (name(), body(40)).prop_map(|(topic, body)| line_and_body(format!("PUB {topic}"), &body)),
        (name(), 0..=3_600_000_u32, body(40))
            .prop_map(|(topic, ms, body)| line_and_body(format!("DPUB {topic} {ms}"), &body)),
        (name(), 1..=60_i32, batch).prop_map(|(topic, declared, batch)| {
            let mut out = format!("MPUB {topic}\n").into_bytes();
            out.extend(declared.to_be_bytes());
            out.extend((batch.len() as i32).to_be_bytes());
            out.extend(batch.iter().flat_map(|body| sized(body)));
            out
        }),
    ]
}

fn before_sub() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => publishing(),
        1 => body(60).prop_map(|body| line_and_body("IDENTIFY".to_owned(), &body)),
        1 => body(60).prop_map(|body| line_and_body("AUTH".to_owned(), &body)),
    ]
}

fn after_sub() -> impl Strategy<Value = Vec<u8>> {
    let id = "[0-9a-f]{16}";
    prop_oneof![
        2 => publishing(),
        1 => (0..=2500_u32).prop_map(|count| format!("RDY {count}\n").into_bytes()),
        1 => id.prop_map(|id| format!("FIN {id}\n").into_bytes()),
        1 => id.prop_map(|id| format!("TOUCH {id}\r\n").into_bytes()),
        1 => (id, any::<u64>()).prop_map(|(id, ms)| format!("REQ {id} {ms}\n").into_bytes()),
    ]
}

/// A consumer's whole life without errors, and the number of its commands.
fn stream() -> impl Strategy<Value = (usize, Vec<u8>)> {
    let some = |most| 0..=most;
    (
        prop::collection::vec(before_sub(), some(4)),
        (name(), name())
            .prop_map(|(topic, channel)| format!("SUB {topic} {channel}\n").into_bytes()),
        prop::collection::vec(after_sub(), some(6)),
        prop::collection::vec(after_sub(), some(2)),
    )
        .prop_map(|(before, sub, after, closing)| {
            let parts: Vec<Vec<u8>> =
                [before, vec![sub], after, vec![b"CLS\n".to_vec()], closing].concat();
            (parts.len(), parts.concat())
        })
}

/// A stream that is mostly valid, so that an error is deep inside.
fn damaged_stream() -> impl Strategy<Value = Vec<u8>> {
    (
        stream(),
        prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    )
        .prop_map(|((_, mut input), damages)| {
            for (at, byte) in damages {
                let at = at.index(input.len());
                input[at] = byte;
            }
            input
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn valid_streams((count, input) in stream()) {
        let seen = whole(&input);
        prop_assert_eq!(seen.len(), count);
        let consumed: usize = seen
            .iter()
            .map(|seen| if let Seen::Command(_, consumed) = seen { *consumed } else { 0 })
            .sum();
        prop_assert_eq!(consumed, input.len());
        check_cuts(&input)?;
    }

    #[test]
    fn damaged_streams(input in damaged_stream()) {
        check_cuts(&input)?;
    }

    #[test]
    fn arbitrary_bytes(input in prop::collection::vec(any::<u8>(), 0..200)) {
        check_cuts(&input)?;
    }

    #[test]
    fn arbitrary_words(
        words in prop::collection::vec(
            prop_oneof![
                Just("PUB"), Just("MPUB"), Just("DPUB"), Just("SUB"), Just("RDY"), Just("FIN"),
                Just("REQ"), Just("TOUCH"), Just("CLS"), Just("NOP"), Just("AUTH"),
                Just("IDENTIFY"), Just("t"), Just("18a2f03533269000"), Just("1"), Just(" "),
                Just("\n"), Just("\r"), Just("\0\0\0\x01"), Just("\0\0\0\x02"), Just("x"),
            ],
            0..30,
        ),
    ) {
        check_cuts(words.concat().as_bytes())?;
    }
}

#[test]
fn a_batch_that_trickles_in_is_walked_once() {
    let messages: u32 = 200;
    let mut input = [
        b"MPUB t\n",
        &9_i32.to_be_bytes()[..],
        &messages.to_be_bytes(),
    ]
    .concat();
    for index in 0..messages {
        input.extend(sized(&index.to_be_bytes()));
    }
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
    let mut asked = 0;
    for end in 0..input.len() {
        let before = decoder.walk.index;
        let Decoded::NeedMore(needs) = decoder.decode(&input[..end], &context) else {
            panic!("complete at {end}");
        };
        asked += usize::from(needs == end + 1);
        assert!(decoder.walk.index >= before, "went back at {end}");
        // The walk is never behind the last complete message.
        assert!(
            end < decoder.walk.offset.max(15) + 8 + 4,
            "left behind at {end}"
        );
    }
    // The line arrives byte by byte, then the size, the count, and each message with the next one's
    // size.
    assert!(asked <= 7 + 2 + 1 + messages as usize, "{asked}");
    let decoded = decoder.decode(&input, &context);
    let Decoded::Command {
        command: Command::Mpub { batch, .. },
        consumed,
    } = decoded
    else {
        panic!("{decoded:?}");
    };
    assert_eq!((batch.count(), consumed), (messages, input.len()));
    assert!(batch.iter().eq((0..messages).map(u32::to_be_bytes)));
}

#[test]
fn a_line_that_trickles_in_is_searched_once() {
    let line = [&b"NOP "[..], &[b'x'; 16379], b"\n"].concat();
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
    for end in 0..line.len() {
        assert_eq!(
            decoder.decode(&line[..end], &context),
            Decoded::NeedMore(end + 1)
        );
        assert_eq!(decoder.searched, end);
    }
    assert!(matches!(
        decoder.decode(&line, &context),
        Decoded::Command { .. }
    ));
}
