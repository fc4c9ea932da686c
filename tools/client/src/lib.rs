//! A client of NSQ's daemons: producers and consumers for nsqd, with discovery through nsqlookupd.
#![forbid(unsafe_code)]
// The producer and the consumer come next.
#![allow(dead_code, unused_imports)]

mod address;
mod backoff;
mod config;
mod connector;
mod core;
mod error;
mod event;
mod flow;
mod link;
mod lookupd;
mod outbox;
mod ready;

pub use address::{Address, AddressError};
pub use config::{BackoffStrategy, Config, OptionError, TlsSettings};
pub use connector::{Connecting, Connector, SystemConnector, Transport};
pub use core::{Authorization, Negotiated};
pub use error::{ConnectionError, ConnectionLost, ErrorFrame, Outcome};
pub use event::{Client, Event, Level};
pub use lookupd::{Lookup, Lookupd, LookupdError, NodeInfo};
