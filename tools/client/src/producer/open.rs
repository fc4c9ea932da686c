//! [`Open`]: one open connection of a producer, with its publishes that wait for answers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot, watch};
use tokio::time::{sleep, timeout};

use super::builder::Batching;
use super::command::{Command, Tail};
use super::pending::{Answer, Pending, Waiter};
use crate::error::{ConnectionError, ErrorFrame};
use crate::outbox::Outbox;

/// An open connection.
#[derive(Debug)]
pub(crate) struct Open {
    outbox: Outbox,
    replies: Mutex<Replies>,
    /// Ends when the connection is over.
    over: watch::Receiver<()>,
    /// Notified when the connection is to end.
    retired: Notify,
}

/// The state of a connection's publishes. It is locked inside the outbox's lock, so that commands and waiters have the
/// same order.
#[derive(Debug, Default)]
struct Replies {
    pending: Pending,
    tail: Tail,
    /// True when the connection is closed as soon as nothing is pending.
    is_retiring: bool,
}

/// The answer to a publish, when it comes.
pub(crate) type Answering = oneshot::Receiver<(Answer, OwnedSemaphorePermit)>;

impl Open {
    /// Makes the connection whose output is `outbox`. `over` ends when the connection is over.
    pub(crate) fn new(outbox: Outbox, over: watch::Receiver<()>) -> Open {
        Open {
            outbox,
            replies: Mutex::default(),
            over,
            retired: Notify::new(),
        }
    }

    fn replies(&self) -> MutexGuard<'_, Replies> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues `command`. The answer comes through the receiver, together with the permit. Fails when the connection is
    /// over, and returns the permit.
    pub(crate) fn publish(
        &self,
        command: &Command<'_>,
        batching: Option<Batching>,
        permit: OwnedSemaphorePermit,
    ) -> Result<Answering, OwnedSemaphorePermit> {
        let (answer, answering) = oneshot::channel();
        let mut waiter = Some(Waiter { answer, permit });
        let queued = self.outbox.rewrite(|out, end| {
            let waiter = waiter.take().expect("the outbox calls once");
            let mut replies = self.replies();
            let Replies { pending, tail, .. } = &mut *replies;
            if let Some(batching) = batching
                && tail.join(command, batching, out, end.0)
            {
                pending.join(tail.end(), waiter);
                return;
            }
            let before = out.len();
            command.encode(out);
            let place = end.0..end.0 + (out.len() - before) as u64;
            tail.set(command, place.clone());
            pending.push(place, waiter);
        });
        match (queued, waiter) {
            (Ok(_), _) => Ok(answering),
            (Err(_), Some(waiter)) => Err(waiter.permit),
            (Err(_), None) => unreachable!("a refused command is not written"),
        }
    }

    /// Sends a NOP, and returns when the socket has taken it.
    pub(crate) async fn ping(&self) -> Result<(), Arc<ConnectionError>> {
        let sent = match self.outbox.append(wire::encode::nop) {
            Ok(position) => self.outbox.sent(position).await,
            Err(lost) => Err(lost),
        };
        match sent {
            Ok(()) => Ok(()),
            Err(_) => {
                self.ended().await;
                Err(self.reason())
            }
        }
    }

    /// Ends the connection when nothing is pending.
    pub(crate) fn retire(&self) {
        let mut replies = self.replies();
        replies.is_retiring = true;
        let is_idle = replies.pending.is_empty();
        drop(replies);
        self.retired.notify_one();
        if is_idle {
            self.outbox.close();
        }
    }

    /// Gives the oldest command its answer. Returns false when no command waits.
    pub(crate) fn answer(&self, refusal: Option<&ErrorFrame>) -> bool {
        let mut replies = self.replies();
        let was_pending = replies.pending.answer(refusal);
        let is_over = replies.is_retiring && replies.pending.is_empty();
        drop(replies);
        if is_over {
            self.outbox.close();
        }
        was_pending
    }

    /// Returns when the connection was to end and has not ended for `limit`.
    pub(crate) async fn overdue(&self, limit: Duration) {
        self.retired.notified().await;
        sleep(limit).await;
    }

    /// Ends the connection at once: nsqd did not answer for `limit`.
    pub(crate) fn give_up(&self, limit: Duration) {
        // Now nothing more is queued or leaves.
        self.outbox.abort();
        self.lose(&Arc::new(ConnectionError::AnswerTimeout(limit)));
    }

    /// Waits until all publishes that were queued so far have been answered, for `limit` at most. Returns the number of
    /// those that were not answered and may have reached nsqd, and the reason.
    pub(crate) async fn flush(&self, limit: Duration) -> Option<(usize, Arc<ConnectionError>)> {
        let flushing = self.replies().pending.flush();
        let (queued, flushed) = flushing?;
        match timeout(limit, flushed).await {
            Ok(Ok(0)) => None,
            Ok(Ok(unknown)) => Some((unknown, self.reason())),
            Ok(Err(_)) => unreachable!("a flush of a connection that lives has an end"),
            Err(_) => {
                let unknown = self.replies().pending.unanswered(queued);
                let reason = || Arc::new(ConnectionError::AnswerTimeout(limit));
                (unknown > 0).then(|| (unknown, reason()))
            }
        }
    }

    /// Waits for the end of the connection, for `limit` at most, and gives the connection up after that. Returns the number
    /// of publishes that were lost meanwhile and may have reached nsqd, and the reason.
    pub(crate) async fn finish(&self, limit: Duration) -> Option<(usize, Arc<ConnectionError>)> {
        let before = self.replies().pending.unknown();
        if timeout(limit, self.ended()).await.is_err() {
            self.give_up(limit);
        }
        let unknown = self.replies().pending.unknown() - before;
        (unknown > 0).then(|| (unknown, self.reason()))
    }

    /// Ends the connection after its output.
    pub(crate) fn close(&self) {
        self.outbox.close();
    }

    /// Ends the publishes that wait: the connection is over, for `reason`.
    pub(crate) fn lose(&self, reason: &Arc<ConnectionError>) {
        let taken = self.outbox.taken();
        self.replies().pending.lose(reason, taken);
    }

    /// Returns the reason why the connection is over.
    pub(crate) fn reason(&self) -> Arc<ConnectionError> {
        let lost = self.replies().pending.lost();
        lost.unwrap_or_else(|| Arc::new(ConnectionError::Stopped))
    }

    /// Returns when the connection is over.
    pub(crate) async fn ended(&self) {
        let mut over = self.over.clone();
        // The sender sends nothing: it is dropped when the connection is over.
        let _ = over.changed().await;
    }
}
