//! [`DedupReport`]: what happens to a filter beside its messages.

use std::fmt;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::address::Address;

/// Something that happened to the filter of a consumer: a part of [`Event::Dedup`](crate::Event::Dedup).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DedupReport {
    /// Messages had no key, so the application got them without the filter. Reported for 1, 10, 100 ... messages.
    WithoutKey {
        /// The number of these messages, since the consumer was made.
        count: u64,
    },
    /// A time of the filter is shorter than the message timeout of a connection, so duplicates are handled again.
    /// Reported once for each connection.
    ShorterThanTimeout {
        /// The nsqd.
        node: Address,
        /// The name of the time: `lease` or `window`.
        name: &'static str,
        /// The time.
        time: Duration,
        /// The message timeout that the connection has negotiated.
        msg_timeout: Duration,
    },
    /// The store is unavailable: it does not answer, or refuses. Reported once, until the store answers again.
    StoreUnavailable {
        /// The reason.
        error: String,
    },
    /// The store answers again.
    StoreAvailable,
    /// The store did not hear that a message was handled, or that its key is released. Reported for 1, 10, 100 ...
    /// messages.
    EndFailed {
        /// The number of these messages, since the consumer was made.
        count: u64,
        /// True if the message was handled: its copies may be handled again.
        is_handled: bool,
        /// The reason.
        error: String,
    },
    /// The consumer has stopped.
    ConsumerStopped {
        /// Its numbers.
        stats: DedupStats,
    },
    /// The filter was saved.
    Saved {
        /// The file.
        path: PathBuf,
    },
    /// A save has taken longer than the interval of saves. No further save begins before its end. Reported once for
    /// each such save.
    SaveDelayed {
        /// The file.
        path: PathBuf,
    },
    /// The filter could not be saved. Duplicates of the messages since the last save are handled again.
    SaveFailed {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: Arc<std::io::Error>,
    },
}

/// Returns true for 1, 10, 100 ...: the numbers at which a frequent event is reported. `count` is not 0.
pub(crate) fn is_power_of_ten(count: u64) -> bool {
    10_u64.pow(count.ilog10()) == count
}

impl fmt::Display for DedupReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DedupReport::WithoutKey { count } => write!(
                f,
                "deduplication: {count} messages without a key so far, handled without the filter"
            ),
            DedupReport::ShorterThanTimeout {
                name,
                time,
                msg_timeout,
                ..
            } => write!(
                f,
                "deduplication: the {name} of {time:?} is shorter than the message timeout of {msg_timeout:?}, so duplicates \
                 may be handled again; choose a longer {name}"
            ),
            DedupReport::StoreUnavailable { error } => write!(f, "deduplication: {error}"),
            DedupReport::StoreAvailable => f.write_str("deduplication: the store answers again"),
            DedupReport::EndFailed {
                count,
                is_handled,
                error,
            } => write!(
                f,
                "deduplication: {error}; {} ({count} such messages so far)",
                if *is_handled {
                    "copies of a message that was handled may be handled again"
                } else {
                    "copies of a message that was not handled wait until its lease ends"
                }
            ),
            DedupReport::ConsumerStopped { stats } => write!(
                f,
                "deduplication: {} messages were fresh, {} were duplicates, {} had no key",
                stats.fresh, stats.done, stats.without_key
            ),
            DedupReport::Saved { path } => {
                write!(
                    f,
                    "deduplication: the filter is saved in {}",
                    path.display()
                )
            }
            DedupReport::SaveDelayed { path } => write!(
                f,
                "deduplication: the filter is still being written to {}, and no further save begins before that ends; \
                 check the disk",
                path.display()
            ),
            DedupReport::SaveFailed { path, error } => write!(
                f,
                "deduplication: the filter could not be saved in {}: {error}{}; duplicates may be handled after the next start",
                path.display(),
                match error.kind() {
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "; free some space",
                    _ => "",
                }
            ),
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_has_an_advice() {
        let text = |kind: ErrorKind| {
            let (path, error) = ("st".into(), Arc::new(kind.into()));
            DedupReport::SaveFailed { path, error }.to_string()
        };
        let full = text(ErrorKind::StorageFull);
        assert!(full.contains("; free some space; duplicates"), "{full}");
        assert!(!text(ErrorKind::PermissionDenied).contains("free some"));
    }

    #[cfg(feature = "metrics")]
    #[test]
    fn the_metric_counts_the_requests_that_the_stats_count() {
        let counters = Counters::default();
        let metrics = crate::tests::metric_counts::counted(|| {
            counters.add(Count::FailedCheck);
            assert_eq!(counters.add(Count::FailedEnd), 1, "checks count apart");
            counters.add(Count::FailedEnd);
        });
        assert_eq!(counters.stats(0, 0).store_failures, 3);
        assert_eq!(metrics["nsq_client_dedup_total store_failure"], 3);
        assert_eq!(metrics.len(), 1);
    }
}
