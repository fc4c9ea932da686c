//! [`Session`]: the publishes of the task that serves a node, over one connection or several that follow each other.
//!
//! ```text
//!   Node ─► Session: Replies ─► Open (the connection of the moment) ─► Outbox ─► nsqd
//!                  │ lost
//!                  └──► kept, if nsqd takes numbers ─► the next Open, in front of all newer publishes
//! ```
//!
//! Without numbers, a session has one connection. With numbers, publishes whose outcome is unknown survive the loss of the
//! connection for a while.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::command::Tail;
use super::error::is_leaving;
use super::numbering::Counters;
use super::pending::Pending;
use crate::error::{ConnectionError, ErrorFrame};
use crate::outbox::Outbox;

/// The resend limit in place of one whose end no clock can show: 30 years.
const RESEND_LIMIT_MAX: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// The publishes of a node's task.
#[derive(Debug)]
pub(crate) struct Session {
    replies: Mutex<Replies>,
    /// The next numbers of the node. They outlive the session. They are locked inside the lock of `replies`.
    counters: Arc<Mutex<Counters>>,
    /// The time for which a publish with an unknown outcome waits for a new connection.
    resend_limit: Duration,
    /// Ends when the task is over.
    over: watch::Receiver<()>,
    /// Notified when the session is to end.
    retired: Notify,
}

/// The state of the publishes. It is locked inside the outbox's lock, so that commands and waiters have the same order.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    pub(crate) pending: Pending,
    pub(crate) tail: Tail,
    /// The output of the connection of the moment.
    outbox: Option<Outbox>,
    /// The number of commands that nsqd has answered. An nsqd that exits or is drained answers no command in this sense.
    answered: u64,
    /// The reason why the last connection is over.
    lost: Option<Arc<ConnectionError>>,
    /// True when the session ends as soon as nothing is pending.
    is_retiring: bool,
    /// True when publishes do not survive the connection any more.
    has_ended: bool,
}

impl Session {
    /// Makes a session without a connection. `over` ends when the task is over.
    pub(crate) fn new(
        counters: Arc<Mutex<Counters>>,
        resend_limit: Duration,
        over: watch::Receiver<()>,
    ) -> Session {
        Session {
            replies: Mutex::default(),
            counters,
            resend_limit,
            over,
            retired: Notify::new(),
        }
    }

    pub(crate) fn replies(&self) -> MutexGuard<'_, Replies> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn counters(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// States that `outbox` is the output of the new connection. The publishes that stayed are written to it first, if
    /// the connection takes numbers, and are given up otherwise.
    pub(crate) fn connect(&self, outbox: &Outbox, takes_numbers: bool) {
        let written = outbox.append(|out| {
            let mut replies = self.replies();
            replies.tail = Tail::default();
            replies.outbox = Some(outbox.clone());
            replies.lost = None;
            match takes_numbers {
                true => replies.pending.resend(out),
                false => replies.pending.give_up_all(),
            }
        });
        written.expect("the connection has not run yet");
    }

    /// Gives the oldest command its answer. Returns false when no command waits.
    pub(crate) fn answer(&self, refusal: Option<&ErrorFrame>) -> bool {
        let mut replies = self.replies();
        let was_pending = replies.pending.answer(refusal);
        replies.answered += u64::from(was_pending && !refusal.is_some_and(is_leaving));
        let is_over = replies.is_retiring && replies.pending.is_empty();
        let outbox = replies.outbox.clone().filter(|_| is_over);
        drop(replies);
        if let Some(outbox) = outbox {
            outbox.close();
        }
        was_pending
    }

    /// States that the connection with this output is over, for `reason`. With `keeps_numbered`, numbered publishes whose
    /// outcome is unknown stay.
    pub(crate) fn lose(
        &self,
        outbox: &Outbox,
        keeps_numbered: bool,
        reason: &Arc<ConnectionError>,
    ) {
        let (taken, now) = (outbox.taken(), Instant::now());
        let mut replies = self.replies();
        let replies = &mut *replies;
        let keep = keeps_numbered && !replies.has_ended && !self.resend_limit.is_zero();
        let keep = keep.then(|| {
            let deadline = now.checked_add(self.resend_limit);
            deadline.unwrap_or(now + RESEND_LIMIT_MAX)
        });
        replies.outbox = None;
        let reason = replies.lost.get_or_insert_with(|| Arc::clone(reason));
        let mut counters = self.counters();
        replies
            .pending
            .lose(reason, taken, keep, now, |topic, numbers| {
                counters.give_back(topic, numbers);
            });
    }

    /// Ends the publishes that wait, for `reason`. From now on none survives its connection.
    pub(crate) fn end(&self, reason: &Arc<ConnectionError>) {
        let mut replies = self.replies();
        replies.has_ended = true;
        let outbox = replies.outbox.clone();
        drop(replies);
        if let Some(outbox) = outbox {
            // Now nothing more is queued or leaves.
            outbox.abort();
            self.lose(&outbox, false, reason);
        } else {
            self.replies().pending.give_up_all();
        }
    }

    /// Ends the session at once: nsqd did not answer for `limit`.
    pub(crate) fn give_up(&self, limit: Duration) {
        self.end(&Arc::new(ConnectionError::AnswerTimeout(limit)));
    }

    /// Ends the session when nothing is pending.
    pub(crate) fn retire(&self) {
        let mut replies = self.replies();
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

    /// Returns true when publishes wait for an answer.
    pub(crate) fn is_busy(&self) -> bool {
        !self.replies().pending.is_empty()
    }

    /// Returns the number of commands that nsqd has stored or refused. The refusals of an nsqd that exits or is drained do
    /// not count.
    pub(crate) fn answered(&self) -> u64 {
        self.replies().answered
    }

    /// Gives up publishes whose time for a new connection is over, as long as the future is polled. Returns when none is
    /// left.
    pub(crate) async fn expire(&self) {
        loop {
            let deadline = self.replies().pending.deadline();
            let Some(deadline) = deadline else { return };
            sleep_until(deadline).await;
            self.replies().pending.expire(Instant::now());
        }
    }

    /// Waits until all publishes that were queued so far have been answered, for `limit` at most. Returns the number of
    /// those that were not answered and may have reached nsqd, and the reason.
    pub(crate) async fn flush(&self, limit: Duration) -> Option<(usize, Arc<ConnectionError>)> {
        let flushing = self.replies().pending.flush();
        let (queued, flushed) = flushing?;
        match timeout(limit, flushed).await {
            Ok(Ok(0)) => None,
            Ok(Ok(unknown)) => Some((unknown, self.reason())),
            Ok(Err(_)) => unreachable!("a flush of a session that lives has an end"),
            Err(_) => {
                let unknown = self.replies().pending.unanswered(queued);
                let reason = || Arc::new(ConnectionError::AnswerTimeout(limit));
                (unknown > 0).then(|| (unknown, reason()))
            }
        }
    }

    /// Waits for the end of the session, which was retired, for `limit` at most, and gives the session up after that. Returns the
    /// number of publishes that were lost meanwhile and may have reached nsqd, and the reason.
    pub(crate) async fn finish(&self, limit: Duration) -> Option<(usize, Arc<ConnectionError>)> {
        let before = {
            let replies = self.replies();
            if replies.outbox.is_none() && replies.pending.is_empty() {
                return None;
            }
            replies.pending.unknown()
        };
        if timeout(limit, self.ended()).await.is_err() {
            self.give_up(limit);
        }
        let unknown = self.replies().pending.unknown() - before;
        (unknown > 0).then(|| (unknown, self.reason()))
    }

    /// Returns when the task is over.
    pub(crate) async fn ended(&self) {
        let mut over = self.over.clone();
        // The sender sends nothing: it is dropped when the task is over.
        let _ = over.changed().await;
    }

    /// Returns the reason why the last connection is over.
    pub(crate) fn reason(&self) -> Arc<ConnectionError> {
        let lost = self.replies().lost.clone();
        lost.unwrap_or_else(|| Arc::new(ConnectionError::Stopped))
    }
}
