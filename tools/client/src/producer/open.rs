//! [`Open`]: one open connection of a producer.

use std::sync::{Arc, OnceLock};

use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};

use super::builder::Batching;
use super::command::Command;
use super::entry::{Answer, Waiter};
use super::kept::Kept;
use super::session::{Replies, Session};
use super::unconfirmed::Returning;
use crate::error::ConnectionError;
use crate::outbox::Outbox;

/// The numbers of the commands of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// The commands have no numbers: nobody numbers the messages, or nsqd takes none.
    None,
    /// The numbers are the next ones of the node.
    Counted,
    /// The numbers are those of the application.
    Given,
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct Open {
    session: Arc<Session>,
    outbox: Outbox,
    numbers: Numbers,
    /// The reason why the connection is over.
    reason: OnceLock<Arc<ConnectionError>>,
    /// Ends when the connection is over.
    over: watch::Receiver<()>,
}

/// The answer to a publish, when it comes.
pub(crate) type Answering = oneshot::Receiver<(Answer, OwnedSemaphorePermit)>;

impl Open {
    /// Makes the connection of `session` whose output is `outbox`. The publishes of the session that stayed are written first.
    /// `over` ends when the connection is over.
    pub(crate) fn new(
        session: Arc<Session>,
        outbox: Outbox,
        numbers: Numbers,
        over: watch::Receiver<()>,
    ) -> Open {
        session.connect(&outbox, numbers != Numbers::None);
        Open {
            session,
            outbox,
            numbers,
            reason: OnceLock::new(),
            over,
        }
    }

    /// Returns the publishes of the connection.
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Returns true when the commands have numbers.
    pub(crate) fn is_numbered(&self) -> bool {
        self.numbers != Numbers::None
    }

    /// Queues `command`, and settles `returning`, the earlier try. The answer comes through the receiver, together with the
    /// permit. Fails when the connection is over, and returns the permit.
    pub(crate) fn publish(
        &self,
        command: &Command<'_>,
        batching: Option<Batching>,
        permit: OwnedSemaphorePermit,
        returning: &mut Option<Returning>,
    ) -> Result<Answering, OwnedSemaphorePermit> {
        let (answer, answering) = oneshot::channel();
        let mut waiter = Some(Waiter {
            answer,
            permit,
            is_resent: command.is_resent,
        });
        let queued = self.outbox.rewrite(|out, end| {
            let waiter = waiter.take().expect("the outbox calls once");
            self.write(command, batching, waiter, out, end.0);
            // A flush already finds the new command, and nsqd cannot have it yet.
            if let Some(returning) = returning.take() {
                returning.settle();
            }
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
        batching: Option<Batching>,
        waiter: Waiter,
        out: &mut Vec<u8>,
        end: u64,
    ) {
        let mut replies = self.session.replies.lock();
        let Replies { pending, tail, .. } = &mut *replies;
        let mut counters = match self.numbers {
            Numbers::Counted => Some(self.session.counters.lock()),
            Numbers::None | Numbers::Given => None,
        };
        let number = match (self.numbers, &counters) {
            (Numbers::None, _) => None,
            (_, Some(counters)) => Some(counters.next(command.topic)),
            (_, None) => command.number,
        };
        if let Some(counters) = &mut counters {
            counters.advance(command.topic, command.count() as u64);
        }
        if let Some(batching) = batching
            && tail.join(command, number, batching, out, end)
        {
            pending.join(tail.end(), waiter, command);
            return;
        }
        let before = out.len();
        command.encode(number, out);
        let place = end..end + (out.len() - before) as u64;
        match batching {
            Some(_) => tail.set(command, number, place.clone()),
            // A publish that joined would share the refusal of a message that is sent alone.
            None => tail.close(),
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
            Err(_) => {
                self.ended().await;
                Err(self.reason())
            }
        }
    }

    /// Ends the connection after its output.
    pub(crate) fn close(&self) {
        self.outbox.close();
    }

    /// States that the connection is over, for `reason`. Publishes that wait are ended, or stay in the session.
    pub(crate) fn lose(&self, reason: &Arc<ConnectionError>) {
        // The first reason counts.
        let _ = self.reason.set(Arc::clone(reason));
        self.session.lose(&self.outbox, self.is_numbered(), reason);
    }

    /// Returns the reason why the connection is over.
    pub(crate) fn reason(&self) -> Arc<ConnectionError> {
        let reason = self.reason.get();
        reason.map_or_else(|| Arc::new(ConnectionError::Stopped), Arc::clone)
    }

    /// Returns when the connection is over.
    pub(crate) async fn ended(&self) {
        let mut over = self.over.clone();
        // The sender sends nothing: it is dropped when the connection is over.
        let _ = over.changed().await;
    }
}

#[cfg(test)]
mod tests;
