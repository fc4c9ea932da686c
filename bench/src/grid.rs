//! [`Grid`]: the times of a run, on which all threads cut their intervals.

use std::ops::Range;

use crate::result::Phase;

/// When a run's parts begin and end, and its intervals. All in nanoseconds.
///
/// ```text
///   start     measure                     publish_end
///     |--------|----|----|----|----|----|----|--|----|----
///      warm-up            measured           drain
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// The first intended send.
    pub start: u64,
    /// Where measuring begins.
    pub measure: u64,
    /// Where publishing and measuring end.
    pub publish_end: u64,
    /// Length of an interval.
    pub interval: u64,
}

impl Grid {
    /// The measured time.
    #[must_use]
    pub fn measured(&self) -> Range<u64> {
        self.measure..self.publish_end
    }

    /// The first boundary behind a time: multiples of the interval from the start of each part, and
    /// the parts' own ends.
    #[must_use]
    pub fn boundary_after(&self, at: u64) -> u64 {
        let (from, end) = match at {
            at if at < self.measure => (self.start, self.measure),
            at if at < self.publish_end => (self.measure, self.publish_end),
            _ => (self.publish_end, u64::MAX),
        };
        let done = at.saturating_sub(from) / self.interval;
        (from + (done + 1) * self.interval).min(end)
    }

    /// The phase of the interval that ends at `boundary`.
    #[must_use]
    pub fn phase_before(&self, boundary: u64) -> Phase {
        match boundary {
            at if at <= self.measure => Phase::WarmUp,
            at if at <= self.publish_end => Phase::Measure,
            _ => Phase::Drain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_fall_on_the_ends_of_the_parts() {
        let grid = Grid {
            start: 100,
            measure: 125,
            publish_end: 150,
            interval: 10,
        };
        let mut at = grid.start;
        let mut rows = Vec::new();
        while at < 175 {
            at = grid.boundary_after(at);
            rows.push((at, grid.phase_before(at)));
        }
        let times: Vec<u64> = rows.iter().map(|row| row.0).collect();
        assert_eq!(times, [110, 120, 125, 135, 145, 150, 160, 170, 180]);
        assert_eq!(rows[2].1, Phase::WarmUp);
        assert_eq!(rows[3].1, Phase::Measure);
        assert_eq!(rows[5].1, Phase::Measure);
        assert_eq!(rows[6].1, Phase::Drain);
    }
}
