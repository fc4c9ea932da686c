//! [`Ring`]: the io_uring of a thread. It polls descriptors, receives for connections with small requests, and sends the
//! small outputs of several connections together.

mod buffers;
mod receiving;
mod sends;
mod setup;
mod trial;

use super::notify::{Notify, take_wakeup};
use super::token::{Direction, Received, Token};
use super::{SENDS_MAX, Sent};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, opcode, squeue};
use receiving::{Completion, Receiving, Then};
use sends::Sends;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The poll of the thread's own wake-up.
const NOTIFIED: Token = Token(u64::MAX - 1);
/// Requests whose completion is of no interest.
const IGNORED: Token = Token(u64::MAX);
/// The request that sends the output at index n has this number plus n. No token is as large.
const FIRST_SEND: u64 = u64::MAX - 1 - SENDS_MAX as u64;
const LAST_SEND: u64 = FIRST_SEND + SENDS_MAX as u64 - 1;

/// The pause before a writer tries again whose peer has ended its side and leaves no room.
static HANGUP_PAUSE: Timespec = Timespec::new().nsec(100_000_000);

/// The time for which the making of a ring is tried.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The time for which the registration of buffers is tried. A shard also works without them.
const RETRY_TIME: Duration = Duration::from_millis(100);

/// The verdict of the first trial of this process that could be made: all rings have the same kernel. A trial that the
/// kernel does not pass takes 50 ms.
static TELLS_ENDS: OnceLock<bool> = OnceLock::new();

/// The ring of one thread.
pub(super) struct Ring {
    ring: RefCell<IoUring>,
    /// Requests that did not fit.
    waiting: RefCell<VecDeque<squeue::Entry>>,
    /// Answers that came while the ring waited for the completions of other requests. [`NOTIFIED`] is one.
    early: RefCell<VecDeque<Token>>,
    /// `None` if the kernel has no buffers for it.
    receiving: Option<RefCell<Receiving>>,
    sends: RefCell<Sends>,
    /// The number of the error by which the ring has failed. 0: it works.
    failure: Cell<i32>,
    /// Becomes readable when the thread is to wake up.
    eventfd: Arc<OwnedFd>,
}

impl Ring {
    /// Makes a ring, and what wakes its thread.
    ///
    /// # Errors
    /// The system's answer.
    pub(super) fn new() -> io::Result<(Ring, Arc<Notify>)> {
        Ring::built_by(setup::build)
    }

    fn built_by(build: impl Fn() -> io::Result<IoUring>) -> io::Result<(Ring, Arc<Notify>)> {
        let (eventfd, notify) = Notify::with_eventfd()?;
        let ring = setup::with_retries(TIMEOUT, build)?;
        let can_be_tried = setup::is_deferring(&ring);
        let ring = Ring {
            // Without the buffers, the connections are read with `recv`.
            receiving: setup::with_retries(RETRY_TIME, || Receiving::new(&ring))
                .ok()
                .map(RefCell::new),
            ring: RefCell::new(ring),
            waiting: RefCell::default(),
            early: RefCell::default(),
            sends: RefCell::default(),
            failure: Cell::new(0),
            eventfd,
        };
        ring.poll(ring.eventfd.as_fd(), libc::POLLIN, NOTIFIED);
        #[cfg(test)]
        let can_be_tried = can_be_tried && !super::REFUSES_RECEIVING.get();
        if !can_be_tried || !trial::verdict(&TELLS_ENDS, || ring.tells_ends()) {
            // It receives for no descriptor.
            ring.at_receiving(Receiving::refuse);
        }
        Ok((ring, notify))
    }

    // --- polls

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

    /// Answers a wait for room after a pause. The writer then tries, and waits again if there is no room.
    fn pause(&self, token: Token) {
        let timeout = opcode::Timeout::new(&HANGUP_PAUSE);
        self.push(timeout.build().user_data(token.0));
    }

    /// Ends a poll. The poll holds its file open until then.
    pub(super) fn cancel(&self, token: Token) {
        let cancel = opcode::PollRemove::new(token.0);
        self.push(cancel.build().user_data(IGNORED.0));
    }

    // --- receiving

    /// See [`super::driver::Driver::receive`].
    pub(super) fn receive(&self, descriptor: BorrowedFd<'_>, token: Token) -> bool {
        let is_begun = self.at_receiving(|it| it.begin(token)) == Some(true);
        if is_begun {
            let receive = opcode::RecvMulti::new(Fd(descriptor.as_raw_fd()), buffers::GROUP);
            self.push(receive.build().user_data(token.of_receiving().0));
        }
        is_begun
    }

    /// See [`super::driver::Driver::take_received`].
    pub(super) fn take_received(&self, token: Token, room: &mut [u8]) -> Received {
        let taken = self.at_receiving(|it| it.take(token, room));
        taken.unwrap_or(Received::Off)
    }

    /// See [`super::driver::Driver::receives`].
    pub(super) fn receives(&self) -> bool {
        self.at_receiving(|it| it.is_refused()) == Some(false)
    }

    fn is_receiving(&self, token: Token) -> bool {
        self.at_receiving(|it| it.is_armed(token)) == Some(true)
    }

    /// Lets the receiving act, if the kernel has buffers for it.
    fn at_receiving<R>(&self, act: impl FnOnce(&mut Receiving) -> R) -> Option<R> {
        let receiving = self.receiving.as_ref()?;
        Some(act(&mut receiving.borrow_mut()))
    }

    /// See [`super::driver::Driver::end_receiving`].
    pub(super) fn end_receiving(&self, token: Token) {
        if self.at_receiving(|it| it.end(token)) == Some(true) {
            self.cancel_receiving(token);
        }
    }

    /// See [`super::driver::Driver::stop_receiving`].
    pub(super) fn stop_receiving(&self, token: Token) {
        self.end_receiving(token);
        self.wait_while(|| self.is_receiving(token));
    }

    /// See [`super::driver::Driver::forget_received`].
    ///
    /// Waits for the end of the request. A request that reached the kernel after the descriptor was closed would take the
    /// input of the next socket with the same number, and a request that does not end keeps the socket open.
    pub(super) fn forget_received(&self, token: Token) {
        self.stop_receiving(token);
        self.at_receiving(|it| it.forget(token));
    }

    fn cancel_receiving(&self, token: Token) {
        let cancel = opcode::AsyncCancel::new(token.of_receiving().0);
        self.push(cancel.build().user_data(token.of_end().0));
    }

    // --- sending

    /// See [`super::driver::Driver::stage_send`].
    pub(super) fn stage_send(&self, descriptor: BorrowedFd<'_>, output: &[IoSlice<'_>]) -> bool {
        self.sends.borrow_mut().stage(descriptor, output)
    }

    /// See [`super::driver::Driver::send_staged`].
    pub(super) fn send_staged(&self, mut each: impl FnMut(Sent)) {
        let count = self.sends.borrow_mut().begin();
        for index in 0..count {
            let request = self.sends.borrow().request(index);
            self.push(request.user_data(FIRST_SEND + index as u64));
        }
        self.wait_while(|| self.sends.borrow().is_under_way());
        for index in 0..count {
            let sent = self.sends.borrow().sent(index);
            each(sent);
        }
        self.sends.borrow_mut().clear();
    }

    // --- the kernel

    #[allow(unsafe_code)]
    fn push(&self, entry: squeue::Entry) {
        let mut ring = self.ring.borrow_mut();
        let mut waiting = self.waiting.borrow_mut();
        // SAFETY: a timeout points to a static, and a send to the memory of `Sends`. This memory is not written before the completion of
        // the send: `send_staged` waits for it. If the ring fails before, no further request is submitted. If a
        // descriptor is not open when the kernel looks at it, the completion is an error. If it is open again as
        // another file, a poll is answered for nothing. Requests that send and receive are submitted before their
        // descriptor is closed.
        if !waiting.is_empty() || unsafe { ring.submission().push(&entry) }.is_err() {
            waiting.push_back(entry);
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

    /// Returns whether there are answers to take, maybe only after [`Ring::enter`]. No system call.
    pub(super) fn has_news(&self) -> bool {
        let mut ring = self.ring.borrow_mut();
        ring.submission().taskrun()
            || !ring.completion().is_empty()
            || !self.early.borrow().is_empty()
    }

    /// Submits everything and waits for an answer: `None` for ever, zero not at all. May return early.
    ///
    /// # Errors
    /// The ring does not work.
    pub(super) fn enter(&self, wait: Option<Duration>) -> io::Result<()> {
        let is_answered = !self.early.borrow().is_empty();
        self.enter_kernel(if is_answered {
            Some(Duration::ZERO)
        } else {
            wait
        })
    }

    /// Submits everything and waits for a completion, as [`Ring::enter`].
    fn enter_kernel(&self, wait: Option<Duration>) -> io::Result<()> {
        if self.failure.get() != 0 {
            return Err(io::Error::from_raw_os_error(self.failure.get()));
        }
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
                number => {
                    self.failure.set(number.unwrap_or(libc::EIO));
                    Err(error)
                }
            },
        }
    }

    /// Takes completions until the condition is no longer true. Waits that are answered meanwhile are kept for
    /// [`Ring::for_each_ready`].
    ///
    /// Returns at once if the ring does not work. The reactor's next [`Ring::enter`] then returns the same error, and
    /// the shard ends.
    fn wait_while(&self, mut condition: impl FnMut() -> bool) {
        while condition() && self.enter_kernel(None).is_ok() {
            self.take_completions(|token| self.early.borrow_mut().push_back(token));
        }
    }

    /// See [`super::driver::Driver::for_each_ready`].
    pub(super) fn for_each_ready(&self, mut each: impl FnMut(Token)) -> bool {
        let mut is_woken = false;
        let mut answer = |token| match token {
            NOTIFIED => is_woken = true,
            token => each(token),
        };
        // One at a time: `each` may push.
        while let Some(token) = { self.early.borrow_mut().pop_front() } {
            answer(token);
        }
        self.take_completions(answer);
        is_woken
    }

    /// Takes the completions that are there, and calls `answer` with the token of each answered wait. A wake-up by another
    /// thread has the token [`NOTIFIED`].
    ///
    /// The tokens of the ring itself have the bits of a receiving, too. So the ring compares with them before it looks at
    /// these bits.
    fn take_completions(&self, mut answer: impl FnMut(Token)) {
        loop {
            // One at a time: `answer` may push.
            let Some(entry) = self.ring.borrow_mut().completion().next() else {
                return;
            };
            match Token(entry.user_data()) {
                IGNORED => {}
                NOTIFIED => {
                    take_wakeup(&self.eventfd);
                    self.poll(self.eventfd.as_fd(), libc::POLLIN, NOTIFIED);
                    answer(NOTIFIED);
                }
                Token(number @ FIRST_SEND..=LAST_SEND) => {
                    let index = (number - FIRST_SEND) as usize;
                    self.sends.borrow_mut().complete(index, entry.result());
                }
                token if token.is_of_receiving() || token.is_of_end() => {
                    match self.complete_receiving(token, Completion::of(&entry)) {
                        Then::Nothing => {}
                        Then::Wake => answer(token),
                        Then::WakeAndEnd => {
                            self.cancel_receiving(token);
                            answer(token);
                        }
                        Then::End => self.cancel_receiving(token),
                    }
                }
                // The kernel tells each poll of a peer that has ended its side, again and again.
                token if tells_only_hangup(token, entry.result()) => self.pause(token),
                token => answer(token),
            }
        }
    }

    fn complete_receiving(&self, token: Token, completion: Completion) -> Then {
        let then = self.at_receiving(|it| {
            if token.is_of_end() {
                it.complete_end(token, completion)
            } else {
                it.complete(token, completion)
            }
        });
        then.unwrap_or(Then::Nothing)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let Some(receiving) = self.receiving.take() else {
            return;
        };
        // The kernel may write to the buffers until their registration ends. If it cannot end, the memory stays.
        let unregistered = receiving.borrow().unregister(self.ring.get_mut());
        if unregistered.is_err() {
            std::mem::forget(receiving);
        }
    }
}

/// Returns whether the result of a poll for room says only that the peer has ended its side. io_uring adds this event to
/// each poll.
fn tells_only_hangup(token: Token, result: i32) -> bool {
    token.direction() == Direction::Write && result == i32::from(libc::POLLRDHUP)
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

#[cfg(test)]
mod tests;
