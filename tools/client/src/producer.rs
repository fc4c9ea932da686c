//! [`Producer`]: publishes messages, and says of each what became of it.
//!
//! ```text
//!   publish ─► permit ─► Pool ─► Node ─► Open: Outbox and Pending, in the same order ─► nsqd
//!   nsqd ─► OK or error ─► Confirmations ─► the oldest of Pending ─► the future of publish
//!   lost connection ─► Pending: numbered commands stay ─► the next Open of the same Node, in the same order
//! ```

mod attempt;
mod builder;
mod command;
mod copies;
mod discovery;
mod entry;
mod error;
mod inner;
mod kept;
mod node;
mod numbered;
mod numbering;
mod open;
mod pending;
mod pool;
mod serving;
mod session;
mod unanswered;
mod unconfirmed;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::address::Address;
pub use builder::{Batching, ProducerBuilder};
use command::Bodies;
pub use error::{BuildError, PublishError, ReplicationError};
use inner::Inner;
use node::Node;
pub use numbering::NumberError;
pub use pool::Spread;
pub use unanswered::UnansweredError;
pub use unconfirmed::Unanswered;

/// Publishes messages to one nsqd or to several. Clones are cheap and share the connections. The last clone that is
/// dropped ends the connections, after the output that is there.
///
/// # What a publish promises
/// A publish that returns `Ok` is stored by the nsqd of its [`Receipt`]. A publish that fails says through
/// [`PublishError::outcome`] whether the message may be stored all the same. With several nodes, a publish that one
/// node certainly does not have goes to the next one. A publish whose outcome is unknown never does: a second copy
/// would be possible, and the application decides.
///
/// # Back-pressure
/// The number of publishes without an answer is limited ([`ProducerBuilder::permits`]). Beyond the limit, `publish`
/// waits.
///
/// # Cancellation
/// The future of a publish may be dropped at any time. If nsqd was given the message, its answer is still awaited and
/// matched, and the permit comes back with this answer.
///
/// ```
/// # use ringq_client::testing::MockNetwork;
/// use ringq_client::{Outcome, Producer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let network = MockNetwork::new();
/// # let node = network.broker("127.0.0.1:4150").address();
/// let producer = Producer::builder()
///     .node(node) // "127.0.0.1:4150"
/// #    .connector(network)
///     .build()?;
/// match producer.publish("orders", "one").await {
///     Ok(receipt) => println!("stored at {}", receipt.node()),
///     Err(error) if error.outcome() == Outcome::Unknown => println!("perhaps stored: {error}"),
///     Err(error) => println!("not stored: {error}"),
/// }
/// producer.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Producer(Arc<Inner>);

/// The proof that an nsqd stored a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receipt {
    node: Address,
}

impl Receipt {
    /// Returns the nsqd that has the message.
    #[must_use]
    pub fn node(&self) -> &Address {
        &self.node
    }
}

impl Producer {
    /// Begins to build a producer.
    pub fn builder() -> ProducerBuilder {
        ProducerBuilder::new()
    }

    /// Publishes one message. Returns when an nsqd has stored it.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish(
        &self,
        topic: &str,
        body: impl Into<Bytes>,
    ) -> Result<Receipt, PublishError> {
        self.submit(topic, Bodies::One(body.into()), None, None)
            .await
    }

    /// Publishes one message to `node`, which must be one of the producer's nodes, and to no other.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish_on(
        &self,
        node: &Address,
        topic: &str,
        body: impl Into<Bytes>,
    ) -> Result<Receipt, PublishError> {
        self.submit(topic, Bodies::One(body.into()), None, Some(node))
            .await
    }

    /// Publishes several messages by one command. They have one outcome together.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish_many(
        &self,
        topic: &str,
        bodies: impl IntoIterator<Item = Bytes>,
    ) -> Result<Receipt, PublishError> {
        let bodies = Bodies::Many(bodies.into_iter().collect());
        self.submit(topic, bodies, None, None).await
    }

    /// Publishes several messages by one command to `node`, which must be one of the producer's nodes, and to no other.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish_many_on(
        &self,
        node: &Address,
        topic: &str,
        bodies: impl IntoIterator<Item = Bytes>,
    ) -> Result<Receipt, PublishError> {
        let bodies = Bodies::Many(bodies.into_iter().collect());
        self.submit(topic, bodies, None, Some(node)).await
    }

    /// Publishes one message that nsqd delivers after `delay`, in whole milliseconds. nsqd limits the delay by its
    /// `--max-req-timeout`.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish_deferred(
        &self,
        topic: &str,
        delay: Duration,
        body: impl Into<Bytes>,
    ) -> Result<Receipt, PublishError> {
        self.submit(topic, Bodies::Deferred(delay, body.into()), None, None)
            .await
    }

    /// Connects to all nodes, and sends each a NOP. Success proves that the nodes can be reached.
    ///
    /// # Errors
    /// The error of the first node that cannot be reached.
    pub async fn ping(&self) -> Result<(), PublishError> {
        self.nodes_are_known().await?;
        let nodes = self.0.pool.lock().all();
        for node in nodes {
            self.ping_node(&node).await?;
        }
        Ok(())
    }

    /// Connects to `node`, which must be one of the producer's nodes, and sends it a NOP.
    ///
    /// # Errors
    /// The node cannot be reached.
    pub async fn ping_on(&self, node: &Address) -> Result<(), PublishError> {
        let found = self.0.pool.lock().get(node);
        match found {
            Some(node) => self.ping_node(&node).await,
            None => Err(PublishError::UnknownNode(node.clone())),
        }
    }

    async fn ping_node(&self, node: &Arc<Node>) -> Result<(), PublishError> {
        if self.0.is_closed() {
            return Err(PublishError::Stopped);
        }
        let address = || node.address.clone();
        let mut is_first = true;
        loop {
            let open = node.connection().await.map_err(|error| {
                self.0.failed(&node.address);
                PublishError::Connect {
                    node: address(),
                    error,
                }
            })?;
            match open.ping().await {
                Ok(()) => return Ok(()),
                // Perhaps the connection was lost long ago, unnoticed.
                Err(_) if is_first => is_first = false,
                Err(error) => {
                    return Err(PublishError::NotSent {
                        node: address(),
                        error,
                    });
                }
            }
        }
    }

    /// Returns the addresses of the nodes that are known at present.
    #[must_use]
    pub fn nodes(&self) -> Vec<Address> {
        let nodes = self.0.pool.lock().all();
        nodes.iter().map(|node| node.address.clone()).collect()
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("client", &self.0.shared.client)
            .field("nodes", &self.nodes())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
