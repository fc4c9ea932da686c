//! A client of NSQ's daemons: producers and consumers for nsqd, with discovery through nsqlookupd.
#![forbid(unsafe_code)]
// The producer and the consumer come next.
#![allow(dead_code, unused_imports)]

mod address;
mod config;
mod connector;
mod core;
mod error;
mod event;
mod link;
mod outbox;

pub use address::{Address, AddressError};
pub use config::{BackoffStrategy, Config, OptionError, TlsSettings};
pub use connector::{Connecting, Connector, SystemConnector, Transport};
pub use core::{Authorization, Negotiated};
pub use error::{ConnectionError, ConnectionLost, ErrorFrame, Outcome};
pub use event::{Client, Event, Level};
