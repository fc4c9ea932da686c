//! The bound of the entries of an undo.

use super::script::{Session, options};
use crate::TaskId;
use crate::undo::UNDO_ENTRIES_MAX;

/// Publishes a message that is due after `defer_ms`.
fn publish_deferred(session: &mut Session, defer_ms: u32) {
    let (broker, now) = session.broker();
    let publication = crate::Publication {
        bodies: std::iter::once(&b"x"[..]),
        count: 1,
        body_bytes: 1,
        defer_ms,
        origin: None,
    };
    let name = wire::name::TopicName::new(b"t").expect("a name");
    let mut out = Vec::new();
    let published = broker.publish_for_task(now, TaskId(1), name, &publication, &mut out);
    published.expect("there is room");
    session.run_until_idle(out);
}

/// A session whose topic `t` has a segment.
fn with_topic() -> Session {
    let mut session = Session::new(options());
    session.play("a: PUB t | a\nempty t");
    session
}

/// The bound counts single messages. A range is one entry, however long.
#[test]
fn an_undo_has_a_bounded_size() {
    let mut session = with_topic();
    session.act("create t/ch");
    for _ in 0..=UNDO_ENTRIES_MAX {
        publish_deferred(&mut session, 60_000);
    }
    session.check(
        "
empty t/ch for 60s => TooLarge
undo t/ch => no undo
stats t/ch => depth 0, deferred 16385, messages 16385
empty t/ch
stats t/ch => depth 0, messages 16385
",
    );
}

/// Regression: a range of new messages counted once, although deferred messages cut it into many. The undo was made, and
/// could not be used.
#[test]
fn each_part_of_a_range_counts_in_an_undo() {
    let mut session = with_topic();
    let publish_pairs = |session: &mut Session, count: usize| {
        for index in 0..2 * count {
            publish_deferred(session, if index % 2 == 0 { 60_000 } else { 0 });
        }
    };
    publish_pairs(&mut session, UNDO_ENTRIES_MAX / 2 - 2);
    session.check("empty t for 1h\nundo t\n= 16380 messages for 3600s");
    publish_pairs(&mut session, 3);
    session.check(
        "
empty t for 1h => TooLarge
stats t => depth 6, messages 16387, bytes 16387
undo t => 16380 messages for 3600s
create t/ch
unempty t
stats t/ch => depth 8193, deferred 8193, messages 16386
",
    );
}

/// Regression: the answers about an undo that was too large for the channels of an open topic, and about newer messages in
/// the channels of a paused one, each advised the other one's state.
#[test]
fn an_undo_that_is_too_large_for_its_channels_waits_for_a_pause() {
    let mut session = with_topic();
    session.check("create t/x\npause t");
    for _ in 0..6000 {
        publish_deferred(&mut session, 60_000);
    }
    session.check(
        "
create t/y
create t/z
empty t for 1h => TooLarge
delete t/z
empty t for 1h
create t/z
unpause t
unempty t => NeedsPause
b: PUB t | b => OK
pause t
unempty t => NeedsPause
empty t/x
empty t/y
empty t/z
unempty t
stats t => depth 6000, messages 6002, bytes 6002
",
    );
}
