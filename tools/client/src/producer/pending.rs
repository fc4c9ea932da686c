//! [`Pending`]: the publishes to one node that nsqd has not answered, in the order in which they were sent.
//!
//! nsqd answers publishes in order. So each answer belongs to the oldest publish here, whatever happened to the future
//! that waits for this answer.
//!
//! All publishes wait here, inside the node's `Session`. When the connection is lost, [`Pending::lose`] decides about
//! each. Only numbered ones may stay: they are written again to the next connection, before all newer publishes. The
//! order matters: nsqd surely recognises a number only if no higher number has come that lies far above it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::command::{Command, Kept, Loss};
use super::error::{is_about_input, is_cut_off, is_declined, is_leaving, may_pass_alone};
use super::permits::Permit;
use crate::connection::Position;
use crate::error::{ConnectionError, ErrorFrame};

/// The commands without an answer, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    entries: VecDeque<Entry>,
    /// The error with which nsqd has refused what it read of a command. It carries out no command behind this one, and
    /// closes the connection.
    refusal: Option<ErrorFrame>,
}

impl Pending {
    /// Returns true when no command waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of publishes.
    pub(crate) fn publishes(&self) -> usize {
        self.entries.iter().map(Entry::publishes).sum()
    }

    /// Adds a command that occupies `place` of the output. `kept` is the command if it is numbered.
    pub(crate) fn push(&mut self, place: Range<u64>, waiter: Waiter, kept: Option<Box<Kept>>) {
        self.entries.push_back(Entry {
            place,
            first: waiter,
            others: Vec::new(),
            kept,
        });
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

    /// States that the commands go to a new connection.
    pub(crate) fn connect(&mut self) {
        self.refusal = None;
    }

    /// Returns true if nsqd has refused what it read of a command of this connection.
    pub(crate) fn has_refused(&self) -> bool {
        self.refusal.is_some()
    }

    /// Gives the oldest command its answer. Returns false when no command waits.
    pub(crate) fn answer(&mut self, refusal: Option<&ErrorFrame>) -> bool {
        let Some(front) = self.entries.front() else {
            return false;
        };
        let (is_numbered, was_sent_before) = (front.kept.is_some(), front.first_loss().is_some());
        if let Some(error) = refusal.filter(|error| is_about_input(error)) {
            self.refusal = Some(error.clone());
        }
        match refusal {
            Some(error) if is_leaving(error) && is_numbered => self.decline_new(error),
            // Its first try is still in doubt, so it comes again.
            Some(error) if is_cut_off(error) && was_sent_before => {}
            _ => {
                let entry = self.entries.pop_front().expect("there is a front");
                match refusal {
                    None => entry.finish(|| Answer::Stored),
                    Some(error) => entry.refuse(error),
                }
            }
        }
        true
    }

    /// Refuses all commands that came first over this connection: nsqd exits or is drained, and carries out nothing
    /// behind a command that it refused. The other commands wait for the next nsqd at this address.
    fn decline_new(&mut self, error: &ErrorFrame) {
        let (staying, new): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.entries)
            .into_iter()
            .partition(|entry| entry.first_loss().is_some());
        self.entries = staying;
        new.into_iter().for_each(|entry| entry.refuse(error));
    }

    /// States that the connection is over. Only the commands that end at or before `taken` may have reached nsqd. The
    /// first row that fits decides about a command:
    ///
    /// | command | what becomes of it |
    /// |---|---|
    /// | nsqd refused one before it, and it was never taken or has no number | [`Cause::Skipped`]: sent again |
    /// | never taken, by this connection or an earlier one | [`Cause::NotSent`]: sent again |
    /// | numbered, and the deadline of its first loss (`keep`) is to come | stays for the next connection |
    /// | any other | [`Answer::Lost`] |
    ///
    /// `give_back` gets the topic and the numbers of each command that was never taken, the newest one first.
    pub(crate) fn lose(
        &mut self,
        error: &Arc<ConnectionError>,
        taken: Position,
        keep: Option<Instant>,
        now: Instant,
        mut give_back: impl FnMut(&str, Range<u64>),
    ) {
        let refusal = self.refusal.clone();
        let refusal = refusal.map(|refusal| Arc::new(ConnectionError::Refused(refusal)));
        let has_refused = refusal.is_some();
        let error = refusal.as_ref().unwrap_or(error);
        let never_taken =
            |entry: &Entry| entry.first_loss().is_none() && Position(entry.place.end) > taken;
        for entry in self.entries.iter().rev() {
            if let Some(kept) = &entry.kept
                && never_taken(entry)
            {
                let (topic, numbers) = kept.numbers();
                give_back(topic, numbers);
            }
        }
        let mut staying = VecDeque::new();
        for mut entry in std::mem::take(&mut self.entries) {
            if has_refused && (never_taken(&entry) || entry.kept.is_none()) {
                entry.give_back(|| Cause::Skipped);
            } else if never_taken(&entry) {
                entry.give_back(|| Cause::NotSent(Arc::clone(error)));
            } else if let (Some(kept), Some(deadline)) = (&mut entry.kept, keep)
                && kept.lost_until(error, deadline) > now
            {
                staying.push_back(entry);
            } else {
                entry.finish(|| Answer::Lost(Arc::clone(error)));
            }
        }
        self.entries = staying;
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

    /// Returns the time at which the oldest command is abandoned, if the node has no connection until then.
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
        let loss = entry
            .first_loss()
            .expect("only lost commands are abandoned");
        let reason = Arc::clone(&loss.reason);
        entry.finish(|| Answer::Lost(Arc::clone(&reason)));
    }
}

/// The result of one publish.
#[derive(Debug)]
pub(crate) enum Answer {
    /// nsqd has the messages.
    Stored,
    /// nsqd refused the command.
    Refused(ErrorFrame),
    /// nsqd refused the command when it came again. It may have stored the messages when they came first.
    ResendRefused(ErrorFrame),
    /// The connection was lost, and nsqd may have received the command.
    Lost(Arc<ConnectionError>),
    /// No nsqd has the messages, and the caller sends them again. The caller has the permit back.
    Again(Cause, Permit),
}

/// The cause for which a publish is sent again.
#[derive(Debug)]
pub(crate) enum Cause {
    /// nsqd exits or is drained, or read only a part of the command.
    Declined(ErrorFrame),
    /// nsqd refused the command, which had messages of other publishes too. nsqd may take this publish alone.
    Alone,
    /// The connection was lost before the command left.
    NotSent(Arc<ConnectionError>),
    /// nsqd refused a command before this one, and carried out nothing behind it.
    Skipped,
}

/// The answer to a publish when it comes.
pub(crate) type Answering = oneshot::Receiver<Answer>;

/// One publish that waits for its answer. A waiter that nobody listens to is answered like the others.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) answer: oneshot::Sender<Answer>,
    /// The permit of the publish. It is in use until nsqd answers, even if the caller has gone away.
    pub(crate) permit: Permit,
}

/// One command that waits for its answer.
#[derive(Debug)]
struct Entry {
    /// The command's place in the output of the connection, in bytes.
    place: Range<u64>,
    first: Waiter,
    /// The publishes whose messages joined this command.
    others: Vec<Waiter>,
    /// The command, if it is numbered.
    kept: Option<Box<Kept>>,
}

impl Entry {
    /// Returns the number of publishes.
    fn publishes(&self) -> usize {
        1 + self.others.len()
    }

    /// Returns the loss of the connection that may have sent the command first.
    fn first_loss(&self) -> Option<&Loss> {
        self.kept.as_ref()?.lost.as_ref()
    }

    fn waiters(self) -> impl Iterator<Item = Waiter> {
        std::iter::once(self.first).chain(self.others)
    }

    /// Gives each publish of the command its answer. A caller that has gone away needs none.
    fn finish(self, answer: impl Fn() -> Answer) {
        for Waiter {
            answer: caller,
            permit,
        } in self.waiters()
        {
            drop(permit);
            let _ = caller.send(answer());
        }
    }

    /// Gives each publish of the command back to its caller, to be sent again. If the caller has gone away, nobody
    /// sends the publish again.
    fn give_back(self, cause: impl Fn() -> Cause) {
        for waiter in self.waiters() {
            let _ = waiter.answer.send(Answer::Again(cause(), waiter.permit));
        }
    }

    /// Answers the publishes of a command that nsqd refused.
    fn refuse(self, error: &ErrorFrame) {
        if self.first_loss().is_some() {
            self.finish(|| Answer::ResendRefused(error.clone()));
        } else if is_declined(error) {
            self.give_back(|| Cause::Declined(error.clone()));
        } else if self.publishes() > 1 && may_pass_alone(error) {
            self.give_back(|| Cause::Alone);
        } else {
            self.finish(|| Answer::Refused(error.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
