//! [`Discovery`]: the nsqlookupds of a consumer, and the task that asks them for nodes.
//!
//! ```text
//!   poll: ask all nsqlookupds at the same time ─► union ─► filter ─► connect to new nodes
//!     ▲                                                                  │
//!     └── lookupd_poll_interval, and a random part of it on top ─────────┤
//!     └── soon, if a discovered node was lost: after growing delays ─────┘
//! ```

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::state::Phase;
use super::{Inner, NodeError, NodeOrigin};
use crate::address::Address;
use crate::config::without_password;
use crate::event::Event;
use crate::lookupd::{Lookupd, LookupdError};
use crate::reconnect::Delay;

/// The answer of a [`Directory`]: the nodes, or `None` if the topic is unknown.
pub(crate) type Listing<'a> =
    Pin<Box<dyn Future<Output = Result<Option<Found>, LookupdError>> + Send + 'a>>;

/// The nodes of an answer.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) nodes: Vec<Address>,
    /// The number of further nodes, which are ignored.
    pub(crate) ignored: usize,
}

/// A source of addresses: an nsqlookupd.
pub(crate) trait Directory: Send + Sync {
    /// Returns the address of the source.
    fn address(&self) -> &str;

    /// Asks for the nodes that have the topic.
    fn list<'a>(&'a self, topic: &'a str) -> Listing<'a>;
}

impl Directory for Lookupd {
    fn address(&self) -> &str {
        Lookupd::address(self)
    }

    fn list<'a>(&'a self, topic: &'a str) -> Listing<'a> {
        Box::pin(async move {
            let found = self.lookup(topic).await?;
            Ok(found.map(|found| {
                let named = found.producers.len() + found.ignored;
                let nodes = found.producers.iter();
                let nodes: Vec<Address> = nodes.filter_map(Address::of_node).collect();
                let ignored = named - nodes.len();
                Found { nodes, ignored }
            }))
        })
    }
}

/// A filter of the addresses that a poll found.
pub(crate) type AddressFilter = dyn Fn(Vec<Address>) -> Vec<Address> + Send + Sync;

/// The nsqlookupds of one consumer.
pub(crate) struct Discovery {
    directories: Mutex<Vec<Arc<dyn Directory>>>,
    /// Tells the task that the first nsqlookupd was added.
    added: Notify,
    filter: Option<Box<AddressFilter>>,
}

impl Discovery {
    pub(crate) fn new(
        directories: Vec<Arc<dyn Directory>>,
        filter: Option<Box<AddressFilter>>,
    ) -> Discovery {
        Discovery {
            directories: Mutex::new(directories),
            added: Notify::new(),
            filter,
        }
    }

    /// Returns the addresses of the nsqlookupds.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let directories = self.directories.lock();
        directories
            .iter()
            .map(|known| known.address().to_owned())
            .collect()
    }

    /// Adds an nsqlookupd. The first one is asked at once, a later one at the next poll. One that is known is ignored.
    pub(crate) fn add(&self, directory: Arc<dyn Directory>) {
        let mut directories = self.directories.lock();
        if directories
            .iter()
            .all(|known| known.address() != directory.address())
        {
            directories.push(directory);
            self.added.notify_one();
        }
    }

    /// Removes an nsqlookupd. The nodes that it named stay connected.
    pub(crate) fn remove(&self, address: &str) -> Result<(), NodeError> {
        let mut directories = self.directories.lock();
        let found = directories
            .iter()
            .position(|known| known.address() == address);
        let Some(index) = found else {
            return Err(NodeError::UnknownLookupd(address.to_owned()));
        };
        if directories.len() == 1 {
            return Err(NodeError::LastLookupd(address.to_owned()));
        }
        directories.remove(index);
        Ok(())
    }
}

/// Polls until the consumer stops.
pub(super) async fn run(inner: Arc<Inner>) {
    let mut phase = inner.state.watch_phase();
    tokio::select! {
        biased;
        // The sender is in the state, so the phase cannot be lost.
        _ = phase.wait_for(|phase| *phase != Phase::Running) => {}
        () = inner.poll_for_ever() => {}
    }
}

impl Inner {
    async fn poll_for_ever(self: &Arc<Inner>) {
        while self.discovery.directories.lock().is_empty() {
            self.discovery.added.notified().await;
        }
        let interval = self.state.config.lookupd_poll_interval;
        let mut soon = Delay::new(interval, fastrand::u64(..));
        let mut regular = self.next_poll();
        loop {
            self.poll_lookupds().await;
            if Instant::now() >= regular {
                regular = self.next_poll();
                soon.reset();
            }
            self.wait_for_poll(regular, &mut soon).await;
        }
    }

    /// Returns the time of the next regular poll.
    fn next_poll(&self) -> Instant {
        let config = &self.state.config;
        let jitter = config.lookupd_poll_jitter * fastrand::f64();
        Instant::now() + config.lookupd_poll_interval.mul_f64(1.0 + jitter)
    }

    /// Waits for the next poll: the regular one, or an earlier one because a node is missing.
    async fn wait_for_poll(&self, regular: Instant, soon: &mut Delay) {
        loop {
            if !self.is_any_missing() {
                tokio::select! {
                    () = sleep_until(regular) => return,
                    () = self.lost.notified() => continue,
                }
            }
            if soon.is_longest() {
                self.forget_missing();
            }
            let early = Instant::now() + soon.next();
            sleep_until(early.min(regular)).await;
            // The node may have been connected in the meantime.
            if self.is_any_missing() || Instant::now() >= regular {
                return;
            }
        }
    }

    /// Asks all nsqlookupds, and connects to the nodes that are new. Without a filter, each answer counts as soon as it
    /// is there. A filter gets all answers together.
    async fn poll_lookupds(self: &Arc<Inner>) {
        let (state, filter) = (&self.state, &self.discovery.filter);
        let directories = self.discovery.directories.lock().clone();
        let mut answers: FuturesUnordered<_> = directories
            .iter()
            .map(async |directory| (directory.address(), directory.list(&state.topic).await))
            .collect();
        let mut union = BTreeSet::new();
        while let Some((lookupd, answer)) = answers.next().await {
            let lookupd = || without_password(lookupd).into_owned();
            match answer {
                Ok(Some(found)) => {
                    let Found { nodes, mut ignored } = found;
                    match filter {
                        Some(_) => union.extend(nodes),
                        None => ignored += self.connect_all(nodes),
                    }
                    if ignored > 0 {
                        state.events.emit(|client| Event::NodesIgnored {
                            client,
                            lookupd: lookupd(),
                            ignored,
                        });
                    }
                }
                Ok(None) => state.events.emit(|client| Event::TopicNotFound {
                    client,
                    lookupd: lookupd(),
                }),
                Err(error) => state.events.emit(|client| Event::DiscoveryFailed {
                    client,
                    error: Arc::new(error),
                }),
            }
        }
        if let Some(filter) = filter {
            let wanted = filter(union.into_iter().collect());
            self.connect_all(wanted);
        }
    }

    /// Connects to the nodes that are new, and that the application has not removed. Returns the number of those for
    /// which the consumer has no room.
    fn connect_all(self: &Arc<Inner>, nodes: Vec<Address>) -> usize {
        let mut ignored = 0;
        for node in nodes {
            match self.add(node.clone(), NodeOrigin::Discovered, None) {
                Ok(()) => {
                    let events = &self.state.events;
                    events.emit(|client| Event::Discovered { client, node });
                }
                Err(NodeError::TooMany(_)) => ignored += 1,
                Err(_) => {}
            }
        }
        ignored
    }
}
