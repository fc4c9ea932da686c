//! The time of an input.

pub use diskq_log::Now;
