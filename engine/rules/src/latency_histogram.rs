//! [`LatencyHistogram`]: the number of messages by their time from publish to FIN, since the channel was made.
//!
//! The counts only grow, so a monitoring system can add those of several nodes.

/// The upper bounds of the buckets in nanoseconds, from 100 µs to 1 h. One more bucket has no upper bound.
pub const LATENCY_BOUNDS_NS: [u64; 23] = [
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    25_000_000_000,
    50_000_000_000,
    100_000_000_000,
    250_000_000_000,
    500_000_000_000,
    1_000_000_000_000,
    3_600_000_000_000,
];

/// A histogram of fixed size: 208 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyHistogram {
    /// The number of messages in each bucket; the last one has no upper bound.
    counts: [u64; LATENCY_BOUNDS_NS.len() + 1],
    /// 128 bits: an hour for each of a million messages a second fills 64 bits within seconds.
    sum_ns: u128,
}

impl LatencyHistogram {
    /// Counts a message that took this time. A bound belongs to its bucket.
    pub(crate) fn record(&mut self, took_ns: u64) {
        let bucket = LATENCY_BOUNDS_NS.partition_point(|bound| *bound < took_ns);
        self.counts[bucket] += 1;
        self.sum_ns += u128::from(took_ns);
    }

    /// Returns for each bound of [`LATENCY_BOUNDS_NS`] how many messages took at most this time, and then the number of
    /// all messages.
    pub fn cumulative(&self) -> impl Iterator<Item = u64> {
        self.counts.iter().scan(0, |total, count| {
            *total += count;
            Some(*total)
        })
    }

    /// Returns the time of all messages together in seconds.
    #[must_use]
    pub fn sum_seconds(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// Returns whether no message was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_the_bucket_of_the_next_bound() {
        let mut histogram = LatencyHistogram::default();
        assert!(histogram.is_empty());
        assert!(LATENCY_BOUNDS_NS.is_sorted());
        for took in [0, 100_000, 100_001, 2_500_000, u64::MAX, u64::MAX] {
            histogram.record(took);
        }
        assert!(!histogram.is_empty());
        let shown: Vec<u64> = histogram.cumulative().collect();
        let expected = [&[2, 3, 3, 3][..], &[4; 19], &[6]].concat();
        assert_eq!(shown, expected);
        let sum = 2.0 * u64::MAX as f64 / 1e9 + 0.0027;
        assert!((histogram.sum_seconds() - sum).abs() < 1e-3 * sum);
        assert_eq!(size_of::<LatencyHistogram>(), 208);
    }
}
