//! [`Nodes`]: the nsqds of a consumer. Each has a task, which connects, receives and connects again.
//!
//! ```text
//!   fixed       connect ─► receive ─► delay ─┐      for ever: the delay grows up to lookupd_poll_interval
//!                  ▲─────────────────────────┘
//!   discovered  connect ─► receive ─► end           discovery makes a new task if the node is still listed
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{sleep, sleep_until};

use super::error::NodeError;
use super::inbox::Inbox;
use super::receiver::Receiver;
#[cfg(feature = "dedup")]
use super::sieve::Sieve;
use super::touching::{AutoTouch, Touching};
use crate::address::Address;
use crate::connector::Connector;
use crate::core::Settings;
#[cfg(feature = "dedup")]
use crate::dedup::Dedup;
use crate::error::ConnectionError;
use crate::event::Event;
use crate::hub::{Hub, Phase, now};
use crate::line::Line;
use crate::link::Link;
use crate::lookupd::NODES_MAX;
use crate::message::delivery::Source;
use crate::reconnect::Delay;

/// The nsqds of one consumer, and what their tasks need.
pub(crate) struct Nodes {
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
    next_generation: u64,
    /// Nodes that the application removed: discovery does not bring them back.
    removed: BTreeSet<Address>,
    /// Discovered nodes that were lost and are not connected again.
    missing: BTreeSet<Address>,
}

#[derive(Debug)]
struct Entry {
    /// Distinguishes tasks of the same address.
    generation: u64,
    /// Dropped when the application removes the node.
    _removal: oneshot::Sender<()>,
}

/// The way in which a consumer got to know a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The application named the node. The task tries for ever.
    Fixed,
    /// Like `Fixed`, but a failure of the first connection is final.
    FixedOrFail,
    /// An nsqlookupd named the node. The task tries once.
    Discovered,
}

/// The result of the first connection of a node.
pub(crate) type First = oneshot::Sender<Result<(), Arc<ConnectionError>>>;

/// One task's part of the state of [`Nodes`]. Removes the entry when the task ends, also when the runtime drops it.
struct Task {
    nodes: Arc<Nodes>,
    node: Address,
    kind: Kind,
    generation: u64,
    removal: oneshot::Receiver<()>,
    phase: watch::Receiver<Phase>,
}

impl Nodes {
    pub(crate) fn new(
        hub: Arc<Hub>,
        settings: Arc<Settings>,
        connector: Arc<dyn Connector>,
        auto_touch: Option<AutoTouch>,
        drain_limit: Duration,
        gives_back: bool,
        runtime: Handle,
    ) -> Nodes {
        Nodes {
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

    /// Sets the filter that recognises messages.
    #[cfg(feature = "dedup")]
    pub(crate) fn recognising(mut self, dedup: Option<Dedup>) -> Nodes {
        self.sieve = dedup.map(|dedup| {
            let (hub, inbox) = (Arc::clone(&self.hub), Arc::clone(&self.inbox));
            let runtime = self.runtime.clone();
            Arc::new(Sieve::new(dedup, hub, inbox, runtime))
        });
        self
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No section of the lock can be left half done by a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects to a node in a task of its own. `first` gets the result of the first connection.
    pub(crate) fn add(
        self: &Arc<Nodes>,
        node: Address,
        kind: Kind,
        first: Option<First>,
    ) -> Result<(), NodeError> {
        let (removal_sender, removal) = oneshot::channel();
        let mut state = self.state();
        if self.hub.phase() != Phase::Running {
            return Err(NodeError::Stopped);
        }
        if state.entries.contains_key(&node) {
            return Err(NodeError::AlreadyConnected(node));
        }
        match kind {
            Kind::Discovered if state.entries.len() >= NODES_MAX => {
                return Err(NodeError::TooMany(NODES_MAX));
            }
            Kind::Discovered if state.removed.contains(&node) => {
                return Err(NodeError::NotConnected(node));
            }
            Kind::Discovered => {}
            Kind::Fixed | Kind::FixedOrFail => {
                state.removed.remove(&node);
            }
        }
        let generation = state.next_generation;
        state.next_generation += 1;
        let entry = Entry {
            generation,
            _removal: removal_sender,
        };
        state.entries.insert(node.clone(), entry);
        drop(state);
        let task = Task {
            nodes: Arc::clone(self),
            node,
            kind,
            generation,
            removal,
            phase: self.hub.watch_phase(),
        };
        self.runtime.spawn(task.run(first));
        Ok(())
    }

    /// Disconnects from a node and forgets it: no new messages, and the end when those in flight are answered.
    pub(crate) fn remove(&self, node: &Address) -> Result<(), NodeError> {
        let mut state = self.state();
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
        !self.state().missing.is_empty()
    }

    /// Forgets which discovered nodes are missing, so the next regular poll looks for them.
    pub(crate) fn forget_missing(&self) {
        self.state().missing.clear();
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
                // The answer is on its way without being awaited.
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

/// The timeouts of the flow control, and the limit of the time to stop.
pub(crate) async fn keep_time(nodes: Arc<Nodes>) {
    let hub = &nodes.hub;
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
        () = sleep(nodes.drain_limit) => nodes.end(),
    }
}

impl Task {
    async fn run(mut self, mut first: Option<First>) {
        let max = self.nodes.hub.config.lookupd_poll_interval;
        let mut delay = Delay::new(max, fastrand::u64(..));
        loop {
            self.emit(|client, node| Event::Connecting { client, node });
            let Some(opened) = self.open().await else {
                return;
            };
            let retry_in = match opened {
                Ok(link) => {
                    let connected_at = now();
                    let Some(retries) = self.receive(link, &mut first).await else {
                        return;
                    };
                    delay.lived(now().duration_since(connected_at));
                    retries.then(|| delay.next())
                }
                Err(error) => {
                    let error = Arc::new(error);
                    let is_final = self.kind == Kind::FixedOrFail && first.is_some();
                    let retries = self.kind != Kind::Discovered && !is_final;
                    let retry_in = retries.then(|| delay.next());
                    self.emit(|client, node| Event::ConnectFailed {
                        client,
                        node,
                        error: Arc::clone(&error),
                        retry_in,
                    });
                    if is_final && let Some(first) = first.take() {
                        drop(self);
                        // The caller may have gone away.
                        let _ = first.send(Err(error));
                        return;
                    }
                    retry_in
                }
            };
            let Some(retry_in) = retry_in else { return };
            tokio::select! {
                biased;
                () = self.ended() => return,
                () = sleep(retry_in) => {}
            }
        }
    }

    fn emit(&self, event: impl FnOnce(crate::event::Client, Address) -> Event) {
        let hub = &self.nodes.hub;
        hub.events
            .emit(event(hub.client.clone(), self.node.clone()));
    }

    /// Ready when the application removed the node, or stopped the consumer.
    async fn ended(&mut self) {
        tokio::select! {
            _ = &mut self.removal => {}
            _ = self.phase.wait_for(|phase| *phase != Phase::Running) => {}
        }
    }

    /// Opens a connection. Returns `None` if the node is not wanted any more.
    async fn open(&mut self) -> Option<Result<Link, ConnectionError>> {
        let nodes = Arc::clone(&self.nodes);
        let node = self.node.clone();
        tokio::select! {
            biased;
            () = self.ended() => None,
            opened = Link::open(&*nodes.connector, &node, Arc::clone(&nodes.settings)) => Some(opened),
        }
    }

    /// Receives until the connection is over. Returns true if the node is to be connected again, and `None` if it is not
    /// wanted any more.
    async fn receive(&mut self, link: Link, first: &mut Option<First>) -> Option<bool> {
        let nodes = Arc::clone(&self.nodes);
        let hub = &nodes.hub;
        let negotiated = Arc::new(link.negotiated().clone());
        let line = hub.add_line(&self.node, &negotiated, link.outbox())?;
        let registered = Registered {
            nodes: Arc::clone(&nodes),
            line,
        };
        let line = &registered.line;
        nodes.state().missing.remove(&self.node);
        self.emit(|client, node| Event::Connected {
            client,
            node,
            negotiated,
        });
        let max_in_flight = hub.max_in_flight();
        if line.ready_max < max_in_flight {
            let max_rdy_count = line.ready_max;
            self.emit(|client, node| Event::ReadyTruncated {
                client,
                node,
                max_rdy_count,
                max_in_flight,
            });
        }
        if let Some(first) = first.take() {
            // The caller may have gone away.
            let _ = first.send(Ok(()));
        }
        let (error, is_removed) = self.drive(link, line).await;
        let is_wanted = !is_removed && hub.phase() == Phase::Running;
        if is_wanted && self.kind == Kind::Discovered {
            nodes.state().missing.insert(self.node.clone());
        }
        drop(registered);
        self.emit(|client, node| Event::Disconnected {
            client,
            node,
            error: error.map(Arc::new),
        });
        is_wanted.then_some(self.kind != Kind::Discovered)
    }

    /// Moves bytes until the connection is over. Returns the reason, and true if the application removed the node.
    async fn drive(&mut self, link: Link, line: &Arc<Line>) -> (Option<ConnectionError>, bool) {
        let nodes = Arc::clone(&self.nodes);
        let source = Arc::new(Source {
            hub: Arc::clone(&nodes.hub),
            line: Arc::clone(line),
        });
        let touching = nodes
            .auto_touch
            .map(|auto| Arc::new(Touching::new(auto, line.msg_timeout)));
        let inbox = Arc::clone(&nodes.inbox);
        let mut receiver = Receiver::new(source, inbox, touching.clone());
        #[cfg(feature = "dedup")]
        receiver.sort_by(nodes.sieve.clone());
        let mut run = std::pin::pin!(link.run(&mut receiver));
        let mut abort_at = None;
        loop {
            let touch = async {
                match &touching {
                    Some(touching) => sleep_until(touching.next_timeout(now()).into()).await,
                    None => pending().await,
                }
            };
            let abort = async {
                match abort_at {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                ended = &mut run => return (ended, abort_at.is_some()),
                () = touch => {
                    if let Some(touching) = &touching {
                        touching.handle_timeout(now());
                    }
                }
                _ = &mut self.removal, if abort_at.is_none() => {
                    nodes.hub.retire_line(line);
                    abort_at = Some(tokio::time::Instant::now() + nodes.drain_limit);
                }
                () = abort => line.abort(),
            }
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let mut state = self.nodes.state();
        let entry = state.entries.get(&self.node);
        if entry.is_some_and(|entry| entry.generation == self.generation) {
            state.entries.remove(&self.node);
        }
        let is_missing = state.missing.contains(&self.node);
        drop(state);
        if is_missing {
            self.nodes.lost.notify_one();
        }
    }
}

/// A connection that takes part in the flow control, until this value is dropped.
struct Registered {
    nodes: Arc<Nodes>,
    line: Arc<Line>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let is_last = self.nodes.hub.remove_line(&self.line);
        // Nobody can answer these messages any more.
        let lost = self.nodes.inbox.remove(self.line.id);
        lost.iter().for_each(|message| message.delivery().forget());
        if is_last {
            self.nodes.end();
        }
    }
}
