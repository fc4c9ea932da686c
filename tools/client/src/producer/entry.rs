//! [`Entry`]: one command that nsqd has not answered, with the publishes that wait for the answer.

use std::ops::Range;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::kept::{Kept, Loss};
use super::unconfirmed::Returning;
use crate::error::{ConnectionError, ErrorFrame};

/// The result of one publish.
#[derive(Debug)]
pub(crate) enum Answer {
    /// nsqd has the messages.
    Stored,
    /// nsqd refused the command.
    Refused(ErrorFrame),
    /// nsqd exits or is drained, or read only a part of the command.
    Declined(ErrorFrame, Returning),
    /// nsqd refused the command, which had messages of other publishes too. nsqd may take this publish alone.
    Alone(Returning),
    /// nsqd refused the command when it came again. It may have stored the messages when they came first.
    ResendRefused(ErrorFrame, Returning),
    /// The connection was lost before the command left.
    NotSent(Arc<ConnectionError>, Returning),
    /// nsqd refused a command before this one, and carried out nothing behind it.
    Skipped(Returning),
    /// The connection was lost, and nsqd may have received the command.
    Lost(Arc<ConnectionError>, Returning),
}

/// One publish that waits for its answer. A waiter that nobody listens to is answered like the others.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) answer: oneshot::Sender<(Answer, OwnedSemaphorePermit)>,
    /// The permit of the publish. It is in use until nsqd answers, even if the caller has gone away.
    pub(crate) permit: OwnedSemaphorePermit,
    /// True when the publish waits until its numbered command was sent again.
    pub(crate) is_resent: bool,
}

impl Waiter {
    /// Returns false if the caller has gone away. It needs no answer, and its permit comes back with the message.
    fn finish(self, answer: Answer) -> bool {
        self.answer.send((answer, self.permit)).is_ok()
    }
}

/// One command that waits for its answer.
#[derive(Debug)]
pub(super) struct Entry {
    /// The place of the command among all commands of this list, counted from 0.
    pub(super) serial: u64,
    /// The command's place in the output of the connection, in bytes.
    pub(super) place: Range<u64>,
    pub(super) first: Waiter,
    /// The publishes whose messages joined this command.
    pub(super) others: Vec<Waiter>,
    /// The command, if it is numbered.
    pub(super) kept: Option<Box<Kept>>,
}

impl Entry {
    /// Returns the number of publishes.
    pub(super) fn publishes(&self) -> usize {
        1 + self.others.len()
    }

    /// Returns the loss of the connection that may have sent the command first.
    pub(super) fn first_loss(&self) -> Option<&Loss> {
        self.kept.as_ref()?.lost.as_ref()
    }

    /// Gives each publish of the command its answer. Returns the number of callers that are still there.
    pub(super) fn finish(self, answer: impl Fn() -> Answer) -> usize {
        let waiters = std::iter::once(self.first).chain(self.others);
        waiters
            .map(|waiter| usize::from(waiter.finish(answer())))
            .sum()
    }

    /// Returns true if the command has the message of each of its publishes, and of no other.
    pub(super) fn can_split(&self) -> bool {
        let messages = self.kept.as_ref().map(|kept| kept.count());
        self.publishes() > 1 && messages == Some(self.publishes())
    }

    /// Returns a command for each publish of a command that [can be split](Entry::can_split).
    pub(super) fn split(self) -> impl DoubleEndedIterator<Item = Entry> {
        let kept = self.kept.expect("only numbered commands are split");
        let waiters = std::iter::once(self.first).chain(self.others);
        let single = kept.split().zip(waiters).map(|(kept, first)| Entry {
            serial: self.serial,
            // The command is written to the next connection.
            place: self.place.clone(),
            first,
            others: Vec::new(),
            kept: Some(Box::new(kept)),
        });
        single.collect::<Vec<Entry>>().into_iter()
    }

    /// Answers the publishes whose command is not sent again. Returns the number of their callers that are still there,
    /// and the entry if other publishes are left.
    pub(super) fn finish_unless_resent(
        self,
        answer: impl Fn() -> Answer,
    ) -> (usize, Option<Entry>) {
        let waiters = std::iter::once(self.first).chain(self.others);
        let (resent, others): (Vec<Waiter>, Vec<Waiter>) =
            waiters.partition(|waiter| waiter.is_resent);
        let told = others.into_iter();
        let count = told
            .map(|waiter| usize::from(waiter.finish(answer())))
            .sum();
        let mut resent = resent.into_iter();
        let entry = resent.next().map(|first| Entry {
            serial: self.serial,
            place: self.place,
            first,
            others: resent.collect(),
            kept: self.kept,
        });
        (count, entry)
    }
}
