//! The part of a log that a channel keeps on disk, and the others that keep it.

use super::script::{Session, options};
use crate::stats::{DiskUse, StatsFilter};

fn disk_of(session: &mut Session, channel: &str) -> DiskUse {
    let filter = StatsFilter {
        topic: Some("t".to_owned()),
        channel: Some(channel.to_owned()),
        include_disk: true,
        ..StatsFilter::default()
    };
    let (broker, now) = session.broker();
    let mut snapshot = broker.distribute_and_snapshot(now, &filter);
    let mut topic = snapshot.topics.remove(0);
    topic.channels.remove(0).disk.expect("the topic is small")
}

/// A channel was emptied to make room, and nothing became free: another channel owed the same messages.
#[test]
fn an_empty_frees_what_no_other_channel_owes() {
    let mut session = Session::new(options());
    for channel in ["a", "b", "late#ephemeral"] {
        session.act(&format!("create t/{channel}"));
    }
    let publish = |session: &mut Session, count: usize| {
        for _ in 0..count {
            session.act(&format!("p: PUB t | {}", "x".repeat(1000)));
        }
    };
    let shared = |disk: &DiskUse| (disk.shared_with.join(","), disk.is_shared_with_topic);
    publish(&mut session, 200);
    session.act("empty t/late#ephemeral");
    let both = disk_of(&mut session, "a");
    assert!(both.bytes > 100_000, "{both:?}");
    assert_eq!(both.alone_bytes, 0);
    assert_eq!(shared(&both), ("b".to_owned(), false));

    // A consumer of b has the messages, in flight and deferred: b owes them all the same.
    session.act("c: SUB t b; RDY 250");
    assert_eq!(disk_of(&mut session, "a"), both);
    session.act("c gone");
    assert_eq!(disk_of(&mut session, "a"), both);

    // They can be brought back.
    session.act("empty t/b for 1h");
    let undo = disk_of(&mut session, "a");
    assert_eq!((undo.bytes, undo.alone_bytes), (both.bytes, 0));
    assert_eq!(shared(&undo), (String::new(), true));
    assert_eq!(disk_of(&mut session, "b"), DiskUse::default());

    session.act("empty t/b");
    let alone = disk_of(&mut session, "a");
    assert_eq!((alone.bytes, alone.alone_bytes), (both.bytes, both.bytes));
    assert_eq!(shared(&alone), (String::new(), false));

    // Newer messages belong to both again.
    publish(&mut session, 200);
    let mixed = disk_of(&mut session, "a");
    assert!(mixed.bytes > both.bytes, "{mixed:?}");
    assert!((1..mixed.bytes).contains(&mixed.alone_bytes), "{mixed:?}");
    let before = session.files.bytes();
    session.act("empty t/a");
    session.act("+10s");
    session.act("+10s");
    let freed = before - session.files.bytes();
    assert!(freed >= mixed.alone_bytes, "{freed} bytes of {mixed:?}");
}
