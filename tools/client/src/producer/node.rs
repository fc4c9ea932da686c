//! [`Node`]: one nsqd of a producer. [`NodeTask`]: makes the connection to it when a publish needs one, and runs it.
//! While publishes have to be sent again, the task makes further ones.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::sleep;

use super::Unanswered;
use super::numbering::{Counters, Numbering};
use super::session::{ProducerConnection, Session};
use crate::address::Address;
use crate::connection::{Batch, Connection, Negotiated, Recipient, Settings};
use crate::connector::Connector;
use crate::error::{ConnectionError, ErrorFrame};
use crate::event::{Client, Event, Events};

/// The parts of a producer that its nodes need.
pub(crate) struct Shared {
    pub(crate) events: Events,
    pub(crate) settings: Arc<Settings>,
    pub(crate) connector: Arc<dyn Connector>,
    /// The longest wait for the answers of a connection that is to end.
    pub(crate) flush_timeout: Duration,
    pub(crate) numbering: Numbering,
    /// The time for which a numbered publish with an unknown outcome waits for a new connection.
    pub(crate) resend_limit: Duration,
    /// The publishes that were given up at the end of their sessions, until a close tells.
    pub(crate) given_up: Mutex<Vec<Unanswered>>,
}

/// One nsqd.
pub(crate) struct Node {
    pub(crate) address: Address,
    shared: Arc<Shared>,
    /// The settings of the connections. With numbers, they have the id of the publisher.
    settings: Arc<Settings>,
    /// The next numbers.
    counters: Arc<Mutex<Counters>>,
    /// Notified when a publish needs the connection that a task waits to make.
    wanted: Notify,
    state: Mutex<NodeState>,
    /// The tasks that may have publishes without an answer.
    sessions: Mutex<Vec<Weak<Session>>>,
}

/// The connection of a node.
enum NodeState {
    /// There is none. The next publish makes one.
    None,
    /// A task makes one, and sends the result to those who wait, in their order.
    Connecting {
        session: Arc<Session>,
        waiting: Vec<oneshot::Sender<Connected>>,
        /// True while the task waits before it makes a connection, because the last attempt failed and publishes have
        /// to be sent again. Nobody waits for the connection then.
        is_paused: bool,
    },
    Open(Arc<ProducerConnection>),
    /// The producer is closed, or does not use the node any more.
    Retired,
}

impl NodeState {
    fn connecting(session: &Arc<Session>, waiting: Vec<oneshot::Sender<Connected>>) -> NodeState {
        NodeState::Connecting {
            session: Arc::clone(session),
            waiting,
            is_paused: false,
        }
    }
}

/// The result of connecting.
type Connected = Result<Arc<ProducerConnection>, Arc<ConnectionError>>;

impl Node {
    pub(crate) fn new(address: Address, shared: Arc<Shared>) -> Node {
        let settings = match shared.numbering.id() {
            Some(id) => Arc::new(shared.settings.with_publisher_id(id)),
            None => Arc::clone(&shared.settings),
        };
        Node {
            address,
            shared,
            settings,
            counters: Arc::default(),
            wanted: Notify::new(),
            state: Mutex::new(NodeState::None),
            sessions: Mutex::default(),
        }
    }

    fn emit(&self, event: impl FnOnce(Client, Address) -> Event) {
        let events = &self.shared.events;
        events.emit(|client| event(client, self.address.clone()));
    }

    /// Returns the open connection, or makes one. Callers at the same time share one attempt, which goes on when a
    /// caller goes away.
    pub(crate) async fn connection(self: &Arc<Node>) -> Connected {
        let (done, connecting) = oneshot::channel();
        let task = {
            let mut state = self.state.lock();
            match &mut *state {
                NodeState::Open(connection) => return Ok(Arc::clone(connection)),
                NodeState::Retired => return Err(Arc::new(ConnectionError::Stopped)),
                NodeState::Connecting {
                    waiting, is_paused, ..
                } => {
                    waiting.push(done);
                    if std::mem::take(is_paused) {
                        self.wanted.notify_one();
                    }
                    None
                }
                NodeState::None => {
                    let task = NodeTask::new(Arc::clone(self));
                    let mut sessions = self.sessions.lock();
                    sessions.retain(|session| session.strong_count() > 0);
                    sessions.push(Arc::downgrade(&task.session));
                    *state = NodeState::connecting(&task.session, vec![done]);
                    Some(task)
                }
            }
        };
        if let Some(task) = task {
            // Without the lock: a runtime that is being shut down drops the task here.
            tokio::spawn(task.run());
        }
        // The sender is dropped when the runtime is shut down, or when the node is retired.
        let stopped = |_| Err(Arc::new(ConnectionError::Stopped));
        connecting.await.unwrap_or_else(stopped)
    }

    /// Returns true while the node has a connection, or is about to have one.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(
            &*self.state.lock(),
            NodeState::Open(_)
                | NodeState::Connecting {
                    is_paused: false,
                    ..
                }
        )
    }

    /// States that `connection` is the connection.
    pub(crate) fn succeed(&self, connection: &Arc<ProducerConnection>, negotiated: &Negotiated) {
        self.emit(|client, node| Event::Connected {
            client,
            node,
            negotiated: Arc::new(negotiated.clone()),
        });
        let mut state = self.state.lock();
        let NodeState::Connecting { waiting, .. } = &mut *state else {
            // The node was retired while the connection was being made. Publishes that are sent again still have their
            // answers.
            drop(state);
            if !connection.session.is_busy() {
                connection.outbox.close();
            }
            return;
        };
        let waiting = std::mem::take(waiting);
        *state = NodeState::Open(Arc::clone(connection));
        drop(state);
        for waiter in waiting {
            // Callers that went away need no connection.
            let _ = waiter.send(Ok(Arc::clone(connection)));
        }
    }

    /// States that no connection could be made. The next attempt follows after `retry_in`, if there is one.
    fn fail(&self, error: ConnectionError, retry_in: Option<Duration>) {
        let error = Arc::new(error);
        self.emit(|client, node| Event::ConnectFailed {
            client,
            node,
            error: Arc::clone(&error),
            retry_in,
        });
        let mut state = self.state.lock();
        let NodeState::Connecting {
            waiting, is_paused, ..
        } = &mut *state
        else {
            return;
        };
        let waiting = std::mem::take(waiting);
        match retry_in {
            Some(_) => *is_paused = true,
            None => *state = NodeState::None,
        }
        drop(state);
        for waiter in waiting {
            // Callers that went away need no error.
            let _ = waiter.send(Err(Arc::clone(&error)));
        }
    }

    /// Uses `connection` no more: the next publish makes a new connection.
    fn leave(&self, connection: &Arc<ProducerConnection>) {
        self.leave_for(connection, NodeState::None);
    }

    /// Uses `connection` no more: its task makes the next connection, and the next publishes wait for this one.
    fn await_next(&self, connection: &Arc<ProducerConnection>) {
        let next = NodeState::connecting(&connection.session, Vec::new());
        self.leave_for(connection, next);
    }

    fn leave_for(&self, connection: &Arc<ProducerConnection>, next: NodeState) {
        let mut state = self.state.lock();
        if matches!(&*state, NodeState::Open(present) if Arc::ptr_eq(present, connection)) {
            *state = next;
        }
    }

    /// Waits before the next attempt, unless publishes wait for the connection. Returns false if some do.
    fn pause(&self) -> bool {
        match &mut *self.state.lock() {
            NodeState::Connecting {
                waiting, is_paused, ..
            } => {
                *is_paused = waiting.is_empty();
                *is_paused
            }
            _ => true,
        }
    }

    /// Ends a pause.
    fn go_on(&self) {
        if let NodeState::Connecting { is_paused, .. } = &mut *self.state.lock() {
            *is_paused = false;
        }
    }

    /// Leaves the node without a connection, unless publishes wait for one. Returns false if some do.
    fn release(&self) -> bool {
        let mut state = self.state.lock();
        match &*state {
            NodeState::Connecting { waiting, .. } if !waiting.is_empty() => return false,
            NodeState::Connecting { .. } => *state = NodeState::None,
            NodeState::None | NodeState::Open(_) | NodeState::Retired => {}
        }
        true
    }

    /// Leaves the node without a connection. Those who wait for one are told.
    fn forget(&self) {
        let mut state = self.state.lock();
        if !matches!(*state, NodeState::Retired) {
            let before = std::mem::replace(&mut *state, NodeState::None);
            drop(state);
            drop(before);
        }
    }

    /// Ends the connection when nothing is pending, and makes no further one, unless publishes have to be sent again.
    pub(crate) fn retire(&self) {
        let before = std::mem::replace(&mut *self.state.lock(), NodeState::Retired);
        match before {
            NodeState::Open(connection) => connection.session.retire(),
            NodeState::Connecting { session, .. } => session.retire(),
            NodeState::None | NodeState::Retired => {}
        }
    }

    /// Returns the publishes of the tasks that may have some without an answer.
    pub(crate) fn sessions(&self) -> Vec<Arc<Session>> {
        let sessions = self.sessions.lock();
        sessions.iter().filter_map(Weak::upgrade).collect()
    }
}

/// The first pause before a further connection. It doubles with each connection that brings no answer.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest pause before a further connection.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The task of a node. Its end gives every publish that waits an answer, also when the runtime drops the task: the
/// publishes may wait in another runtime.
struct NodeTask {
    node: Arc<Node>,
    session: Arc<Session>,
    /// True while publishes may wait for a connection of this task.
    is_connecting: bool,
    /// The connection, once it is open and until its publishes have their answers, and who is told of its end.
    open: Option<(Arc<ProducerConnection>, EndSender)>,
    /// Dropped when the task is over.
    _over: watch::Sender<()>,
}

/// Gets the reason why a connection is over.
type EndSender = watch::Sender<Option<Arc<ConnectionError>>>;

impl NodeTask {
    fn new(node: Arc<Node>) -> NodeTask {
        let (end, over) = watch::channel(());
        let (counters, resend_limit) = (Arc::clone(&node.counters), node.shared.resend_limit);
        NodeTask {
            session: Arc::new(Session::new(counters, resend_limit, over)),
            node,
            is_connecting: true,
            open: None,
            _over: end,
        }
    }

    /// Makes connections and runs them, until no publish has to be sent again, or the session is overdue.
    async fn run(mut self) {
        let (session, limit) = (Arc::clone(&self.session), self.node.shared.flush_timeout);
        tokio::select! {
            () = self.serve() => return,
            () = session.overdue(limit) => {}
        }
        // A close looks at the list when the permits have come back.
        let publishes = session.publishes();
        if publishes > 0 {
            let node = self.node.address.clone();
            let unanswered = Unanswered { node, publishes };
            self.node.shared.given_up.lock().push(unanswered);
        }
        session.give_up(limit);
        self.end_connection(Some(session.reason()));
    }

    async fn serve(&mut self) {
        let mut pause = PAUSE_MIN;
        loop {
            let before = self.session.answered();
            let goes_on = match self.connect().await {
                Ok(connection) => self.converse(connection).await,
                Err(error) => {
                    let is_busy = self.session.is_busy();
                    self.node.fail(error, is_busy.then_some(pause));
                    is_busy
                }
            };
            if goes_on && self.session.answered() > before {
                pause = PAUSE_MIN;
            } else if goes_on {
                // The connection brought nothing. An nsqd that ends each connection is not asked without a pause.
                self.wait(&mut pause).await;
            }
            if !goes_on || !self.session.is_busy() && self.node.release() {
                self.is_connecting = false;
                return;
            }
        }
    }

    /// Makes a connection. Meanwhile, publishes are given up whose time is over.
    async fn connect(&self) -> Result<Connection, ConnectionError> {
        let Node {
            address,
            shared,
            settings,
            ..
        } = &*self.node;
        self.node
            .emit(|client, node| Event::Connecting { client, node });
        let expiring = async {
            self.session.expire().await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            opened = Connection::open(&*shared.connector, address, Arc::clone(settings)) => opened,
            () = expiring => unreachable!("it never ends"),
        }
    }

    /// Runs a connection to its end. Returns true if the task makes another one.
    async fn converse(&mut self, connection: Connection) -> bool {
        let node = Arc::clone(&self.node);
        let (end, over) = watch::channel(None);
        let negotiated = connection.negotiated().clone();
        let numbers = node.shared.numbering.numbers(negotiated.publisher_id);
        let (session, outbox) = (Arc::clone(&self.session), connection.outbox());
        let open = Arc::new(ProducerConnection::new(session, outbox, numbers, over));
        self.open = Some((Arc::clone(&open), end));
        node.succeed(&open, &negotiated);
        self.is_connecting = false;
        let mut recipient = Confirmations {
            node: &node,
            connection: &open,
        };
        let error = connection.run(&mut recipient).await;
        self.end_connection(error.map(Arc::new));
        open.is_numbered() && (self.session.is_busy() || !node.release())
    }

    /// Waits before the next connection, unless a publish needs one. Doubles the pause for the next time.
    async fn wait(&self, pause: &mut Duration) {
        // Producers that lost the same nsqd do not come back at the same moment.
        let jittered = pause.mul_f64(0.75 + 0.5 * fastrand::f64());
        *pause = (*pause * 2).min(PAUSE_MAX);
        if self.node.pause() {
            tokio::select! {
                () = sleep(jittered) => {}
                () = self.node.wanted.notified() => {}
                () = self.session.expire() => {}
            }
        }
        self.node.go_on();
    }

    /// Ends the open connection, if there is one, and reports its end.
    fn end_connection(&mut self, error: Option<Arc<ConnectionError>>) {
        let Some((connection, _)) = &self.open else {
            return;
        };
        if connection.is_numbered() {
            self.is_connecting = true;
            self.node.await_next(connection);
        }
        let end = self.lose_connection(error.clone());
        self.node.emit(|client, node| Event::Disconnected {
            client,
            node,
            error: error.clone(),
        });
        if let Some(end) = end {
            end.send_replace(error);
        }
    }

    /// Ends the publishes of a connection that is over, or keeps them. Returns the sender of its end.
    fn lose_connection(&mut self, error: Option<Arc<ConnectionError>>) -> Option<EndSender> {
        let (connection, end) = self.open.take()?;
        self.node.leave(&connection);
        let reason = error.unwrap_or_else(|| Arc::new(ConnectionError::Stopped));
        connection.lose(&reason);
        Some(end)
    }
}

impl Drop for NodeTask {
    fn drop(&mut self) {
        if self.is_connecting {
            // The callers that wait are told that there is no connection. The next publish makes one.
            self.node.forget();
        }
        drop(self.lose_connection(None));
        self.session.end(&Arc::new(ConnectionError::Stopped));
    }
}

/// The side of a connection that nsqd answers to.
struct Confirmations<'a> {
    node: &'a Node,
    connection: &'a Arc<ProducerConnection>,
}

impl Recipient for Confirmations<'_> {
    fn messages(&mut self, _batch: Batch) -> Result<(), ConnectionError> {
        Err(ConnectionError::Unexpected("a message".to_owned()))
    }

    fn response(&mut self, data: Bytes) -> Result<(), ConnectionError> {
        if data == "OK" && self.connection.session.answer(None) {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&data).into_owned();
        Err(ConnectionError::Unexpected(text))
    }

    fn error(&mut self, error: ErrorFrame) -> Result<(), ConnectionError> {
        self.node.emit(|client, node| Event::ErrorFrame {
            client,
            node,
            error: error.clone(),
        });
        let session = &self.connection.session;
        // nsqd closes the connection. A publish that were sent now would have an unknown outcome. With numbers, the
        // publishes behind this one are sent again before newer ones, so the next connection waits for the end of this
        // one.
        let is_waited_for = error.is_fatal() && self.connection.is_numbered();
        if is_waited_for {
            self.node.await_next(self.connection);
        } else if error.is_fatal() {
            self.node.leave(self.connection);
            session.retire();
        }
        if !session.answer(Some(&error)) {
            return Err(ConnectionError::Unexpected(error.text().to_owned()));
        }
        // The publishes behind this one need not wait for nsqd to close the connection.
        if is_waited_for || session.has_refused() && session.is_busy() {
            Err(ConnectionError::Closed)
        } else {
            Ok(())
        }
    }
}
