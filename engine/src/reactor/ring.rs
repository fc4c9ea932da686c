//! [`Ring`]: the io_uring of a thread. It is used for polls only.

use super::driver::{Direction, Token};
use super::notify::{Notify, take_wakeup};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{Builder, EnterFlags, IoUring, opcode, squeue};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Requests that go to the kernel together. More wait for the next time.
const SUBMISSIONS: u32 = 256;
/// Completions that fit before the kernel has to keep them itself.
const COMPLETIONS: u32 = 2048;

/// The time for which the making of a ring is tried.
const TIMEOUT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);

/// The poll of the thread's own wake-up.
const NOTIFIED: Token = Token(u64::MAX - 1);
/// Requests whose completion is of no interest.
const IGNORED: Token = Token(u64::MAX);

/// The ring of one thread.
pub(super) struct Ring {
    ring: RefCell<IoUring>,
    /// Requests that did not fit.
    waiting: RefCell<VecDeque<squeue::Entry>>,
    /// Becomes readable when the thread is to wake up.
    eventfd: Arc<OwnedFd>,
}

impl Ring {
    /// Makes a ring, and what wakes its thread.
    ///
    /// # Errors
    /// The system's answer.
    pub(super) fn new() -> io::Result<(Ring, Arc<Notify>)> {
        let (eventfd, notify) = Notify::with_eventfd()?;
        let ring = Ring {
            ring: RefCell::new(build_with_retries()?),
            waiting: RefCell::default(),
            eventfd,
        };
        ring.poll(ring.eventfd.as_fd(), libc::POLLIN, NOTIFIED);
        Ok((ring, notify))
    }

    /// See [`super::driver::Driver::watch`].
    pub(super) fn watch(&self, descriptor: BorrowedFd<'_>, token: Token) {
        let readiness = match token.direction() {
            Direction::Read => libc::POLLIN | libc::POLLRDHUP,
            Direction::Write => libc::POLLOUT,
        };
        self.poll(descriptor, readiness, token);
    }

    fn poll(&self, descriptor: BorrowedFd<'_>, readiness: libc::c_short, token: Token) {
        let poll = opcode::PollAdd::new(Fd(descriptor.as_raw_fd()), readiness as u32);
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

    /// Returns whether there are completions to take, maybe only after [`Ring::enter`]. No system call.
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
            wait => submit_and_wait(&mut ring, wait),
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

    /// See [`super::driver::Driver::for_each_ready`].
    pub(super) fn for_each_ready(&self, mut each: impl FnMut(Token)) -> bool {
        let mut is_woken = false;
        loop {
            // One at a time: `each` may push.
            let Some(entry) = self.ring.borrow_mut().completion().next() else {
                return is_woken;
            };
            match Token(entry.user_data()) {
                IGNORED => {}
                NOTIFIED => {
                    is_woken = true;
                    take_wakeup(&self.eventfd);
                    self.poll(self.eventfd.as_fd(), libc::POLLIN, NOTIFIED);
                }
                token => each(token),
            }
        }
    }
}

/// Submits everything and waits for a completion.
///
/// Linux counts a wait in a ring as I/O wait, so that an idle machine looks like one with a busy disk. From 6.15 on
/// a flag says that it is none.
#[allow(unsafe_code)]
fn submit_and_wait(ring: &mut IoUring, wait: Option<Duration>) -> io::Result<usize> {
    let mut flags = EnterFlags::GETEVENTS;
    flags.set(EnterFlags::NO_IOWAIT, ring.params().is_feature_no_iowait());
    let timeout = wait.map(Timespec::from);
    let submissions = ring.submission().len() as u32;
    let Some(timeout) = &timeout else {
        // SAFETY: without an argument the kernel reads no memory but the ring's.
        return unsafe {
            ring.submitter()
                .enter::<SubmitArgs<'_, '_>>(submissions, 1, flags.bits(), None)
        };
    };
    flags.insert(EnterFlags::EXT_ARG);
    let arguments = SubmitArgs::new().timespec(timeout);
    // SAFETY: with this flag the kernel reads the arguments and the time that they point to. Both outlive the call.
    unsafe {
        ring.submitter()
            .enter(submissions, 1, flags.bits(), Some(&arguments))
    }
}

/// Makes a ring. The kernel gives the locked memory of an earlier ring back a little later: the memory of
/// [`super::try_engine`], or of a process that was killed.
fn build_with_retries() -> io::Result<IoUring> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match build() {
            Err(error)
                if error.kind() == io::ErrorKind::OutOfMemory && Instant::now() < deadline =>
            {
                std::thread::sleep(PAUSE);
            }
            result => return result,
        }
    }
}

/// Makes a ring in the newest mode that the kernel knows. The first two modes deliver completions only when the thread
/// enters the kernel.
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
