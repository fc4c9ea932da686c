//! `to_nsq`: publishes records of standard input.

pub mod rate;
pub mod records;
