//! [`Producer`]: publishes messages, and says of each what became of it.
//!
//! ```text
//!   publish ─► permit ─► Pool ─► Node ─► Open: Outbox and Pending, in the same order ─► nsqd
//!   nsqd ─► OK or error ─► Confirmations ─► the oldest of Pending ─► the future of publish
//! ```

mod builder;
mod command;
mod discovery;
mod error;
mod node;
mod pending;
mod pool;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::address::Address;
use crate::connector::Connector;
use crate::core::Settings;
use crate::event::{Client, Event, Events};
pub use builder::{Batching, ProducerBuilder};
use command::{Bodies, Command};
use discovery::{Discovery, Plan};
pub use error::{BuildError, PublishError, ReplicationError};
use node::Node;
use pending::Answer;
use pool::Pool;
pub use pool::Spread;

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
///     .node(node) // "127.0.0.1:4150".parse()?
/// #    .connector(network)
///     .build()?;
/// match producer.publish("orders", "one").await {
///     Ok(receipt) => println!("stored at {}", receipt.node()),
///     Err(error) if error.outcome() == Outcome::Unknown => println!("perhaps stored: {error}"),
///     Err(error) => println!("not stored: {error}"),
/// }
/// producer.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Producer(Arc<Inner>);

/// The parts of a producer that its nodes need.
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) events: Events,
    pub(crate) settings: Arc<Settings>,
    pub(crate) connector: Arc<dyn Connector>,
}

pub(crate) struct Inner {
    shared: Arc<Shared>,
    pool: Mutex<Pool<Arc<Node>>>,
    permits: Arc<Semaphore>,
    batching: Option<Batching>,
    publish_timeout: Option<Duration>,
    /// The longest body, in bytes, if it is limited.
    bytes_max: Option<usize>,
    /// The discovery, once a publish has started it.
    discovery: Mutex<Option<Discovery>>,
    plan: Option<Plan>,
    /// Held by a message of a refused command while it is sent alone. So no other such message lies behind it when nsqd
    /// refuses it and closes the connection.
    sent_alone: tokio::sync::Mutex<()>,
    is_closed: AtomicBool,
}

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
        self.submit(topic, Bodies::One(body.into()), None).await
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
        self.submit(topic, Bodies::One(body.into()), Some(node))
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
        self.submit(topic, Bodies::Many(bodies.into_iter().collect()), None)
            .await
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
        self.submit(
            topic,
            Bodies::Many(bodies.into_iter().collect()),
            Some(node),
        )
        .await
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
        self.submit(topic, Bodies::Deferred(delay, body.into()), None)
            .await
    }

    /// Publishes one message to `count` different nodes at the same time. If a node fails, another one takes its place.
    /// So the message may be stored once more than asked for, if the outcome at the failed node is unknown.
    ///
    /// # Errors
    /// The error says which nodes have the message. With fewer than `count` nodes, nothing is sent.
    pub async fn publish_to(
        &self,
        count: usize,
        topic: &str,
        body: impl Into<Bytes>,
    ) -> Result<Vec<Receipt>, ReplicationError> {
        let body = body.into();
        let mut tried: Vec<Address> = Vec::new();
        let mut running = JoinSet::new();
        let (mut stored, mut failures) = (Vec::new(), Vec::new());
        if let Err(error) = self.nodes_are_known().await {
            failures.push(error);
        }
        if self.0.pool().len() < count {
            return Err(ReplicationError {
                wanted: count,
                stored,
                failures,
            });
        }
        loop {
            while stored.len() + running.len() < count {
                let Some(node) = self.0.pool().pick(Instant::now().into_std(), &tried) else {
                    break;
                };
                tried.push(node.address.clone());
                let (producer, topic, body) = (self.clone(), topic.to_owned(), body.clone());
                running
                    .spawn(async move { producer.publish_on(&node.address, &topic, body).await });
            }
            match running.join_next().await {
                None if stored.len() >= count => return Ok(stored),
                None => {
                    return Err(ReplicationError {
                        wanted: count,
                        stored,
                        failures,
                    });
                }
                Some(Ok(Ok(receipt))) => stored.push(receipt),
                Some(Ok(Err(error))) => failures.push(error),
                // The task is neither aborted nor does it panic: only the end of the runtime stops it.
                Some(Err(_)) => failures.push(PublishError::Stopped),
            }
        }
    }

    /// Connects to all nodes, and sends each a NOP. Success proves that the nodes can be reached.
    ///
    /// # Errors
    /// The error of the first node that cannot be reached.
    pub async fn ping(&self) -> Result<(), PublishError> {
        self.nodes_are_known().await?;
        let nodes = self.0.pool().all();
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
        let found = self.0.pool().get(node);
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
        let open = node.connection().await.map_err(|error| {
            self.0.failed(&node.address);
            PublishError::Connect {
                node: address(),
                error,
            }
        })?;
        open.ping().await.map_err(|error| PublishError::NotSent {
            node: address(),
            error,
        })
    }

    /// Waits until nsqd has answered all publishes that it was given so far. Later publishes do not wait.
    pub async fn flush(&self) {
        let nodes = self.0.pool().all();
        for node in nodes {
            for open in node.connections() {
                open.flush().await;
            }
        }
    }

    /// Refuses further publishes, waits until nsqd has answered all publishes that it was given, and ends the
    /// connections. The second call and the following ones return when the connections have ended.
    pub async fn close(&self) {
        let inner = &self.0;
        if !inner.is_closed.swap(true, Ordering::SeqCst) {
            let client = inner.shared.client.clone();
            inner.shared.events.emit(Event::Stopping { client });
        }
        // Publishes that wait for a permit fail.
        inner.permits.close();
        if let Some(discovery) = inner.discovery().take() {
            discovery.stop();
        }
        let nodes = inner.pool().all();
        nodes.iter().for_each(|node| node.retire());
        for node in nodes {
            for open in node.connections() {
                open.ended().await;
            }
        }
    }

    /// Returns the addresses of the nodes that are known at present.
    #[must_use]
    pub fn nodes(&self) -> Vec<Address> {
        let nodes = self.0.pool().all();
        nodes.iter().map(|node| node.address.clone()).collect()
    }

    /// Publishes within the timeout.
    async fn submit(
        &self,
        topic: &str,
        bodies: Bodies,
        on: Option<&Address>,
    ) -> Result<Receipt, PublishError> {
        let command = Command::new(topic, bodies, self.0.bytes_max)?;
        let Some(limit) = self.0.publish_timeout else {
            return self.try_nodes(&command, on, &Mutex::new(None)).await;
        };
        let given_to = Mutex::new(None);
        let done = timeout(limit, self.try_nodes(&command, on, &given_to)).await;
        done.unwrap_or_else(|_| {
            let node = given_to
                .into_inner()
                .unwrap_or_else(PoisonError::into_inner);
            if let Some(node) = &node {
                self.0.failed(node);
            }
            Err(PublishError::Timeout { limit, node })
        })
    }

    /// Publishes to a node. If this node certainly does not have the message, publishes to the next one. `given_to` is
    /// the node that was given the command and has not answered.
    async fn try_nodes(
        &self,
        command: &Command<'_>,
        on: Option<&Address>,
        given_to: &Mutex<Option<Address>>,
    ) -> Result<Receipt, PublishError> {
        let inner = &self.0;
        let permits = Arc::clone(&inner.permits);
        let Ok(mut permit) = permits.acquire_owned().await else {
            return Err(PublishError::Stopped);
        };
        if on.is_none() {
            self.nodes_are_known().await?;
        }
        let mut attempts = Attempts {
            inner,
            command,
            batching: inner.batching,
            given_to,
        };
        // A node is tried twice if its connection was lost: perhaps it was lost long ago, unnoticed.
        let (mut tried, mut lost) = (Vec::new(), Vec::new());
        let mut failure = None;
        let mut _turn = None;
        loop {
            let picked = match on {
                Some(address) if tried.is_empty() => inner.pool().get(address),
                Some(_) => None,
                None => inner.pool().pick(Instant::now().into_std(), &tried),
            };
            let Some(node) = picked else {
                return Err(failure.unwrap_or_else(|| match on {
                    Some(address) => PublishError::UnknownNode(address.clone()),
                    None => PublishError::NoNode(None),
                }));
            };
            let (result, returned) = attempts.make(&node, permit).await;
            permit = returned;
            match result {
                Attempt::Stored => {
                    inner.pool().succeeded(&node.address);
                    return Ok(Receipt {
                        node: node.address.clone(),
                    });
                }
                Attempt::Alone => {
                    attempts.batching = None;
                    _turn = Some(inner.sent_alone.lock().await);
                }
                Attempt::Failed(_) if inner.is_closed() => return Err(PublishError::Stopped),
                Attempt::Failed(error) if error.permits_retry() => {
                    let is_first_loss = matches!(error, PublishError::NotSent { .. })
                        && !lost.contains(&node.address);
                    if is_first_loss {
                        lost.push(node.address.clone());
                    } else {
                        inner.failed(&node.address);
                        tried.push(node.address.clone());
                    }
                    failure = Some(error);
                }
                Attempt::Failed(error) => {
                    if matches!(error, PublishError::Lost { .. }) {
                        inner.failed(&node.address);
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Starts the discovery if there is one, and waits for its first answer if there is no node yet.
    async fn nodes_are_known(&self) -> Result<(), PublishError> {
        let Some(plan) = &self.0.plan else {
            return Ok(());
        };
        let rounds = {
            let mut discovery = self.0.discovery();
            if self.0.is_closed() {
                return Err(PublishError::Stopped);
            }
            discovery
                .get_or_insert_with(|| Discovery::start(plan.clone(), Arc::downgrade(&self.0)))
                .rounds()
        };
        if self.0.pool().len() > 0 {
            return Ok(());
        }
        let failure = Discovery::first_round(rounds).await;
        match self.0.pool().len() {
            0 => Err(PublishError::NoNode(failure)),
            _ => Ok(()),
        }
    }
}

/// The result of one attempt to publish.
enum Attempt {
    Stored,
    /// nsqd refused a command that had messages of other publishes too. Nothing is stored, and this publish has to be
    /// sent alone.
    Alone,
    Failed(PublishError),
}

/// The attempts of one publish.
struct Attempts<'a> {
    inner: &'a Inner,
    command: &'a Command<'a>,
    batching: Option<Batching>,
    given_to: &'a Mutex<Option<Address>>,
}

impl Attempts<'_> {
    /// Publishes to `node` and waits for the answer. Returns the permit too.
    async fn make(
        &self,
        node: &Arc<Node>,
        permit: OwnedSemaphorePermit,
    ) -> (Attempt, OwnedSemaphorePermit) {
        let address = || node.address.clone();
        let open = match node.connection().await {
            Ok(open) => open,
            Err(error) => {
                let node = address();
                return (
                    Attempt::Failed(PublishError::Connect { node, error }),
                    permit,
                );
            }
        };
        let answering = match open.publish(self.command, self.batching, permit) {
            Ok(answering) => answering,
            Err(permit) => {
                // The next attempt needs a new connection.
                open.ended().await;
                let (node, error) = (address(), open.reason());
                return (
                    Attempt::Failed(PublishError::NotSent { node, error }),
                    permit,
                );
            }
        };
        self.set_given_to(Some(address()));
        let Ok((answer, permit)) = answering.await else {
            unreachable!("a pending publish is always answered");
        };
        self.set_given_to(None);
        let node = address();
        let attempt = match answer {
            Answer::Stored => Attempt::Stored,
            Answer::NotSent(error) => {
                open.ended().await;
                Attempt::Failed(PublishError::NotSent { node, error })
            }
            Answer::Lost(error) => Attempt::Failed(PublishError::Lost { node, error }),
            Answer::Refused { error, is_alone } => {
                let error = PublishError::Refused { node, error };
                // E_MPUB_FAILED may come in the middle of the messages. All other errors come before the first one.
                if !is_alone
                    && error.outcome() == crate::error::Outcome::NotStored
                    && !error.permits_retry()
                {
                    Attempt::Alone
                } else {
                    Attempt::Failed(error)
                }
            }
        };
        (attempt, permit)
    }

    fn set_given_to(&self, node: Option<Address>) {
        if self.inner.publish_timeout.is_some() {
            *self.given_to.lock().unwrap_or_else(PoisonError::into_inner) = node;
        }
    }
}

impl Inner {
    fn pool(&self) -> MutexGuard<'_, Pool<Arc<Node>>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn discovery(&self) -> MutexGuard<'_, Option<Discovery>> {
        self.discovery
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    fn failed(&self, node: &Address) {
        self.pool().failed(node, Instant::now().into_std());
    }

    /// Adds the nodes of `named`. Removes the nodes for which `keep` is false, and returns them.
    fn change_nodes(
        &self,
        named: &BTreeSet<Address>,
        keep: impl Fn(&Address) -> bool,
    ) -> Vec<Arc<Node>> {
        let mut pool = self.pool();
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
        for node in self.pool().all() {
            node.retire();
        }
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
