//! [`Inner`]: what the clones of a producer share.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::builder::Batching;
use super::discovery::{Discovery, Plan};
use super::node::Node;
use super::numbering::Numbering;
use super::pool::Pool;
use super::session::Session;
use super::unconfirmed::{Mark, Unanswered, Unconfirmed};
use crate::address::Address;
use crate::connector::Connector;
use crate::core::Settings;
use crate::event::{Client, Events};

/// The parts of a producer that its nodes need.
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) events: Events,
    pub(crate) settings: Arc<Settings>,
    pub(crate) connector: Arc<dyn Connector>,
    /// The longest wait for the answers of a connection that is to end.
    pub(crate) flush_timeout: Duration,
    pub(crate) numbering: Numbering,
    /// The time for which a numbered publish with an unknown outcome waits for a new connection.
    pub(crate) resend_limit: Duration,
    /// The publishes that no session has any more, and that nsqd has not confirmed.
    pub(crate) unconfirmed: Arc<Unconfirmed>,
}

/// The state of one producer.
pub(crate) struct Inner {
    pub(super) shared: Arc<Shared>,
    pub(super) pool: Mutex<Pool<Arc<Node>>>,
    /// Nodes that are not in the pool any more, and may still have publishes without an answer. A node moves here inside
    /// the lock of `pool`, so that a flush finds each node.
    pub(super) leaving: Mutex<Vec<Weak<Node>>>,
    pub(super) permits: Arc<Semaphore>,
    pub(super) batching: Option<Batching>,
    pub(super) publish_timeout: Option<Duration>,
    /// The longest body, in bytes, if it is limited.
    pub(super) bytes_max: Option<usize>,
    /// The discovery, once a publish has started it.
    pub(super) discovery: Mutex<Option<Discovery>>,
    pub(super) plan: Option<Plan>,
    pub(super) is_closed: AtomicBool,
}

/// The result of [`Inner::begin`].
pub(super) struct Begun<T> {
    /// The time from which on unconfirmed publishes count.
    pub(super) mark: Mark,
    /// The publishes that were on their way back to their callers at some time between the mark and the last call.
    pub(super) returning: Vec<Unanswered>,
    /// The tasks with publishes, each with its node and with the result of the beginning.
    pub(super) sessions: Vec<(Arc<Node>, Arc<Session>, T)>,
}

impl Inner {
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    pub(super) fn failed(&self, node: &Address) {
        self.pool.lock().failed(node, Instant::now().into_std());
    }

    /// Returns all nodes that may have publishes without an answer.
    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        let pool = self.pool.lock();
        let mut nodes = pool.all();
        nodes.extend(self.leaving.lock().iter().filter_map(Weak::upgrade));
        nodes
    }

    /// Returns all tasks that may have publishes without an answer, each with its node.
    pub(super) fn connections(&self) -> Vec<(Arc<Node>, Arc<Session>)> {
        let connections = self.nodes().into_iter().flat_map(|node| {
            let connections = node.connections();
            connections
                .into_iter()
                .map(move |session| (Arc::clone(&node), session))
        });
        connections.collect()
    }

    /// Calls `begin` for each task that may have publishes without an answer, to begin a flush or the like.
    pub(super) fn begin<T>(&self, begin: impl Fn(&Session) -> Option<T>) -> Begun<T> {
        let unconfirmed = &self.shared.unconfirmed;
        let mark = unconfirmed.mark();
        let connections = self.connections().into_iter();
        let begun = connections.filter_map(|(node, session)| {
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

    /// Adds the nodes of `named`. Removes the nodes for which `keep` is false, and returns them. Changes nothing when the
    /// producer is closed.
    pub(super) fn change_nodes(
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
