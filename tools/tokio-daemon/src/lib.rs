//! The parts that nsqlookupd and nsqadmin share, the daemons that run on tokio: listeners, the flags of their TLS, the
//! limit on open files, and what `--check` finds out about addresses.
//!
//! The crate knows no requests. What nsqd has, too, is in the crate `program`.

#![forbid(unsafe_code)]

pub mod addresses;
pub mod listener;
pub mod open_files;
pub mod tls;
