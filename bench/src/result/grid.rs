//! [`Grid`]: the times of a run, on which all threads cut their intervals.

use std::ops::Range;

use crate::result::Phase;

/// The times at which the parts of a run begin and end, and the length of its intervals, in nanoseconds.
///
/// ```text
///   start     measure                     publish_end
///     |--------|----|----|----|----|----|----|--|----|----
///      warm-up            measured           drain
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grid {
    /// The first intended send; warm-up begins.
    pub start: u64,
    /// The end of warm-up; measuring begins.
    pub measure: u64,
    /// The end of publishing and of measuring.
    pub publish_end: u64,
    /// The length of an interval.
    pub interval: u64,
}

impl Grid {
    /// Returns the measured time, in nanoseconds.
    pub fn measured(&self) -> Range<u64> {
        self.measure..self.publish_end
    }

    /// Returns the first boundary behind a time. Boundaries are multiples of the interval from the start of each
    /// part, and the parts' own ends.
    pub fn boundary_after(&self, at: u64) -> u64 {
        let (from, end) = match at {
            at if at < self.measure => (self.start, self.measure),
            at if at < self.publish_end => (self.measure, self.publish_end),
            _ => (self.publish_end, u64::MAX),
        };
        let done = at.saturating_sub(from) / self.interval;
        (from + (done + 1) * self.interval).min(end)
    }

    /// Returns the phase of the interval that ends at `boundary`.
    pub fn phase_before(&self, boundary: u64) -> Phase {
        match boundary {
            at if at <= self.measure => Phase::WarmUp,
            at if at <= self.publish_end => Phase::Measure,
            _ => Phase::Drain,
        }
    }
}

#[cfg(test)]
mod tests;
