//! Counts every allocation while messages are published, delivered, finished, requeued and
//! redelivered in the steady state. The message path must allocate nothing per message.

mod path;

use path::{Counter, MessagePath, Part};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

struct Counting;

static IS_COUNTING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

fn count_allocation() {
    if IS_COUNTING.load(Ordering::Relaxed) {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: the allocator passes every call on to the system's allocator unchanged. Counting touches
// atomics only.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocation();
        // SAFETY: the caller keeps the promise that `System` needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count_allocation();
        // SAFETY: the caller keeps the promise that `System` needs.
        unsafe { System.realloc(pointer, layout, bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the promise that `System` needs.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts the allocations of the broker.
struct Allocations;

impl Counter for Allocations {
    fn count<R>(&mut self, _part: Part, act: impl FnOnce() -> R) -> R {
        IS_COUNTING.store(true, Ordering::Relaxed);
        let result = act();
        IS_COUNTING.store(false, Ordering::Relaxed);
        result
    }
}

#[test]
fn the_message_path_allocates_nothing_per_message() {
    let mut path = MessagePath::new(Allocations);
    // After these rounds, every buffer has its final size, and every segment has been used once.
    for _ in 0..100 {
        path.round(true);
    }
    (path.finished, path.requeued) = (0, 0);
    ALLOCATIONS.store(0, Ordering::Relaxed);
    for _ in 0..900 {
        path.round(true);
    }
    let (finished, requeued) = (path.finished, path.requeued);
    assert!(
        finished > 150_000 && requeued > 5_000,
        "{finished} finished, {requeued} requeued"
    );
    let allocations = ALLOCATIONS.load(Ordering::Relaxed);
    let per_message = allocations as f64 / finished as f64;
    println!("{allocations} allocations for {finished} messages");
    assert!(per_message < 0.005, "{per_message} allocations per message");
}
