//! [`ConsumerShared`]: what the tasks of a consumer share. Each nsqd has a task, which connects, receives and connects
//! again (`node_task.rs`).

mod node_task;

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep, sleep_until};

use super::error::NodeError;
use super::inbox::Inbox;
#[cfg(feature = "dedup")]
use super::sieve::Sieve;
use super::touching::AutoTouch;
use crate::address::Address;
use crate::connector::Connector;
use crate::core::Settings;
#[cfg(feature = "dedup")]
use crate::dedup::Dedup;
use crate::error::ConnectionError;
use crate::event::Event;
use crate::hub::{Hub, Phase};
use crate::lookupd::NODES_MAX;
use node_task::Task;

/// The state that the tasks of one consumer share: its nsqds, its inbox and its settings.
pub(crate) struct ConsumerShared {
    pub(crate) hub: Arc<Hub>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) auto_touch: Option<AutoTouch>,
    /// The longest time that the consumer waits for answers when it stops.
    pub(crate) drain_limit: Duration,
    /// True if messages that no handler has seen go back to nsqd when the consumer stops.
    pub(crate) gives_back: bool,
    pub(crate) runtime: Handle,
    /// The part that recognises messages, if there is one.
    #[cfg(feature = "dedup")]
    pub(crate) sieve: Option<Arc<Sieve>>,
    state: Mutex<State>,
    /// Tells the discovery that a discovered node was lost.
    pub(crate) lost: Notify,
}

#[derive(Debug, Default)]
struct State {
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
pub(crate) enum NodeOrigin {
    /// The application named the node. The task tries for ever.
    Fixed,
    /// Like `Fixed`, but a failure of the first connection is final.
    FixedOrFail,
    /// An nsqlookupd named the node. The task tries once.
    Discovered,
}

impl ConsumerShared {
    pub(crate) fn new(
        hub: Arc<Hub>,
        settings: Arc<Settings>,
        connector: Arc<dyn Connector>,
        auto_touch: Option<AutoTouch>,
        drain_limit: Duration,
        gives_back: bool,
        runtime: Handle,
    ) -> ConsumerShared {
        ConsumerShared {
            hub,
            inbox: Arc::default(),
            settings,
            connector,
            auto_touch,
            drain_limit,
            gives_back,
            runtime,
            #[cfg(feature = "dedup")]
            sieve: None,
            state: Mutex::default(),
            lost: Notify::new(),
        }
    }

    #[cfg(feature = "dedup")]
    pub(crate) fn recognising(mut self, dedup: Option<Dedup>) -> ConsumerShared {
        self.sieve = dedup.map(|dedup| {
            let (hub, inbox) = (Arc::clone(&self.hub), Arc::clone(&self.inbox));
            let runtime = self.runtime.clone();
            Arc::new(Sieve::new(dedup, hub, inbox, runtime))
        });
        self
    }

    /// Connects to a node in a task of its own. `first` gets the result of the first connection.
    pub(crate) fn add(
        self: &Arc<ConsumerShared>,
        node: Address,
        origin: NodeOrigin,
        first: Option<FirstResultSender>,
    ) -> Result<(), NodeError> {
        let (removal_sender, removal) = oneshot::channel();
        let mut state = self.state.lock();
        if self.hub.phase() != Phase::Running {
            return Err(NodeError::Stopped);
        }
        if state.entries.contains_key(&node) {
            return Err(NodeError::AlreadyConnected(node));
        }
        match origin {
            NodeOrigin::Discovered if state.entries.len() >= NODES_MAX => {
                return Err(NodeError::TooMany(NODES_MAX));
            }
            NodeOrigin::Discovered if state.removed.contains(&node) => {
                return Err(NodeError::NotConnected(node));
            }
            NodeOrigin::Discovered => {}
            NodeOrigin::Fixed | NodeOrigin::FixedOrFail => {
                state.removed.remove(&node);
            }
        }
        let task_number = state.next_task_number;
        state.next_task_number += 1;
        let entry = Entry {
            task_number,
            _removal: removal_sender,
        };
        state.entries.insert(node.clone(), entry);
        drop(state);
        let task = Task {
            shared: Arc::clone(self),
            node,
            origin,
            task_number,
            removal,
            phase: self.hub.watch_phase(),
        };
        self.runtime.spawn(task.run(first));
        Ok(())
    }

    /// Disconnects from a node and forgets it: no new messages, and the end when those in flight are answered.
    pub(crate) fn remove(&self, node: &Address) -> Result<(), NodeError> {
        let mut state = self.state.lock();
        match state.entries.remove(node) {
            Some(_removal) => {
                state.removed.insert(node.clone());
                Ok(())
            }
            None => Err(NodeError::NotConnected(node.clone())),
        }
    }

    /// Returns true while a discovered node is missing.
    pub(crate) fn is_any_missing(&self) -> bool {
        !self.state.lock().missing.is_empty()
    }

    /// Forgets which discovered nodes are missing, so the next regular poll looks for them.
    pub(crate) fn forget_missing(&self) {
        self.state.lock().missing.clear();
    }

    /// Begins the end of the consumer. Does nothing if it has begun.
    pub(crate) fn stop(&self) {
        if !self.hub.begin_stop() {
            return;
        }
        let client = self.hub.client.clone();
        self.hub.events.emit(Event::Stopping { client });
        if self.gives_back {
            // CLS came first, so nsqd does not send these messages here again.
            for message in self.inbox.refuse() {
                message.delivery().give_back();
            }
        }
        self.inbox.wake();
        if self.hub.has_no_lines() {
            self.end();
        }
    }

    /// Ends the consumer now.
    pub(crate) fn end(&self) {
        self.hub.end();
        #[cfg(feature = "dedup")]
        if self.sieve.is_some() {
            // The task of the sieve closes the inbox when the filter is saved.
            return;
        }
        self.inbox.close();
    }
}

/// Sends the result of a node's first connection to the caller who waits for it.
pub(crate) type FirstResultSender = oneshot::Sender<Result<(), Arc<ConnectionError>>>;

/// Carries out the timeouts of the flow control while the consumer runs. Then ends the consumer after its
/// `drain_limit`.
pub(crate) async fn handle_timeouts(shared: Arc<ConsumerShared>) {
    let hub = &shared.hub;
    let mut phase = hub.watch_phase();
    loop {
        let timeout = hub.next_timeout();
        let timeout = async {
            match timeout {
                Some(at) => sleep_until(at.into()).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            // The sender is in the hub, so the phase cannot be lost.
            _ = phase.wait_for(|phase| *phase != Phase::Running) => break,
            () = hub.flow_changed.notified() => {}
            () = timeout => hub.handle_timeout(),
        }
    }
    tokio::select! {
        biased;
        _ = phase.wait_for(|phase| *phase == Phase::Stopped) => {}
        () = sleep(shared.drain_limit) => {
            let in_flight = hub.lines().iter().map(|(line, _)| line.in_flight()).sum();
            if in_flight > 0 {
                hub.events.emit(Event::DrainLimitReached {
                    client: hub.client.clone(),
                    limit: shared.drain_limit,
                    in_flight,
                });
            }
            shared.end();
        }
    }
}
