//! An nsqd without sockets, for tests of programs that use this crate.
//!
//! [`MockNetwork`] is a [`Connector`](crate::Connector) over memory. Two kinds of servers listen in it: a
//! [`MockServer`] does what the test says, command by command. A [`MockBroker`] is a small nsqd, which stores and
//! delivers messages. Both cut connections at any byte. With tokio's virtual clock (`start_paused = true`), timeouts and
//! backoff take no time.
//!
//! # A script
//! ```
//! use ringq_client::testing::MockNetwork;
//! use ringq_client::{Outcome, Producer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let network = MockNetwork::new();
//! let mut server = network.server("nsqd-1:4150");
//! let producer = Producer::builder()
//!     .node(server.address())
//!     .connector(network)
//!     .build()?;
//! let publishing = tokio::spawn(async move { producer.publish("orders", "one").await });
//!
//! let mut nsqd = server.accept().await;
//! nsqd.handshake().await;
//! nsqd.expect("PUB orders one").await;
//! nsqd.close();
//!
//! let error = publishing.await?.unwrap_err();
//! assert_eq!(error.outcome(), Outcome::Unknown);
//! # Ok(())
//! # }
//! ```
//!
//! # A small nsqd
//! ```
//! use ringq_client::Producer;
//! use ringq_client::testing::MockNetwork;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let network = MockNetwork::new();
//! let nsqd = network.broker("nsqd-1:4150");
//! let producer = Producer::builder()
//!     .node(nsqd.address())
//!     .connector(network)
//!     .build()?;
//! producer.publish("orders", "one").await?;
//! assert_eq!(nsqd.published("orders"), ["one"]);
//! # Ok(())
//! # }
//! ```

mod connection;
mod network;
mod stored;
mod stream;

pub use connection::{MockConnection, Received};
pub use network::{MockBroker, MockNetwork, MockServer};
pub use stream::Cut;
