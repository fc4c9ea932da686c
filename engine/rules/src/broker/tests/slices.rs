//! Snapshots and peeks in slices.

use super::script::{Session, options};
use crate::peek::{
    PeekBudget, PeekFrom, PeekPlace, PeekQuestion, PeekSlice, PeekState, PeekedFrame,
};
use crate::stats::StatsFilter;
use diskq_log::Seq;
use std::collections::BTreeSet;
use std::time::Duration;

#[test]
fn a_snapshot_in_slices_leaves_out_what_is_deleted_meanwhile() {
    let mut session = Session::new(options());
    for number in 0..300 {
        session.act(&format!("create t{number:03}/ch"));
    }
    let filter = StatsFilter::default();
    let (broker, now) = session.broker();
    let mut unfinished = broker.begin_snapshot(&filter);
    assert!(!broker.continue_snapshot(now, &filter, &mut unfinished));
    let names = |snapshot: &crate::stats::StatsSnapshot| -> Vec<String> {
        let topics = snapshot.topics.iter();
        topics.map(|topic| topic.topic_name.clone()).collect()
    };
    let first = names(&unfinished.snapshot);
    assert!((50..100).contains(&first.len()), "{}", first.len());
    session.act("delete t000");
    session.act("delete t299");
    session.act("create t298x/ch");
    let (broker, now) = session.broker();
    let mut slices = 1;
    while !broker.continue_snapshot(now, &filter, &mut unfinished) {
        slices += 1;
    }
    assert!(slices > 2, "{slices}");
    let expected: Vec<String> = (0..299).map(|number| format!("t{number:03}")).collect();
    assert_eq!(names(&unfinished.finish()), expected);
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
        for number in 0..40 {
            session.act(&format!("create small/ch{number}"));
        }
        for number in 0..1000 {
            session.act(&format!("create t/ch{number:03}"));
        }
        let filter = StatsFilter::default();
        let (broker, now) = session.broker();
        let mut unfinished = broker.begin_snapshot(&filter);
        let mut sizes = Vec::new();
        let mut before = 0;
        while !broker.continue_snapshot(now, &filter, &mut unfinished) {
            let topics = unfinished.snapshot.topics.iter();
            let channels = topics.map(|topic| topic.channels.len()).sum();
            sizes.push(channels - before);
            before = channels;
        }
        assert!((7..=50).contains(&sizes.len()), "{sizes:?}");
        assert!(sizes.iter().all(|size| *size <= 40 + 128), "{sizes:?}");
        let topics = unfinished.finish().topics;
        let names: Vec<&str> = topics.iter().map(|topic| &*topic.topic_name).collect();
        assert_eq!(names, ["small", "t"]);
        assert_eq!(topics[0].channels.len(), 40);
        let names = topics[1].channels.iter();
        let names: Vec<&str> = names.map(|channel| &*channel.channel_name).collect();
        let expected: Vec<String> = (0..1000).map(|number| format!("ch{number:03}")).collect();
        assert_eq!(names, expected);
    }
}

#[test]
fn a_divided_topic_may_change_between_two_slices() {
    let mut session = Session::new(options());
    for number in 0..300 {
        session.act(&format!("create t/ch{number:03}"));
    }
    session.act("create u/ch");
    let filter = StatsFilter::default();
    let begin = |session: &mut Session| {
        let (broker, now) = session.broker();
        let mut unfinished = broker.begin_snapshot(&filter);
        assert!(!broker.continue_snapshot(now, &filter, &mut unfinished));
        unfinished
    };
    let end = |session: &mut Session, mut unfinished: crate::stats::UnfinishedSnapshot| {
        let (broker, now) = session.broker();
        while !broker.continue_snapshot(now, &filter, &mut unfinished) {}
        let topics = unfinished.finish().topics.into_iter();
        let counts = topics.map(|topic| (topic.topic_name, topic.channels.len()));
        counts.collect::<Vec<_>>()
    };
    let unfinished = begin(&mut session);
    // The last one of the slice, and one that comes next.
    for channel in ["ch127", "ch128", "ch200"] {
        session.act(&format!("delete t/{channel}"));
    }
    session.act("create t/ch299x");
    let counts = end(&mut session, unfinished);
    assert_eq!(counts, [("t".to_owned(), 299), ("u".to_owned(), 1)]);
    let unfinished = begin(&mut session);
    session.act("delete t");
    session.act("create t/ch000");
    let counts = end(&mut session, unfinished);
    assert_eq!(counts, [("u".to_owned(), 1)]);
}

/// The consumers of a channel, and all producers, came in one turn.
#[test]
fn a_snapshot_divides_the_connections() {
    let mut session = Session::new(options());
    session.act("create t/a");
    session.act("create t/c");
    for number in 0..500 {
        session.act(&format!(
            "c{number}: IDENTIFY | {{\"client_id\":\"c{number}\"}}; SUB t b"
        ));
    }
    session.act("c500: SUB t c");
    for number in 0..300 {
        session.act(&format!(
            "p{number}: IDENTIFY | {{\"client_id\":\"p{number}\"}}; PUB t | x"
        ));
    }
    let filter = StatsFilter {
        include_clients: true,
        ..StatsFilter::default()
    };
    let connections = |unfinished: &crate::stats::UnfinishedSnapshot| -> usize {
        let snapshot = &unfinished.snapshot;
        let channels = snapshot.topics.iter().flat_map(|topic| &topic.channels);
        let consumers = channels.flat_map(|channel| channel.clients.iter().flatten());
        let consumers = consumers.count();
        consumers + snapshot.producers.len()
    };
    let (broker, now) = session.broker();
    let mut unfinished = broker.begin_snapshot(&filter);
    let mut sizes = Vec::new();
    let mut before = 0;
    while !broker.continue_snapshot(now, &filter, &mut unfinished) {
        sizes.push(connections(&unfinished) - before);
        before = connections(&unfinished);
    }
    assert!(sizes.iter().all(|size| *size <= 2 * 128), "{sizes:?}");
    assert!((6..=12).contains(&sizes.len()), "{sizes:?}");
    let whole = unfinished.finish();
    let channels = whole.topics[0].channels.iter();
    let channels: Vec<_> = channels
        .map(|channel| {
            let consumers = channel.clients.as_deref().unwrap();
            let clients: BTreeSet<&str> = consumers.iter().map(|it| &*it.client_id).collect();
            (
                &*channel.channel_name,
                channel.client_count,
                consumers.len(),
                clients.len(),
            )
        })
        .collect();
    assert_eq!(
        channels,
        [("a", 0, 0, 0), ("b", 500, 500, 500), ("c", 1, 1, 1)]
    );
    let producers: BTreeSet<&str> = whole.producers.iter().map(|it| &*it.client_id).collect();
    assert_eq!((whole.producers.len(), producers.len()), (300, 300));

    // A connection that closes between two slices is left out, and so are those of a topic that is deleted.
    let (broker, now) = session.broker();
    let mut unfinished = broker.begin_snapshot(&filter);
    assert!(!broker.continue_snapshot(now, &filter, &mut unfinished));
    session.act("c499 gone");
    session.act("p7 gone");
    let (broker, now) = session.broker();
    while !broker.continue_snapshot(now, &filter, &mut unfinished) {}
    assert_eq!(connections(&unfinished), 799);
    let (broker, now) = session.broker();
    let mut unfinished = broker.begin_snapshot(&filter);
    assert!(!broker.continue_snapshot(now, &filter, &mut unfinished));
    session.act("delete t");
    let (broker, now) = session.broker();
    while !broker.continue_snapshot(now, &filter, &mut unfinished) {}
    let whole = unfinished.finish();
    assert_eq!((whole.topics.len(), whole.producers.len()), (0, 299));
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
    for line in [
        "a: SUB t ch",
        "a< OK",
        "p: MPUB t | aa,bb,cc,dddd,ee",
        "p< OK",
    ] {
        session.act(line);
    }
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
    session.act("a: RDY 2");
    session.act("a< aa (1)");
    session.act("a< bb (1)");
    let (broker, now) = session.broker();
    let flight = broker
        .peek(now, &question(PeekFrom::InFlight, 1000))
        .unwrap();
    assert_eq!(bodies(&flight), ["aa", "bb"]);
    let state = &flight.messages[0].state;
    assert!(
        matches!(
            state,
            PeekState::InFlight {
                client: Some(_),
                ..
            }
        ),
        "{state:?}"
    );
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
    for line in [
        "a: SUB t ch",
        "a< OK",
        "a: RDY 5",
        "p: MPUB t | aa,bb,cc,dd,ee",
        "p< OK",
        "a< aa (1)",
        "a< bb (1)",
        "a< cc (1)",
        "a< dd (1)",
        "a< ee (1)",
        "a: REQ #cc 0",
        "a< cc (2)",
        "a: REQ #dd 60000",
        "a: RDY 0",
        "a: REQ #ee 0",
        "p: DPUB t 60000 | ff",
        "p< OK",
    ] {
        session.act(line);
    }
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
    for line in [
        "a: SUB t ch",
        "a< OK",
        "a: RDY 9",
        "p: MPUB t | aa,bb,cc",
        "p< OK",
        "a< aa (1)",
        "a< bb (1)",
        "a< cc (1)",
        "a: FIN #aa",
        "a: FIN #bb",
        "a: REQ #cc 60000",
        "p: DPUB t 60000 | dd",
        "p< OK",
        "a: RDY 0",
        "p: PUB t | ee",
        "p< OK",
    ] {
        session.act(line);
    }
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
    session.act("p: PUB t | aa");
    session.act("p< OK");
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
    session.act("p: MPUB t | aa,bb");
    session.act("p< OK");
    assert_eq!(published(&mut session, Seq(0), 9).0, ["bb owed", "aa owed"]);
}
