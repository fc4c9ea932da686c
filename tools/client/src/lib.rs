//! A client of NSQ's daemons on tokio: producers and consumers for nsqd, with discovery through nsqlookupd.
//!
//! # Publishing
//! A [`Producer`] has one nsqd or several. A publish returns when nsqd has stored the message.
//!
//! ```
//! # use ringq_client::testing::MockNetwork;
//! use ringq_client::{Outcome, Producer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let network = MockNetwork::new();
//! # let nodes = ["10.0.0.1:4150", "10.0.0.2:4150"].map(|node| network.broker(node).address());
//! let producer = Producer::builder()
//!     .nodes(nodes) // ["10.0.0.1:4150", "10.0.0.2:4150"]
//! #    .connector(network)
//!     .build()?;
//! let receipt = producer.publish("orders", "one").await?;
//! println!("stored at {}", receipt.node());
//!
//! // Copies on two nodes.
//! producer.publish_to(2, "orders", "two").await?;
//!
//! // Many messages by one command.
//! let bodies = ["three", "four"].map(bytes::Bytes::from);
//! if let Err(error) = producer.publish_many("orders", bodies).await {
//!     // With `NotStored`, another try makes no duplicates. With `Unknown`, it may.
//!     assert_eq!(error.outcome(), Outcome::NotStored);
//! }
//! producer.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Consuming
//! A [`Consumer`] is a stream of messages. [`Consumer::run`] calls a handler for each message instead.
//!
//! ```
//! # use ringq_client::testing::MockNetwork;
//! use ringq_client::{Config, Consumer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let network = MockNetwork::new();
//! # let nsqd = network.broker("10.0.0.1:4150");
//! # nsqd.publish("orders", "one");
//! # let node = nsqd.address();
//! let config = Config { max_in_flight: 100, ..Config::default() };
//! let mut consumer = Consumer::builder("orders", "billing")
//!     .config(config)
//!     .node(node) // or .lookupd("10.0.0.9:4161")
//! #    .connector(network)
//!     .connect()
//!     .await?;
//! while let Some(message) = consumer.next().await {
//!     println!("{} bytes", message.body().len());
//!     message.finish();
//! #    break;
//! }
//! consumer.control().shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Settings, events and tests
//! [`Config`] has the options of NSQ's Go client by name. Events ([`Event`]) tell what happens to connections: their
//! display has the form of the Go client's log lines. The feature `tracing` sends them to `tracing` too, and the
//! feature `metrics` counts them. Without a callback and without a subscriber of `tracing`, warnings and errors go to
//! standard error. The module `testing` (feature `testing`) has an nsqd in memory.
//!
//! # How the crate is made
//! Five nouns, each in the file of its name. Each knows only those below it:
//!
//! ```text
//!   Producer     publishes go to a node's connection, and wait for nsqd's answers in their order (producer/pending.rs)
//!   Consumer     a stream of messages. ConsumerState is what its connections share: flow control, counters
//!   Message      one message until its answer, which any thread gives (consumer/message.rs)
//!   Connection   one connection over a stream, owned by one task. The commands of all threads gather in its Outbox
//!   Protocol     the connection as a state machine: bytes in, events and bytes out, the time as an argument
//! ```
//!
//! A change of the flow control (RDY, backoff) is one of `consumer/flow.rs`. An option is a field of [`Config`]. The
//! crate has no rules of nsqd, and decides nothing about the bodies of messages.
#![forbid(unsafe_code)]

/// The guide. Its Rust code blocks are doc tests, so each name in them is one of the crate.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/reference/client.md")]
mod guide {}

/// The page for users of other libraries.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/reference/client-porting.md")]
mod porting {}

/// The page about messages that come again.
#[cfg(all(doctest, feature = "dedup"))]
#[doc = include_str!("../../../docs/explain/deduplication.md")]
mod deduplication {}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod address;
mod config;
mod connection;
mod connector;
mod consumer;
#[cfg(feature = "dedup")]
pub mod dedup;
mod error;
mod event;
mod lookupd;
mod producer;
mod publisher_id;
mod reconnect;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use address::{Address, AddressError};
#[cfg(feature = "tls")]
pub use config::TlsSettings;
pub use config::{BackoffStrategy, Config, OptionError};
pub use connection::{Authorization, Negotiated};
pub use connector::{Connecting, Connector, SystemConnector, Transport};
pub use consumer::{
    Acker, Answered, AutoTouch, ConnectError, Consumer, ConsumerBuilder, ConsumerStats, Control,
    GivenUp, Message, NodeError, NodeStats, Requeue,
};
pub use error::{ConnectionError, ConnectionLost, ErrorFrame, Outcome};
pub use event::{Client, Event, Level};
pub use lookupd::{Lookup, Lookupd, LookupdError};
pub use nsq_http::NodeInfo;
pub use producer::{
    BuildError, NumberError, Producer, ProducerBuilder, PublishError, Receipt, ReplicationError,
    Spread, Unanswered, UnansweredError,
};
pub use publisher_id::{PublisherId, PublisherIdError};
pub use wire::id::MessageId;
