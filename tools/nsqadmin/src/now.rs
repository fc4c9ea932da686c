//! [`Now`]: a moment on two clocks.

use std::sync::LazyLock;

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// A moment on two clocks. Answers have both times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Now {
    /// The system's time, in milliseconds since 1970: for what is shown, and for the axis of charts. It jumps when the clock
    /// is set.
    #[serde(rename = "time")]
    pub unix_millis: i64,
    /// The system's time at the start of this process, and the time that has passed since then, in milliseconds: for all
    /// differences. It never jumps.
    #[serde(rename = "steady_ms")]
    pub steady_millis: i64,
}

impl Now {
    /// Reads both clocks.
    pub fn read() -> Now {
        static OFFSET: LazyLock<i64> =
            LazyLock::new(|| Timestamp::now().as_millisecond() - passed_millis());
        Now {
            unix_millis: Timestamp::now().as_millisecond(),
            steady_millis: *OFFSET + passed_millis(),
        }
    }

    /// Returns a moment at which both clocks show this time.
    #[cfg(test)]
    pub(crate) fn at(millis: i64) -> Now {
        Now {
            unix_millis: millis,
            steady_millis: millis,
        }
    }
}

/// Returns the milliseconds since the system was started. The time for which it was suspended counts, because the counters
/// of the nsqds go on in that time.
fn passed_millis() -> i64 {
    let passed = clock_gettime(ClockId::Boottime);
    passed.tv_sec * 1000 + passed.tv_nsec / 1_000_000
}
