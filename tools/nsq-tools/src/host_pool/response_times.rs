//! [`ResponseTimes`]: the response times of one destination in the last five minutes.

use std::time::Duration;

/// The number of buckets.
const BUCKETS: usize = 120;

/// The time that one bucket covers: all buckets cover five minutes.
const BUCKET_TIME: Duration = Duration::from_millis(2500);

/// Response times in buckets of 2.5 s, in whole milliseconds.
#[derive(Debug)]
pub(super) struct ResponseTimes {
    buckets: Vec<Bucket>,
    /// The number of the newest bucket, counted from time zero.
    newest: u128,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    count: u64,
    sum_ms: u64,
}

impl Default for ResponseTimes {
    fn default() -> ResponseTimes {
        ResponseTimes {
            buckets: vec![Bucket::default(); BUCKETS],
            newest: 0,
        }
    }
}

impl ResponseTimes {
    /// Records the time of one success. Fractions of milliseconds are dropped.
    pub(super) fn record(&mut self, time: Duration, now: Duration) {
        self.advance(now);
        let place = self.place(self.newest);
        let bucket = &mut self.buckets[place];
        bucket.count += 1;
        bucket.sum_ms += u64::try_from(time.as_millis()).unwrap_or(u64::MAX / 2);
    }

    /// Returns the weighted sum of the buckets' averages, in milliseconds. The oldest bucket has the
    /// weight 1/120, and the newest one 120/120. An empty bucket repeats the value before it. The
    /// result is 0 without times, and when all times are below a millisecond.
    pub(super) fn average(&mut self, now: Duration) -> f64 {
        self.advance(now);
        let mut sum = 0.0;
        let mut value = 0.0;
        for age in 1..=BUCKETS {
            let place = (self.place(self.newest) + age) % BUCKETS;
            let bucket = self.buckets[place];
            if bucket.count > 0 {
                value = bucket.sum_ms as f64 / bucket.count as f64;
            }
            sum += value * age as f64 / BUCKETS as f64;
        }
        sum
    }

    /// Empties the buckets that began since the last call.
    fn advance(&mut self, now: Duration) {
        let current = now.as_nanos() / BUCKET_TIME.as_nanos();
        let begun = current.saturating_sub(self.newest).min(BUCKETS as u128);
        for step in 0..begun {
            let place = self.place(current - step);
            self.buckets[place] = Bucket::default();
        }
        self.newest = self.newest.max(current);
    }

    fn place(&self, bucket: u128) -> usize {
        (bucket % BUCKETS as u128) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(times: &mut ResponseTimes, now: Duration, expected: f64) {
        let average = times.average(now);
        assert!(
            (average - expected).abs() < 1e-9,
            "{average}, not {expected}"
        );
    }

    #[test]
    fn the_newest_bucket_has_the_whole_weight() {
        let mut times = ResponseTimes::default();
        check(&mut times, Duration::ZERO, 0.0);
        times.record(Duration::from_millis(10), Duration::ZERO);
        times.record(Duration::from_millis(20), Duration::ZERO);
        check(&mut times, Duration::ZERO, 15.0);
    }

    #[test]
    fn an_empty_bucket_repeats_the_value_before_it() {
        let mut times = ResponseTimes::default();
        times.record(Duration::from_millis(12), Duration::ZERO);
        // The bucket is now the second newest, and the newest is empty: weights 119/120 and 120/120.
        check(&mut times, BUCKET_TIME, 12.0 * (119.0 + 120.0) / 120.0);
        times.record(Duration::from_millis(24), BUCKET_TIME);
        check(
            &mut times,
            BUCKET_TIME,
            (12.0 * 119.0 + 24.0 * 120.0) / 120.0,
        );
    }

    #[test]
    fn times_are_forgotten_after_five_minutes() {
        let mut times = ResponseTimes::default();
        times.record(Duration::from_millis(12), Duration::ZERO);
        let last = BUCKET_TIME * 119;
        // All 120 buckets repeat the value of the oldest one: the sum of 1 to 120, by 120.
        check(&mut times, last, 12.0 * 60.5);
        check(&mut times, BUCKET_TIME * 120, 0.0);
        check(&mut times, BUCKET_TIME * 100_000, 0.0);
    }

    #[test]
    fn times_below_a_millisecond_count_as_zero() {
        let mut times = ResponseTimes::default();
        times.record(Duration::from_micros(999), Duration::ZERO);
        check(&mut times, Duration::ZERO, 0.0);
    }
}
