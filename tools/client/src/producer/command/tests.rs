use super::*;

fn one(topic: &'static str, body: impl Into<Bytes>) -> Command<'static> {
    Command::new(topic, Bodies::One(body.into()), None).unwrap()
}

/// Writes commands as a connection does, with `taken` bytes taken before. Returns the output and the number of commands.
fn write(commands: &[Command<'_>], taken: u64) -> (Vec<u8>, usize) {
    let (mut out, mut tail, mut count) = (Vec::new(), Tail::default(), 0);
    for command in commands {
        let end = taken + out.len() as u64;
        if tail.join(command, command.number, &mut out, end) {
            assert_eq!(tail.end(), taken + out.len() as u64);
            continue;
        }
        count += 1;
        command.encode(command.number, &mut out);
        tail.set(command, command.number, end..taken + out.len() as u64);
    }
    (out, count)
}

#[test]
fn consecutive_messages_of_a_topic_become_one_command() {
    for taken in [0, 1_000_000_007] {
        let (out, count) = write(&[one("t", "a"), one("t", "bb"), one("t", "ccc")], taken);
        let mut expected = Vec::new();
        let topic = TopicName::new(b"t").unwrap();
        encode::mpub(&mut expected, topic, [&b"a"[..], b"bb", b"ccc"]);
        assert_eq!((out, count), (expected, 1));
    }
}

#[test]
fn other_topics_and_other_commands_stay_apart() {
    let deferred = Bodies::Deferred(Duration::from_secs(1), "d".into());
    let many = Bodies::Many(Arc::new(["m".into()]));
    let commands = [
        one("t", "a"),
        one("u", "b"),
        one("t", "c"),
        Command::new("t", deferred, None).unwrap(),
        one("t", "d"),
        Command::new("t", many, None).unwrap(),
        one("t", "e"),
    ];
    let mut expected = Vec::new();
    commands
        .iter()
        .for_each(|command| command.encode(None, &mut expected));
    assert_eq!(write(&commands, 0), (expected, 7));
}

fn numbered(number: u64, body: &'static str) -> Command<'static> {
    Command {
        number: Some(number),
        ..one("t", body)
    }
}

#[test]
fn messages_whose_numbers_follow_each_other_become_one_command() {
    let topic = TopicName::new(b"t").unwrap();
    for first in [0, 7, 9, 10, 98, 999_999, (1 << 63) - 3] {
        let commands = ["a", "bb", "ccc"];
        let commands = [0, 1, 2].map(|index| numbered(first + index as u64, commands[index]));
        let mut expected = Vec::new();
        encode::mpub_numbered(&mut expected, topic, first, [&b"a"[..], b"bb", b"ccc"]);
        assert_eq!(write(&commands, 5), (expected, 1));
    }
    let commands = [
        numbered(1, "a"),
        numbered(3, "b"),
        numbered(3, "c"),
        one("t", "d"),
    ];
    let mut expected = Vec::new();
    for command in &commands {
        command.encode(command.number, &mut expected);
    }
    assert_eq!(write(&commands, 0), (expected, 4));
}

#[test]
fn a_batch_has_limits() {
    let commands = |bytes: &[usize]| -> Vec<Command<'_>> {
        let bodies = bytes.iter().map(|bytes| vec![b'x'; *bytes]);
        bodies.map(|body| one("t", body)).collect()
    };
    let most = BATCH_MESSAGES_MAX as usize;
    assert_eq!(write(&commands(&vec![1; most]), 0).1, 1);
    assert_eq!(write(&commands(&vec![1; most + 1]), 0).1, 2);
    let half = BATCH_BYTES_MAX / 2;
    assert_eq!(write(&commands(&[half, half]), 0).1, 1);
    assert_eq!(write(&commands(&[half, half, 1]), 0).1, 2);
    assert_eq!(write(&commands(&[BATCH_BYTES_MAX + 1, 1]), 0).1, 2);
}

#[test]
fn a_command_that_was_taken_cannot_be_joined() {
    let (mut out, mut tail) = (Vec::new(), Tail::default());
    let first = one("t", "a");
    first.encode(None, &mut out);
    tail.set(&first, None, 0..out.len() as u64);
    let end = out.len() as u64;
    out.clear();
    assert!(!tail.join(&one("t", "b"), None, &mut out, end));
    // Another command lies behind it.
    out.extend_from_slice(b"NOP\n");
    assert!(!tail.join(&one("t", "b"), None, &mut out, end + 4));
    assert_eq!(out, b"NOP\n");
}

#[test]
fn names_and_sizes_are_checked() {
    let refused = |topic: &str, bodies, bytes_max| {
        Command::new(topic, bodies, bytes_max)
            .map(|_| ())
            .unwrap_err()
    };
    let body = || Bodies::One("body".into());
    for topic in ["", "a b", "a\n", "#ephemeral", &"x".repeat(65)] {
        let error = refused(topic, body(), None);
        assert!(matches!(error, PublishError::Topic(_)), "{error}");
    }
    assert!(Command::new("t#ephemeral", body(), Some(4)).is_ok());
    let error = refused("t", body(), Some(3));
    assert_eq!(error.to_string(), "message too big: 4 bytes, 3 are allowed");
    let error = refused("t", Bodies::One(Bytes::new()), None);
    assert!(matches!(error, PublishError::EmptyMessage));
    let error = refused("t", Bodies::Many(Arc::new([])), None);
    assert!(matches!(error, PublishError::NoMessage));
    let many = Bodies::Many(Arc::new(["a".into(), Bytes::new()]));
    let error = refused("t", many, None);
    assert!(matches!(error, PublishError::EmptyMessage));
    assert_eq!(error.outcome(), crate::error::Outcome::NotStored);
}
