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
    /// The copies that came while their twin was being handled, and waited.
    pub waited: u64,
    /// The copies that went back to nsqd because their twin had no answer for too long.
    pub requeued: u64,
    /// The messages without a key, which were given to the application without the filter.
    pub without_key: u64,
    /// The questions that the store did not answer.
    pub store_failures: u64,
    /// The copies that wait now.
    pub waiting: u64,
    /// The bytes of memory that the filter takes now, in this process.
    pub bytes: u64,
}

/// The counters of a consumer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Count {
    Fresh,
    Done,
    Waited,
    Requeued,
    WithoutKey,
    StoreFailure,
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
            Count::StoreFailure => "store_failure",
        }
    }
}

/// The counters behind [`DedupStats`].
#[derive(Debug, Default)]
pub(crate) struct Counters([AtomicU64; 6]);

impl Counters {
    /// Adds 1, and returns the sum. With the feature `metrics`, `nsq_client_dedup_total` counts, too.
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
            store_failures: self.get(Count::StoreFailure),
            waiting,
            bytes,
        }
    }
}
