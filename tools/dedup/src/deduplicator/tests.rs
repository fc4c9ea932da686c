use std::collections::HashMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::{Begin, Deduplicator};
use crate::{Fingerprint, InverseBloom, Memory, UnixTime};

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

/// A message with copies on two nodes, and what a consumer does with each copy.
struct World {
    copies: HashMap<&'static str, bool>,
}

impl World {
    fn new() -> World {
        World {
            copies: HashMap::from([("node 1", true), ("node 2", true)]),
        }
    }

    /// The copy is finished, or its node dies: both remove it.
    fn remove(&mut self, node: &'static str) {
        self.copies.insert(node, false);
    }

    fn is_lost(&self, was_handled: bool) -> bool {
        !was_handled && self.copies.values().all(|is_there| !is_there)
    }
}

/// With two states, one failure loses a message that is on two nodes. The memory alone shows the two states.
#[test]
fn two_states_lose_a_message_and_three_do_not() {
    // Two states: what was seen is recorded before it is handled.
    let mut world = World::new();
    let mut seen = InverseBloom::new(1 << 10).expect("a valid size");
    assert!(!seen.remembers(KEY, NOW));
    seen.remember(KEY, NOW);
    // Copy 2 comes while copy 1 is being handled, is found to be seen, and is finished.
    assert!(seen.remembers(KEY, NOW));
    world.remove("node 2");
    // The handler of copy 1 fails, and its node dies.
    world.remove("node 1");
    assert!(world.is_lost(false), "two states lose the message");

    // Three states: copy 2 waits, and is handled when copy 1 has failed.
    let mut world = World::new();
    let all = deduplicator();
    let copy_1 = all.begin(KEY, NOW);
    assert!(matches!(copy_1, Begin::Fresh(_)));
    assert!(matches!(all.begin(KEY, NOW), Begin::InProgress));
    drop(copy_1);
    world.remove("node 1");
    let Begin::Fresh(guard) = all.begin(KEY, NOW) else {
        panic!("copy 2 is to be handled");
    };
    guard.commit(NOW);
    world.remove("node 2");
    assert!(!world.is_lost(true));
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
