//! [`Producer`]: publishes messages, and says of each what became of it.
//!
//! ```text
//!   publish ─► permit ─► Pool ─► Node ─► ProducerConnection: Outbox, and Pending in the same order ─► nsqd
//!   nsqd ─► OK or error ─► NodeTask ─► Session::answer ─► the oldest of Pending ─► the future of publish
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
mod pool;
mod publish;
mod session;
mod unconfirmed;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::address::Address;
use crate::error::ConnectionError;
use crate::event::Event;

pub use builder::ProducerBuilder;
pub use command::Batching;
use command::Bodies;
use discovery::{Discovery, Plan};
pub use error::{BuildError, PublishError, ReplicationError};
use node::{Node, Shared};
pub use numbering::NumberError;
use pool::Pool;
pub use pool::Spread;
use session::Session;
use unconfirmed::Mark;
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

/// The publishes that [`Producer::flush`] or [`Producer::close`] cannot confirm. Some of them may be stored: the future
/// of each publish tells, if it was not dropped.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UnansweredError {
    /// The nodes of these publishes. There is at least one.
    pub nodes: Vec<Unanswered>,
}

impl fmt::Display for UnansweredError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, unanswered) in self.nodes.iter().enumerate() {
            let Unanswered {
                node,
                publishes,
                reason,
            } = unanswered;
            let separator = if index == 0 { "" } else { "; " };
            let (publishes, are) = match publishes {
                1 => ("1 publish".to_owned(), "is"),
                count => (format!("{count} publishes"), "are"),
            };
            write!(
                f,
                "{separator}{publishes} to {node} {are} not confirmed: {reason}"
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for UnansweredError {}

impl Producer {
    /// Waits until nsqd has answered all publishes that it was given so far, for
    /// [`flush_timeout`](ProducerBuilder::flush_timeout) at most. Later publishes do not wait.
    ///
    /// # Errors
    /// Publishes were lost with their connection, are to be sent again, or have no answer in time. The latter go on: an
    /// answer may still come. Lost publishes whose futures were dropped count too, until a flush has told them.
    pub async fn flush(&self) -> Result<(), UnansweredError> {
        let limit = self.0.shared.flush_timeout;
        let begun = self.0.begin(Session::begin_flush);
        let flushing = begun.sessions.into_iter();
        let flushed = flushing
            .map(async |(node, session, flushing)| (node, session.flush(flushing, limit).await));
        self.confirm(begun.mark, begun.returning, flushed).await
    }

    /// Refuses further publishes, waits until nsqd has answered all publishes that it was given, and ends the
    /// connections. After [`flush_timeout`](ProducerBuilder::flush_timeout), the connections end in any case. The
    /// second call and the following ones return when the connections have ended.
    ///
    /// # Errors
    /// Publishes were lost with their connection, were to be sent again, or had no answer in time. The future of each
    /// of them fails with [`PublishError::Lost`] or
    /// [`PublishError::Stopped`], if it was not dropped.
    pub async fn close(&self) -> Result<(), UnansweredError> {
        let inner = &self.0;
        if !inner.is_closed.swap(true, Ordering::SeqCst) {
            let events = &inner.shared.events;
            events.emit(|client| Event::Stopping { client });
        }
        // Publishes that wait for a permit fail.
        inner.permits.close();
        drop(inner.discovery.lock().take());
        inner.nodes().iter().for_each(|node| node.retire());
        let limit = inner.shared.flush_timeout;
        let begun = inner.begin(Session::begin_finish);
        let finishing = begun.sessions.into_iter();
        let finished = finishing
            .map(async |(node, session, before)| (node, session.finish(before, limit).await));
        self.confirm(begun.mark, begun.returning, finished).await
    }

    /// Ends the flush that began at `mark`. Fails if a node has unconfirmed publishes: those of `returning`, those that
    /// `ends` count, or those that were forgotten.
    async fn confirm<E>(
        &self,
        mark: Mark,
        returning: Vec<Unanswered>,
        ends: impl Iterator<Item = E>,
    ) -> Result<(), UnansweredError>
    where
        E: Future<Output = (Arc<Node>, Option<(usize, Arc<ConnectionError>)>)>,
    {
        let ended = join_all(ends).await.into_iter();
        let ended = ended.filter_map(|(node, unanswered)| {
            let (publishes, reason) = unanswered?;
            Some(Unanswered {
                node: node.address.clone(),
                publishes,
                reason,
            })
        });
        let forgotten = self.0.shared.unconfirmed.tell_forgotten(mark);
        let mut nodes: Vec<Unanswered> = Vec::new();
        for found in returning.into_iter().chain(ended).chain(forgotten) {
            match nodes.iter_mut().find(|known| known.node == found.node) {
                _ if found.publishes == 0 => {}
                Some(known) => known.publishes += found.publishes,
                None => nodes.push(found),
            }
        }
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
    /// Nodes that are not in the pool any more, and may still have publishes without an answer. A node moves here
    /// inside the lock of `pool`, so that a flush finds each node.
    leaving: Mutex<Vec<Weak<Node>>>,
    permits: Arc<Semaphore>,
    batching: Option<Batching>,
    publish_timeout: Option<Duration>,
    /// The longest body, in bytes, if it is limited.
    bytes_max: Option<usize>,
    /// The discovery, once a publish has started it.
    discovery: Mutex<Option<Discovery>>,
    plan: Option<Plan>,
    is_closed: AtomicBool,
}

/// The result of [`Inner::begin`].
struct Begun<T> {
    /// The time from which on unconfirmed publishes count.
    mark: Mark,
    /// The publishes that no task had: they were returning to their callers at the mark, or began to return until each
    /// task was asked. A flush cannot wait for them.
    returning: Vec<Unanswered>,
    /// The tasks with publishes, each with its node and with the result of the beginning.
    sessions: Vec<(Arc<Node>, Arc<Session>, T)>,
}

impl Inner {
    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    fn failed(&self, node: &Address) {
        self.pool.lock().failed(node, Instant::now().into_std());
    }

    /// Returns all nodes that may have publishes without an answer.
    fn nodes(&self) -> Vec<Arc<Node>> {
        let pool = self.pool.lock();
        let mut nodes = pool.all();
        nodes.extend(self.leaving.lock().iter().filter_map(Weak::upgrade));
        nodes
    }

    /// Returns all tasks that may have publishes without an answer, each with its node.
    fn sessions(&self) -> Vec<(Arc<Node>, Arc<Session>)> {
        let nodes = self.nodes().into_iter();
        let sessions = nodes.flat_map(|node| {
            let sessions = node.sessions().into_iter();
            sessions.map(move |session| (Arc::clone(&node), session))
        });
        sessions.collect()
    }

    /// Calls `begin` for each task that may have publishes without an answer, to begin a flush or the like.
    fn begin<T>(&self, begin: impl Fn(&Session) -> Option<T>) -> Begun<T> {
        let unconfirmed = &self.shared.unconfirmed;
        let mark = unconfirmed.mark();
        let sessions = self.sessions().into_iter();
        let begun = sessions.filter_map(|(node, session)| {
            let begun = begin(&session)?;
            Some((node, session, begun))
        });
        let sessions = begun.collect();
        // A publish that left its task after the mark may have left before the task's call of `begin`.
        let returning = unconfirmed.returning_since(&mark);
        Begun {
            mark,
            returning,
            sessions,
        }
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
        let removed = pool.retain(keep);
        let mut leaving = self.leaving.lock();
        leaving.retain(|node| node.strong_count() > 0);
        leaving.extend(removed.iter().map(Arc::downgrade));
        removed
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for node in self.pool.lock().all() {
            node.retire();
        }
    }
}

#[cfg(test)]
mod tests;
