//! [`Consumer`]: a stream of messages from all nodes that have a topic.
//!
//! ```text
//!   discovery ─► nodes ─► one task per nsqd ─► inbox ─► Consumer (stream, run) ─► application
//!                              │   ▲                                                  │
//!                              ▼   │ RDY, FIN, REQ, TOUCH                             ▼
//!                             nsqd └──────── ConsumerState (flow control) ◄──────── answers
//! ```
//!
//! `node.rs` has the task of each nsqd. `state.rs` is what all connections share: the flow control and the counters.

mod backoff;
mod builder;
mod connection;
#[cfg(feature = "dedup")]
mod dedup;
mod discovery;
mod flow;
mod inbox;
mod message;
mod node;
mod ready;
mod run;
mod state;
#[cfg(feature = "dedup")]
mod waiting_copies;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;
use wire::name::InvalidName;

use crate::address::{Address, AddressError};
use crate::config::OptionError;
use crate::connection::Settings;
use crate::connector::Connector;
use crate::error::ConnectionError;
use crate::event::Event;
use crate::lookupd::{Lookupd, LookupdError, NODES_MAX};

pub use builder::ConsumerBuilder;
#[cfg(feature = "dedup")]
use dedup::DedupTask;
use discovery::Discovery;
use inbox::Inbox;
pub use message::{Acker, Answered, GivenUp, Message, Requeue};
pub use node::AutoTouch;
use node::NodeTask;
use state::{ConsumerState, Phase, wait_until};

/// The callback for messages that are given up.
type GiveUp = dyn Fn(GivenUp) + Send + Sync;

/// Receives the messages of a topic and channel, from all its nodes.
///
/// A consumer is a [`Stream`] of messages. [`run`](Consumer::run) calls a handler for each message instead. Heartbeats,
/// RDY and reconnection go on in tasks of their own, however long the application takes for a message.
///
/// Dropping a consumer stops it in the background, as [`Control::shutdown`] does.
///
/// ```no_run
/// use ringq_client::{Config, Consumer, Requeue};
///
/// # async fn save(body: &[u8]) -> std::io::Result<()> { Ok(()) }
/// # async fn example() -> Result<(), ringq_client::ConnectError> {
/// let mut consumer = Consumer::builder("orders", "billing")
///     .lookupd("127.0.0.1:4161")
///     .config(Config { max_in_flight: 100, ..Config::default() })
///     .connect()
///     .await?;
/// while let Some(message) = consumer.next().await {
///     match save(message.body()).await {
///         Ok(()) => message.finish(),
///         Err(_) => message.requeue(Requeue::Automatic),
///     };
/// }
/// # Ok(())
/// # }
/// ```
///
/// A test needs no nsqd, with the feature `testing`:
///
/// ```
/// use ringq_client::testing::MockNetwork;
/// use ringq_client::{Consumer, Requeue};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let network = MockNetwork::new();
/// let nsqd = network.broker("nsqd-1:4150");
/// nsqd.publish("orders", "one");
/// let mut consumer = Consumer::builder("orders", "billing")
///     .node(nsqd.address())
///     .connector(network)
///     .connect()
///     .await?;
///
/// let message = consumer.next().await.ok_or("the consumer has stopped")?;
/// assert_eq!((&message.body()[..], message.attempts()), (&b"one"[..], 1));
/// message.requeue_without_backoff(Requeue::After(std::time::Duration::ZERO));
///
/// let message = consumer.next().await.ok_or("the consumer has stopped")?;
/// assert_eq!(message.attempts(), 2);
/// message.finish().await?;
///
/// consumer.control().shutdown().await;
/// assert!(consumer.next().await.is_none());
/// assert_eq!(nsqd.depth("orders", "billing"), (0, 0));
/// # Ok(())
/// # }
/// ```
pub struct Consumer {
    inner: Arc<Inner>,
    give_up: Option<Box<GiveUp>>,
    /// Messages that were taken from the inbox together.
    taken: VecDeque<Message>,
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("control", &self.control())
            .finish_non_exhaustive()
    }
}

impl Consumer {
    /// Begins to describe a consumer of `channel` of `topic`.
    pub fn builder(topic: impl Into<String>, channel: impl Into<String>) -> ConsumerBuilder {
        ConsumerBuilder::new(topic.into(), channel.into())
    }

    /// Returns a handle that changes, observes and stops the consumer.
    #[must_use]
    pub fn control(&self) -> Control {
        Control(Arc::clone(&self.inner))
    }

    /// Returns the next message, or `None` when the consumer has stopped. Dropping the future loses no message.
    pub async fn next(&mut self) -> Option<Message> {
        poll_fn(|cx| self.poll_message(cx)).await
    }

    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        loop {
            while let Some(message) = self.taken.pop_front() {
                if let Some(message) = self.admit(message) {
                    return Poll::Ready(Some(message));
                }
            }
            if !ready!(self.inner.inbox.poll_take(cx, &mut self.taken)) {
                return Poll::Ready(None);
            }
        }
    }

    /// Returns the message if the application is to have it.
    fn admit(&self, message: Message) -> Option<Message> {
        let delivery = message.delivery();
        let state = &self.inner.state;
        if delivery.source.connection.is_lost() {
            // nsqd delivers the message again, and nobody could answer this delivery.
            delivery.forget();
            return None;
        }
        if self.inner.gives_back && state.phase() != Phase::Running {
            delivery.give_back();
            return None;
        }
        if !delivery.is_given_up() {
            return Some(message);
        }
        state.events.emit(|client| Event::GaveUp {
            client,
            node: message.node().clone(),
            id: message.id(),
            attempts: message.attempts(),
        });
        if let Some(give_up) = &self.give_up {
            give_up(GivenUp::from(&message));
        }
        // The application has not handled the message, so a copy on another node is as fresh as before.
        #[cfg(feature = "dedup")]
        delivery.release_claim();
        message.finish();
        None
    }
}

impl Stream for Consumer {
    type Item = Message;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        self.poll_message(cx)
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.inner.stop();
        // After CLS, so nsqd does not send these messages here again. The inbox refuses messages from now on, because
        // nobody takes them.
        let waiting = self.inner.inbox.refuse();
        for message in waiting.into_iter().chain(self.taken.drain(..)) {
            message.delivery().give_back();
        }
    }
}

/// The consumer for its tasks: its nsqds, its inbox and its settings.
struct Inner {
    state: Arc<ConsumerState>,
    inbox: Arc<Inbox>,
    settings: Arc<Settings>,
    connector: Arc<dyn Connector>,
    discovery: Discovery,
    /// False if a failure of the first connection to a node that the application names is final.
    retry_first_connection: bool,
    auto_touch: Option<AutoTouch>,
    /// The longest time that the consumer waits for answers when it stops.
    drain_limit: Duration,
    /// True if messages that no handler has seen go back to nsqd when the consumer stops.
    gives_back: bool,
    runtime: Handle,
    /// The part that recognises messages, if there is one.
    #[cfg(feature = "dedup")]
    dedup: Option<Arc<DedupTask>>,
    nodes: Mutex<Nodes>,
    /// Tells the discovery that a discovered node was lost.
    lost: Notify,
}

#[derive(Debug, Default)]
struct Nodes {
    entries: BTreeMap<Address, Entry>,
    next_task_number: u64,
    /// Nodes that the application removed: discovery does not bring them back.
    removed: BTreeSet<Address>,
    /// Discovered nodes that were lost and are not connected again.
    missing: BTreeSet<Address>,
}

#[derive(Debug)]
struct Entry {
    /// Distinguishes tasks of the same address.
    task_number: u64,
    /// Dropped when the application removes the node.
    _removal: oneshot::Sender<()>,
}

/// The way in which a consumer got to know a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeOrigin {
    /// The application named the node. The task tries for ever.
    Fixed,
    /// Like `Fixed`, but a failure of the first connection is final.
    FixedOrFail,
    /// An nsqlookupd named the node. The task tries once.
    Discovered,
}

impl Inner {
    /// Connects to a node in a task of its own. `first` gets the result of the first connection.
    fn add(
        self: &Arc<Inner>,
        node: Address,
        origin: NodeOrigin,
        first: Option<oneshot::Sender<FirstResult>>,
    ) -> Result<(), NodeError> {
        let (removal_sender, removal) = oneshot::channel();
        let mut nodes = self.nodes.lock();
        if self.state.phase() != Phase::Running {
            return Err(NodeError::Stopped);
        }
        if nodes.entries.contains_key(&node) {
            return Err(NodeError::AlreadyConnected(node));
        }
        match origin {
            NodeOrigin::Discovered if nodes.entries.len() >= NODES_MAX => {
                return Err(NodeError::TooMany(NODES_MAX));
            }
            NodeOrigin::Discovered if nodes.removed.contains(&node) => {
                return Err(NodeError::NotConnected(node));
            }
            NodeOrigin::Discovered => {}
            NodeOrigin::Fixed | NodeOrigin::FixedOrFail => {
                nodes.removed.remove(&node);
            }
        }
        let task_number = nodes.next_task_number;
        nodes.next_task_number += 1;
        let entry = Entry {
            task_number,
            _removal: removal_sender,
        };
        nodes.entries.insert(node.clone(), entry);
        drop(nodes);
        let task = NodeTask {
            inner: Arc::clone(self),
            node,
            origin,
            task_number,
            removal,
            phase: self.state.watch_phase(),
        };
        self.runtime.spawn(task.run(first));
        Ok(())
    }

    /// Disconnects from a node and forgets it: no new messages, and the end when those in flight are answered.
    fn remove(&self, node: &Address) -> Result<(), NodeError> {
        let mut nodes = self.nodes.lock();
        match nodes.entries.remove(node) {
            Some(_removal) => {
                nodes.removed.insert(node.clone());
                Ok(())
            }
            None => Err(NodeError::NotConnected(node.clone())),
        }
    }

    /// Returns true while a discovered node is missing.
    fn is_any_missing(&self) -> bool {
        !self.nodes.lock().missing.is_empty()
    }

    /// Forgets which discovered nodes are missing, so the next regular poll looks for them.
    fn forget_missing(&self) {
        self.nodes.lock().missing.clear();
    }

    /// Begins the end of the consumer. Does nothing if it has begun.
    fn stop(&self) {
        if !self.state.begin_stop() {
            return;
        }
        let events = &self.state.events;
        events.emit(|client| Event::Stopping { client });
        if self.gives_back {
            // CLS came first, so nsqd does not send these messages here again.
            for message in self.inbox.refuse() {
                message.delivery().give_back();
            }
        }
        self.inbox.wake();
        if self.state.has_no_connections() {
            self.end();
        }
    }

    /// Ends the consumer now.
    fn end(&self) {
        self.state.end();
        #[cfg(feature = "dedup")]
        if self.dedup.is_some() {
            // Its task closes the inbox when the filter is saved.
            return;
        }
        self.inbox.close();
    }
}

/// The result of a node's first connection, for the caller who waits for it.
type FirstResult = Result<(), Arc<ConnectionError>>;

/// Carries out the timeouts of the flow control while the consumer runs. Then ends the consumer after its
/// `drain_limit`.
async fn handle_timeouts(inner: Arc<Inner>) {
    let state = &inner.state;
    let mut phase = state.watch_phase();
    loop {
        tokio::select! {
            biased;
            // The sender is in the state, so the phase cannot be lost.
            _ = phase.wait_for(|phase| *phase != Phase::Running) => break,
            () = state.flow_changed.notified() => {}
            () = wait_until(state.next_timeout()) => state.handle_timeout(),
        }
    }
    tokio::select! {
        biased;
        _ = phase.wait_for(|phase| *phase == Phase::Stopped) => {}
        () = sleep(inner.drain_limit) => {
            let connections = state.connections();
            let in_flight = connections.iter().map(|(connection, _)| connection.in_flight()).sum();
            if in_flight > 0 {
                state.events.emit(|client| Event::DrainLimitReached {
                    client,
                    limit: inner.drain_limit,
                    in_flight,
                });
            }
            inner.end();
        }
    }
}

/// Waits for the result of a node's first connection.
async fn first_result(
    node: Address,
    result: oneshot::Receiver<FirstResult>,
) -> Result<(), NodeError> {
    match result.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(NodeError::Connection(node, error)),
        // The task has ended, because the node was removed or the consumer stopped.
        Err(_) => Err(NodeError::Stopped),
    }
}

/// A handle on a running [`Consumer`]. Clones are cheap and belong to the same consumer. A control
/// does not keep its consumer running.
#[derive(Clone)]
pub struct Control(Arc<Inner>);

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl Control {
    /// Changes `max_in_flight`. 0 pauses the consumer.
    pub fn set_max_in_flight(&self, max: u32) {
        self.0.state.set_max_in_flight(max);
    }

    /// Returns `max_in_flight`.
    #[must_use]
    pub fn max_in_flight(&self) -> u32 {
        self.0.state.max_in_flight()
    }

    /// Returns true if a connection may send no more, or hardly more, before some of its messages are answered. An
    /// application that collects messages in batches answers its batch then.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        self.0.state.is_starved()
    }

    /// Returns the present numbers.
    #[must_use]
    pub fn stats(&self) -> ConsumerStats {
        let state = &self.0.state;
        let connections = state.connections().into_iter();
        let nodes = connections.map(|(connection, ready)| NodeStats {
            ready,
            in_flight: connection.in_flight(),
            node: connection.node.clone(),
        });
        let nodes: Vec<NodeStats> = nodes.collect();
        ConsumerStats {
            received: state.received.load(Ordering::Relaxed),
            finished: state.finished.load(Ordering::Relaxed),
            requeued: state.requeued.load(Ordering::Relaxed),
            in_flight: nodes.iter().map(|node| node.in_flight).sum(),
            max_in_flight: state.max_in_flight(),
            backoff_level: state.level(),
            nodes,
            #[cfg(feature = "dedup")]
            dedup: self.0.dedup.as_ref().map(|dedup| dedup.stats()),
        }
    }

    /// Stops the consumer: no more messages come, and those in flight can still be answered. Resolves when all
    /// connections are closed, or when the limit of [`drain_limit`](crate::ConsumerBuilder::drain_limit) is over. Then
    /// the stream of the consumer ends.
    ///
    /// With a filter that has a state file, this also waits until the filter is saved. `drain_limit` does not bound
    /// this wait: a caller that must end uses a timeout of its own.
    ///
    /// The first poll begins the end; dropping the future later changes nothing. A second call waits for the same end.
    pub async fn shutdown(&self) {
        self.0.stop();
        let mut phase = self.0.state.watch_phase();
        // The sender is in the state, so the phase cannot be lost.
        let _ = phase.wait_for(|phase| *phase == Phase::Stopped).await;
        #[cfg(feature = "dedup")]
        if let Some(dedup) = &self.0.dedup {
            dedup.over().await;
        }
    }

    /// Adds a node, which is connected for ever. Without
    /// [`retry_first_connection`](crate::ConsumerBuilder::retry_first_connection), this waits for the first connection.
    ///
    /// # Errors
    /// The node is connected already, the consumer is stopping, or the first connection failed.
    pub async fn add_node(&self, node: Address) -> Result<(), NodeError> {
        if self.0.retry_first_connection {
            return self.0.add(node, NodeOrigin::Fixed, None);
        }
        let (first, result) = oneshot::channel();
        self.0
            .add(node.clone(), NodeOrigin::FixedOrFail, Some(first))?;
        first_result(node, result).await
    }

    /// Disconnects from a node: no more messages come from it, and those in flight can still be answered. The address
    /// is forgotten, and nsqlookupds do not bring it back.
    ///
    /// # Errors
    /// The consumer has no such node.
    pub fn remove_node(&self, node: &Address) -> Result<(), NodeError> {
        self.0.remove(node)
    }

    /// Adds an nsqlookupd: `host:port` or a URL (see [`Lookupd::new`]). The first one is asked at once, a later one at
    /// the next poll.
    ///
    /// # Errors
    /// The address is wrong, or the certificates for HTTPS cannot be used.
    pub fn add_lookupd(&self, lookupd: &str) -> Result<(), LookupdError> {
        let lookupd = Lookupd::new(lookupd, &self.0.state.config)?;
        self.0.discovery.add(Arc::new(lookupd));
        Ok(())
    }

    /// Removes an nsqlookupd. The nodes that it named stay connected.
    ///
    /// # Errors
    /// The consumer has no such nsqlookupd, or no other one.
    pub fn remove_lookupd(&self, lookupd: &str) -> Result<(), NodeError> {
        self.0.discovery.remove(lookupd)
    }

    /// Returns the addresses of the nsqlookupds.
    #[must_use]
    pub fn lookupds(&self) -> Vec<String> {
        self.0.discovery.addresses()
    }
}

/// The numbers of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerStats {
    /// The messages that came, since the consumer was made.
    pub received: u64,
    /// The messages that were finished, given-up ones and recognised duplicates included.
    pub finished: u64,
    /// The messages that were requeued.
    pub requeued: u64,
    /// The messages that came and have no answer yet, those that wait for the application included.
    pub in_flight: u64,
    /// The largest number of messages in flight.
    pub max_in_flight: u32,
    /// The level of the backoff. 0 means none.
    pub backoff_level: u32,
    /// The present connections.
    pub nodes: Vec<NodeStats>,
    /// The numbers of the filter, if the consumer has one.
    #[cfg(feature = "dedup")]
    pub dedup: Option<crate::dedup::DedupStats>,
}

/// The numbers of one connection of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStats {
    /// The nsqd.
    pub node: Address,
    /// The RDY count.
    pub ready: u32,
    /// The messages that came and have no answer yet.
    pub in_flight: u64,
}

/// The reason why a consumer could not be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The topic is no valid name: 1 to 64 bytes of `.a-zA-Z0-9_-`, with or without `#ephemeral` at the end.
    #[error("invalid topic name: {}", InvalidName(.0))]
    Topic(String),
    /// The channel is no valid name.
    #[error("invalid channel name: {}", InvalidName(.0))]
    Channel(String),
    /// An option of the configuration is wrong.
    #[error("{0}")]
    Option(#[source] OptionError),
    /// There is neither a node nor an nsqlookupd.
    #[error("a consumer needs the address of an nsqd or of an nsqlookupd")]
    NoAddress,
    /// The address of a node is wrong.
    #[error("{0}")]
    Address(#[source] AddressError),
    /// An nsqlookupd cannot be used.
    #[error("{0}")]
    Lookupd(#[source] LookupdError),
    /// A node cannot be used.
    #[error("{0}")]
    Node(#[source] NodeError),
}

/// The reason why an address of a running consumer could not be added or removed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum NodeError {
    /// The node is connected already, or being connected.
    AlreadyConnected(Address),
    /// The consumer has no such node.
    NotConnected(Address),
    /// The first connection failed, and `retry_first_connection` is off.
    Connection(Address, Arc<ConnectionError>),
    /// The consumer has no such nsqlookupd.
    UnknownLookupd(String),
    /// The nsqlookupd is the last one, which cannot be removed.
    LastLookupd(String),
    /// The consumer has this many nodes already, the most that nsqlookupds can bring.
    TooMany(usize),
    /// The consumer is stopping, or has stopped.
    Stopped,
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeError::AlreadyConnected(node) => write!(f, "already connected: {node}"),
            NodeError::NotConnected(node) => write!(f, "not connected: {node}"),
            NodeError::Connection(node, error) => {
                write!(f, "({node}) error connecting to nsqd - {error}")
            }
            NodeError::UnknownLookupd(address) => write!(f, "not connected: nsqlookupd {address}"),
            NodeError::LastLookupd(address) => write!(
                f,
                "cannot disconnect from only remaining nsqlookupd HTTP address {address}"
            ),
            NodeError::TooMany(most) => {
                write!(
                    f,
                    "{most} nodes are connected already, and nsqlookupds bring no more"
                )
            }
            NodeError::Stopped => f.write_str("consumer stopped"),
        }
    }
}

impl std::error::Error for NodeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            NodeError::Connection(_, error) => Some(&**error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
