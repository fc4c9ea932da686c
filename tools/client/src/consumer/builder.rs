//! [`ConsumerBuilder`]: from addresses and settings to a running [`Consumer`].

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use wire::name::is_valid_name;

#[cfg(feature = "dedup")]
use super::dedup::{DedupTask, serve_waiting_copies};
use super::discovery::{self, AddressFilter, Directory, Discovery};
use super::message::GivenUp;
use super::node::AutoTouch;
use super::state::ConsumerState;
use super::{ConnectError, Consumer, GiveUp, Inner, NodeOrigin, first_result, handle_timeouts};
use crate::address::{Address, AddressError, Nodes};
use crate::config::{Config, without_passwords};
use crate::connection::{Settings, Subscription};
use crate::connector::{Connector, SystemConnector};
#[cfg(feature = "dedup")]
use crate::dedup::Dedup;
use crate::event::{Callback, Client, Event, Events};
use crate::lookupd::Lookupd;

/// The settings of a [`Consumer`] that is to be made. See [`Consumer::builder`].
#[must_use = "a builder does nothing before `connect`"]
pub struct ConsumerBuilder {
    topic: String,
    channel: String,
    nodes: Nodes,
    lookupds: Vec<String>,
    config: Config,
    retry_first_connection: bool,
    discovery_filter: Option<Box<AddressFilter>>,
    give_up: Option<Box<GiveUp>>,
    connector: Option<Arc<dyn Connector>>,
    events: Option<Callback>,
    auto_touch: Option<AutoTouch>,
    drain_limit: Duration,
    gives_back: bool,
    runtime: Option<Handle>,
    #[cfg(feature = "dedup")]
    dedup: Option<Dedup>,
}

impl fmt::Debug for ConsumerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerBuilder")
            .field("topic", &self.topic)
            .field("channel", &self.channel)
            .field("nodes", &self.nodes.addresses)
            .field("lookupds", &without_passwords(&self.lookupds))
            .finish_non_exhaustive()
    }
}

impl ConsumerBuilder {
    pub(super) fn new(topic: String, channel: String) -> ConsumerBuilder {
        ConsumerBuilder {
            topic,
            channel,
            nodes: Nodes::default(),
            lookupds: Vec::new(),
            config: Config::default(),
            retry_first_connection: true,
            discovery_filter: None,
            give_up: None,
            connector: None,
            events: None,
            auto_touch: None,
            drain_limit: Duration::from_secs(30),
            gives_back: true,
            runtime: None,
            #[cfg(feature = "dedup")]
            dedup: None,
        }
    }

    /// Adds an nsqd to connect to: an [`Address`], a socket address, or a text such as `127.0.0.1:4150`. A text that is
    /// no address is an error of [`connect`](ConsumerBuilder::connect).
    pub fn node<A>(mut self, node: A) -> ConsumerBuilder
    where
        A: TryInto<Address, Error: Into<AddressError>>,
    {
        self.nodes.add(node);
        self
    }

    /// Adds nsqds to connect to, as [`node`](ConsumerBuilder::node) does.
    pub fn nodes<A>(mut self, nodes: impl IntoIterator<Item = A>) -> ConsumerBuilder
    where
        A: TryInto<Address, Error: Into<AddressError>>,
    {
        nodes.into_iter().for_each(|node| self.nodes.add(node));
        self
    }

    /// Adds an nsqlookupd that names nodes with the topic: `host:port` or a URL (see [`Lookupd::new`]).
    pub fn lookupd(mut self, lookupd: impl Into<String>) -> ConsumerBuilder {
        self.lookupds.push(lookupd.into());
        self
    }

    /// Adds nsqlookupds.
    pub fn lookupds<L: Into<String>>(
        mut self,
        lookupds: impl IntoIterator<Item = L>,
    ) -> ConsumerBuilder {
        self.lookupds.extend(lookupds.into_iter().map(Into::into));
        self
    }

    /// Sets the configuration. The default is [`Config::default`], which has one message in flight.
    pub fn config(mut self, config: Config) -> ConsumerBuilder {
        self.config = config;
        self
    }

    /// Sets whether a node that cannot be reached at first is tried again in the background, which is the default. With
    /// `false`, [`connect`](ConsumerBuilder::connect) waits for the first connection to each of
    /// [`nodes`](ConsumerBuilder::nodes), and fails if one fails. Later losses are repaired in any case, and nodes that
    /// nsqlookupds name are never an error.
    pub fn retry_first_connection(mut self, retry: bool) -> ConsumerBuilder {
        self.retry_first_connection = retry;
        self
    }

    /// Sets a filter for the addresses that nsqlookupds name, for instance to prefer one data centre. The filter gets
    /// the union of a poll's answers and returns the addresses to connect to. Existing connections stay.
    pub fn discovery_filter(
        mut self,
        filter: impl Fn(Vec<Address>) -> Vec<Address> + Send + Sync + 'static,
    ) -> ConsumerBuilder {
        self.discovery_filter = Some(Box::new(filter));
        self
    }

    /// Sets a callback for messages whose attempts exceed `max_attempts`. It runs where the application takes messages,
    /// and the message is finished when it returns. Without a callback there is only an [`Event::GaveUp`]. If the
    /// callback panics, the message is requeued.
    pub fn give_up(
        mut self,
        callback: impl Fn(GivenUp) + Send + Sync + 'static,
    ) -> ConsumerBuilder {
        self.give_up = Some(Box::new(callback));
        self
    }

    /// Sets how nsqds are reached. The default is [`SystemConnector`].
    pub fn connector(mut self, connector: impl Connector) -> ConsumerBuilder {
        self.connector = Some(Arc::new(connector));
        self
    }

    /// Sets a callback for events. It runs on the tasks of the consumer and on threads that answer messages, so it must
    /// not wait. Without a callback, and without a subscriber of `tracing` (feature `tracing`), warnings and errors are
    /// written to standard error.
    pub fn events(mut self, callback: impl Fn(Event) + Send + Sync + 'static) -> ConsumerBuilder {
        self.events = Some(Arc::new(callback));
        self
    }

    /// Lets the library touch messages that have no answer when half of their timeout is over, up to a limit. The
    /// default is `None`: the library touches no message.
    pub fn auto_touch(mut self, auto_touch: Option<AutoTouch>) -> ConsumerBuilder {
        self.auto_touch = auto_touch;
        self
    }

    /// Sets the longest time that [`Control::shutdown`](crate::Control::shutdown) waits for answers. The default is 30
    /// s.
    pub fn drain_limit(mut self, limit: Duration) -> ConsumerBuilder {
        self.drain_limit = limit;
        self
    }

    /// Sets whether messages that the application has not taken go back to nsqd when the consumer stops, so that other
    /// consumers get them at once. This is the default. With ringq's nsqd, a return does not count as an attempt; with
    /// the original, it does. With `false`, the application still gets these messages.
    pub fn give_back_at_shutdown(mut self, give_back: bool) -> ConsumerBuilder {
        self.gives_back = give_back;
        self
    }

    /// Sets the tokio runtime that runs the connections and the discovery. The default is the runtime that calls
    /// [`connect`](ConsumerBuilder::connect).
    ///
    /// A thread that is blocked by a handler may be the one that waits for the sockets of its runtime. If handlers
    /// block for longer than a heartbeat interval, the connections need a runtime of their own, because nsqd ends a
    /// connection that leaves two heartbeats without an answer.
    pub fn runtime(mut self, runtime: Handle) -> ConsumerBuilder {
        self.runtime = Some(runtime);
        self
    }

    /// Lets the consumer recognise messages that were handled before, and finish them without the application.
    ///
    /// * A message that is *fresh* comes to the application. [`Message::finish`](crate::Message::finish) first records
    ///   it in the filter, and then sends FIN. Any other end of the message releases its key, so the next copy is
    ///   fresh: a requeue, a handler that fails, a drop, and the end of its attempts.
    /// * A copy of a message that is *done* is finished at once.
    /// * A copy of a message that is *in progress* waits until the first copy is done or has failed, and is touched in
    ///   the meantime. It goes back to nsqd when nsqd's limit for touched messages (`--max-msg-timeout`) is near, or
    ///   when all messages that a connection may have are waiting copies. With ringq's nsqd, that does not count as an
    ///   attempt. With the original it does, so the second half of `max_attempts` is not spent on waiting.
    /// * A message without a key comes to the application without the filter.
    ///
    /// All of these count in [`ConsumerStats::dedup`](crate::ConsumerStats::dedup), and in `nsq_client_dedup_total`
    /// with the feature `metrics`.
    #[cfg(feature = "dedup")]
    pub fn dedup(mut self, dedup: Dedup) -> ConsumerBuilder {
        self.dedup = Some(dedup);
        self
    }

    /// Makes the consumer and begins to connect. Must be called within a tokio runtime, which runs the consumer's
    /// tasks, unless [`runtime`](ConsumerBuilder::runtime) names another one.
    ///
    /// If the future is dropped before its end, all connections are closed.
    ///
    /// # Errors
    /// A name, an option or an address is wrong; or, without
    /// [`retry_first_connection`](ConsumerBuilder::retry_first_connection), a node cannot be reached or refuses the
    /// subscription.
    ///
    /// # Panics
    /// Outside of a tokio runtime, if none was set.
    pub async fn connect(self) -> Result<Consumer, ConnectError> {
        if !is_valid_name(self.topic.as_bytes()) {
            return Err(ConnectError::Topic(self.topic));
        }
        if !is_valid_name(self.channel.as_bytes()) {
            return Err(ConnectError::Channel(self.channel));
        }
        if let Some(wrong) = self.nodes.wrong {
            return Err(ConnectError::Address(wrong));
        }
        if self.nodes.addresses.is_empty() && self.lookupds.is_empty() {
            return Err(ConnectError::NoAddress);
        }
        let mut directories: Vec<Arc<dyn Directory>> = Vec::new();
        for address in &self.lookupds {
            let lookupd = Lookupd::new(address, &self.config).map_err(ConnectError::Lookupd)?;
            if directories.iter().all(|known| known.address() != address) {
                directories.push(Arc::new(lookupd));
            }
        }
        self.connect_with(directories).await
    }

    /// Connects with any kind of directories.
    pub(super) async fn connect_with(
        self,
        directories: Vec<Arc<dyn Directory>>,
    ) -> Result<Consumer, ConnectError> {
        let (topic, channel): (Arc<str>, Arc<str>) = (self.topic.into(), self.channel.into());
        let events = Events::new(Client::consumer(&topic, &channel), self.events);
        let subscription = Subscription {
            topic: Arc::clone(&topic),
            channel,
        };
        let settings =
            Settings::new(&self.config, Some(subscription)).map_err(ConnectError::Option)?;
        let connector = self.connector;
        let connector =
            connector.unwrap_or_else(|| SystemConnector::from_address(self.config.local_addr));
        let state = ConsumerState::new(self.config, topic, events, fastrand::u64(..));
        let (state, inbox) = (Arc::new(state), Arc::default());
        let runtime = self.runtime.unwrap_or_else(Handle::current);
        let inner = Arc::new(Inner {
            #[cfg(feature = "dedup")]
            dedup: self.dedup.map(|dedup| {
                let (state, inbox) = (Arc::clone(&state), Arc::clone(&inbox));
                Arc::new(DedupTask::new(dedup, state, inbox, runtime.clone()))
            }),
            state,
            inbox,
            settings: Arc::new(settings),
            connector,
            discovery: Discovery::new(directories, self.discovery_filter),
            retry_first_connection: self.retry_first_connection,
            auto_touch: self.auto_touch,
            drain_limit: self.drain_limit,
            gives_back: self.gives_back,
            runtime: runtime.clone(),
            nodes: Mutex::default(),
            lost: Notify::new(),
        });
        // From here on, dropping the consumer ends all tasks.
        let consumer = Consumer {
            inner: Arc::clone(&inner),
            give_up: self.give_up,
            taken: VecDeque::new(),
        };
        runtime.spawn(handle_timeouts(Arc::clone(&inner)));
        #[cfg(feature = "dedup")]
        if let Some(task) = &inner.dedup {
            runtime.spawn(serve_waiting_copies(Arc::clone(task)));
        }
        let origin = if self.retry_first_connection {
            NodeOrigin::Fixed
        } else {
            NodeOrigin::FixedOrFail
        };
        let mut results = Vec::new();
        for node in self.nodes.addresses {
            let (first, result) = oneshot::channel();
            let added = inner.add(node.clone(), origin, Some(first));
            added.map_err(ConnectError::Node)?;
            results.push((node, result));
        }
        if origin == NodeOrigin::FixedOrFail {
            for (node, result) in results {
                first_result(node, result)
                    .await
                    .map_err(ConnectError::Node)?;
            }
        }
        runtime.spawn(discovery::run(inner));
        Ok(consumer)
    }
}
