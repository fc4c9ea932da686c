//! [`Now`]: the time of an input.

use std::time::Duration;

/// Both clocks, read once by the shell for a batch of input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Monotonic time since the start of the process: for every deadline.
    pub mono: Duration,
    /// Unix time in nanoseconds: for timestamps of messages and what must survive a restart.
    pub wall_ns: u64,
}

impl Now {
    /// The Unix time of a moment in nanoseconds, or the current time if the moment has passed.
    #[must_use]
    pub fn unix_time_of(self, at: Duration) -> u64 {
        let wait = at.saturating_sub(self.mono).as_nanos() as u64;
        self.wall_ns.saturating_add(wait)
    }

    /// Returns the monotonic time of a recorded due time. A due time in the past becomes the current time. `None` if
    /// `due_ns` is 0: the message is not deferred.
    #[must_use]
    pub fn due_time(self, due_ns: u64) -> Option<Duration> {
        let wait = Duration::from_nanos(due_ns.saturating_sub(self.wall_ns));
        (due_ns > 0).then(|| self.mono + wait)
    }
}
