//! An allocator that counts the allocations of a thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn count_allocation() {
    COUNT.set(COUNT.get() + 1);
}

// SAFETY: the allocator passes every call on to the system's allocator unchanged. Counting touches a
// number of the thread only.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocation();
        // SAFETY: the caller keeps the promise that `System` needs.
        unsafe { System.alloc(layout) }
    }

    // The default would fill the memory, which the system gives zeroed.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_allocation();
        // SAFETY: the caller keeps the promise that `System` needs.
        unsafe { System.alloc_zeroed(layout) }
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

/// Returns the result of `act`, and the number of its allocations.
pub(crate) fn allocations<R>(act: impl FnOnce() -> R) -> (R, u64) {
    let before = COUNT.get();
    let result = act();
    (result, COUNT.get() - before)
}
