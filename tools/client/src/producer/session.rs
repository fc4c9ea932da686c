//! [`Session`]: the publishes of the task that serves a node, over one connection or several that follow each other.
//! [`ProducerConnection`]: the connection of the moment.
//!
//! ```text
//!   publish ─► ProducerConnection ─► Outbox, and Pending in the same order ─► nsqd
//!                  │ lost
//!                  └──► kept, if nsqd takes numbers ─► the next ProducerConnection, before all newer publishes
//! ```
//!
//! Without numbers, a session has one connection. With numbers, publishes whose outcome is unknown survive the loss of
//! the connection for a while.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::command::{Command, Kept, Tail};
use super::error::is_declined;
use super::numbering::{Counters, Numbers};
use super::pending::{Answering, Pending, Waiter};
use super::permits::Permit;
use crate::connection::Outbox;
use crate::error::{ConnectionError, ErrorFrame};

/// The resend limit in place of one whose end no clock can show: 30 years.
const RESEND_LIMIT_MAX: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// The publishes of a node's task.
#[derive(Debug)]
pub(crate) struct Session {
    state: Mutex<Publishes>,
    /// The next numbers of the node. They outlive the session. They are locked inside the lock of `state`.
    counters: Arc<Mutex<Counters>>,
    /// The time for which a publish with an unknown outcome waits for a new connection.
    resend_limit: Duration,
    /// Ends when the task is over.
    over: watch::Receiver<()>,
    /// Notified when the session is to end.
    retired: Notify,
}

/// The state of the publishes. It is locked inside the outbox's lock, so that commands and waiters have the same order.
#[derive(Debug)]
struct Publishes {
    pending: Pending,
    tail: Tail,
    /// The output of the connection of the moment.
    outbox: Option<Outbox>,
    /// The number of commands that nsqd has answered. An nsqd that exits or is drained, or that read a command only in
    /// part, has not answered it in this sense.
    answered: u64,
    /// The reason why the last connection is over.
    lost: Option<Arc<ConnectionError>>,
    /// True when the session ends as soon as nothing is pending.
    is_retiring: bool,
    /// True when publishes do not survive the connection any more.
    has_ended: bool,
}

impl Publishes {
    /// Returns the output that is to be closed: nothing is pending, and the session is to end.
    fn retired_outbox(&self) -> Option<Outbox> {
        let is_over = self.is_retiring && self.pending.is_empty();
        self.outbox.clone().filter(|_| is_over)
    }
}

impl Session {
    /// Makes a session without a connection. `over` ends when the task is over.
    pub(crate) fn new(
        counters: Arc<Mutex<Counters>>,
        resend_limit: Duration,
        over: watch::Receiver<()>,
    ) -> Session {
        Session {
            state: Mutex::new(Publishes {
                pending: Pending::default(),
                tail: Tail::default(),
                outbox: None,
                answered: 0,
                lost: None,
                is_retiring: false,
                has_ended: false,
            }),
            counters,
            resend_limit,
            over,
            retired: Notify::new(),
        }
    }

    /// Gives the oldest command its answer. Returns false when no command waits.
    pub(crate) fn answer(&self, refusal: Option<&ErrorFrame>) -> bool {
        let mut state = self.state.lock();
        let was_pending = state.pending.answer(refusal);
        // An answered command may still be in the outbox: nsqd ends the connection, or has answered too early. No
        // message may join this command.
        if refusal.is_some() || state.pending.is_empty() {
            state.tail.close();
        }
        let is_answer = !refusal.is_some_and(is_declined);
        state.answered += u64::from(was_pending && is_answer);
        let retired = state.retired_outbox();
        drop(state);
        if let Some(outbox) = retired {
            outbox.close();
        }
        was_pending
    }

    /// States that the connection with this output is over, for `reason`. With `keeps_numbered`, numbered publishes
    /// whose outcome is unknown stay.
    fn lose(&self, outbox: &Outbox, keeps_numbered: bool, reason: &Arc<ConnectionError>) {
        let (taken, now) = (outbox.taken(), Instant::now());
        let mut state = self.state.lock();
        let state = &mut *state;
        let keep = keeps_numbered && !state.has_ended && !self.resend_limit.is_zero();
        let keep = keep.then(|| {
            let deadline = now.checked_add(self.resend_limit);
            deadline.unwrap_or(now + RESEND_LIMIT_MAX)
        });
        state.outbox = None;
        let reason = state.lost.get_or_insert_with(|| Arc::clone(reason));
        let mut counters = self.counters.lock();
        let give_back = |topic: &str, numbers| counters.give_back(topic, numbers);
        state.pending.lose(reason, taken, keep, now, give_back);
    }

    /// Ends the publishes that wait, for `reason`. From now on none survives its connection.
    pub(crate) fn end(&self, reason: &Arc<ConnectionError>) {
        let mut state = self.state.lock();
        state.has_ended = true;
        let outbox = state.outbox.clone();
        drop(state);
        if let Some(outbox) = outbox {
            // Now nothing more is queued or leaves.
            outbox.abort();
            self.lose(&outbox, false, reason);
        } else {
            self.state.lock().pending.give_up_all();
        }
    }

    /// Ends the session at once: nsqd did not answer for `limit`.
    pub(crate) fn give_up(&self, limit: Duration) {
        self.end(&Arc::new(ConnectionError::AnswerTimeout(limit)));
    }

    /// Ends the session when nothing is pending.
    pub(crate) fn retire(&self) {
        let mut state = self.state.lock();
        state.is_retiring = true;
        let retired = state.retired_outbox();
        drop(state);
        self.retired.notify_one();
        if let Some(outbox) = retired {
            outbox.close();
        }
    }

    /// Returns when the session was to end and has not ended for `limit`.
    pub(crate) async fn overdue(&self, limit: Duration) {
        self.retired.notified().await;
        sleep(limit).await;
    }

    /// Returns true if nsqd has refused what it read of a command of the connection, and so carries out none behind it.
    pub(crate) fn has_refused(&self) -> bool {
        self.state.lock().pending.has_refused()
    }

    /// Returns the number of publishes that wait for an answer.
    pub(crate) fn publishes(&self) -> usize {
        self.state.lock().pending.publishes()
    }

    /// Returns true when publishes wait for an answer.
    pub(crate) fn is_busy(&self) -> bool {
        !self.state.lock().pending.is_empty()
    }

    /// Returns the number of commands that nsqd has stored or refused. The refusals of an nsqd that exits or is
    /// drained, or that read a command only in part, do not count.
    pub(crate) fn answered(&self) -> u64 {
        self.state.lock().answered
    }

    /// Gives up publishes whose time for a new connection is over, as long as the future is polled. Returns when none
    /// is left.
    pub(crate) async fn expire(&self) {
        loop {
            let deadline = self.state.lock().pending.deadline();
            let Some(deadline) = deadline else { return };
            sleep_until(deadline).await;
            self.state.lock().pending.expire(Instant::now());
        }
    }

    /// Returns when the task is over.
    pub(crate) async fn ended(&self) {
        let mut over = self.over.clone();
        // The sender sends nothing: it is dropped when the task is over.
        let _ = over.changed().await;
    }

    /// Returns the reason why the last connection is over.
    pub(crate) fn reason(&self) -> Arc<ConnectionError> {
        let lost = self.state.lock().lost.clone();
        lost.unwrap_or_else(|| Arc::new(ConnectionError::Stopped))
    }
}

/// An open connection of a session.
#[derive(Debug)]
pub(crate) struct ProducerConnection {
    /// The publishes of the connection.
    pub(crate) session: Arc<Session>,
    pub(crate) outbox: Outbox,
    numbers: Numbers,
    /// The reason why the connection is over, when it is over.
    over: watch::Receiver<Option<Arc<ConnectionError>>>,
}

impl ProducerConnection {
    /// Makes the connection of `session` whose output is `outbox`, on which nothing runs yet. The publishes of the
    /// session that stayed are written first if the commands have numbers, and are abandoned otherwise. `over` gets the
    /// reason when the connection is over.
    pub(crate) fn new(
        session: Arc<Session>,
        outbox: Outbox,
        numbers: Numbers,
        over: watch::Receiver<Option<Arc<ConnectionError>>>,
    ) -> ProducerConnection {
        let written = outbox.append(|out| {
            let mut state = session.state.lock();
            state.tail = Tail::default();
            state.outbox = Some(outbox.clone());
            state.lost = None;
            state.pending.connect();
            if numbers == Numbers::None {
                state.pending.give_up_all()
            } else {
                state.pending.resend(out)
            }
        });
        written.expect("the connection has not run yet");
        ProducerConnection {
            session,
            outbox,
            numbers,
            over,
        }
    }

    /// Returns true when the commands have numbers.
    pub(crate) fn is_numbered(&self) -> bool {
        self.numbers != Numbers::None
    }

    /// Queues `command`. With `may_join`, it may become a part of an MPUB with other publishes. The answer comes through
    /// the receiver. Fails when the connection is over, and returns the permit.
    pub(crate) fn publish(
        &self,
        command: &Command<'_>,
        may_join: bool,
        permit: Permit,
    ) -> Result<Answering, Permit> {
        let (answer, answering) = oneshot::channel();
        let mut waiter = Some(Waiter { answer, permit });
        let queued = self.outbox.rewrite(|out, end| {
            let waiter = waiter.take().expect("the outbox calls once");
            self.write(command, may_join, waiter, out, end.0);
        });
        match (queued, waiter) {
            (Ok(_), _) => Ok(answering),
            (Err(_), Some(waiter)) => Err(waiter.permit),
            (Err(_), None) => unreachable!("a refused command is not written"),
        }
    }

    /// Writes `command` to `out`, the output up to `end`.
    fn write(
        &self,
        command: &Command<'_>,
        may_join: bool,
        waiter: Waiter,
        out: &mut Vec<u8>,
        end: u64,
    ) {
        let mut state = self.session.state.lock();
        let Publishes { pending, tail, .. } = &mut *state;
        let number = match self.numbers {
            Numbers::None => None,
            Numbers::Given => command.number,
            Numbers::Counted => {
                let mut counters = self.session.counters.lock();
                let number = counters.next(command.topic);
                counters.advance(command.topic, command.count() as u64);
                Some(number)
            }
        };
        if may_join && tail.join(command, number, out, end) {
            pending.join(tail.end(), waiter, command);
            return;
        }
        let before = out.len();
        command.encode(number, out);
        let place = end..end + (out.len() - before) as u64;
        if may_join {
            tail.set(command, number, place.clone());
        } else {
            // A publish that joined would share the refusal of a message that is sent alone.
            tail.close();
        }
        let kept = number.map(|number| Box::new(Kept::new(command, number)));
        pending.push(place, waiter, kept);
    }

    /// Sends a NOP, and returns when the socket has taken it.
    pub(crate) async fn ping(&self) -> Result<(), Arc<ConnectionError>> {
        let sent = match self.outbox.append(wire::encode::nop) {
            Ok(position) => self.outbox.sent(position).await,
            Err(lost) => Err(lost),
        };
        match sent {
            Ok(()) => Ok(()),
            Err(_) => Err(self.ended().await),
        }
    }

    /// States that the connection is over, for `reason`. Ends the publishes that wait, except numbered ones that may
    /// stay in the session.
    pub(crate) fn lose(&self, reason: &Arc<ConnectionError>) {
        self.session.lose(&self.outbox, self.is_numbered(), reason);
    }

    /// Waits until the connection is over, and returns the reason.
    pub(crate) async fn ended(&self) -> Arc<ConnectionError> {
        let mut over = self.over.clone();
        let ended = over.wait_for(Option::is_some).await;
        // The task was dropped with its runtime, or the application closed the connection.
        let reason = ended.ok().and_then(|reason| reason.clone());
        reason.unwrap_or_else(|| Arc::new(ConnectionError::Stopped))
    }
}

#[cfg(test)]
mod tests;
