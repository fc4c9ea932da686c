//! [`Epoll`]: readiness by mio, which is epoll on Linux and kqueue on BSD and macOS.
//!
//! mio reports a descriptor that *becomes* ready (edge-triggered), and stays registered. A direction that
//! nobody waits for is taken out of the registration at its first report, so that input that is left to gather
//! wakes the thread once and not with each packet. [`Epoll::watch`] puts the direction back, and the system
//! then reports what is ready already.

use super::notify::{Bell, Notify};
use super::token::{Direction, Token, place_of};
use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Waker};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// Reports that are taken with one system call.
const REPORTS: usize = 1024;
/// The key of the thread's own wake-up.
const WAKE: mio::Token = mio::Token(usize::MAX);
/// What mio reports for each [`Direction`].
const INTERESTS: [Interest; 2] = [Interest::READABLE, Interest::WRITABLE];
/// The pause of a source that the system does not register: out of memory, or above fs.epoll.max_user_watches.
const REGISTER_PAUSE: Duration = Duration::from_millis(10);
/// mio waits in whole milliseconds. A wait that ends within this time is kept to the nanosecond.
const EXACT_MAX: Duration = Duration::from_millis(10);

/// The readiness reports of one thread.
pub(super) struct Epoll {
    poll: RefCell<Poll>,
    registry: Registry,
    reports: RefCell<Events>,
    /// By the index of the source.
    entries: RefCell<Vec<Entry>>,
    /// The waits whose sources could not be registered.
    unregistered: RefCell<Vec<Token>>,
}

/// The registration and the waits of one source.
#[derive(Clone, Copy, Default)]
struct Entry {
    descriptor: RawFd,
    /// The directions that the system reports.
    registered: Option<Interest>,
    /// The waits that are not answered yet.
    waits: [Option<Token>; 2],
}

impl Epoll {
    /// Makes an engine, and what wakes its thread.
    ///
    /// # Errors
    /// The system's answer, for example that no descriptor is left.
    pub(super) fn new() -> io::Result<(Epoll, Arc<Notify>)> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let notify = Notify::new(Bell::Waker(Waker::new(&registry, WAKE)?));
        let epoll = Epoll {
            poll: RefCell::new(poll),
            registry,
            reports: RefCell::new(Events::with_capacity(REPORTS)),
            entries: RefCell::default(),
            unregistered: RefCell::default(),
        };
        Ok((epoll, Arc::new(notify)))
    }

    /// See [`super::driver::Driver::watch`].
    pub(super) fn watch(&self, descriptor: BorrowedFd<'_>, token: Token) {
        let index = token.index();
        let mut entries = self.entries.borrow_mut();
        let entry = place_of(&mut entries, token);
        entry.descriptor = descriptor.as_raw_fd();
        let direction = token.direction() as usize;
        let interest = INTERESTS[direction];
        let wanted = entry.registered.map_or(interest, |it| it | interest);
        match self.register(index, entry, Some(wanted)) {
            Ok(()) => entry.waits[direction] = Some(token),
            // No report will come. So the task tries from time to time.
            Err(_) => self.unregistered.borrow_mut().push(token),
        }
    }

    /// See [`super::driver::Driver::forget`].
    pub(super) fn forget(&self, index: usize) {
        let mut entries = self.entries.borrow_mut();
        if let Some(entry) = entries.get_mut(index) {
            // Fails only if the system has forgotten the descriptor already.
            let _ = self.register(index, entry, None);
            *entry = Entry::default();
        }
    }

    /// Changes what the system reports of a source.
    fn register(
        &self,
        index: usize,
        entry: &mut Entry,
        wanted: Option<Interest>,
    ) -> io::Result<()> {
        if wanted == entry.registered {
            return Ok(());
        }
        let source = &mut SourceFd(&entry.descriptor);
        match (entry.registered, wanted) {
            (_, None) => self.registry.deregister(source),
            (None, Some(interest)) => self.registry.register(source, mio::Token(index), interest),
            (Some(_), Some(interest)) => {
                self.registry
                    .reregister(source, mio::Token(index), interest)
            }
        }?;
        entry.registered = wanted;
        Ok(())
    }

    /// See [`super::driver::Driver::enter`].
    pub(super) fn enter(&self, wait: Option<Duration>) -> io::Result<()> {
        let mut poll = self.poll.borrow_mut();
        let mut reports = self.reports.borrow_mut();
        let wait = if self.unregistered.borrow().is_empty() {
            wait
        } else {
            Some(wait.map_or(REGISTER_PAUSE, |wait| wait.min(REGISTER_PAUSE)))
        };
        let wait = match wait {
            Some(wait) if !wait.is_zero() && wait < EXACT_MAX => {
                if !is_readable_within(&poll, wait)? {
                    reports.clear();
                    return Ok(());
                }
                Some(Duration::ZERO)
            }
            wait => wait,
        };
        match poll.poll(&mut reports, wait) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// See [`super::driver::Driver::for_each_ready`].
    pub(super) fn for_each_ready(&self, mut each: impl FnMut(Token)) -> bool {
        let mut is_woken = false;
        for token in self.unregistered.take() {
            each(token);
        }
        for report in &*self.reports.borrow() {
            if report.token() == WAKE {
                is_woken = true;
                continue;
            }
            let index = report.token().0;
            let mut answered = [None; 2];
            if let Some(entry) = self.entries.borrow_mut().get_mut(index) {
                answered = self.take_answered(index, entry, report);
            }
            answered.into_iter().flatten().for_each(&mut each);
        }
        self.reports.borrow_mut().clear();
        is_woken
    }

    /// Takes the waits that a report answers. A direction leaves the registration if nobody waits for it, or
    /// if the peer has ended it: the system reports the end once, and the next wait must see it again.
    fn take_answered(&self, index: usize, entry: &mut Entry, report: &Event) -> [Option<Token>; 2] {
        let ready = [
            report.is_readable() || report.is_error(),
            report.is_writable() || report.is_error(),
        ];
        let ended = [
            report.is_read_closed() || report.is_error(),
            report.is_write_closed() || report.is_error(),
        ];
        let mut answered = [None; 2];
        let mut registered = entry.registered;
        for direction in Direction::ALL.map(|direction| direction as usize) {
            if ready[direction] || ended[direction] {
                answered[direction] = entry.waits[direction].take();
                if answered[direction].is_none() || ended[direction] {
                    registered = registered.and_then(|it| it.remove(INTERESTS[direction]));
                }
            }
        }
        if self.register(index, entry, registered).is_err() {
            // The registration may report nothing more. All that is waited for is answered, and the next wait
            // registers anew.
            let _ = self.registry.deregister(&mut SourceFd(&entry.descriptor));
            let waits = std::mem::take(entry).waits;
            return [answered[0].or(waits[0]), answered[1].or(waits[1])];
        }
        answered
    }
}

/// Waits for a report, to the nanosecond. False: there is none.
#[allow(unsafe_code)]
fn is_readable_within(poll: &Poll, wait: Duration) -> io::Result<bool> {
    // SAFETY: `poll` owns the descriptor and is borrowed for longer than the result lives. mio has no safe way.
    let descriptor = unsafe { BorrowedFd::borrow_raw(poll.as_raw_fd()) };
    let mut descriptors = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    let wait = Timespec {
        tv_sec: 0,
        tv_nsec: wait.subsec_nanos().into(),
    };
    match rustix::event::poll(&mut descriptors, Some(&wait)) {
        Ok(count) => Ok(count > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::time::Instant;

    /// Each try was answered at once: a reader whose socket could not be registered kept a core busy.
    #[test]
    fn a_source_that_cannot_be_registered_is_tried_from_time_to_time() {
        let (epoll, _notify) = Epoll::new().expect("descriptors are left");
        // epoll refuses what is always ready.
        let file = File::open("/proc/self/exe").expect("Linux has it");
        let token = Token::new(3, 1, Direction::Read);
        let began = Instant::now();
        for _ in 0..5 {
            epoll.watch(file.as_fd(), token);
            epoll.enter(None).expect("epoll works");
            let mut answered = Vec::new();
            epoll.for_each_ready(|token| answered.push(token));
            assert_eq!(answered, [token]);
        }
        assert!(began.elapsed() >= REGISTER_PAUSE * 4);
    }
}
