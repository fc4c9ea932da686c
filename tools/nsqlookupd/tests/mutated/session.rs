//! The rule for any bytes of a client: cut anywhere, they have the effect that they have in one piece; nothing
//! panics, and the database stays sound. The fuzz target and the seeded test call [`check`].

use std::time::Duration;

use nsqlookupd::database::{Database, Lifetimes, Now};
use nsqlookupd::session::{Effects, Session, identify_answer};

/// An IDENTIFY in front of the input, so that the other commands are reached.
const PREFIX: &[u8] = b"  V1IDENTIFY\n\0\0\0\x42{\"broadcast_address\":\"b\",\"tcp_port\":1,\"http_port\":2,\"version\":\"1\"}";

/// Checks one input. The first two bytes choose where to cut the others.
pub(crate) fn check(data: &[u8]) {
    let Some((&[cut, step], input)) = data.split_first_chunk() else {
        return;
    };
    let identified = [PREFIX, input].concat();
    for input in [input, &identified] {
        let whole = run([input]);
        let (front, back) = input.split_at(usize::from(cut).min(input.len()));
        assert_eq!(run([front, back]), whole, "cut at {cut}");
        let step = usize::from(step).max(1);
        assert_eq!(run(input.chunks(step)), whole, "every {step} bytes");
    }
}

/// Returns what a connection is answered, what is logged, and what is left in the database.
fn run<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<u8>, Vec<String>, Vec<String>) {
    let mut database = Database::new(Lifetimes {
        inactive: Duration::from_secs(300),
        tombstone: Duration::from_secs(45),
    });
    let mut session = Session::new("1.2.3.4:5".into(), identify_answer("lk", "h", 1, None, 2));
    let mut effects = Effects::default();
    for piece in pieces {
        if session.is_over() {
            break;
        }
        if session.receive(piece) {
            session.execute(&mut database, Now::default(), &mut effects);
            database.check();
        }
    }
    session.end(None, &mut effects);
    while !session.leave(&mut database, &mut effects) {
        database.check();
    }
    database.check();
    assert_eq!(database.debug(), "{}", "the client has gone");
    let events = effects.events.iter().map(ToString::to_string).collect();
    let topics = database.topics().map(str::to_string).collect();
    (effects.output, events, topics)
}
