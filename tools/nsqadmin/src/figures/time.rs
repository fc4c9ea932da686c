//! [`Now`]: a moment on two clocks. [`Answered`]: the time of an answer. And numbers, rounded for the page.

use std::sync::LazyLock;

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use serde::{Serialize, Serializer};

/// A moment on two clocks. Answers have both times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Now {
    /// The system's time, in milliseconds since 1970: for what is shown, and for the axis of charts. It jumps when the
    /// clock is set.
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
}

/// Returns the milliseconds since the system was started. The time for which it was suspended counts, because the counters
/// of the nsqds go on in that time.
fn passed_millis() -> i64 {
    let passed = clock_gettime(ClockId::Boottime);
    passed.tv_sec * 1000 + passed.tv_nsec / 1_000_000
}

/// The time of an answer, and the process that gave it. Rates are differences of counts over the time between the answers
/// of one process: the answers of other nodes may come seconds earlier or later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// The time of the answer, in steady milliseconds.
    pub steady_millis: i64,
    /// The start of the process, in seconds since 1970.
    pub start_time: i64,
}

impl Answered {
    /// Returns the seconds since an earlier answer of the same process. `None` for the answer of another process, which
    /// counts from 0, or if no time has passed.
    #[allow(clippy::cast_precision_loss)] // Two answers are some minutes apart at most.
    pub fn seconds_since(&self, earlier: &Answered) -> Option<f64> {
        let millis = self.steady_millis.saturating_sub(earlier.steady_millis);
        let is_later = millis > 0 && self.start_time == earlier.start_time;
        is_later.then(|| millis as f64 / 1000.0)
    }
}

/// Rounds a number to thousandths: the page needs no more. A server may tell one with which the product is infinite.
pub(crate) fn rounded(value: f64) -> f64 {
    let thousandths = (value * 1000.0).round();
    if thousandths.is_finite() {
        thousandths / 1000.0
    } else {
        value
    }
}

/// Writes a rounded number, or `null`, for `serialize_with`.
pub(crate) fn write_rounded<S: Serializer>(
    value: &(impl Into<Option<f64>> + Copy),
    to: S,
) -> Result<S::Ok, S::Error> {
    let value: Option<f64> = (*value).into();
    value.map(rounded).serialize(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Now {
        /// Returns a moment at which both clocks show this time.
        pub(crate) fn at(millis: i64) -> Now {
            Now {
                unix_millis: millis,
                steady_millis: millis,
            }
        }
    }
}
