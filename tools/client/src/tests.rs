//! Servers and counters for the unit tests of all modules.

#[cfg(feature = "metrics")]
pub(crate) mod metric_counts;
pub(crate) mod mock_lookupd;
#[cfg(feature = "tls")]
pub(crate) mod tls;
