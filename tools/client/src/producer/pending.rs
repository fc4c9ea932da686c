//! [`Pending`]: the publishes of one connection that nsqd has not answered, in the order in which they were sent.
//!
//! nsqd answers publishes in order. So each answer belongs to the oldest publish here, whatever happened to the future
//! that waits for this answer.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::error::{ConnectionError, ErrorFrame};
use crate::outbox::Position;

/// The result of one publish.
#[derive(Debug)]
pub(crate) enum Answer {
    /// nsqd has the messages.
    Stored,
    /// nsqd refused the command. `is_alone` is false when the command had messages of other publishes too.
    Refused { error: ErrorFrame, is_alone: bool },
    /// The connection was lost before the command left.
    NotSent(Arc<ConnectionError>),
    /// The connection was lost, and nsqd may have received the command.
    Lost(Arc<ConnectionError>),
}

/// One publish that waits for its answer. A waiter that nobody listens to is answered like the others.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) answer: oneshot::Sender<(Answer, OwnedSemaphorePermit)>,
    /// The permit of the publish. It is in use until nsqd answers, even if the caller has gone away.
    pub(crate) permit: OwnedSemaphorePermit,
}

impl Waiter {
    fn finish(self, answer: Answer) {
        // A caller that has gone away needs no answer. Its permit comes back with the message.
        let _ = self.answer.send((answer, self.permit));
    }
}

/// One command that waits for its answer.
#[derive(Debug)]
struct Entry {
    /// The command's place in the output of the connection, in bytes.
    place: Range<u64>,
    first: Waiter,
    /// The publishes whose messages joined this command.
    others: Vec<Waiter>,
}

/// The commands without an answer, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    entries: VecDeque<Entry>,
    /// The number of commands so far, and of these the answered ones.
    queued: u64,
    answered: u64,
    /// The flushes that wait until as many commands are answered.
    flushes: Vec<(u64, oneshot::Sender<usize>)>,
    /// The number of publishes that were lost with the connection after they may have reached nsqd.
    unknown: usize,
    /// The reason why the connection is over.
    lost: Option<Arc<ConnectionError>>,
}

impl Pending {
    /// Returns true when no command waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the reason why the connection is over.
    pub(crate) fn lost(&self) -> Option<Arc<ConnectionError>> {
        self.lost.clone()
    }

    /// Adds a command that occupies `place` of the output.
    pub(crate) fn push(&mut self, place: Range<u64>, waiter: Waiter) {
        self.queued += 1;
        self.entries.push_back(Entry {
            place,
            first: waiter,
            others: Vec::new(),
        });
    }

    /// Lets a publish join the newest command, which now ends at `end`.
    pub(crate) fn join(&mut self, end: u64, waiter: Waiter) {
        let newest = self.entries.back_mut();
        let newest = newest.expect("a command that is still in the outbox waits for an answer");
        newest.place.end = end;
        newest.others.push(waiter);
    }

    /// Gives the oldest command its answer. Returns false when no command waits.
    pub(crate) fn answer(&mut self, refusal: Option<&ErrorFrame>) -> bool {
        let Some(entry) = self.entries.pop_front() else {
            return false;
        };
        self.answered += 1;
        let is_alone = entry.others.is_empty();
        for waiter in std::iter::once(entry.first).chain(entry.others) {
            waiter.finish(match refusal {
                None => Answer::Stored,
                Some(error) => Answer::Refused {
                    error: error.clone(),
                    is_alone,
                },
            });
        }
        self.end_flushes();
        true
    }

    /// Returns the number of publishes whose commands may have reached nsqd and that were lost with the connection.
    pub(crate) fn unknown(&self) -> usize {
        self.unknown
    }

    /// States that the connection is over. Only the commands that end at or before `taken` may have reached nsqd.
    pub(crate) fn lose(&mut self, error: &Arc<ConnectionError>, taken: Position) {
        self.lost.get_or_insert_with(|| Arc::clone(error));
        for entry in std::mem::take(&mut self.entries) {
            let has_left = Position(entry.place.end) <= taken;
            self.answered += 1;
            if has_left {
                self.unknown += 1 + entry.others.len();
            }
            for waiter in std::iter::once(entry.first).chain(entry.others) {
                let error = Arc::clone(error);
                waiter.finish(match has_left {
                    true => Answer::Lost(error),
                    false => Answer::NotSent(error),
                });
            }
            self.end_flushes();
        }
    }

    /// Begins to wait until all commands so far are answered or lost. `None` means that none waits. Returns the number of
    /// commands so far. The receiver gets the number of publishes that were lost and may have reached nsqd.
    pub(crate) fn flush(&mut self) -> Option<(u64, oneshot::Receiver<usize>)> {
        if self.entries.is_empty() {
            return None;
        }
        let (done, flushed) = oneshot::channel();
        self.flushes.push((self.queued, done));
        Some((self.queued, flushed))
    }

    /// Returns the number of publishes without an answer among the first `queued` commands.
    pub(crate) fn unanswered(&self, queued: u64) -> usize {
        let commands = usize::try_from(queued.saturating_sub(self.answered)).unwrap_or(usize::MAX);
        let waiting = self.entries.iter().take(commands);
        waiting.map(|entry| 1 + entry.others.len()).sum()
    }

    fn end_flushes(&mut self) {
        if self.flushes.is_empty() {
            return;
        }
        let answered = self.answered;
        let (over, waiting) = std::mem::take(&mut self.flushes)
            .into_iter()
            .partition(|(queued, _)| *queued <= answered);
        self.flushes = waiting;
        for (_, done) in over {
            // A caller that has gone away waits no more.
            let _ = done.send(self.unknown);
        }
    }
}

#[cfg(test)]
mod tests;
