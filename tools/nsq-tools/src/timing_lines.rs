//! [`TimingLines`]: the lines that say how long the last requests took.

use std::time::Duration;

/// The lowest number of durations from which the 99th percentile means something.
const ACCURATE_MIN: usize = 100;

/// The last durations in a ring. Each time the ring wraps, it returns a line.
#[derive(Debug)]
pub struct TimingLines {
    prefix: String,
    /// The capacity of the ring. 0 turns the lines off.
    every: usize,
    ring: Vec<Duration>,
    next: usize,
}

impl TimingLines {
    /// Returns an empty ring for the last `every` durations. Each line begins with `prefix`.
    pub fn new(prefix: &str, every: usize) -> TimingLines {
        TimingLines {
            prefix: prefix.to_owned(),
            every,
            ring: Vec::new(),
            next: 0,
        }
    }

    /// Returns the warning for a ring that is too small for percentiles.
    pub fn warning(&self) -> Option<String> {
        let every = self.every;
        (1..ACCURATE_MIN).contains(&every).then(|| {
            format!(
                "Warning: use more than 100 status values for accurate percentiles (configured with {every})"
            )
        })
    }

    /// Records one duration. Returns the line that is due, if the ring has just wrapped.
    pub fn record(&mut self, duration: Duration) -> Option<String> {
        if self.every == 0 {
            return None;
        }
        if self.ring.len() < self.every {
            self.ring.push(duration);
            return None;
        }
        let has_wrapped = self.next == 0;
        self.ring[self.next] = duration;
        self.next = (self.next + 1) % self.every;
        has_wrapped.then(|| self.line())
    }

    fn line(&self) -> String {
        let mut sorted = self.ring.clone();
        sorted.sort_unstable();
        let total: Duration = sorted.iter().sum();
        let average = total.as_secs_f64() * 1000.0 / sorted.len() as f64;
        format!(
            "{} finished {} - 99th: {:.2}ms - 95th: {:.2}ms - avg: {average:.2}ms",
            self.prefix,
            self.every,
            percentile_ms(&sorted, 99.0),
            percentile_ms(&sorted, 95.0),
        )
    }
}

/// Returns a percentile of a sorted list that is not empty, in milliseconds.
fn percentile_ms(sorted: &[Duration], percent: f64) -> f64 {
    let place = (percent / 100.0 * sorted.len() as f64 + 0.5).ceil() as usize;
    sorted[place.min(sorted.len() - 1)].as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_line_comes_with_the_first_duration_after_each_round() {
        let mut lines = TimingLines::new("[x]:", 3);
        let printed: Vec<bool> = (0..10).map(|_| lines.record(ms(1)).is_some()).collect();
        let expected = [
            false, false, false, true, false, false, true, false, false, true,
        ];
        assert_eq!(printed, expected);
    }

    #[test]
    fn the_line_is_over_the_contents_of_the_ring() {
        let mut lines = TimingLines::new("[aggregate]:", 4);
        for milliseconds in [1000, 2, 3, 4] {
            assert_eq!(lines.record(ms(milliseconds)), None);
        }
        // The fifth duration replaces the first.
        assert_eq!(
            lines.record(ms(5)).expect("a line is due"),
            "[aggregate]: finished 4 - 99th: 5.00ms - 95th: 5.00ms - avg: 3.50ms"
        );
    }

    #[test]
    fn percentiles_round_up() {
        let sorted: Vec<Duration> = (0..200).map(ms).collect();
        // ceil(198 + 0.5) and ceil(190 + 0.5).
        assert_eq!(percentile_ms(&sorted, 99.0), 199.0);
        assert_eq!(percentile_ms(&sorted, 95.0), 191.0);
        let sorted: Vec<Duration> = (0..1000).map(ms).collect();
        assert_eq!(percentile_ms(&sorted, 99.0), 991.0);
        assert_eq!(percentile_ms(&[ms(7)], 95.0), 7.0);
    }

    #[test]
    fn a_ring_of_none_records_nothing() {
        let mut lines = TimingLines::new("[x]:", 0);
        assert!((0..1000).all(|_| lines.record(ms(1)).is_none()));
        assert_eq!(lines.warning(), None);
    }

    #[test]
    fn a_small_ring_has_a_warning() {
        let warning = |every| TimingLines::new("[x]:", every).warning();
        assert_eq!(
            warning(50).as_deref(),
            Some(
                "Warning: use more than 100 status values for accurate percentiles (configured with 50)"
            )
        );
        assert!(warning(99).is_some());
        assert_eq!(warning(100), None);
    }
}
