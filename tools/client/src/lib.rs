//! A client of NSQ's daemons: producers and consumers for nsqd, with discovery through nsqlookupd.
#![forbid(unsafe_code)]
// The producer and the consumer come next.
#![allow(dead_code, unused_imports)]

mod address;
mod backoff;
mod config;
mod connector;
mod consumer;
mod core;
mod error;
mod event;
mod flow;
mod link;
mod lookupd;
mod message;
mod outbox;
mod ready;
mod reconnect;

pub use address::{Address, AddressError};
pub use config::{BackoffStrategy, Config, OptionError, TlsSettings};
pub use connector::{Connecting, Connector, SystemConnector, Transport};
pub use consumer::{
    AutoTouch, ConnectError, Consumer, ConsumerBuilder, ConsumerStats, Control, NodeError,
    NodeStats,
};
pub use core::{Authorization, Negotiated};
pub use error::{ConnectionError, ConnectionLost, ErrorFrame, Outcome};
pub use event::{Client, Event, Level};
pub use lookupd::{Lookup, Lookupd, LookupdError, NodeInfo};
pub use message::{Acker, Answered, GivenUp, Message, Requeue};
pub use wire::id::MessageId;
