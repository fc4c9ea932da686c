//! [`Serving`]: the task of a node. It makes a connection and runs it. While publishes have to be sent again, it makes
//! further ones.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::sleep;

use super::node::Node;
use super::open::Open;
use super::session::Session;
use super::unconfirmed::Account;
use crate::core::Batch;
use crate::error::{ConnectionError, ErrorFrame};
use crate::event::Event;
use crate::link::{Link, Recipient};

/// The first pause before a further connection. It doubles with each connection that brings no answer.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest pause before a further connection.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The task of a node. Its end gives every publish that waits an answer, also when the runtime drops the task: the
/// publishes may wait in another runtime.
pub(crate) struct Serving {
    node: Arc<Node>,
    session: Arc<Session>,
    /// True while publishes may wait for a connection of this task.
    is_connecting: bool,
    /// The connection, once it is open and until its publishes have their answers.
    open: Option<Arc<Open>>,
    /// Dropped when the task is over.
    over: Option<watch::Sender<()>>,
}

/// The time at which a session that was retired has to be over.
type Overdue<'a> = Pin<&'a mut (dyn Future<Output = ()> + Send)>;

/// The step that follows a connection, or an attempt to make one.
enum Next {
    End,
    /// The next attempt follows at once.
    Connect,
    /// The next attempt follows after a pause, or when a publish needs a connection.
    Pause,
}

impl Serving {
    pub(crate) fn new(node: Arc<Node>) -> Serving {
        let (end, over) = watch::channel(());
        let counters = Arc::clone(&node.counters);
        let account = Account {
            unconfirmed: Arc::clone(&node.shared.unconfirmed),
            node: node.address.clone(),
        };
        let resend_limit = node.shared.resend_limit;
        let session = Arc::new(Session::new(account, counters, resend_limit, over));
        Serving {
            node,
            session,
            is_connecting: true,
            open: None,
            over: Some(end),
        }
    }

    /// Returns the publishes of the task.
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Makes connections and runs them, until no publish has to be sent again.
    pub(crate) async fn run(mut self) {
        let (session, limit) = (Arc::clone(&self.session), self.node.shared.flush_timeout);
        let mut overdue = std::pin::pin!(session.overdue(limit));
        let mut pause = PAUSE_MIN;
        loop {
            let before = session.answered();
            let next = match self.connect(overdue.as_mut(), pause).await {
                Ok(link) => self.serve(link, overdue.as_mut()).await,
                Err(next) => next,
            };
            let has_progressed = session.answered() > before;
            match next {
                Next::End => return,
                Next::Connect if has_progressed => pause = PAUSE_MIN,
                // The connection brought nothing. An nsqd that ends each connection is not asked without a pause.
                Next::Connect | Next::Pause => self.wait(overdue.as_mut(), &mut pause).await,
            }
            if !session.is_busy() && self.node.release() {
                self.is_connecting = false;
                return;
            }
        }
    }

    /// Makes a connection. `pause` is the time to the next attempt, if this one fails.
    async fn connect(&mut self, overdue: Overdue<'_>, pause: Duration) -> Result<Link, Next> {
        let node = &self.node;
        let shared = &node.shared;
        shared.events.emit(Event::Connecting {
            client: shared.client.clone(),
            node: node.address.clone(),
        });
        let settings = Arc::clone(&node.settings);
        let opening = Link::open(&*shared.connector, &node.address, settings);
        let expiring = async {
            self.session.expire().await;
            std::future::pending::<()>().await;
        };
        let opened = tokio::select! {
            opened = opening => opened,
            () = overdue => {
                self.session.give_up(shared.flush_timeout);
                return Err(Next::End);
            }
            () = expiring => unreachable!("it never ends"),
        };
        opened.map_err(|error| {
            let retry_in = self.session.is_busy().then_some(pause);
            node.fail(&self.session, error, retry_in);
            match retry_in {
                Some(_) => Next::Pause,
                None => {
                    self.is_connecting = false;
                    Next::End
                }
            }
        })
    }

    /// Runs a connection to its end.
    async fn serve(&mut self, link: Link, overdue: Overdue<'_>) -> Next {
        let node = Arc::clone(&self.node);
        let (end, over) = watch::channel(());
        let negotiated = link.negotiated().clone();
        let numbers = node.numbers(&negotiated);
        let session = Arc::clone(&self.session);
        let open = Arc::new(Open::new(session, link.outbox(), numbers, over));
        self.open = Some(Arc::clone(&open));
        node.succeed(&open, &negotiated);
        self.is_connecting = false;
        let mut recipient = Confirmations {
            node: &node,
            open: &open,
        };
        let error = tokio::select! {
            error = link.run(&mut recipient) => error.map(Arc::new),
            () = overdue => {
                self.session.give_up(node.shared.flush_timeout);
                Some(self.session.reason())
            }
        };
        if open.is_numbered() {
            self.is_connecting = true;
            node.await_next(&open);
        }
        self.finish(error.clone());
        node.end(error);
        drop(end);
        if open.is_numbered() && (self.session.is_busy() || !node.release()) {
            Next::Connect
        } else {
            self.is_connecting = false;
            Next::End
        }
    }

    /// Waits before the next connection, unless a publish needs one. Doubles the pause for the next time.
    async fn wait(&self, overdue: Overdue<'_>, pause: &mut Duration) {
        let limit = self.node.shared.flush_timeout;
        // Producers that lost the same nsqd do not come back at the same moment.
        let jittered = pause.mul_f64(0.75 + 0.5 * fastrand::f64());
        *pause = (*pause * 2).min(PAUSE_MAX);
        if self.node.pause() {
            tokio::select! {
                () = sleep(jittered) => {}
                () = self.node.wanted.notified() => {}
                () = self.session.expire() => {}
                () = overdue => self.session.give_up(limit),
            }
        }
        self.node.go_on();
    }

    /// Ends the publishes of a connection that is over, or keeps them. A second call does nothing.
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
            self.node.forget();
        }
        self.finish(None);
        self.session.end(&Arc::new(ConnectionError::Stopped));
        drop(self.over.take());
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
        if data == "OK" && self.open.session().answer(None) {
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
        let is_numbered = self.open.is_numbered();
        // nsqd closes the connection. A publish that were sent now would have an unknown outcome.
        if error.is_fatal() && is_numbered {
            self.node.await_next(self.open);
        } else if error.is_fatal() {
            self.node.leave(self.open);
            self.open.session().retire();
        }
        if !self.open.session().answer(Some(&error)) {
            return Err(ConnectionError::Unexpected(error.text().to_owned()));
        }
        // The publishes behind this one are sent again before newer ones, so the next connection waits for the end of
        // this one.
        let is_waited_for = error.is_fatal() && is_numbered;
        // The publishes behind this one need not wait for nsqd to close the connection.
        if is_waited_for || self.open.session().is_skipping() {
            Err(ConnectionError::Closed)
        } else {
            Ok(())
        }
    }
}
