//! Counts every allocation while messages are published, delivered, finished, requeued and
//! redelivered in the steady state. The message path must allocate nothing per message.

use crate::counting;
use crate::path::{Counter, MessagePath, Part};
use std::cell::Cell;

/// Counts the allocations of the broker.
struct Allocations<'a>(&'a Cell<u64>);

impl Counter for Allocations<'_> {
    fn count<R>(&mut self, _part: Part, act: impl FnOnce() -> R) -> R {
        let (result, count) = counting::allocations(act);
        self.0.set(self.0.get() + count);
        result
    }
}

#[test]
fn the_message_path_allocates_nothing_per_message() {
    let allocations = Cell::new(0);
    let mut path = MessagePath::new(Allocations(&allocations));
    // After these rounds, every buffer has its final size, and every segment has been used once.
    for _ in 0..100 {
        path.round(true);
    }
    (path.finished, path.requeued) = (0, 0);
    allocations.set(0);
    for _ in 0..900 {
        path.round(true);
    }
    let (finished, requeued) = (path.finished, path.requeued);
    assert!(
        finished > 150_000 && requeued > 5_000,
        "{finished} finished, {requeued} requeued"
    );
    let allocations = allocations.get();
    let per_message = allocations as f64 / finished as f64;
    println!("{allocations} allocations for {finished} messages");
    assert!(per_message < 0.005, "{per_message} allocations per message");
}
