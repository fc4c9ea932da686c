//! Random numbers that repeat for the same seed.

pub use diskq_log::Random;
