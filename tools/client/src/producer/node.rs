//! [`Node`]: one nsqd of a producer, and the connection to it, which is made when a publish needs one.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::inner::Shared;
use super::numbering::Counters;
use super::open::{Numbers, Open};
use super::serving::Serving;
use super::session::Session;
use crate::address::Address;
use crate::core::{Negotiated, Settings};
use crate::error::ConnectionError;
use crate::event::Event;

/// One nsqd.
pub(crate) struct Node {
    pub(crate) address: Address,
    pub(crate) shared: Arc<Shared>,
    /// The settings of the connections. With numbers, they have the id of the publisher.
    pub(crate) settings: Arc<Settings>,
    /// The next numbers.
    pub(crate) counters: Arc<Mutex<Counters>>,
    /// Notified when a publish needs the connection that a task waits to make.
    pub(crate) wanted: Notify,
    /// Held by a message of a refused command while it is sent alone. So no other such message lies behind it when nsqd
    /// refuses it and closes the connection.
    pub(crate) sent_alone: Arc<tokio::sync::Mutex<()>>,
    state: Mutex<State>,
    /// The tasks that may have publishes without an answer.
    sessions: Mutex<Vec<Weak<Session>>>,
}

/// The connection of a node.
enum State {
    /// There is none. The next publish makes one.
    None,
    /// A task makes one, and sends the result to those who wait, in their order.
    Connecting {
        session: Arc<Session>,
        waiting: Vec<oneshot::Sender<Connected>>,
    },
    /// A task waits before it makes one, because the last attempt failed and publishes have to be sent again.
    Paused(Arc<Session>),
    Open(Arc<Open>),
    /// The producer is closed, or does not use the node any more.
    Retired,
}

/// The result of connecting.
type Connected = Result<Arc<Open>, Arc<ConnectionError>>;

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
            sent_alone: Arc::default(),
            state: Mutex::new(State::None),
            sessions: Mutex::default(),
        }
    }

    /// Returns the numbers of the commands of a connection that has negotiated this.
    pub(crate) fn numbers(&self, negotiated: &Negotiated) -> Numbers {
        let numbering = &self.shared.numbering;
        if negotiated.publisher_id && numbering.is_automatic() {
            Numbers::Counted
        } else if negotiated.publisher_id && numbering.is_by_application() {
            Numbers::Given
        } else {
            Numbers::None
        }
    }

    /// Returns the open connection, or makes one. Callers at the same time share one attempt, which goes on when a
    /// caller goes away.
    pub(crate) async fn connection(self: &Arc<Node>) -> Connected {
        let (done, connecting) = oneshot::channel();
        let serving = {
            let mut state = self.state.lock();
            match &mut *state {
                State::Open(open) => return Ok(Arc::clone(open)),
                State::Retired => return Err(Arc::new(ConnectionError::Stopped)),
                State::Connecting { waiting, .. } => {
                    waiting.push(done);
                    None
                }
                State::Paused(session) => {
                    *state = State::Connecting {
                        session: Arc::clone(session),
                        waiting: vec![done],
                    };
                    self.wanted.notify_one();
                    None
                }
                State::None => {
                    let serving = Serving::new(Arc::clone(self));
                    let mut sessions = self.sessions.lock();
                    sessions.retain(|session| session.strong_count() > 0);
                    sessions.push(Arc::downgrade(serving.session()));
                    *state = State::Connecting {
                        session: Arc::clone(serving.session()),
                        waiting: vec![done],
                    };
                    Some(serving)
                }
            }
        };
        if let Some(serving) = serving {
            // Without the lock: a runtime that is being shut down drops the task here.
            tokio::spawn(serving.run());
        }
        // The sender is dropped when the runtime is shut down, or when the node is retired.
        let stopped = |_| Err(Arc::new(ConnectionError::Stopped));
        connecting.await.unwrap_or_else(stopped)
    }

    /// Returns true while the node has a connection, or is about to have one.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(
            &*self.state.lock(),
            State::Open(_) | State::Connecting { .. }
        )
    }

    /// States that `open` is the connection.
    pub(crate) fn succeed(&self, open: &Arc<Open>, negotiated: &Negotiated) {
        self.shared.events.emit(Event::Connected {
            client: self.shared.client.clone(),
            node: self.address.clone(),
            negotiated: Arc::new(negotiated.clone()),
        });
        let mut state = self.state.lock();
        let waiting = match &mut *state {
            State::Connecting { waiting, .. } => std::mem::take(waiting),
            State::Paused(_) => Vec::new(),
            // The node was retired while the connection was being made. Publishes that are sent again still have their
            // answers.
            _ => {
                drop(state);
                if !open.session().is_busy() {
                    open.close();
                }
                return;
            }
        };
        *state = State::Open(Arc::clone(open));
        drop(state);
        for waiter in waiting {
            // Callers that went away need no connection.
            let _ = waiter.send(Ok(Arc::clone(open)));
        }
    }

    /// States that no connection could be made. The next attempt follows after `retry_in`, if there is one.
    pub(crate) fn fail(
        &self,
        session: &Arc<Session>,
        error: ConnectionError,
        retry_in: Option<Duration>,
    ) {
        let error = Arc::new(error);
        self.shared.events.emit(Event::ConnectFailed {
            client: self.shared.client.clone(),
            node: self.address.clone(),
            error: Arc::clone(&error),
            retry_in,
        });
        let next = match retry_in {
            Some(_) => State::Paused(Arc::clone(session)),
            None => State::None,
        };
        if let State::Connecting { waiting, .. } = self.replace(next) {
            for waiter in waiting {
                // Callers that went away need no error.
                let _ = waiter.send(Err(Arc::clone(&error)));
            }
        }
    }

    /// Reports the end of a connection.
    pub(crate) fn end(&self, error: Option<Arc<ConnectionError>>) {
        self.shared.events.emit(Event::Disconnected {
            client: self.shared.client.clone(),
            node: self.address.clone(),
            error,
        });
    }

    /// Uses `open` no more: the next publish makes a new connection.
    pub(crate) fn leave(&self, open: &Arc<Open>) {
        let mut state = self.state.lock();
        if matches!(&*state, State::Open(present) if Arc::ptr_eq(present, open)) {
            *state = State::None;
        }
    }

    /// Uses `open` no more: its task makes the next connection, and the next publishes wait for this one.
    pub(crate) fn await_next(&self, open: &Arc<Open>) {
        let mut state = self.state.lock();
        if matches!(&*state, State::Open(present) if Arc::ptr_eq(present, open)) {
            *state = State::Connecting {
                session: Arc::clone(open.session()),
                waiting: Vec::new(),
            };
        }
    }

    /// Waits before the next attempt, unless publishes wait for the connection. Returns false if some do.
    pub(crate) fn pause(&self) -> bool {
        let mut state = self.state.lock();
        match &mut *state {
            State::Connecting { waiting, .. } if !waiting.is_empty() => return false,
            State::Connecting { session, .. } => *state = State::Paused(Arc::clone(session)),
            _ => {}
        }
        true
    }

    /// Ends a pause.
    pub(crate) fn go_on(&self) {
        let mut state = self.state.lock();
        if let State::Paused(session) = &*state {
            *state = State::Connecting {
                session: Arc::clone(session),
                waiting: Vec::new(),
            };
        }
    }

    /// Leaves the node without a connection, unless publishes wait for one. Returns false if some do.
    pub(crate) fn release(&self) -> bool {
        let mut state = self.state.lock();
        match &*state {
            State::Connecting { waiting, .. } if !waiting.is_empty() => return false,
            State::Connecting { .. } | State::Paused(_) => *state = State::None,
            State::None | State::Open(_) | State::Retired => {}
        }
        true
    }

    /// Leaves the node without a connection.
    pub(crate) fn forget(&self) {
        drop(self.replace(State::None));
    }

    /// Changes the state, unless the node is retired. Returns the state before.
    fn replace(&self, next: State) -> State {
        let mut state = self.state.lock();
        let next = match *state {
            State::Retired => State::Retired,
            _ => next,
        };
        std::mem::replace(&mut state, next)
    }

    /// Ends the connection when nothing is pending, and makes no further one, unless publishes have to be sent again.
    pub(crate) fn retire(&self) {
        let before = std::mem::replace(&mut *self.state.lock(), State::Retired);
        match before {
            State::Open(open) => open.session().retire(),
            State::Connecting { session, .. } | State::Paused(session) => session.retire(),
            State::None | State::Retired => {}
        }
    }

    /// Returns the tasks that may have publishes without an answer.
    pub(crate) fn connections(&self) -> Vec<Arc<Session>> {
        let sessions = self.sessions.lock();
        sessions.iter().filter_map(Weak::upgrade).collect()
    }
}
