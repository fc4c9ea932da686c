//! [`Notify`]: how other threads wake a thread that waits in its engine.

#[cfg(target_os = "linux")]
use rustix::event::{EventfdFlags, eventfd};
#[cfg(target_os = "linux")]
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

/// Wakes one thread. A wake-up costs a system call only if the thread sleeps and no other wake-up came first.
pub(super) struct Notify {
    is_set: AtomicBool,
    is_asleep: AtomicBool,
    bell: Bell,
}

/// The means by which another thread wakes an engine that waits.
pub(super) enum Bell {
    /// A descriptor of Linux that becomes readable.
    #[cfg(target_os = "linux")]
    Eventfd(Arc<OwnedFd>),
    /// The waker of mio.
    Waker(mio::Waker),
}

impl Bell {
    fn ring(&self) {
        match self {
            #[cfg(target_os = "linux")]
            Bell::Eventfd(descriptor) => {
                // Fails only if the counter is full: then it is readable.
                let _ = rustix::io::write(descriptor, &1u64.to_ne_bytes());
            }
            Bell::Waker(waker) => {
                // Fails only in the same way, which mio resolves.
                let _ = waker.wake();
            }
        }
    }
}

impl Notify {
    pub(super) fn new(bell: Bell) -> Notify {
        Notify {
            is_set: AtomicBool::new(false),
            is_asleep: AtomicBool::new(false),
            bell,
        }
    }

    /// Makes a descriptor of Linux, and what makes the descriptor readable. [`take_wakeup`] ends that.
    ///
    /// # Errors
    /// No descriptor is left.
    #[cfg(target_os = "linux")]
    pub(super) fn with_eventfd() -> io::Result<(Arc<OwnedFd>, Arc<Notify>)> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let eventfd = Arc::new(eventfd(0, flags)?);
        let notify = Notify::new(Bell::Eventfd(Arc::clone(&eventfd)));
        Ok((eventfd, Arc::new(notify)))
    }

    /// Announces that the thread will wait. Returns false if there was a wake-up since the last time.
    ///
    /// The sleeper sets `is_asleep`, then reads `is_set`. The waker sets `is_set`, then reads `is_asleep`. With
    /// `SeqCst`, at least one of them sees the other's store.
    pub(super) fn announce_sleep(&self) -> bool {
        self.is_asleep.store(true, Ordering::SeqCst);
        !self.is_set.swap(false, Ordering::SeqCst)
    }

    /// Takes the announcement back, after waiting or instead of it.
    pub(super) fn announce_awake(&self) {
        self.is_asleep.store(false, Ordering::SeqCst);
    }
}

/// Makes an eventfd unreadable until the next wake-up.
#[cfg(target_os = "linux")]
pub(super) fn take_wakeup(eventfd: &OwnedFd) {
    // Fails only if there is nothing to read.
    let _ = rustix::io::read(eventfd, &mut [0; 8]);
}

impl Wake for Notify {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_set.store(true, Ordering::SeqCst);
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            self.bell.ring();
        }
    }
}
