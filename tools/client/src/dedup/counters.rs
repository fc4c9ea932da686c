//! [`DedupStats`]: how many messages were fresh, and how many were not.

use std::sync::atomic::{AtomicU64, Ordering};

/// The numbers of a consumer with [`dedup`](crate::ConsumerBuilder::dedup), since the consumer was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DedupStats {
    /// The messages that were given to the application because the filter did not know them.
    pub fresh: u64,
    /// The duplicates: messages that were finished without the application.
    pub done: u64,
    /// The copies that came while the first copy was being handled, and waited.
    pub waited: u64,
    /// The copies that went back to nsqd: near nsqd's limit, or to make room for other messages.
    pub requeued: u64,
    /// The messages without a key, which were given to the application without the filter.
    pub without_key: u64,
    /// The requests to the store that failed: checks, commits and releases.
    pub store_failures: u64,
    /// The copies that wait now.
    pub waiting: u64,
    /// The bytes of memory that the filter takes now, in this process.
    pub bytes: u64,
}

/// One counter of a consumer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Count {
    Fresh,
    Done,
    Waited,
    Requeued,
    WithoutKey,
    /// A check that the store did not answer.
    FailedCheck,
    /// A commit or a release that the store did not hear of.
    FailedEnd,
}

impl Count {
    /// Returns the label of the counter in metrics.
    #[cfg(feature = "metrics")]
    fn name(self) -> &'static str {
        match self {
            Count::Fresh => "fresh",
            Count::Done => "done",
            Count::Waited => "waited",
            Count::Requeued => "requeued",
            Count::WithoutKey => "without_key",
            Count::FailedCheck | Count::FailedEnd => "store_failure",
        }
    }
}

/// The counters behind [`DedupStats`].
#[derive(Debug, Default)]
pub(crate) struct Counters([AtomicU64; 7]);

impl Counters {
    /// Adds 1 to a counter, and returns its sum. With the feature `metrics`, `nsq_client_dedup_total` counts, too.
    pub(crate) fn add(&self, count: Count) -> u64 {
        #[cfg(feature = "metrics")]
        metrics::counter!("nsq_client_dedup_total", "result" => count.name()).increment(1);
        self.0[count as usize].fetch_add(1, Ordering::Relaxed) + 1
    }

    fn get(&self, count: Count) -> u64 {
        self.0[count as usize].load(Ordering::Relaxed)
    }

    /// Returns the numbers.
    pub(crate) fn stats(&self, waiting: u64, bytes: u64) -> DedupStats {
        DedupStats {
            fresh: self.get(Count::Fresh),
            done: self.get(Count::Done),
            waited: self.get(Count::Waited),
            requeued: self.get(Count::Requeued),
            without_key: self.get(Count::WithoutKey),
            store_failures: self.get(Count::FailedCheck) + self.get(Count::FailedEnd),
            waiting,
            bytes,
        }
    }
}

#[cfg(all(test, feature = "metrics"))]
mod tests {
    use super::*;

    #[test]
    fn the_metric_counts_the_requests_that_the_stats_count() {
        let counters = Counters::default();
        let metrics = crate::metric_counts::counted(|| {
            counters.add(Count::FailedCheck);
            assert_eq!(counters.add(Count::FailedEnd), 1, "checks count apart");
            counters.add(Count::FailedEnd);
        });
        assert_eq!(counters.stats(0, 0).store_failures, 3);
        assert_eq!(metrics["nsq_client_dedup_total store_failure"], 3);
        assert_eq!(metrics.len(), 1);
    }
}
