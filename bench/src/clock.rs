//! [`Clock`]: Unix time in nanoseconds that never steps.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A clock that shows Unix time and never steps: the system's time when the clock was made, plus the time that the
/// monotonic clock counted since. Copies agree with each other.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    origin_ns: u64,
}

impl Clock {
    /// Makes a clock that shows the system's time of this moment.
    pub fn start() -> Clock {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        Clock {
            origin: Instant::now(),
            origin_ns: nanoseconds(unix.unwrap_or_default()),
        }
    }

    /// Returns the time in nanoseconds of Unix time.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.origin_ns + nanoseconds(self.origin.elapsed())
    }
}

/// A duration in nanoseconds, at most the 584 years that fit.
#[inline]
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
