//! A client of NSQ's daemons: producers and consumers for nsqd, with discovery through nsqlookupd.
#![forbid(unsafe_code)]

mod config;

pub use config::{BackoffStrategy, Config, OptionError, TlsSettings};
