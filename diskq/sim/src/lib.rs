//! `diskq-sim`: what tests put in the place of the disk. No program has it.
//!
//! [`SimFiles`] are files in memory that lose power, fill up and fail on purpose. [`bugs`] lists the deliberate bugs, which
//! the tests must find. Start with `files.rs`: each new call of [`diskq::Files`] goes there, too.
#![cfg(feature = "sim")]
#![forbid(unsafe_code)]

pub mod bugs;
mod contents;
mod faults;
mod files;
mod names;

pub use faults::{Call, Fault};
pub use files::{Crash, SimFileSystem, SimFiles};
