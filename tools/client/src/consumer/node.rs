//! [`NodeTask`]: the life of one nsqd of a consumer. [`Receiver`]: what the consumer does with what this nsqd sends.
//!
//! ```text
//!   fixed       connect ─► receive ─► delay ─┐      for ever: the delay grows up to lookupd_poll_interval
//!                  ▲─────────────────────────┘
//!   discovered  connect ─► receive ─► end           discovery makes a new task if the node is still listed
//! ```

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

use super::connection::ConsumerConnection;
use super::message::{Delivery, Message, Source};
use super::state::{Phase, now, wait_until};
use super::{FirstResult, Inner, NodeOrigin};
use crate::address::Address;
use crate::connection::{Batch, Connection, Recipient};
use crate::error::{ConnectionError, ErrorFrame};
use crate::event::{Client, Event};
use crate::reconnect::Delay;

/// One task's part of the state of [`Inner`]. Removes the entry when the task ends, also when the runtime
/// drops it.
pub(super) struct NodeTask {
    pub(super) inner: Arc<Inner>,
    pub(super) node: Address,
    pub(super) origin: NodeOrigin,
    pub(super) task_number: u64,
    pub(super) removal: oneshot::Receiver<()>,
    pub(super) phase: watch::Receiver<Phase>,
}

impl NodeTask {
    /// Connects, receives, and connects again, until the node is not wanted any more.
    pub(super) async fn run(mut self, mut first: Option<oneshot::Sender<FirstResult>>) {
        let max = self.inner.state.config.lookupd_poll_interval;
        let mut delay = Delay::new(max, fastrand::u64(..));
        loop {
            self.emit(|client, node| Event::Connecting { client, node });
            let Some(opened) = self.open().await else {
                return;
            };
            let retry_in = match opened {
                Ok(opened) => {
                    let connected_at = now();
                    let Some(retries) = self.receive(opened, &mut first).await else {
                        return;
                    };
                    delay.lived(now().duration_since(connected_at));
                    retries.then(|| delay.next())
                }
                Err(error) => {
                    let error = Arc::new(error);
                    let is_final = self.origin == NodeOrigin::FixedOrFail && first.is_some();
                    let retries = self.origin != NodeOrigin::Discovered && !is_final;
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

    fn emit(&self, event: impl FnOnce(Client, Address) -> Event) {
        let events = &self.inner.state.events;
        events.emit(|client| event(client, self.node.clone()));
    }

    /// Ready when the application removed the node, or stopped the consumer.
    async fn ended(&mut self) {
        tokio::select! {
            _ = &mut self.removal => {}
            _ = self.phase.wait_for(|phase| *phase != Phase::Running) => {}
        }
    }

    /// Opens a connection. Returns `None` if the node is not wanted any more.
    async fn open(&mut self) -> Option<Result<Connection, ConnectionError>> {
        let inner = Arc::clone(&self.inner);
        let node = self.node.clone();
        tokio::select! {
            biased;
            () = self.ended() => None,
            opened = Connection::open(&*inner.connector, &node, Arc::clone(&inner.settings)) => Some(opened),
        }
    }

    /// Receives until the connection is over. Returns true if the node is to be connected again, and `None` if it is
    /// not wanted any more.
    async fn receive(
        &mut self,
        opened: Connection,
        first: &mut Option<oneshot::Sender<FirstResult>>,
    ) -> Option<bool> {
        let inner = Arc::clone(&self.inner);
        let state = &inner.state;
        let negotiated = Arc::new(opened.negotiated().clone());
        let connection = state.add_connection(&self.node, &negotiated, opened.outbox())?;
        let registered = Registered {
            inner: Arc::clone(&inner),
            connection,
        };
        let connection = &registered.connection;
        inner.nodes.lock().missing.remove(&self.node);
        self.emit(|client, node| Event::Connected {
            client,
            node,
            negotiated,
        });
        state.report_truncation(connection);
        #[cfg(feature = "dedup")]
        if let Some(dedup) = &inner.dedup {
            dedup.check_times(connection);
        }
        if let Some(first) = first.take() {
            // The caller may have gone away.
            let _ = first.send(Ok(()));
        }
        let (error, is_removed) = self.drive(opened, connection).await;
        let is_wanted = !is_removed && state.phase() == Phase::Running;
        if is_wanted && self.origin == NodeOrigin::Discovered {
            inner.nodes.lock().missing.insert(self.node.clone());
        }
        // The last connection ends the consumer, and a program may exit then. So the event comes first.
        self.emit(|client, node| Event::Disconnected {
            client,
            node,
            error: error.map(Arc::new),
        });
        drop(registered);
        is_wanted.then_some(self.origin != NodeOrigin::Discovered)
    }

    /// Moves bytes until the connection is over. Returns the reason, and true if the application removed the node.
    async fn drive(
        &mut self,
        opened: Connection,
        connection: &Arc<ConsumerConnection>,
    ) -> (Option<ConnectionError>, bool) {
        let inner = Arc::clone(&self.inner);
        let source = Arc::new(Source {
            state: Arc::clone(&inner.state),
            connection: Arc::clone(connection),
        });
        let touching = inner
            .auto_touch
            .map(|auto| Arc::new(Touching::new(auto, connection.msg_timeout)));
        let mut receiver = Receiver {
            inner: Arc::clone(&inner),
            source,
            touching: touching.clone(),
            messages: Vec::new(),
        };
        let mut run = std::pin::pin!(opened.run(&mut receiver));
        let (mut is_removed, mut abort_at) = (false, None);
        loop {
            let next_touch = touching
                .as_ref()
                .map(|touching| touching.next_timeout(now()));
            tokio::select! {
                ended = &mut run => return (ended, is_removed),
                () = wait_until(next_touch) => {
                    if let Some(touching) = &touching {
                        touching.handle_timeout(now());
                    }
                }
                _ = &mut self.removal, if !is_removed => {
                    inner.state.retire_connection(connection);
                    is_removed = true;
                    // `None`: the limit is too long for an `Instant`, so the connection is never aborted.
                    abort_at = now().checked_add(inner.drain_limit);
                }
                () = wait_until(abort_at) => connection.outbox.abort(),
            }
        }
    }
}

impl Drop for NodeTask {
    fn drop(&mut self) {
        let mut nodes = self.inner.nodes.lock();
        let entry = nodes.entries.get(&self.node);
        if entry.is_some_and(|entry| entry.task_number == self.task_number) {
            nodes.entries.remove(&self.node);
        }
        let is_missing = nodes.missing.contains(&self.node);
        drop(nodes);
        if is_missing {
            self.inner.lost.notify_one();
        }
    }
}

/// A connection that takes part in the flow control, until this value is dropped.
struct Registered {
    inner: Arc<Inner>,
    connection: Arc<ConsumerConnection>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let is_last = self.inner.state.remove_connection(&self.connection);
        // Nobody can answer these messages any more.
        let lost = self.inner.inbox.remove(self.connection.id);
        lost.iter().for_each(|message| message.delivery().forget());
        if is_last {
            self.inner.end();
        }
    }
}

/// nsqd's answer to CLS: no more messages come.
const CLOSE_WAIT: &[u8] = b"CLOSE_WAIT";

/// The most messages of a connection that may wait for the application, as a multiple of the highest RDY that the
/// connection had. nsqd has at most RDY messages in flight. To the client, there may be more: nsqd's clock for a
/// timeout begins when it sends the message, and the client's when it reads the message. So a client that is held up
/// reads messages together with those that nsqd sends in their place.
const WAITING_FACTOR: usize = 4;

/// Puts the messages of one connection into the inbox, once per read.
///
/// The messages that wait are bounded by [`WAITING_FACTOR`], copies of messages in progress included. If there are
/// more, those that have timed out are dropped: nsqd delivers them again. If there are still too many, nsqd ignores
/// RDY, and the connection ends.
pub(super) struct Receiver {
    inner: Arc<Inner>,
    source: Arc<Source>,
    /// The messages to touch. `None` if the library touches no message.
    touching: Option<Arc<Touching>>,
    /// The messages of this read.
    messages: Vec<Message>,
}

impl Receiver {
    fn add(&mut self, now: Instant, batch: Batch) {
        self.messages.reserve(batch.len());
        for raw in batch {
            let delivery = Delivery::new(&self.source, now, &raw);
            self.messages.push(match &self.touching {
                None => Message::new(raw.body, delivery),
                Some(touching) => {
                    let delivery = Arc::new(delivery);
                    touching.add(&delivery);
                    Message::shared(raw.body, delivery)
                }
            });
        }
    }

    /// Passes the messages on, or back to nsqd if the consumer is stopping. Fails if too many wait.
    fn flush(&mut self) -> Result<(), ConnectionError> {
        if self.messages.is_empty() {
            return Ok(());
        }
        let Source { state, connection } = &*self.source;
        state.count_received(now(), connection, self.messages.len() as u64);
        #[cfg(feature = "dedup")]
        if let Some(dedup) = &self.inner.dedup {
            dedup.keep_fresh(&mut self.messages);
        }
        self.inner.inbox.push(connection.id, &mut self.messages);
        for message in self.messages.drain(..) {
            message.delivery().give_back();
        }
        let waiting_max = (connection.ready_peak() as usize).saturating_mul(WAITING_FACTOR);
        if self.waiting() > waiting_max {
            self.drop_timed_out(waiting_max)
        } else {
            Ok(())
        }
    }

    /// Returns the number of messages of the connection that wait for the application, or for the answer to their first
    /// copy, or of the store.
    fn waiting(&self) -> usize {
        let connection = &self.source.connection;
        let waiting = self.inner.inbox.waiting(connection.id);
        #[cfg(feature = "dedup")]
        let waiting = match &self.inner.dedup {
            Some(dedup) => waiting + dedup.waiting(connection),
            None => waiting,
        };
        waiting
    }

    /// Drops the messages that have timed out. Fails if more than `waiting_max` of this connection are left.
    fn drop_timed_out(&self, waiting_max: usize) -> Result<(), ConnectionError> {
        let timed_out = self.inner.inbox.remove_timed_out(now());
        for message in &timed_out {
            message.delivery().time_out();
        }
        if !timed_out.is_empty() {
            self.source.emit(|client, node| Event::TimedOut {
                client,
                node,
                count: timed_out.len(),
            });
        }
        match self.waiting() {
            waiting if waiting > waiting_max => Err(ConnectionError::ReadyExceeded {
                waiting,
                ready: self.source.connection.ready_peak(),
            }),
            _ => Ok(()),
        }
    }
}

impl Recipient for Receiver {
    fn messages(&mut self, batch: Batch) -> Result<(), ConnectionError> {
        self.add(now(), batch);
        Ok(())
    }

    fn response(&mut self, data: Bytes) -> Result<(), ConnectionError> {
        if data == CLOSE_WAIT {
            // The messages before it count as in flight.
            self.flush()?;
            self.source.connection.drain();
        }
        Ok(())
    }

    fn error(&mut self, error: ErrorFrame) -> Result<(), ConnectionError> {
        let Source { state, connection } = &*self.source;
        // nsqd keeps the connection only after E_FIN_FAILED, E_REQ_FAILED and E_TOUCH_FAILED: the message was not in
        // flight.
        let is_too_late = !error.is_fatal();
        self.source.emit(|client, node| Event::ErrorFrame {
            client,
            node,
            error,
        });
        if is_too_late && state.take_lateness() {
            self.source.emit(|client, node| Event::AnswerTooLate {
                client,
                node,
                msg_timeout: connection.msg_timeout,
            });
        }
        Ok(())
    }

    fn read_done(&mut self) -> Result<(), ConnectionError> {
        self.flush()
    }
}

/// Touches messages for an application that takes longer than the message timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoTouch {
    /// The time after which a message is touched no more, counted from its arrival. nsqd then delivers it again when
    /// the message timeout is over. nsqd has a limit of its own, `--max-msg-timeout`, which is 15 min by default.
    pub limit: Duration,
}

/// The messages to touch, in the order in which they are due. All have the same interval.
#[derive(Debug)]
pub(crate) struct Touching {
    interval: Duration,
    limit: Duration,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<(Instant, Weak<Delivery>)>,
    /// The number of entries at which answered messages are removed.
    sweep_at: usize,
}

/// The fewest entries at which answered messages are removed.
const SWEEP_MIN: usize = 64;

impl Touching {
    /// A message is touched whenever half of `msg_timeout` is over.
    pub(crate) fn new(auto: AutoTouch, msg_timeout: Duration) -> Touching {
        Touching {
            interval: (msg_timeout / 2).max(Duration::from_millis(1)),
            limit: auto.limit,
            queue: Mutex::new(Queue::default()),
        }
    }

    /// Adds a message that has just arrived.
    pub(crate) fn add(&self, delivery: &Arc<Delivery>) {
        let mut queue = self.queue.lock();
        let due = delivery.delivered_at + self.interval;
        queue.entries.push_back((due, Arc::downgrade(delivery)));
        if queue.entries.len() > queue.sweep_at.max(SWEEP_MIN) {
            // Each sweep leaves room for as many messages as it kept, so it costs a constant time per message.
            queue
                .entries
                .retain(|(_, message)| message.strong_count() > 0);
            queue.sweep_at = 2 * queue.entries.len();
        }
    }

    /// Returns the time of the next touch. A message that arrives after `now` is due later than that.
    pub(crate) fn next_timeout(&self, now: Instant) -> Instant {
        let queue = self.queue.lock();
        let first = queue.entries.front().map(|(due, _)| *due);
        first.unwrap_or(now + self.interval)
    }

    /// Touches the messages that are due, and drops those that are answered or older than the limit.
    pub(crate) fn handle_timeout(&self, now: Instant) {
        let mut due = Vec::new();
        let mut queue = self.queue.lock();
        while queue.entries.front().is_some_and(|(at, _)| *at <= now) {
            let (_, message) = queue.entries.pop_front().expect("there is a first");
            let Some(message) = message.upgrade() else {
                continue;
            };
            let is_young = now.duration_since(message.delivered_at) < self.limit;
            if is_young && !message.is_answered() {
                queue
                    .entries
                    .push_back((now + self.interval, Arc::downgrade(&message)));
            }
            // The last reference may be dropped here. Its answer must not come under the lock.
            due.push((message, is_young));
        }
        drop(queue);
        for (message, is_young) in due {
            if is_young {
                // A connection that is lost needs no touch.
                message.touch();
            }
        }
    }
}
