//! [`Control`]: changes and observes a running consumer.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use super::builder::first_result;
use super::discovery::Discovery;
use super::error::NodeError;
use super::shared::{ConsumerShared, NodeOrigin};
use crate::address::Address;
use crate::hub::Phase;
use crate::lookupd::{Lookupd, LookupdError};

/// A handle on a running [`Consumer`](crate::Consumer). Clones are cheap and belong to the same consumer. A control does
/// not keep its consumer running.
#[derive(Clone)]
pub struct Control {
    shared: Arc<ConsumerShared>,
    discovery: Arc<Discovery>,
    retry_first_connection: bool,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl Control {
    pub(super) fn new(
        shared: Arc<ConsumerShared>,
        discovery: Arc<Discovery>,
        retry_first_connection: bool,
    ) -> Control {
        Control {
            shared,
            discovery,
            retry_first_connection,
        }
    }

    /// Changes `max_in_flight`. 0 pauses the consumer.
    pub fn set_max_in_flight(&self, max: u32) {
        self.shared.hub.set_max_in_flight(max);
    }

    /// Returns `max_in_flight`.
    #[must_use]
    pub fn max_in_flight(&self) -> u32 {
        self.shared.hub.max_in_flight()
    }

    /// Returns true if a connection may send no more, or hardly more, before some of its messages are answered. An
    /// application that collects messages in batches answers its batch then.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        self.shared.hub.is_starved()
    }

    /// Returns the present numbers.
    #[must_use]
    pub fn stats(&self) -> ConsumerStats {
        let hub = &self.shared.hub;
        let lines = hub.lines();
        let nodes: Vec<NodeStats> = lines
            .into_iter()
            .map(|(line, ready)| NodeStats {
                ready,
                in_flight: line.in_flight(),
                last_message_at: line.last_message_at(),
                node: line.node.clone(),
            })
            .collect();
        let counts = hub.counts();
        ConsumerStats {
            received: counts.received,
            finished: counts.finished,
            requeued: counts.requeued,
            in_flight: nodes.iter().map(|node| node.in_flight).sum(),
            max_in_flight: hub.max_in_flight(),
            backoff_level: hub.level(),
            last_message_at: nodes.iter().filter_map(|node| node.last_message_at).max(),
            nodes,
            #[cfg(feature = "dedup")]
            dedup: self.shared.sieve.as_ref().map(|sieve| sieve.stats()),
        }
    }

    /// Stops the consumer: no more messages come, and those in flight can still be answered. Resolves when all connections
    /// are closed, or when the limit of [`drain_limit`](crate::ConsumerBuilder::drain_limit) is over. Then the stream of
    /// the consumer ends.
    ///
    /// With a filter that has a state file, this also waits until the filter is saved. `drain_limit` does not bound this
    /// wait: a caller that must end uses a timeout of its own.
    ///
    /// The first poll begins the end; dropping the future later changes nothing. A second call waits for the same end.
    pub async fn shutdown(&self) {
        self.shared.stop();
        let mut phase = self.shared.hub.watch_phase();
        // The sender is in the hub, so the phase cannot be lost.
        let _ = phase.wait_for(|phase| *phase == Phase::Stopped).await;
        #[cfg(feature = "dedup")]
        if let Some(sieve) = &self.shared.sieve {
            sieve.over().await;
        }
    }

    /// Adds a node, which is connected for ever. Without
    /// [`retry_first_connection`](crate::ConsumerBuilder::retry_first_connection), this waits for the first connection.
    ///
    /// # Errors
    /// The node is connected already, the consumer is stopping, or the first connection failed.
    pub async fn add_node(&self, node: Address) -> Result<(), NodeError> {
        if self.retry_first_connection {
            return self.shared.add(node, NodeOrigin::Fixed, None);
        }
        let (first, result) = oneshot::channel();
        self.shared
            .add(node.clone(), NodeOrigin::FixedOrFail, Some(first))?;
        first_result(node, result).await
    }

    /// Disconnects from a node: no more messages come from it, and those in flight can still be answered. The address is
    /// forgotten, and nsqlookupds do not bring it back.
    ///
    /// # Errors
    /// The consumer has no such node.
    pub fn remove_node(&self, node: &Address) -> Result<(), NodeError> {
        self.shared.remove(node)
    }

    /// Adds an nsqlookupd: `host:port` or a URL (see [`Lookupd::new`]). The first one is asked at once, a later one at the
    /// next poll.
    ///
    /// # Errors
    /// The address is wrong, or the certificates for HTTPS cannot be used.
    pub fn add_lookupd(&self, lookupd: &str) -> Result<(), LookupdError> {
        let lookupd = Lookupd::new(lookupd, &self.shared.hub.config)?;
        self.discovery.add(Arc::new(lookupd));
        Ok(())
    }

    /// Removes an nsqlookupd. The nodes that it named stay connected.
    ///
    /// # Errors
    /// The consumer has no such nsqlookupd, or no other one.
    pub fn remove_lookupd(&self, lookupd: &str) -> Result<(), NodeError> {
        self.discovery.remove(lookupd)
    }

    /// Returns the addresses of the nsqlookupds.
    #[must_use]
    pub fn lookupds(&self) -> Vec<String> {
        self.discovery.addresses()
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
    /// The time of the last message over a present connection.
    pub last_message_at: Option<Instant>,
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
    /// The time of the last message.
    pub last_message_at: Option<Instant>,
}
