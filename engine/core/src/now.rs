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
