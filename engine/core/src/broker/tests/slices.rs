//! Snapshots and peeks in slices.

use super::script::{Session, options};
use crate::peek::{PeekBudget, PeekFrom, PeekQuestion, PeekSlice, PeekState, PeekedFrame};
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
