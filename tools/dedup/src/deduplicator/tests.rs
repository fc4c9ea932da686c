use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::{Begin, Deduplicator};
use crate::{Fingerprint, InverseBloom, UnixTime};

const NOW: UnixTime = UnixTime::from_secs(1_000_000);
const KEY: Fingerprint = Fingerprint(17);

fn deduplicator() -> Deduplicator<InverseBloom> {
    Deduplicator::new(InverseBloom::new(1 << 10).expect("a valid size"))
}

#[test]
fn a_message_is_fresh_then_in_progress_then_done() {
    let all = deduplicator();
    let Begin::Fresh(guard) = all.begin(KEY, NOW) else {
        panic!("nobody has handled it");
    };
    assert!(matches!(all.begin(KEY, NOW), Begin::InProgress));
    assert_eq!(all.in_progress(), 1);
    guard.commit(NOW);
    assert!(matches!(all.begin(KEY, NOW), Begin::Done));
    assert_eq!(all.in_progress(), 0);
}

#[test]
fn a_message_that_failed_is_fresh_again() {
    let all = deduplicator();
    drop(all.begin(KEY, NOW));
    assert!(matches!(all.begin(KEY, NOW), Begin::Fresh(_)));
}

#[test]
fn a_panic_of_the_handler_gives_the_message_up() {
    let all = deduplicator();
    let handler = all.clone();
    let result = thread::spawn(move || {
        let _guard = handler.begin(KEY, NOW);
        panic!("as a handler may");
    })
    .join();
    assert!(result.is_err());
    assert!(matches!(all.begin(KEY, NOW), Begin::Fresh(_)));
}

/// If many threads ask about one message at the same time, one of them gets the guard.
#[test]
fn one_of_many_threads_gets_the_message() {
    const THREADS: usize = 8;
    for round in 0..200 {
        let all = deduplicator();
        let key = Fingerprint(round);
        let start = Barrier::new(THREADS);
        let end = Barrier::new(THREADS);
        let fresh = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    start.wait();
                    let begun = all.begin(key, NOW);
                    if matches!(begun, Begin::Fresh(_)) {
                        fresh.fetch_add(1, Ordering::Relaxed);
                    }
                    // A guard that is dropped before another thread asks would let this thread begin, too.
                    end.wait();
                });
            }
        });
        assert_eq!(fresh.load(Ordering::Relaxed), 1, "round {round}");
    }
}
