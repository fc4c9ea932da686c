//! [`Session`]: the publishes of the task that serves a node, over one connection or several that follow each other.
//!
//! ```text
//!   Node ─► Session: Replies ─► Open (the connection of the moment) ─► Outbox ─► nsqd
//!                  │ lost
//!                  └──► kept, if nsqd takes numbers ─► the next Open, in front of all newer publishes
//! ```
//!
//! Without numbers, a session has one connection. With numbers, publishes whose outcome is unknown survive the loss of
//! the connection for a while.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::command::Tail;
use super::error::is_declined;
use super::numbering::Counters;
use super::pending::{Flushing, Pending};
use super::unconfirmed::Account;
use crate::error::{ConnectionError, ErrorFrame};
use crate::outbox::Outbox;

/// The resend limit in place of one whose end no clock can show: 30 years.
const RESEND_LIMIT_MAX: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// The publishes of a node's task.
#[derive(Debug)]
pub(crate) struct Session {
    pub(super) replies: Mutex<Replies>,
    /// The next numbers of the node. They outlive the session. They are locked inside the lock of `replies`.
    pub(super) counters: Arc<Mutex<Counters>>,
    /// The time for which a publish with an unknown outcome waits for a new connection.
    resend_limit: Duration,
    /// Ends when the task is over.
    over: watch::Receiver<()>,
    /// Notified when the session is to end.
    retired: Notify,
}

/// The state of the publishes. It is locked inside the outbox's lock, so that commands and waiters have the same order.
#[derive(Debug)]
pub(crate) struct Replies {
    pub(crate) pending: Pending,
    pub(crate) tail: Tail,
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

/// The wait for the end of a session that has begun.
#[derive(Debug)]
pub(crate) struct Finishing {
    /// [`Pending::unconfirmed`] at the beginning.
    unconfirmed: usize,
}

impl Session {
    /// Makes a session without a connection. `account` is that of the node. `over` ends when the task is over.
    pub(crate) fn new(
        account: Account,
        counters: Arc<Mutex<Counters>>,
        resend_limit: Duration,
        over: watch::Receiver<()>,
    ) -> Session {
        Session {
            replies: Mutex::new(Replies {
                pending: Pending::new(account),
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

    /// States that `outbox` is the output of the new connection. The publishes that stayed are written to it first, if
    /// the connection takes numbers, and are abandoned otherwise.
    pub(crate) fn connect(&self, outbox: &Outbox, takes_numbers: bool) {
        let written = outbox.append(|out| {
            let mut replies = self.replies.lock();
            replies.tail = Tail::default();
            replies.outbox = Some(outbox.clone());
            replies.lost = None;
            replies.pending.connect();
            if takes_numbers {
                replies.pending.resend(out)
            } else {
                replies.pending.give_up_all()
            }
        });
        written.expect("the connection has not run yet");
    }

    /// Gives the oldest command its answer. Returns false when no command waits.
    pub(crate) fn answer(&self, refusal: Option<&ErrorFrame>) -> bool {
        let mut replies = self.replies.lock();
        let was_pending = replies.pending.answer(refusal);
        // An answered command may still be in the outbox: nsqd ends the connection, or has answered too early. No
        // message may join this command.
        if refusal.is_some() || replies.pending.is_empty() {
            replies.tail.close();
        }
        let is_answer = !refusal.is_some_and(is_declined);
        replies.answered += u64::from(was_pending && is_answer);
        let is_over = replies.is_retiring && replies.pending.is_empty();
        let outbox = replies.outbox.clone().filter(|_| is_over);
        drop(replies);
        if let Some(outbox) = outbox {
            outbox.close();
        }
        was_pending
    }

    /// States that the connection with this output is over, for `reason`. With `keeps_numbered`, numbered publishes
    /// whose outcome is unknown stay.
    pub(crate) fn lose(
        &self,
        outbox: &Outbox,
        keeps_numbered: bool,
        reason: &Arc<ConnectionError>,
    ) {
        let (taken, now) = (outbox.taken(), Instant::now());
        let mut replies = self.replies.lock();
        let replies = &mut *replies;
        let keep = keeps_numbered && !replies.has_ended && !self.resend_limit.is_zero();
        let keep = keep.then(|| {
            let deadline = now.checked_add(self.resend_limit);
            deadline.unwrap_or(now + RESEND_LIMIT_MAX)
        });
        replies.outbox = None;
        let reason = replies.lost.get_or_insert_with(|| Arc::clone(reason));
        let mut counters = self.counters.lock();
        replies
            .pending
            .lose(reason, taken, keep, now, |topic, numbers| {
                counters.give_back(topic, numbers);
            });
    }

    /// Ends the publishes that wait, for `reason`. From now on none survives its connection.
    pub(crate) fn end(&self, reason: &Arc<ConnectionError>) {
        let mut replies = self.replies.lock();
        replies.has_ended = true;
        let outbox = replies.outbox.clone();
        drop(replies);
        if let Some(outbox) = outbox {
            // Now nothing more is queued or leaves.
            outbox.abort();
            self.lose(&outbox, false, reason);
        } else {
            self.replies.lock().pending.give_up_all();
        }
    }

    /// Ends the session at once: nsqd did not answer for `limit`.
    pub(crate) fn give_up(&self, limit: Duration) {
        self.end(&Arc::new(ConnectionError::AnswerTimeout(limit)));
    }

    /// Ends the session when nothing is pending.
    pub(crate) fn retire(&self) {
        let mut replies = self.replies.lock();
        replies.is_retiring = true;
        let outbox = replies
            .outbox
            .clone()
            .filter(|_| replies.pending.is_empty());
        drop(replies);
        self.retired.notify_one();
        if let Some(outbox) = outbox {
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
        self.replies.lock().pending.has_refused()
    }

    /// Returns true if publishes wait that nsqd has skipped, because it has refused a command before them.
    pub(crate) fn is_skipping(&self) -> bool {
        let replies = self.replies.lock();
        replies.pending.has_refused() && !replies.pending.is_empty()
    }

    /// Returns true when publishes wait for an answer.
    pub(crate) fn is_busy(&self) -> bool {
        !self.replies.lock().pending.is_empty()
    }

    /// Returns the number of commands that nsqd has stored or refused. The refusals of an nsqd that exits or is
    /// drained, or that read a command only in part, do not count.
    pub(crate) fn answered(&self) -> u64 {
        self.replies.lock().answered
    }

    /// Gives up publishes whose time for a new connection is over, as long as the future is polled. Returns when none
    /// is left.
    pub(crate) async fn expire(&self) {
        loop {
            let deadline = self.replies.lock().pending.deadline();
            let Some(deadline) = deadline else { return };
            sleep_until(deadline).await;
            self.replies.lock().pending.expire(Instant::now());
        }
    }

    /// Begins to wait until all publishes that were queued so far are answered. `None` means that none waits.
    pub(crate) fn begin_flush(&self) -> Option<Flushing> {
        let mut replies = self.replies.lock();
        let flushing = replies.pending.flush()?;
        // A later publish does not join a command that the flush waits for.
        replies.tail.close();
        Some(flushing)
    }

    /// Waits for the end of a flush, for `limit` at most. Returns the number of publishes that are not confirmed, and the
    /// reason.
    pub(crate) async fn flush(
        &self,
        mut flushing: Flushing,
        limit: Duration,
    ) -> Option<(usize, Arc<ConnectionError>)> {
        let mut ended = timeout(limit, &mut flushing.flushed).await.ok();
        if ended.is_none() {
            let given_up = self.replies.lock().pending.give_up_flush(&flushing);
            if let Some(unconfirmed) = given_up {
                let reason = || Arc::new(ConnectionError::AnswerTimeout(limit));
                return (unconfirmed > 0).then(|| (unconfirmed, reason()));
            }
            // It has ended in this moment.
            ended = Some(flushing.flushed.await);
        }
        match ended {
            Some(Ok(0)) => None,
            Some(Ok(unconfirmed)) => Some((unconfirmed, self.unconfirmed_reason())),
            _ => unreachable!("a flush of a session that lives has an end"),
        }
    }

    /// Begins to wait for the end of the session, which was retired. `None` means that nothing is left to wait for.
    pub(crate) fn begin_finish(&self) -> Option<Finishing> {
        let replies = self.replies.lock();
        if replies.outbox.is_none() && replies.pending.is_empty() {
            return None;
        }
        Some(Finishing {
            unconfirmed: replies.pending.unconfirmed(),
        })
    }

    /// Waits for the end of the session, for `limit` at most, and abandons the session after that. Returns the number
    /// of publishes that left the session meanwhile and are not confirmed, and the reason.
    pub(crate) async fn finish(
        &self,
        finishing: Finishing,
        limit: Duration,
    ) -> Option<(usize, Arc<ConnectionError>)> {
        if timeout(limit, self.ended()).await.is_err() {
            self.give_up(limit);
        }
        let unconfirmed = self.replies.lock().pending.unconfirmed() - finishing.unconfirmed;
        (unconfirmed > 0).then(|| (unconfirmed, self.unconfirmed_reason()))
    }

    /// Returns the reason why the last one of the unconfirmed publishes is not confirmed.
    fn unconfirmed_reason(&self) -> Arc<ConnectionError> {
        let reason = self.replies.lock().pending.reason();
        reason.unwrap_or_else(|| Arc::new(ConnectionError::Stopped))
    }

    /// Returns when the task is over.
    pub(crate) async fn ended(&self) {
        let mut over = self.over.clone();
        // The sender sends nothing: it is dropped when the task is over.
        let _ = over.changed().await;
    }

    /// Returns the reason why the last connection is over.
    pub(crate) fn reason(&self) -> Arc<ConnectionError> {
        let lost = self.replies.lock().lost.clone();
        lost.unwrap_or_else(|| Arc::new(ConnectionError::Stopped))
    }
}
