//! [`Notify`]: how other threads wake a thread that waits in its ring.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

/// Wakes one thread. Costs a system call only if that thread sleeps, and the first time only.
pub(super) struct Notify {
    is_set: AtomicBool,
    is_asleep: AtomicBool,
    event: OwnedFd,
}

impl Notify {
    pub(super) fn new() -> io::Result<Notify> {
        Ok(Notify {
            is_set: AtomicBool::new(false),
            is_asleep: AtomicBool::new(false),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// What becomes readable when the sleeping thread is to wake up.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// To be called before waiting: false if there was a wake-up since the last time.
    ///
    /// The one side says that it sleeps and then looks for a wake-up, the other says that there is
    /// one and then looks whether it sleeps; in the one order of all these that both see
    /// (`SeqCst`), at least one of them sees the other.
    pub(super) fn fall_asleep(&self) -> bool {
        self.is_asleep.store(true, Ordering::SeqCst);
        !self.is_set.swap(false, Ordering::SeqCst)
    }

    /// To be called after waiting, or instead of it.
    pub(super) fn wake_up(&self) {
        self.is_asleep.store(false, Ordering::SeqCst);
    }

    /// Makes the descriptor unreadable again.
    pub(super) fn clear(&self) {
        // Fails only if there is nothing to read.
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }
}

impl Wake for Notify {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_set.store(true, Ordering::SeqCst);
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            // Fails only if the counter is full: then it is readable.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }
}
