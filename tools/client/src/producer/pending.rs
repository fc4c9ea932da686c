//! [`Pending`]: the publishes to one node that nsqd has not answered, in the order in which they were sent.
//!
//! nsqd answers publishes in order. So each answer belongs to the oldest publish here, whatever happened to the future
//! that waits for this answer.
//!
//! A publish without a number ends with its connection. A numbered one may stay here, and is written again to the next
//! connection, before all newer publishes. The order matters: nsqd surely recognises a number only if no higher number
//! has come that lies far above it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use super::command::Command;
use super::error::{is_about_messages, is_leaving};
use super::kept::{Kept, Loss};
use crate::error::{ConnectionError, ErrorFrame};
use crate::outbox::Position;

/// The result of one publish.
#[derive(Debug)]
pub(crate) enum Answer {
    /// nsqd has the messages.
    Stored,
    /// nsqd refused the command. `is_alone` is false when the command had messages of other publishes too.
    Refused { error: ErrorFrame, is_alone: bool },
    /// nsqd refused the command when it came again. It may have stored the messages when they came first.
    ResendRefused(ErrorFrame),
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
    /// True when the publish waits until its numbered command was sent again.
    pub(crate) is_resent: bool,
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
    /// The place of the command among all commands of this list, counted from 0.
    serial: u64,
    /// The command's place in the output of the connection, in bytes.
    place: Range<u64>,
    first: Waiter,
    /// The publishes whose messages joined this command.
    others: Vec<Waiter>,
    /// The command, if it is numbered.
    kept: Option<Box<Kept>>,
}

impl Entry {
    fn publishes(&self) -> usize {
        1 + self.others.len()
    }

    /// Returns the loss of the connection that may have sent the command first.
    fn first_loss(&self) -> Option<&Loss> {
        self.kept.as_ref()?.lost.as_ref()
    }

    /// Gives each publish of the command its answer.
    fn finish(self, answer: impl Fn() -> Answer) {
        for waiter in std::iter::once(self.first).chain(self.others) {
            waiter.finish(answer());
        }
    }

    /// Returns true if the command has the message of each of its publishes, and of no other.
    fn can_split(&self) -> bool {
        let messages = self.kept.as_ref().map(|kept| kept.count());
        self.publishes() > 1 && messages == Some(self.publishes())
    }

    /// Returns a command for each publish of a command that [can be split](Entry::can_split).
    fn split(self) -> impl DoubleEndedIterator<Item = Entry> {
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

    /// Answers the publishes whose command is not sent again. Returns their number, and the entry if other publishes are
    /// left.
    fn finish_unless_resent(self, answer: impl Fn() -> Answer) -> (usize, Option<Entry>) {
        let waiters = std::iter::once(self.first).chain(self.others);
        let (resent, others): (Vec<Waiter>, Vec<Waiter>) =
            waiters.partition(|waiter| waiter.is_resent);
        let count = others.len();
        for waiter in others {
            waiter.finish(answer());
        }
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

/// The commands without an answer, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    entries: VecDeque<Entry>,
    /// The number of commands so far.
    queued: u64,
    /// The flushes that wait.
    flushes: Vec<Flush>,
    /// The number of publishes that were lost with the connection after they may have reached nsqd.
    unknown: usize,
}

/// A flush that waits for the commands before it.
#[derive(Debug)]
struct Flush {
    /// The number of commands before the flush.
    queued: u64,
    /// `unknown` at the beginning of the flush.
    unknown: usize,
    done: oneshot::Sender<usize>,
}

impl Pending {
    /// Returns true when no command waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a command that occupies `place` of the output. `kept` is the command if it is numbered.
    pub(crate) fn push(&mut self, place: Range<u64>, waiter: Waiter, kept: Option<Box<Kept>>) {
        self.entries.push_back(Entry {
            serial: self.queued,
            place,
            first: waiter,
            others: Vec::new(),
            kept,
        });
        self.queued += 1;
    }

    /// Lets a publish join the newest command, which now ends at `end`.
    pub(crate) fn join(&mut self, end: u64, waiter: Waiter, command: &Command<'_>) {
        let newest = self.entries.back_mut();
        let newest = newest.expect("a command that is still in the outbox waits for an answer");
        newest.place.end = end;
        newest.others.push(waiter);
        if let Some(kept) = &mut newest.kept {
            kept.join(command);
        }
    }

    /// Gives the oldest command its answer. Returns false when no command waits.
    pub(crate) fn answer(&mut self, refusal: Option<&ErrorFrame>) -> bool {
        let Some(front) = self.entries.front() else {
            return false;
        };
        let was_sent_before = front.first_loss().is_some();
        if let Some(error) = refusal
            && is_leaving(error)
            && front.kept.is_some()
        {
            self.refuse_new(error);
            return true;
        }
        if refusal.is_some_and(is_about_messages) && was_sent_before && front.can_split() {
            self.split_oldest();
            return true;
        }
        let entry = self.entries.pop_front().expect("there is a front");
        let is_alone = entry.others.is_empty();
        if was_sent_before && refusal.is_some() {
            self.unknown += entry.publishes();
        }
        entry.finish(|| match refusal {
            None => Answer::Stored,
            Some(error) if was_sent_before => Answer::ResendRefused(error.clone()),
            Some(error) => Answer::Refused {
                error: error.clone(),
                is_alone,
            },
        });
        self.end_flushes();
        true
    }

    /// Splits the oldest command, which came again and was refused: nsqd refuses a batch as a whole. Over the next
    /// connection, each message comes alone, with its own number. Then each publish gets its own answer, and only the message
    /// that nsqd does not like has an unknown outcome.
    fn split_oldest(&mut self) {
        let oldest = self.entries.pop_front().expect("there is an oldest one");
        for entry in oldest.split().rev() {
            self.entries.push_front(entry);
        }
    }

    /// Refuses all commands that came first over this connection: nsqd exits or is drained, and carries out nothing behind
    /// a command that it refused. The other commands wait for the next nsqd at this address.
    fn refuse_new(&mut self, error: &ErrorFrame) {
        let (staying, new): (VecDeque<Entry>, VecDeque<Entry>) = std::mem::take(&mut self.entries)
            .into_iter()
            .partition(|entry| entry.first_loss().is_some());
        self.entries = staying;
        for entry in new {
            let is_alone = entry.others.is_empty();
            entry.finish(|| Answer::Refused {
                error: error.clone(),
                is_alone,
            });
        }
        self.end_flushes();
    }

    /// Returns the number of publishes whose commands may have reached nsqd and that were lost with the connection.
    pub(crate) fn unknown(&self) -> usize {
        self.unknown
    }

    /// States that the connection is over. Only the commands that end at or before `taken` may have reached nsqd. With
    /// `keep`, the numbered ones among these stay until `keep`. `give_back` gets the topic and the numbers of each command
    /// that was never sent, the newest one first.
    pub(crate) fn lose(
        &mut self,
        error: &Arc<ConnectionError>,
        taken: Position,
        keep: Option<Instant>,
        now: Instant,
        mut give_back: impl FnMut(&str, Range<u64>),
    ) {
        let never_sent =
            |entry: &Entry| entry.first_loss().is_none() && Position(entry.place.end) > taken;
        for entry in self.entries.iter().rev() {
            if let Some(kept) = &entry.kept
                && never_sent(entry)
            {
                let (topic, numbers) = kept.numbers();
                give_back(topic, numbers);
            }
        }
        let lost = || Answer::Lost(Arc::clone(error));
        let mut staying = VecDeque::new();
        while let Some(mut entry) = self.entries.pop_front() {
            if never_sent(&entry) {
                entry.finish(|| Answer::NotSent(Arc::clone(error)));
            } else if let (Some(kept), Some(deadline)) = (&mut entry.kept, keep) {
                let loss = kept.lost.get_or_insert_with(|| Loss {
                    reason: Arc::clone(error),
                    deadline,
                });
                if loss.deadline > now {
                    let (finished, entry) = entry.finish_unless_resent(lost);
                    self.unknown += finished;
                    staying.extend(entry);
                } else {
                    self.unknown += entry.publishes();
                    entry.finish(lost);
                }
            } else {
                self.unknown += entry.publishes();
                entry.finish(lost);
            }
            if staying.is_empty() {
                self.end_flushes();
            }
        }
        self.entries = staying;
        self.end_flushes();
    }

    /// Appends all commands to `out`, the empty output of a new connection, in their order.
    pub(crate) fn resend(&mut self, out: &mut Vec<u8>) {
        for entry in &mut self.entries {
            let kept = entry.kept.as_ref().expect("only numbered commands stay");
            let start = out.len() as u64;
            kept.encode(out);
            entry.place = start..out.len() as u64;
        }
    }

    /// Returns the time at which the oldest command is given up, if the node has no connection until then.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        Some(self.entries.front()?.first_loss()?.deadline)
    }

    /// Gives up the commands whose time is over at `now`.
    pub(crate) fn expire(&mut self, now: Instant) {
        while self.deadline().is_some_and(|deadline| deadline <= now) {
            self.give_up_oldest();
        }
    }

    /// Gives up the commands that stayed when their connection was lost: the new one takes no numbers.
    pub(crate) fn give_up_all(&mut self) {
        while !self.entries.is_empty() {
            self.give_up_oldest();
        }
    }

    fn give_up_oldest(&mut self) {
        let Some(entry) = self.entries.pop_front() else {
            return;
        };
        let loss = entry.first_loss().expect("only lost commands are given up");
        let reason = Arc::clone(&loss.reason);
        self.unknown += entry.publishes();
        entry.finish(|| Answer::Lost(Arc::clone(&reason)));
        self.end_flushes();
    }

    /// Begins to wait until all commands so far are answered or lost. `None` means that none waits. Returns the number of
    /// commands so far. The receiver gets the number of publishes that were lost meanwhile and may have reached nsqd.
    pub(crate) fn flush(&mut self) -> Option<(u64, oneshot::Receiver<usize>)> {
        if self.entries.is_empty() {
            return None;
        }
        let (done, flushed) = oneshot::channel();
        self.flushes.push(Flush {
            queued: self.queued,
            unknown: self.unknown,
            done,
        });
        Some((self.queued, flushed))
    }

    /// Returns the number of publishes without an answer among the first `queued` commands.
    pub(crate) fn unanswered(&self, queued: u64) -> usize {
        let waiting = self.entries.iter();
        let waiting = waiting.take_while(|entry| entry.serial < queued);
        waiting.map(Entry::publishes).sum()
    }

    fn end_flushes(&mut self) {
        if self.flushes.is_empty() {
            return;
        }
        let oldest = self
            .entries
            .front()
            .map_or(self.queued, |entry| entry.serial);
        let (over, waiting) = std::mem::take(&mut self.flushes)
            .into_iter()
            .partition(|flush| flush.queued <= oldest);
        self.flushes = waiting;
        for Flush { unknown, done, .. } in over {
            // A caller that has gone away waits no more.
            let _ = done.send(self.unknown - unknown);
        }
    }
}

#[cfg(test)]
mod tests;
