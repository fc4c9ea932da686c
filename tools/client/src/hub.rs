//! [`Hub`]: what the tasks of one consumer share: its flow control, its connections and its counters.
//!
//! The lock is held for each read of a connection, and for each answer that can change the flow: a failure, any answer in a
//! backoff, and any answer while a connection waits for RDY. Under the lock, the work grows with the number of
//! connections. No callback of the application and no waker of it runs under the lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use wire::encode;

use crate::address::Address;
use crate::backoff::Verdict;
use crate::config::Config;
use crate::core::Negotiated;
use crate::error::ConnectionLost;
use crate::event::{Client, Event, Events};
use crate::flow::{BackoffChange, Changes, Flow};
use crate::line::Line;
use crate::outbox::{Outbox, Position};
use crate::ready::ConnectionId;

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
pub(crate) struct Hub {
    pub(crate) config: Config,
    pub(crate) topic: Arc<str>,
    pub(crate) client: Client,
    pub(crate) events: Events,
    state: Mutex<State>,
    /// The level of the backoff, which an answer reads without the lock.
    level: AtomicU32,
    /// True while a connection waits for RDY that answers of other connections free. An answer reads this flag without the
    /// lock.
    is_short: AtomicBool,
    /// True when it was reported that an answer came too late.
    is_lateness_reported: AtomicBool,
    phase: watch::Sender<Phase>,
    /// Tells the task of the flow control that its next timeout may have changed.
    pub(crate) flow_changed: Notify,
    received: AtomicU64,
    finished: AtomicU64,
    requeued: AtomicU64,
}

#[derive(Debug)]
struct State {
    flow: Flow,
    lines: BTreeMap<ConnectionId, Arc<Line>>,
    next_id: u64,
    /// True when the consumer takes no new connections.
    is_stopping: bool,
}

impl State {
    /// Tells the flow control how many messages of each connection are in flight.
    fn count_in_flight(&mut self) {
        for line in self.lines.values() {
            let in_flight = u32::try_from(line.in_flight()).unwrap_or(u32::MAX);
            self.flow.set_in_flight(line.id, in_flight);
        }
    }

    /// Sends RDY counts, in their order.
    fn send_ready(&self, changes: &Changes) {
        for set in &changes.ready {
            if let Some(line) = self.lines.get(&set.connection) {
                // A connection that is lost is removed soon, and its RDY with it.
                let _ = line.set_ready(set.count);
            }
        }
    }
}

/// The numbers of a consumer since its creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) received: u64,
    pub(crate) finished: u64,
    pub(crate) requeued: u64,
}

/// Returns the present time, which is virtual in tests with a paused clock.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

impl Hub {
    pub(crate) fn new(
        config: Config,
        topic: Arc<str>,
        client: Client,
        events: Events,
        seed: u64,
    ) -> Hub {
        Hub {
            state: Mutex::new(State {
                flow: Flow::new(now(), &config, seed),
                lines: BTreeMap::new(),
                next_id: 1,
                is_stopping: false,
            }),
            config,
            topic,
            client,
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
    pub(crate) fn add_line(
        &self,
        node: &Address,
        negotiated: &Negotiated,
        outbox: Outbox,
    ) -> Option<Arc<Line>> {
        let now = now();
        let mut state = self.state.lock();
        if state.is_stopping {
            return None;
        }
        let id = ConnectionId(state.next_id);
        state.next_id += 1;
        let line = Arc::new(Line::new(now, id, node.clone(), negotiated, outbox));
        state.lines.insert(id, Arc::clone(&line));
        self.change(state, |flow| flow.add(now, id, line.ready_max));
        Some(line)
    }

    /// Takes a connection out of the distribution of RDY: nsqd is asked to send nothing more, or is about to stop.
    pub(crate) fn retire_line(&self, line: &Line) {
        self.change(self.state.lock(), |flow| {
            // The connection may be lost already; then there is nobody to tell.
            let _ = line.send(encode::cls);
            flow.retire(now(), line.id)
        });
    }

    /// Removes a connection that is over. Returns true if it was the last one of a consumer that stops.
    pub(crate) fn remove_line(&self, line: &Line) -> bool {
        line.lose();
        let mut state = self.state.lock();
        state.lines.remove(&line.id);
        let is_last = state.lines.is_empty() && state.is_stopping;
        self.change(state, |flow| flow.remove(now(), line.id));
        is_last
    }

    /// Counts messages that a connection received.
    pub(crate) fn count_received(&self, now: Instant, line: &Line, count: u64) {
        line.count_received(now, count);
        self.received.fetch_add(count, Ordering::Relaxed);
        self.state.lock().flow.receive(now, line.id);
    }

    /// Answers a message: first the flow control, whose RDY come before the answer, then the answer itself.
    #[inline]
    pub(crate) fn answer(
        &self,
        line: &Line,
        verdict: Verdict,
        is_finish: bool,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Position, ConnectionLost> {
        if verdict != Verdict::Success || self.level.load(Ordering::Relaxed) != 0 {
            self.change(self.state.lock(), |flow| flow.answer(now(), verdict));
        }
        let sent = line.send(write);
        let counter = if is_finish {
            &self.finished
        } else {
            &self.requeued
        };
        counter.fetch_add(1, Ordering::Relaxed);
        line.count_answered();
        // Sequential consistency: either this thread sees that a connection waits, or `carry_out` sees this answer.
        if self.is_short.load(Ordering::SeqCst) {
            self.use_room();
        }
        sent
    }

    /// Gives connections the room that an answer has made.
    #[cold]
    fn use_room(&self) {
        self.change(self.state.lock(), |flow| flow.use_room(now()));
    }

    /// Returns true, once, when an answer came too late.
    pub(crate) fn take_lateness(&self) -> bool {
        !self.is_lateness_reported.swap(true, Ordering::Relaxed)
    }

    /// Changes `max_in_flight`.
    pub(crate) fn set_max_in_flight(&self, max: u32) {
        let state = self.state.lock();
        let lines: Vec<_> = state.lines.values().map(Arc::clone).collect();
        self.change(state, |flow| flow.set_max(now(), max));
        for line in lines {
            self.report_truncation(&line, max);
        }
    }

    /// Reports, once for each connection, that its nsqd accepts less than `max_in_flight`.
    pub(crate) fn report_truncation(&self, line: &Line, max_in_flight: u32) {
        if line.take_truncation(max_in_flight) {
            self.events.emit(Event::ReadyTruncated {
                client: self.client.clone(),
                node: line.node.clone(),
                max_rdy_count: line.ready_max,
                max_in_flight,
            });
        }
    }

    /// Returns `max_in_flight`.
    pub(crate) fn max_in_flight(&self) -> u32 {
        self.state.lock().flow.max()
    }

    /// Returns the level of the backoff.
    pub(crate) fn level(&self) -> u32 {
        self.level.load(Ordering::Relaxed)
    }

    /// Returns the time of the next timeout of the flow control.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.state.lock().flow.next_timeout()
    }

    /// Carries out the timeouts that are due.
    pub(crate) fn handle_timeout(&self) {
        self.change(self.state.lock(), |flow| flow.handle_timeout(now()));
    }

    /// Returns true if a connection may send no more, or hardly more, before some of its messages are answered: 85 % of its
    /// RDY are in flight. A connection that closes does not count, because it sends no more in any case.
    pub(crate) fn is_starved(&self) -> bool {
        let state = self.state.lock();
        let lines = state.lines.values();
        let mut open = lines.filter(|line| state.flow.has(line.id) && !line.is_draining());
        open.any(|line| {
            let in_flight = line.in_flight();
            let ready = u64::from(state.flow.count(line.id));
            in_flight > 0 && in_flight >= ready * 85 / 100
        })
    }

    /// Returns the connections with their RDY.
    pub(crate) fn lines(&self) -> Vec<(Arc<Line>, u32)> {
        let state = self.state.lock();
        let lines = state.lines.values();
        lines
            .map(|line| (Arc::clone(line), state.flow.count(line.id)))
            .collect()
    }

    /// Returns the numbers since the creation.
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            received: self.received.load(Ordering::Relaxed),
            finished: self.finished.load(Ordering::Relaxed),
            requeued: self.requeued.load(Ordering::Relaxed),
        }
    }

    /// Begins the end: asks every nsqd to send nothing more. Returns false if the end has begun already.
    pub(crate) fn begin_stop(&self) -> bool {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.is_stopping, true) {
            return false;
        }
        state.flow.stop();
        for line in state.lines.values() {
            // A lost connection needs no CLS.
            let _ = line.send(encode::cls);
        }
        drop(state);
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
    pub(crate) fn has_no_lines(&self) -> bool {
        self.state.lock().lines.is_empty()
    }

    /// Ends the consumer, and its remaining connections at once.
    pub(crate) fn end(&self) {
        let state = self.state.lock();
        state.lines.values().for_each(|line| line.abort());
        drop(state);
        self.raise_phase(Phase::Stopped);
    }

    /// Changes the flow, which first learns what is in flight, and carries out what follows.
    fn change(&self, mut state: MutexGuard<'_, State>, change: impl FnOnce(&mut Flow) -> Changes) {
        state.count_in_flight();
        let changes = change(&mut state.flow);
        self.carry_out(state, changes);
    }

    /// Sends the RDY counts, in their order, before the lock is released. Then reports the change of the backoff.
    fn carry_out(&self, mut state: MutexGuard<'_, State>, changes: Changes) {
        state.send_ready(&changes);
        self.level.store(state.flow.level(), Ordering::Relaxed);
        let is_short = state.flow.is_short();
        self.is_short.store(is_short, Ordering::SeqCst);
        if is_short {
            // An answer of another thread may have made room before it could know that a connection waits.
            state.count_in_flight();
            let further = state.flow.use_room(now());
            state.send_ready(&further);
        }
        drop(state);
        self.flow_changed.notify_one();
        let client = || self.client.clone();
        match changes.backoff {
            Some(BackoffChange::Entered { level, period }) => {
                self.events.emit(Event::BackoffEntered {
                    client: client(),
                    level,
                    period,
                })
            }
            Some(BackoffChange::Left) => self.events.emit(Event::BackoffLeft { client: client() }),
            None => {}
        }
    }
}
