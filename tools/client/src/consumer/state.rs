//! [`ConsumerState`]: what the tasks of one consumer share: its flow control, its connections and its counters.
//!
//! The lock is held for each read of a connection, and for each answer that can change the flow: a failure, any answer
//! in a backoff, and any answer while a connection waits for RDY. Under the lock, the work grows with the number of
//! connections. No callback of the application and no waker of it runs under the lock.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::time::sleep_until;
use wire::encode;

use super::backoff::Verdict;
use super::connection::ConsumerConnection;
use super::flow::{BackoffChange, Changes, Flow};
use super::ready::ConnectionId;
use crate::address::Address;
use crate::config::Config;
use crate::connection::{Negotiated, Outbox, Position};
use crate::error::ConnectionLost;
use crate::event::{Event, Events};

/// The phase in the life of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Running,
    /// No new connections. The present ones close when their messages are answered.
    Stopping,
    /// All connections are gone.
    Stopped,
}

/// The state that the tasks of one consumer share.
#[derive(Debug)]
pub(crate) struct ConsumerState {
    pub(crate) config: Config,
    pub(crate) topic: Arc<str>,
    pub(crate) events: Events,
    connections: Mutex<Connections>,
    /// The level of the backoff, which an answer reads without the lock.
    level: AtomicU32,
    /// True while a connection waits for RDY that answers of other connections free. An answer reads this flag without
    /// the lock.
    is_short: AtomicBool,
    /// True when it was reported that an answer came too late.
    is_lateness_reported: AtomicBool,
    phase: watch::Sender<Phase>,
    /// Tells the task of the flow control that its next timeout may have changed.
    pub(crate) flow_changed: Notify,
    /// The numbers of messages since the creation.
    pub(crate) received: AtomicU64,
    pub(crate) finished: AtomicU64,
    pub(crate) requeued: AtomicU64,
}

#[derive(Debug)]
struct Connections {
    flow: Flow,
    all: BTreeMap<ConnectionId, Arc<ConsumerConnection>>,
    next_id: u64,
    /// True when the consumer takes no new connections.
    is_stopping: bool,
}

impl Connections {
    /// Tells the flow control how many messages of each connection are in flight.
    fn count_in_flight(&mut self) {
        for connection in self.all.values() {
            let in_flight = u32::try_from(connection.in_flight()).unwrap_or(u32::MAX);
            self.flow.set_in_flight(connection.id, in_flight);
        }
    }

    /// Sends RDY counts, in their order.
    fn send_ready(&self, changes: &Changes) {
        for set in &changes.ready {
            if let Some(connection) = self.all.get(&set.connection) {
                // A connection that is lost is removed soon, and its RDY with it.
                let _ = connection.set_ready(set.count);
            }
        }
    }
}

/// Returns the present time, which is virtual in tests with a paused clock.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Waits until this time, and for ever if there is none.
pub(crate) async fn wait_until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at.into()).await,
        None => pending().await,
    }
}

impl ConsumerState {
    pub(crate) fn new(config: Config, topic: Arc<str>, events: Events, seed: u64) -> ConsumerState {
        ConsumerState {
            connections: Mutex::new(Connections {
                flow: Flow::new(now(), &config, seed),
                all: BTreeMap::new(),
                next_id: 1,
                is_stopping: false,
            }),
            config,
            topic,
            events,
            level: AtomicU32::new(0),
            is_short: AtomicBool::new(false),
            is_lateness_reported: AtomicBool::new(false),
            phase: watch::Sender::new(Phase::Running),
            flow_changed: Notify::new(),
            received: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            requeued: AtomicU64::new(0),
        }
    }

    /// Returns the phase of the consumer.
    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Returns a receiver of the phase.
    pub(crate) fn watch_phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Adds a connection and distributes RDY. Returns `None` if the consumer is stopping.
    pub(crate) fn add_connection(
        &self,
        node: &Address,
        negotiated: &Negotiated,
        outbox: Outbox,
    ) -> Option<Arc<ConsumerConnection>> {
        let mut locked = self.connections.lock();
        if locked.is_stopping {
            return None;
        }
        let id = ConnectionId(locked.next_id);
        locked.next_id += 1;
        let connection = ConsumerConnection::new(id, node.clone(), negotiated, outbox);
        let connection = Arc::new(connection);
        locked.all.insert(id, Arc::clone(&connection));
        self.change(locked, |flow| flow.add(now(), id, connection.ready_max));
        Some(connection)
    }

    /// Takes a connection out of the distribution of RDY: nsqd is asked to send nothing more, or is about to stop.
    pub(crate) fn retire_connection(&self, connection: &ConsumerConnection) {
        self.change(self.connections.lock(), |flow| {
            // The connection may be lost already; then there is nobody to tell.
            let _ = connection.send(encode::cls);
            flow.retire(now(), connection.id)
        });
    }

    /// Removes a connection that is over. Returns true if it was the last one of a consumer that stops.
    pub(crate) fn remove_connection(&self, connection: &ConsumerConnection) -> bool {
        connection.lose();
        let mut locked = self.connections.lock();
        locked.all.remove(&connection.id);
        let is_last = locked.all.is_empty() && locked.is_stopping;
        self.change(locked, |flow| flow.remove(now(), connection.id));
        is_last
    }

    /// Counts messages that a connection received.
    pub(crate) fn count_received(&self, now: Instant, connection: &ConsumerConnection, count: u64) {
        connection.count_received(count);
        self.received.fetch_add(count, Ordering::Relaxed);
        self.connections.lock().flow.receive(now, connection.id);
    }

    /// Answers a message: first the flow control, whose RDY come before the answer, then the answer itself.
    #[inline]
    pub(crate) fn answer(
        &self,
        connection: &ConsumerConnection,
        verdict: Verdict,
        is_finish: bool,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Position, ConnectionLost> {
        if verdict != Verdict::Success || self.level.load(Ordering::Relaxed) != 0 {
            self.change(self.connections.lock(), |flow| flow.answer(now(), verdict));
        }
        let sent = connection.send(write);
        let counter = if is_finish {
            &self.finished
        } else {
            &self.requeued
        };
        counter.fetch_add(1, Ordering::Relaxed);
        connection.count_answered();
        // Sequential consistency: either this thread sees that a connection waits, or `change` sees this answer.
        if self.is_short.load(Ordering::SeqCst) {
            self.use_room();
        }
        sent
    }

    /// Gives connections the room that an answer has made.
    #[cold]
    fn use_room(&self) {
        self.change(self.connections.lock(), |flow| flow.use_room(now()));
    }

    /// Returns true, once, when an answer came too late.
    pub(crate) fn take_lateness(&self) -> bool {
        !self.is_lateness_reported.swap(true, Ordering::Relaxed)
    }

    /// Changes `max_in_flight`.
    pub(crate) fn set_max_in_flight(&self, max: u32) {
        self.change(self.connections.lock(), |flow| flow.set_max(now(), max));
    }

    /// Reports that the nsqd of a new connection accepts less than `max_in_flight`.
    pub(crate) fn report_truncation(&self, connection: &ConsumerConnection) {
        let max_in_flight = self.max_in_flight();
        if connection.ready_max < max_in_flight {
            self.events.emit(|client| Event::ReadyTruncated {
                client,
                node: connection.node.clone(),
                max_rdy_count: connection.ready_max,
                max_in_flight,
            });
        }
    }

    /// Returns `max_in_flight`.
    pub(crate) fn max_in_flight(&self) -> u32 {
        self.connections.lock().flow.max()
    }

    /// Returns the level of the backoff.
    pub(crate) fn level(&self) -> u32 {
        self.level.load(Ordering::Relaxed)
    }

    /// Returns the time of the next timeout of the flow control.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.connections.lock().flow.next_timeout()
    }

    /// Carries out the timeouts that are due.
    pub(crate) fn handle_timeout(&self) {
        self.change(self.connections.lock(), |flow| flow.handle_timeout(now()));
    }

    /// Returns true if a connection may send no more, or hardly more, before some of its messages are answered: 85 % of
    /// its RDY are in flight. A connection that closes does not count, because it sends no more in any case.
    pub(crate) fn is_starved(&self) -> bool {
        let locked = self.connections.lock();
        let (all, flow) = (locked.all.values(), &locked.flow);
        let mut open =
            all.filter(|connection| flow.has(connection.id) && !connection.is_draining());
        open.any(|connection| {
            let in_flight = connection.in_flight();
            let ready = u64::from(flow.count(connection.id));
            in_flight > 0 && in_flight >= ready * 85 / 100
        })
    }

    /// Returns the connections with their RDY.
    pub(crate) fn connections(&self) -> Vec<(Arc<ConsumerConnection>, u32)> {
        let locked = self.connections.lock();
        let with_ready = |connection: &Arc<ConsumerConnection>| {
            let ready = locked.flow.count(connection.id);
            (Arc::clone(connection), ready)
        };
        locked.all.values().map(with_ready).collect()
    }

    /// Begins the end: asks every nsqd to send nothing more. Returns false if the end has begun already.
    pub(crate) fn begin_stop(&self) -> bool {
        let mut locked = self.connections.lock();
        if std::mem::replace(&mut locked.is_stopping, true) {
            return false;
        }
        locked.flow.stop();
        for connection in locked.all.values() {
            // A lost connection needs no CLS.
            let _ = connection.send(encode::cls);
        }
        drop(locked);
        self.raise_phase(Phase::Stopping);
        true
    }

    /// The waker of an application may run code, so this is called without the lock. A phase never goes back.
    fn raise_phase(&self, to: Phase) {
        self.phase.send_if_modified(|phase| {
            let is_later = *phase < to;
            *phase = to.max(*phase);
            is_later
        });
    }

    /// Returns true if there are no connections.
    pub(crate) fn has_no_connections(&self) -> bool {
        self.connections.lock().all.is_empty()
    }

    /// Ends the consumer, and its remaining connections at once.
    pub(crate) fn end(&self) {
        let locked = self.connections.lock();
        for connection in locked.all.values() {
            connection.outbox.abort();
        }
        drop(locked);
        self.raise_phase(Phase::Stopped);
    }

    /// Changes the flow, which first learns what is in flight. Sends the RDY counts that follow, in their order, before
    /// the lock is released. Then reports the change of the backoff.
    fn change(
        &self,
        mut locked: MutexGuard<'_, Connections>,
        change: impl FnOnce(&mut Flow) -> Changes,
    ) {
        locked.count_in_flight();
        let changes = change(&mut locked.flow);
        locked.send_ready(&changes);
        self.level.store(locked.flow.level(), Ordering::Relaxed);
        let is_short = locked.flow.is_short();
        self.is_short.store(is_short, Ordering::SeqCst);
        if is_short {
            // An answer of another thread may have made room before it could know that a connection waits.
            locked.count_in_flight();
            let further = locked.flow.use_room(now());
            locked.send_ready(&further);
        }
        drop(locked);
        self.flow_changed.notify_one();
        match changes.backoff {
            Some(BackoffChange::Entered { level, period }) => {
                self.events.emit(|client| Event::BackoffEntered {
                    client,
                    level,
                    period,
                })
            }
            Some(BackoffChange::Left) => self.events.emit(|client| Event::BackoffLeft { client }),
            None => {}
        }
    }
}
