//! [`Clock`]: the monotonic clock and the wall clock of all shards.

use engine_rules::Now;
use std::time::{Instant, SystemTime};

/// Both clocks, from one start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock {
            start: Instant::now(),
        }
    }

    pub(crate) fn now(&self) -> Now {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        // A wall clock before 1970 is no clock; seqs and timestamps stay valid with zero.
        let wall_ns = unix.map_or(0, |since| since.as_nanos() as u64);
        Now {
            mono: self.start.elapsed(),
            wall_ns,
        }
    }
}
