//! A client of NSQ's daemons: producers and consumers for nsqd, with discovery through nsqlookupd.
#![forbid(unsafe_code)]

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
mod producer;
mod ready;
mod reconnect;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

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
pub use producer::{
    Batching, BuildError, Producer, ProducerBuilder, PublishError, Receipt, ReplicationError,
    Spread,
};
pub use wire::id::MessageId;
