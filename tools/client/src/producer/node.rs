//! [`Node`]: one nsqd of a producer, and the connection to it, which is made when a publish needs one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use tokio::sync::{oneshot, watch};

use super::inner::Shared;
use super::open::Open;
use crate::address::Address;
use crate::core::{Batch, Negotiated};
use crate::error::{ConnectionError, ErrorFrame};
use crate::event::Event;
use crate::link::{Link, Recipient};

/// One nsqd.
pub(crate) struct Node {
    pub(crate) address: Address,
    shared: Arc<Shared>,
    state: Mutex<State>,
    /// Connections that get no further publish, and may still have publishes without an answer.
    left: Mutex<Vec<Weak<Open>>>,
}

/// The connection of a node.
enum State {
    /// There is none. The next publish makes one.
    None,
    /// A task makes one, and sends the result to those who wait, in their order.
    Connecting(Vec<oneshot::Sender<Connected>>),
    Open(Arc<Open>),
    /// The producer is closed, or does not use the node any more.
    Retired,
}

/// The result of connecting.
type Connected = Result<Arc<Open>, Arc<ConnectionError>>;

impl Node {
    pub(crate) fn new(address: Address, shared: Arc<Shared>) -> Node {
        Node {
            address,
            shared,
            state: Mutex::new(State::None),
            left: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the open connection, or makes one. Callers at the same time share one attempt, which goes on when a
    /// caller goes away.
    pub(crate) async fn connection(self: &Arc<Node>) -> Connected {
        let (done, connecting) = oneshot::channel();
        let is_first = match &mut *self.state() {
            State::Open(open) => return Ok(Arc::clone(open)),
            State::Retired => return Err(Arc::new(ConnectionError::Stopped)),
            State::Connecting(waiting) => {
                waiting.push(done);
                false
            }
            state @ State::None => {
                *state = State::Connecting(vec![done]);
                true
            }
        };
        if is_first {
            // Without the lock: a runtime that is being shut down drops the task here.
            let serving = Serving {
                node: Arc::clone(self),
                is_connecting: true,
                open: None,
            };
            tokio::spawn(serving.run());
        }
        // The sender is dropped when the runtime is shut down, or when the node is retired.
        let stopped = |_| Err(Arc::new(ConnectionError::Stopped));
        connecting.await.unwrap_or_else(stopped)
    }

    fn succeed(&self, open: &Arc<Open>, negotiated: &Negotiated) {
        self.shared.events.emit(Event::Connected {
            client: self.shared.client.clone(),
            node: self.address.clone(),
            negotiated: Arc::new(negotiated.clone()),
        });
        let mut state = self.state();
        let waiting = match &mut *state {
            State::Connecting(waiting) => std::mem::take(waiting),
            // The node was retired while the connection was being made.
            _ => return open.close(),
        };
        *state = State::Open(Arc::clone(open));
        drop(state);
        for waiter in waiting {
            // Callers that went away need no connection.
            let _ = waiter.send(Ok(Arc::clone(open)));
        }
    }

    fn fail(&self, error: ConnectionError) {
        let error = Arc::new(error);
        self.shared.events.emit(Event::ConnectFailed {
            client: self.shared.client.clone(),
            node: self.address.clone(),
            error: Arc::clone(&error),
            retry_in: None,
        });
        if let State::Connecting(waiting) = self.forget() {
            for waiter in waiting {
                // Callers that went away need no error.
                let _ = waiter.send(Err(Arc::clone(&error)));
            }
        }
    }

    /// Reports the end of a connection.
    fn end(&self, error: Option<Arc<ConnectionError>>) {
        self.shared.events.emit(Event::Disconnected {
            client: self.shared.client.clone(),
            node: self.address.clone(),
            error,
        });
    }

    /// Uses `open` no more: the next publish makes a new connection.
    fn leave(&self, open: &Arc<Open>) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.retain(|open| open.strong_count() > 0);
        left.push(Arc::downgrade(open));
        drop(left);
        let mut state = self.state();
        if matches!(&*state, State::Open(present) if Arc::ptr_eq(present, open)) {
            *state = State::None;
        }
    }

    /// Leaves the node without a connection. Returns the state before.
    fn forget(&self) -> State {
        let mut state = self.state();
        let next = match *state {
            State::Retired => State::Retired,
            _ => State::None,
        };
        std::mem::replace(&mut state, next)
    }

    /// Closes the connection when nothing is pending, and makes no further one.
    pub(crate) fn retire(&self) {
        let before = std::mem::replace(&mut *self.state(), State::Retired);
        if let State::Open(open) = before {
            self.leave(&open);
            open.retire();
        }
    }

    /// Returns the connections that may have publishes without an answer.
    pub(crate) fn connections(&self) -> Vec<Arc<Open>> {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let mut connections: Vec<_> = left.iter().filter_map(Weak::upgrade).collect();
        drop(left);
        if let State::Open(open) = &*self.state() {
            connections.push(Arc::clone(open));
        }
        connections
    }
}

/// The task of a connection. Its end gives every publish that waits an answer, also when the runtime drops the task: the
/// publishes may wait in another runtime.
struct Serving {
    node: Arc<Node>,
    /// True while publishes may wait for this connection.
    is_connecting: bool,
    /// The connection, once it is open and until its publishes have their answers.
    open: Option<Arc<Open>>,
}

impl Serving {
    /// Makes the connection, and runs it to its end.
    async fn run(mut self) {
        let node = Arc::clone(&self.node);
        let (shared, address) = (&node.shared, &node.address);
        shared.events.emit(Event::Connecting {
            client: shared.client.clone(),
            node: address.clone(),
        });
        let settings = Arc::clone(&shared.settings);
        let opened = Link::open(&*shared.connector, address, settings).await;
        let link = match opened {
            Ok(link) => link,
            Err(error) => {
                node.fail(error);
                self.is_connecting = false;
                return;
            }
        };
        let (end, over) = watch::channel(());
        let open = Arc::new(Open::new(link.outbox(), over));
        self.open = Some(Arc::clone(&open));
        node.succeed(&open, link.negotiated());
        self.is_connecting = false;
        let mut recipient = Confirmations {
            node: &node,
            open: &open,
        };
        let limit = shared.flush_timeout;
        let error = tokio::select! {
            error = link.run(&mut recipient) => error.map(Arc::new),
            () = open.overdue(limit) => {
                open.give_up(limit);
                Some(open.reason())
            }
        };
        self.finish(error.clone());
        node.end(error);
        drop(end);
    }

    /// Ends the publishes of a connection that is over. A second call does nothing.
    fn finish(&mut self, error: Option<Arc<ConnectionError>>) {
        let Some(open) = self.open.take() else { return };
        self.node.leave(&open);
        let reason = error.unwrap_or_else(|| Arc::new(ConnectionError::Stopped));
        open.lose(&reason);
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if self.is_connecting {
            // The callers that wait are told that there is no connection. The next publish makes one.
            drop(self.node.forget());
        }
        self.finish(None);
    }
}

/// The side of a connection that nsqd answers to.
struct Confirmations<'a> {
    node: &'a Node,
    open: &'a Arc<Open>,
}

impl Recipient for Confirmations<'_> {
    fn messages(&mut self, _batch: Batch) -> Result<(), ConnectionError> {
        Err(ConnectionError::Unexpected("a message".to_owned()))
    }

    fn response(&mut self, data: Bytes) -> Result<(), ConnectionError> {
        if data == "OK" && self.open.answer(None) {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&data).into_owned();
        Err(ConnectionError::Unexpected(text))
    }

    fn error(&mut self, error: ErrorFrame) -> Result<(), ConnectionError> {
        self.node.shared.events.emit(Event::ErrorFrame {
            client: self.node.shared.client.clone(),
            node: self.node.address.clone(),
            error: error.clone(),
        });
        if error.is_fatal() {
            // nsqd closes the connection. A publish that were sent now would have an unknown outcome.
            self.node.leave(self.open);
            self.open.retire();
        }
        match self.open.answer(Some(&error)) {
            true => Ok(()),
            false => Err(ConnectionError::Unexpected(error.text().to_owned())),
        }
    }
}
