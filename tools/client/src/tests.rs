//! Servers and counters for the unit tests of all modules.

#[cfg(feature = "metrics")]
pub(crate) mod metric_counts;
pub(crate) mod mock_lookupd;
pub(crate) mod outcomes;
#[cfg(feature = "tls")]
pub(crate) mod tls;
