//! [`Producer`]: publishes messages, and says of each what became of it.
//!
//! ```text
//!   publish ─► permit ─► Pool ─► Node ─► ProducerConnection: Outbox, and Pending in the same order ─► nsqd
//!   nsqd ─► OK or error ─► NodeTask: Confirmations ─► Session::answer ─► the oldest of Pending ─► the future of publish
//!   lost connection ─► Pending: numbered commands stay ─► the next connection to the same Node, in the same order
//! ```
//!
//! A publish waits for its answer in `publish.rs`. The list of those that wait is `pending.rs`. A node's `session.rs`
//! has this list, over one connection or several.

mod builder;
mod command;
mod discovery;
mod error;
mod node;
mod numbering;
mod pending;
mod permits;
mod pool;
mod publish;
mod session;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use crate::address::Address;
use crate::event::Event;

pub use builder::ProducerBuilder;
use command::Bodies;
use discovery::{Discovery, Plan};
pub use error::{BuildError, PublishError, ReplicationError};
use node::{Node, Shared};
pub use numbering::NumberError;
use permits::Permits;
use pool::Pool;
pub use pool::Spread;
use session::Session;

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
            let connection = node.connection().await.map_err(|error| {
                self.0.failed(&node.address);
                let node = address();
                PublishError::Connect { node, error }
            })?;
            match connection.ping().await {
                Ok(()) => return Ok(()),
                // Perhaps the connection was lost long ago, unnoticed.
                Err(_) if is_first => is_first = false,
                Err(error) => {
                    let node = address();
                    return Err(PublishError::NotSent { node, error });
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
            .field("client", self.0.shared.events.client())
            .field("nodes", &self.nodes())
            .finish_non_exhaustive()
    }
}

/// Messages that the application numbers, for producers that were built with
/// [`publisher_id`](ProducerBuilder::publisher_id).
///
/// A number belongs to a message of a topic: a row, or a line of a file. A message that is published again, even by a
/// later run of the program, has the same number, and nsqd does not store it again. Numbers count upwards, with few
/// gaps: nsqd surely recognises the last 1,024 numbers, and all earlier ones back to the last gap. The numbers of rows
/// and lines are better than offsets in bytes.
///
/// nsqds do not know each other's numbers. So the messages of one source belong to one nsqd: the producer has one node,
/// or the application chooses the node of each source.
///
/// ```
/// # use ringq_client::testing::MockNetwork;
/// use ringq_client::{Producer, PublisherId};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let network = MockNetwork::new();
/// # let nsqd = network.broker("127.0.0.1:4150");
/// # nsqd.take_numbers(true);
/// # let node = nsqd.address();
/// // The program draws an id once, and keeps it beside the source.
/// let id: PublisherId = "9f86d081884c7d65".parse()?;
/// let producer = Producer::builder()
///     .node(node) // "127.0.0.1:4150"
/// #    .connector(network)
///     .publisher_id(id)
///     .build()?;
/// producer.publish_numbered("orders", 17, "row 17").await?;
/// // The program was killed before it could note row 17, and starts again.
/// producer.publish_numbered("orders", 17, "row 17").await?;
/// # assert_eq!(nsqd.published("orders"), ["row 17"]);
/// # Ok(())
/// # }
/// ```
impl Producer {
    /// Publishes one message with its number.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish_numbered(
        &self,
        topic: &str,
        number: u64,
        body: impl Into<Bytes>,
    ) -> Result<Receipt, PublishError> {
        self.submit(topic, Bodies::One(body.into()), Some(number), None)
            .await
    }

    /// Publishes one message with its number to `node`, which must be one of the producer's nodes, and to no other.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish_numbered_on(
        &self,
        node: &Address,
        topic: &str,
        number: u64,
        body: impl Into<Bytes>,
    ) -> Result<Receipt, PublishError> {
        self.submit(topic, Bodies::One(body.into()), Some(number), Some(node))
            .await
    }

    /// Publishes several messages by one command. Message i, counted from 0, has the number `first` + i. nsqd judges
    /// each message by its number. They have one outcome together.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish_many_numbered(
        &self,
        topic: &str,
        first: u64,
        bodies: impl IntoIterator<Item = Bytes>,
    ) -> Result<Receipt, PublishError> {
        let bodies = Bodies::Many(bodies.into_iter().collect());
        self.submit(topic, bodies, Some(first), None).await
    }

    /// Publishes several messages by one command to `node`, as [`Producer::publish_many_numbered`] does.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish_many_numbered_on(
        &self,
        node: &Address,
        topic: &str,
        first: u64,
        bodies: impl IntoIterator<Item = Bytes>,
    ) -> Result<Receipt, PublishError> {
        let bodies = Bodies::Many(bodies.into_iter().collect());
        self.submit(topic, bodies, Some(first), Some(node)).await
    }

    /// Publishes one message with its number that nsqd delivers after `delay`, as
    /// [`Producer::publish_deferred`] does.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish_deferred_numbered(
        &self,
        topic: &str,
        delay: Duration,
        number: u64,
        body: impl Into<Bytes>,
    ) -> Result<Receipt, PublishError> {
        let bodies = Bodies::Deferred(delay, body.into());
        self.submit(topic, bodies, Some(number), None).await
    }
}

/// The publishes that had no answer when the time of [`Producer::flush`] or [`Producer::close`] was over. Some of them may
/// be stored: the future of each publish tells.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UnansweredError {
    /// The nodes that have not answered. Without any, the publishes wait for a connection.
    pub nodes: Vec<Unanswered>,
}

/// The publishes to one node that have no answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unanswered {
    /// The nsqd.
    pub node: Address,
    /// The number of publishes. A `publish_many` counts once.
    pub publishes: usize,
}

impl fmt::Display for UnansweredError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("publishes have no answer")?;
        for (index, Unanswered { node, publishes }) in self.nodes.iter().enumerate() {
            let separator = if index == 0 { ": " } else { ", " };
            write!(f, "{separator}{publishes} to {node}")?;
        }
        Ok(())
    }
}

impl std::error::Error for UnansweredError {}

impl Producer {
    /// Waits until all publishes that have begun have an answer, for [`flush_timeout`](ProducerBuilder::flush_timeout)
    /// at most. A publish that is sent again has its answer at the end of its last try. Later publishes do not wait,
    /// and the flush does not wait for them.
    ///
    /// A lost or refused publish has an answer too: the future of each publish tells what became of it. A program that
    /// drops the future of a publish is told of no loss.
    ///
    /// # Errors
    /// Publishes have no answer in time. They go on: an answer may still come.
    pub async fn flush(&self) -> Result<(), UnansweredError> {
        let inner = &self.0;
        let begun = inner.permits.wait_for_begun();
        if timeout(inner.shared.flush_timeout, begun).await.is_ok() {
            return Ok(());
        }
        let sessions = inner.sessions().into_iter();
        let waiting = sessions.map(|(node, session)| Unanswered {
            node: node.address.clone(),
            publishes: session.publishes(),
        });
        let nodes = waiting.filter(|node| node.publishes > 0).collect();
        Err(UnansweredError { nodes })
    }

    /// Refuses further publishes, waits until all others have an answer, and ends the connections. After
    /// [`flush_timeout`](ProducerBuilder::flush_timeout), the connections end in any case. The second call and the
    /// following ones return when the connections have ended.
    ///
    /// # Errors
    /// Publishes had no answer in time. The future of each of them fails with [`PublishError::Lost`].
    pub async fn close(&self) -> Result<(), UnansweredError> {
        let inner = &self.0;
        if !inner.is_closed.swap(true, Ordering::SeqCst) {
            let events = &inner.shared.events;
            events.emit(|client| Event::Stopping { client });
        }
        drop(inner.discovery.lock().take());
        let sessions = inner.sessions();
        inner.retire();
        // The sessions that were retired give up their publishes when their time is over. A publish that no node has
        // keeps its permit as long as nobody polls its future, so the wait ends a second after the sessions.
        let limit = (inner.shared.flush_timeout).saturating_add(Duration::from_secs(1));
        let _ = timeout(limit, inner.permits.wait_for_begun()).await;
        join_all(sessions.iter().map(|(_, session)| session.ended())).await;
        let nodes = std::mem::take(&mut *inner.shared.given_up.lock());
        if nodes.is_empty() {
            Ok(())
        } else {
            Err(UnansweredError { nodes })
        }
    }
}

/// The state of one producer.
struct Inner {
    shared: Arc<Shared>,
    pool: Mutex<Pool<Arc<Node>>>,
    permits: Permits,
    is_batching: bool,
    publish_timeout: Option<Duration>,
    /// The longest body, in bytes, if it is limited.
    bytes_max: Option<usize>,
    /// The discovery, once a publish has started it.
    discovery: Mutex<Option<Discovery>>,
    plan: Option<Plan>,
    is_closed: AtomicBool,
}

impl Inner {
    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    fn failed(&self, node: &Address) {
        self.pool.lock().failed(node, Instant::now().into_std());
    }

    /// Returns the tasks of the nodes that may have publishes without an answer, each with its node.
    fn sessions(&self) -> Vec<(Arc<Node>, Arc<Session>)> {
        let nodes = self.pool.lock().all().into_iter();
        let sessions = nodes.flat_map(|node| {
            let sessions = node.sessions().into_iter();
            sessions.map(move |session| (Arc::clone(&node), session))
        });
        sessions.collect()
    }

    /// Ends the connections when nothing is pending.
    fn retire(&self) {
        let nodes = self.pool.lock().all();
        nodes.iter().for_each(|node| node.retire());
    }

    /// Adds the nodes of `named`. Removes the nodes for which `keep` is false, and returns them. Changes nothing when
    /// the producer is closed.
    fn change_nodes(
        &self,
        named: &BTreeSet<Address>,
        keep: impl Fn(&Arc<Node>) -> bool,
    ) -> Vec<Arc<Node>> {
        let mut pool = self.pool.lock();
        // A node that comes after `close` has looked for nodes would stay open.
        if self.is_closed() {
            return Vec::new();
        }
        for address in named {
            let shared = &self.shared;
            pool.add(address, || {
                Arc::new(Node::new(address.clone(), Arc::clone(shared)))
            });
        }
        pool.retain(keep)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.retire();
    }
}

#[cfg(test)]
mod tests;
