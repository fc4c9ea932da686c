//! Snapshots and peeks in slices.

use super::script::{Session, options};
use crate::peek::{
    PeekBudget, PeekFrom, PeekPlace, PeekQuestion, PeekSlice, PeekState, PeekedFrame,
};
use crate::stats::{StatsFilter, StatsSnapshot, UnfinishedSnapshot};
use diskq_log::Seq;
use std::collections::BTreeSet;
use std::time::Duration;

/// Begins a snapshot, and takes its first slice.
fn begin(session: &mut Session, filter: &StatsFilter) -> UnfinishedSnapshot {
    let (broker, now) = session.broker();
    let mut unfinished = UnfinishedSnapshot::begin(broker, filter);
    assert!(!unfinished.proceed(broker, now));
    unfinished
}

/// Ends a snapshot. Returns the snapshot, and the number of its slices before the last one.
fn end(session: &mut Session, mut unfinished: UnfinishedSnapshot) -> (StatsSnapshot, usize) {
    let (broker, now) = session.broker();
    let mut slices = 1;
    while !unfinished.proceed(broker, now) {
        slices += 1;
    }
    (unfinished.finish(), slices)
}

/// Takes a snapshot. Returns the snapshot, and for each slice but the last one by how much `count` grew in the slice.
fn grown(
    session: &mut Session,
    filter: &StatsFilter,
    count: impl Fn(&StatsSnapshot) -> usize,
) -> (StatsSnapshot, Vec<usize>) {
    let (broker, now) = session.broker();
    let mut unfinished = UnfinishedSnapshot::begin(broker, filter);
    let (mut sizes, mut before) = (Vec::new(), 0);
    while !unfinished.proceed(broker, now) {
        let found = count(&unfinished.snapshot);
        sizes.push(found - before);
        before = found;
    }
    (unfinished.finish(), sizes)
}

/// The names of the topics, each with the number of its channels.
fn topics(snapshot: &StatsSnapshot) -> Vec<(&str, usize)> {
    let topics = snapshot.topics.iter();
    let topics = topics.map(|topic| (&*topic.topic_name, topic.channels.len()));
    topics.collect()
}

/// Makes channels with three-digit numbers.
fn create(session: &mut Session, count: usize, name: impl Fn(&str) -> String) -> Vec<String> {
    let names: Vec<String> = (0..count).map(|number| format!("{number:03}")).collect();
    for number in &names {
        session.act(&format!("create {}", name(number)));
    }
    names
}

#[test]
fn a_snapshot_in_slices_leaves_out_what_is_deleted_meanwhile() {
    let mut session = Session::new(options());
    create(&mut session, 300, |number| format!("t{number}/ch"));
    let filter = StatsFilter::default();
    let unfinished = begin(&mut session, &filter);
    let first = unfinished.snapshot.topics.len();
    assert!((50..100).contains(&first), "{first}");
    session.play("delete t000\ndelete t299\ncreate t298x/ch");
    let (snapshot, slices) = end(&mut session, unfinished);
    assert!(slices > 2, "{slices}");
    let names: Vec<String> = (0..299).map(|number| format!("t{number:03}")).collect();
    let expected: Vec<_> = names.iter().map(|name| (&**name, 1)).collect();
    assert_eq!(topics(&snapshot), expected);
}

/// A topic with many channels is divided, and a smaller one is not.
#[test]
fn a_snapshot_divides_a_topic_with_many_channels() {
    let latency = crate::latency::LatencyOptions {
        percentiles: [0.5].into(),
        window: Duration::from_secs(600),
    };
    for latency in [None, Some(latency)] {
        let mut options = options();
        options.topic.latency = latency;
        let mut session = Session::new(options);
        create(&mut session, 40, |number| format!("small/ch{number}"));
        let expected = create(&mut session, 1000, |number| format!("t/{number}"));
        let channels = |snapshot: &StatsSnapshot| topics(snapshot).iter().map(|it| it.1).sum();
        let (snapshot, sizes) = grown(&mut session, &StatsFilter::default(), channels);
        assert!((7..=50).contains(&sizes.len()), "{sizes:?}");
        assert!(sizes.iter().all(|size| *size <= 40 + 128), "{sizes:?}");
        assert_eq!(topics(&snapshot), [("small", 40), ("t", 1000)]);
        let names = snapshot.topics[1].channels.iter();
        let names: Vec<&str> = names.map(|channel| &*channel.channel_name).collect();
        assert_eq!(names, expected);
    }
}

#[test]
fn a_divided_topic_may_change_between_two_slices() {
    let mut session = Session::new(options());
    create(&mut session, 300, |number| format!("t/ch{number}"));
    session.act("create u/ch");
    let filter = StatsFilter::default();
    // The last one of the slice, one that comes next, and a later one.
    let channels = "delete t/ch127\ndelete t/ch128\ndelete t/ch200\ncreate t/ch299x";
    for (changes, expected) in [
        (channels, &[("t", 299), ("u", 1)][..]),
        ("delete t\ncreate t/ch000", &[("u", 1)]),
    ] {
        let unfinished = begin(&mut session, &filter);
        session.play(changes);
        let (snapshot, _) = end(&mut session, unfinished);
        assert_eq!(topics(&snapshot), expected);
    }
}

/// The consumers of a channel, and all producers, came in one turn.
#[test]
fn a_snapshot_divides_the_connections() {
    let mut session = Session::new(options());
    session.play("create t/a\ncreate t/c");
    let id = |name: &str| format!("{name}: IDENTIFY | {{\"client_id\":\"{name}\"}}");
    for number in 0..500 {
        session.act(&format!("{}; SUB t b", id(&format!("c{number}"))));
    }
    session.act("c500: SUB t c");
    for number in 0..300 {
        session.act(&format!("{}; PUB t | x", id(&format!("p{number}"))));
    }
    let filter = StatsFilter {
        include_clients: true,
        ..StatsFilter::default()
    };
    let connections = |snapshot: &StatsSnapshot| -> usize {
        let channels = snapshot.topics.iter().flat_map(|topic| &topic.channels);
        let consumers = channels.flat_map(|channel| channel.clients.iter().flatten());
        consumers.count() + snapshot.producers.len()
    };
    let (whole, sizes) = grown(&mut session, &filter, connections);
    assert!(sizes.iter().all(|size| *size <= 2 * 128), "{sizes:?}");
    assert!((6..=12).contains(&sizes.len()), "{sizes:?}");
    let channels = whole.topics[0].channels.iter().map(|channel| {
        let consumers = channel.clients.as_deref().unwrap();
        let clients: BTreeSet<&str> = consumers.iter().map(|it| &*it.client_id).collect();
        let counts = [consumers.len(), clients.len()];
        (&*channel.channel_name, channel.client_count, counts)
    });
    assert_eq!(
        channels.collect::<Vec<_>>(),
        [("a", 0, [0, 0]), ("b", 500, [500, 500]), ("c", 1, [1, 1])]
    );
    let producers: BTreeSet<&str> = whole.producers.iter().map(|it| &*it.client_id).collect();
    assert_eq!((whole.producers.len(), producers.len()), (300, 300));

    // A connection that closes between two slices is left out, and so are those of a topic that is deleted.
    for (changes, expected) in [("c499 gone\np7 gone", (1, 799)), ("delete t", (0, 299))] {
        let unfinished = begin(&mut session, &filter);
        session.play(changes);
        let (whole, _) = end(&mut session, unfinished);
        assert_eq!((whole.topics.len(), connections(&whole)), expected);
    }
}

fn question(from: PeekFrom, bytes_max: usize) -> PeekQuestion {
    PeekQuestion {
        topic: "t".to_owned(),
        channel: Some("ch".to_owned()),
        from,
        place: None,
        budget: PeekBudget {
            messages_max: 3,
            entries_max: 48,
            bytes_max,
            frame_bytes_max: 36,
        },
    }
}

fn bodies(slice: &PeekSlice) -> Vec<String> {
    let messages = slice.messages.iter();
    let bodies = messages.map(|message| match &message.frame {
        PeekedFrame::Copied(frame, _) => String::from_utf8_lossy(&frame[34..]).into_owned(),
        other => panic!("{other:?}"),
    });
    bodies.collect()
}

#[test]
fn a_slice_ends_at_its_budget_and_says_where_to_go_on() {
    let mut session = Session::new(options());
    session.play("a: SUB t ch\np: MPUB t | aa,bb,cc,dddd,ee");
    let (broker, now) = session.broker();
    let first = broker.peek(now, &question(PeekFrom::Oldest, 1000)).unwrap();
    assert_eq!(bodies(&first), ["aa", "bb", "cc"]);
    let mut next = question(PeekFrom::Oldest, 1000);
    next.place = first.next;
    let second = broker.peek(now, &next).unwrap();
    // A frame is copied up to 36 bytes.
    assert_eq!(
        (bodies(&second), second.next),
        (vec!["dd".to_owned(), "ee".to_owned()], None)
    );
    // At least one message comes, however small the budget is.
    let small = broker.peek(now, &question(PeekFrom::Newest, 1)).unwrap();
    assert_eq!(bodies(&small), ["ee"]);
    assert_eq!(small.next, Some(small.messages[0].next));
    session.check("a: RDY 2\na< aa (1)\na< bb (1)");
    let (broker, now) = session.broker();
    let flight = broker
        .peek(now, &question(PeekFrom::InFlight, 1000))
        .unwrap();
    assert_eq!(bodies(&flight), ["aa", "bb"]);
    let state = &flight.messages[0].state;
    let has_client = matches!(state, PeekState::InFlight { client, .. } if client.is_some());
    assert!(has_client, "{state:?}");
    assert_eq!((flight.messages[0].attempts, flight.next), (1, None));
}

/// Goes through a list in slices. Returns the bodies with their attempts, the messages gone through, and the number of
/// slices.
fn go_through(
    session: &mut Session,
    from: PeekFrom,
    (messages_max, entries_max, bytes_max): (usize, usize, usize),
) -> (Vec<String>, u64, u32) {
    let mut question = question(from, bytes_max);
    question.budget.messages_max = messages_max;
    question.budget.entries_max = entries_max;
    let (mut found, mut gone_through, mut slices) = (Vec::new(), 0, 0);
    loop {
        let (broker, now) = session.broker();
        let slice = broker.peek(now, &question).unwrap();
        let attempts = slice.messages.iter().map(|message| message.attempts);
        let entries = bodies(&slice).into_iter().zip(attempts);
        found.extend(entries.map(|(body, attempts)| format!("{body} {attempts}")));
        gone_through += slice.passed + slice.messages.len() as u64;
        slices += 1;
        if slice.next.is_none() {
            return (found, gone_through, slices);
        }
        question.place = slice.next;
    }
}

#[test]
fn the_lists_of_tried_messages_are_one_list_for_a_peek() {
    let mut session = Session::new(options());
    session.check(
        "
a consumes t ch 5
p: MPUB t | aa,bb,cc,dd,ee => OK
a< aa (1), bb (1), cc (1), dd (1), ee (1)
a: REQ #cc 0 => cc (2)
a: REQ #dd 60000
a: RDY 0
a: REQ #ee 0
p: DPUB t 60000 | ff => OK
",
    );
    let all = ["aa 1", "bb 1", "cc 2", "dd 1", "ee 1"];
    let budgets = [
        (9, 99, 1000),
        (9, 1, 1000),
        (1, 99, 1000),
        (2, 3, 1000),
        (9, 99, 1),
    ];
    for budget in budgets {
        for (least, expected) in [(1, &all[..]), (2, &all[2..3]), (3, &[])] {
            let from = PeekFrom::Attempts(least);
            let (found, gone_through, slices) = go_through(&mut session, from, budget);
            assert_eq!(found, expected, "{least} {budget:?}");
            assert_eq!(gone_through, 6, "{least} {budget:?}");
            let is_one = budget == budgets[0];
            assert!(if is_one {
                slices == 1
            } else {
                slices > 1 || least > 1
            });
        }
    }
    // Any place is harmless.
    let mut question = question(PeekFrom::Attempts(1), 1000);
    for list in [0, 1, 2, 3, u8::MAX] {
        for at in [(0, 0), (1, u64::MAX), (u64::MAX, u64::MAX), (2, 3)] {
            question.place = Some(PeekPlace { list, at });
            let (broker, now) = session.broker();
            broker.peek(now, &question).unwrap();
        }
    }
}

/// Asks for the messages of the log of `t`, and returns their bodies, each with the word on whether it is finished.
fn published(session: &mut Session, since: Seq, messages_max: usize) -> (Vec<String>, PeekSlice) {
    let mut question = question(PeekFrom::Published { since }, 1000);
    question.channel = None;
    question.budget.messages_max = messages_max;
    let (broker, now) = session.broker();
    let slice = broker.peek(now, &question).unwrap();
    let words = slice.messages.iter().map(|message| match message.state {
        PeekState::Published { is_finished } => match is_finished {
            Some(true) => "finished",
            Some(false) => "owed",
            None => "unknown",
        },
        ref other => panic!("{other:?}"),
    });
    let entries = bodies(&slice).into_iter().zip(words);
    let entries = entries.map(|(body, word)| format!("{body} {word}"));
    (entries.collect(), slice)
}

#[test]
fn the_log_shows_what_consumers_have_finished_already() {
    let mut session = Session::new(options());
    session.act("create t/ch");
    let (found, slice) = published(&mut session, Seq(0), 9);
    let end = slice.log_end.unwrap();
    assert_eq!((found.len(), end.newest, end.message_count), (0, Seq(0), 0));
    session.check(
        "
a consumes t ch 9
p: MPUB t | aa,bb,cc => OK
a< aa (1), bb (1), cc (1)
a: FIN #aa
a: FIN #bb
a: REQ #cc 60000
p: DPUB t 60000 | dd => OK
a: RDY 0
p: PUB t | ee => OK
",
    );
    let all = [
        "ee owed",
        "dd owed",
        "cc owed",
        "bb finished",
        "aa finished",
    ];
    let (found, slice) = published(&mut session, Seq(0), 9);
    assert_eq!((found, slice.next), (all.map(str::to_owned).into(), None));
    let end = slice.log_end.unwrap();
    assert_eq!(end.newest, slice.messages[0].seq);
    assert_eq!(end.newest_id, slice.messages[0].id);
    assert_eq!(end.message_count, 5);
    // Only what is behind a message, and in slices.
    let bb = slice.messages[3].seq;
    let (found, slice) = published(&mut session, bb, 2);
    assert_eq!(found, all[..2]);
    let mut next = question(PeekFrom::Published { since: bb }, 1000);
    next.channel = None;
    next.place = slice.next;
    let (broker, now) = session.broker();
    let slice = broker.peek(now, &next).unwrap();
    assert_eq!((bodies(&slice), slice.next), (vec!["cc".to_owned()], None));
    assert!(published(&mut session, end.newest, 9).0.is_empty());
    assert!(published(&mut session, Seq(u64::MAX), 9).0.is_empty());
    // Any place is harmless.
    for at in [(0, 0), (u64::MAX, u64::MAX), (3, bb.0)] {
        next.place = Some(PeekPlace { list: 9, at });
        let (broker, now) = session.broker();
        broker.peek(now, &next).unwrap();
    }
}

#[test]
fn the_log_of_a_topic_with_many_channels_says_nothing_of_finished_messages() {
    let mut session = Session::new(options());
    for channel in 0..9 {
        session.act(&format!("create t/ch{channel}"));
    }
    session.check("p: PUB t | aa => OK");
    assert_eq!(published(&mut session, Seq(0), 9).0, ["aa unknown"]);
    session.act("delete t/ch8");
    assert_eq!(published(&mut session, Seq(0), 9).0, ["aa owed"]);
    session.act("delete t/ch7");
    for channel in 0..7 {
        session.act(&format!("empty t/ch{channel}"));
    }
    assert_eq!(published(&mut session, Seq(0), 9).0, ["aa finished"]);
}

#[test]
fn the_log_of_a_topic_without_channels_has_only_owed_messages() {
    let mut session = Session::new(options());
    session.check("p: MPUB t | aa,bb => OK");
    assert_eq!(published(&mut session, Seq(0), 9).0, ["bb owed", "aa owed"]);
}
