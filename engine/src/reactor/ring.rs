//! [`Ring`]: the io_uring of a thread, as far as it is needed: polls.

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{Builder, IoUring, opcode, squeue};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Requests that go to the kernel together. More wait for the next time.
const SUBMISSIONS: u32 = 256;
/// Completions that fit before the kernel has to keep them itself.
const COMPLETIONS: u32 = 2048;

/// Names a request. The parts mean something to the reactor only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token(u64);

/// The poll of the thread's own wake-up, for [`Event::Readable`].
pub(super) const NOTIFIED: Token = Token(!(3 << 32));
/// Requests whose completion is of no interest.
const IGNORED: Token = Token(u64::MAX);

/// The event that a poll waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// There is something to read, or the peer has ended its side.
    Readable,
    /// There is room to write.
    Writable,
    /// The peer has ended its side.
    HungUp,
}

impl Token {
    /// Names the poll of a source for an event. The serial number distinguishes the sources that have had the
    /// same index.
    pub(super) fn new(index: usize, serial: u32, event: Event) -> Token {
        debug_assert!(index < 1 << 30, "descriptors are fewer");
        Token((index as u64) << 34 | (event as u64) << 32 | u64::from(serial))
    }

    pub(super) fn index(self) -> usize {
        (self.0 >> 34) as usize
    }

    pub(super) fn serial(self) -> u32 {
        self.0 as u32
    }

    pub(super) fn event(self) -> Event {
        match self.0 >> 32 & 3 {
            0 => Event::Readable,
            1 => Event::Writable,
            _ => Event::HungUp,
        }
    }
}

/// The ring of one thread.
pub(super) struct Ring {
    ring: RefCell<IoUring>,
    /// What did not fit.
    waiting: RefCell<VecDeque<squeue::Entry>>,
}

impl Ring {
    /// Makes a ring.
    ///
    /// # Errors
    /// The system's answer.
    pub(super) fn new() -> io::Result<Ring> {
        Ok(Ring {
            ring: RefCell::new(build()?),
            waiting: RefCell::default(),
        })
    }

    /// Reports once when the event that the token names has come.
    pub(super) fn watch(&self, descriptor: BorrowedFd<'_>, token: Token) {
        let events = match token.event() {
            Event::Readable => libc::POLLIN | libc::POLLRDHUP,
            Event::Writable => libc::POLLOUT,
            Event::HungUp => libc::POLLRDHUP,
        };
        let poll = opcode::PollAdd::new(Fd(descriptor.as_raw_fd()), events as u32);
        self.push(poll.build().user_data(token.0));
    }

    /// Ends a poll. It holds its file open until then.
    pub(super) fn cancel(&self, token: Token) {
        let cancel = opcode::PollRemove::new(token.0);
        self.push(cancel.build().user_data(IGNORED.0));
    }

    #[allow(unsafe_code)]
    fn push(&self, entry: squeue::Entry) {
        let mut ring = self.ring.borrow_mut();
        let mut waiting = self.waiting.borrow_mut();
        // SAFETY: polls and their removals point to no memory. A descriptor that is not open when
        // the kernel looks at it is an error in the completion.
        if !waiting.is_empty() || unsafe { ring.submission().push(&entry) }.is_err() {
            waiting.push_back(entry);
        }
    }

    /// Whether there are completions to take, maybe only after [`Ring::enter`]. No system call.
    pub(super) fn has_news(&self) -> bool {
        let mut ring = self.ring.borrow_mut();
        ring.submission().taskrun() || !ring.completion().is_empty()
    }

    /// Submits everything and waits for a completion: `None` for ever, zero not at all. May return
    /// early.
    ///
    /// # Errors
    /// The ring does not work.
    pub(super) fn enter(&self, wait: Option<Duration>) -> io::Result<()> {
        self.push_waiting();
        let is_left = !self.waiting.borrow().is_empty();
        let mut ring = self.ring.borrow_mut();
        let entered = match wait {
            Some(Duration::ZERO) => {
                let submissions = ring.submission();
                let is_needed =
                    !submissions.is_empty() || submissions.taskrun() || submissions.cq_overflow();
                drop(submissions);
                if is_needed { ring.submit() } else { Ok(0) }
            }
            _ if is_left => ring.submit(),
            None => ring.submit_and_wait(1),
            Some(wait) => {
                let timeout = Timespec::from(wait);
                let arguments = SubmitArgs::new().timespec(&timeout);
                ring.submitter().submit_with_args(1, &arguments)
            }
        };
        match entered {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // The time is over; a signal; completions have to be taken first.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }

    #[allow(unsafe_code)]
    fn push_waiting(&self) {
        let mut waiting = self.waiting.borrow_mut();
        let mut ring = self.ring.borrow_mut();
        let mut submissions = ring.submission();
        while let Some(entry) = waiting.front() {
            // SAFETY: as in `push`.
            if unsafe { submissions.push(entry) }.is_err() {
                return;
            }
            waiting.pop_front();
        }
    }

    /// Takes the polls that have ended. An error counts as readiness: whoever tries to read or write
    /// will see it.
    pub(super) fn for_each_completion(&self, mut each: impl FnMut(Token)) {
        loop {
            // One at a time: `each` may push.
            let Some(entry) = self.ring.borrow_mut().completion().next() else {
                return;
            };
            let token = Token(entry.user_data());
            if token != IGNORED {
                each(token);
            }
        }
    }
}

/// With what the kernel has to keep completions from interrupting the thread, newest first: it takes
/// them when it enters.
fn build() -> io::Result<IoUring> {
    let attempts: [fn(&mut Builder) -> &mut Builder; 3] = [
        // Linux 6.1.
        |builder| {
            builder
                .setup_single_issuer()
                .setup_defer_taskrun()
                .setup_taskrun_flag()
        },
        // Linux 5.19.
        |builder| builder.setup_coop_taskrun().setup_taskrun_flag(),
        |builder| builder,
    ];
    let mut result = Err(io::ErrorKind::Unsupported.into());
    for choose in attempts {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(COMPLETIONS);
        result = choose(&mut builder).build(SUBMISSIONS);
        let is_unknown = |error: &io::Error| error.raw_os_error() == Some(libc::EINVAL);
        if !result.as_ref().is_err_and(is_unknown) {
            break;
        }
    }
    result
}
