//! Snapshots and peeks in slices.

use super::script::{Session, options};
use crate::peek::{
    PeekBudget, PeekFrom, PeekPlace, PeekQuestion, PeekSlice, PeekState, PeekedFrame,
};
use crate::stats::StatsFilter;

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
