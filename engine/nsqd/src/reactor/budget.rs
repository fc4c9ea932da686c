//! [`Budget`]: the amount of work that one poll of a task may do, so that no task keeps the others of its thread from
//! their turn.
//!
//! A task runs out of work only when its peer is slower than the shard. So each read of a [`Source`](super::Source), and
//! every other loop without a natural end, counts its bytes. A task whose budget is
//! spent waits until the others have had their turn. In debug builds, a task that goes on ends the process, and so does
//! a poll that takes too much processor time: a loop that counts nothing.

use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::time::Duration;

/// The bytes after which a poll of a task ends: some 100 us of work.
pub(crate) const BYTES_PER_POLL: usize = 128 * 1024;

/// The most processor time of one poll in a debug build. The longest polls of the tests take a tenth of it (a batch of a
/// million messages is stored as a whole). A loop without end takes more on any machine, and the time does not run while
/// another process has the processor.
const TIME_MAX: Duration = Duration::from_secs(4);

/// The work of the poll that runs, and of the polls since the last look.
#[derive(Default)]
pub(super) struct Budget {
    /// Bytes since the last look.
    bytes: Cell<usize>,
    /// The part of `bytes` that is of earlier polls.
    bytes_before: Cell<usize>,
    /// The processor time of this thread at which the poll takes too long. Not used in release builds.
    time_end: Cell<Duration>,
}

impl Budget {
    /// Begins a poll with the whole budget.
    pub(super) fn begin_poll(&self) {
        self.bytes_before.set(self.bytes.get());
        self.restart_clock();
    }

    /// Ends a poll.
    ///
    /// # Panics
    /// In debug builds, if the poll took too long.
    pub(super) fn end_poll(&self) {
        if cfg!(debug_assertions) {
            let is_in_time = thread_time() <= self.time_end.get();
            assert!(is_in_time, "one poll of a task took more than {TIME_MAX:?}");
        }
    }

    /// Measures the time of the poll from now on.
    pub(super) fn restart_clock(&self) {
        if cfg!(debug_assertions) {
            self.time_end.set(thread_time() + TIME_MAX);
        }
    }

    /// Notes that the engine was asked.
    pub(super) fn begin_look(&self) {
        self.bytes.set(0);
        self.bytes_before.set(0);
    }

    /// Returns the bytes since the last look.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Returns whether the poll has to end.
    pub(super) fn is_spent(&self) -> bool {
        self.bytes.get() - self.bytes_before.get() >= BYTES_PER_POLL
    }

    /// Counts a step of the poll that has this many bytes.
    ///
    /// # Panics
    /// In debug builds, if the budget was spent before this step.
    pub(super) fn count(&self, bytes: usize) {
        debug_assert!(!self.is_spent(), "a task goes on although it should end");
        self.count_more(bytes);
    }

    /// Counts further bytes of the last step.
    pub(super) fn count_more(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes);
    }
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "one poll of a task took more than")]
    fn a_poll_that_takes_too_long_fails_in_debug_builds() {
        let budget = Budget::default();
        budget.begin_poll();
        budget.end_poll();
        budget.begin_poll();
        budget.time_end.set(Duration::ZERO);
        budget.end_poll();
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a task goes on although it should end")]
    fn a_task_that_goes_on_after_its_budget_fails_in_debug_builds() {
        let budget = Budget::default();
        budget.begin_poll();
        budget.count(BYTES_PER_POLL - 1);
        budget.count_more(1);
        budget.begin_poll();
        budget.count(BYTES_PER_POLL);
        budget.count(1);
    }
}
