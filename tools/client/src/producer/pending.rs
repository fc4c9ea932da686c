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

use super::command::{Command, Kept, Loss};
use super::error::{
    is_about_input, is_about_messages, is_cut_off, is_declined, is_leaving, may_pass_alone,
};
use super::unconfirmed::{Account, Returning};
use crate::connection::Position;
use crate::error::{ConnectionError, ErrorFrame};

/// The commands without an answer, oldest first.
#[derive(Debug)]
pub(crate) struct Pending {
    /// Has the publishes that leave this list without a confirmation, until their callers know.
    account: Account,
    entries: VecDeque<Entry>,
    /// The number of commands so far.
    queued: u64,
    /// The flushes that wait.
    flushes: Vec<Flush>,
    /// The number of flushes so far.
    flushes_begun: u64,
    /// The number of publishes that have left this list without a confirmation and without a final refusal. Those whose
    /// callers had gone away do not count.
    unconfirmed: usize,
    /// The reason for the last of them.
    reason: Option<Arc<ConnectionError>>,
    /// The error with which nsqd has refused what it read of a command. It carries out no command behind this one, and
    /// closes the connection.
    refusal: Option<ErrorFrame>,
}

/// A flush that waits for the commands before it.
#[derive(Debug)]
struct Flush {
    id: u64,
    /// The number of commands before the flush.
    queued: u64,
    /// The number of publishes of these commands that have left the list without a confirmation.
    unconfirmed: usize,
    done: oneshot::Sender<usize>,
}

/// A flush that has begun.
#[derive(Debug)]
pub(crate) struct Flushing {
    id: u64,
    /// Gets the number of publishes before the flush that left the list meanwhile and are not confirmed.
    pub(crate) flushed: oneshot::Receiver<usize>,
}

impl Pending {
    pub(crate) fn new(account: Account) -> Pending {
        Pending {
            account,
            entries: VecDeque::new(),
            queued: 0,
            flushes: Vec::new(),
            flushes_begun: 0,
            unconfirmed: 0,
            reason: None,
            refusal: None,
        }
    }

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
        if let Some(error) = refusal.filter(|error| is_about_input(error)) {
            self.refusal = Some(error.clone());
        }
        let was_sent_before = front.first_loss().is_some();
        if let Some(error) = refusal
            && is_leaving(error)
            && front.kept.is_some()
        {
            self.decline_new(error);
            return true;
        }
        if refusal.is_some_and(is_cut_off) && was_sent_before {
            // Its first try is still in doubt, so it comes again.
            return true;
        }
        if refusal.is_some_and(is_about_messages) && was_sent_before && front.can_split() {
            self.split_oldest();
            return true;
        }
        let entry = self.entries.pop_front().expect("there is a front");
        match refusal {
            None => {
                entry.finish(|| Answer::Stored);
            }
            Some(error) => self.refuse(entry, error),
        }
        self.end_flushes();
        true
    }

    /// Answers the publishes of a command that nsqd refused.
    fn refuse(&mut self, entry: Entry, error: &ErrorFrame) {
        let reason = Arc::new(ConnectionError::Refused(error.clone()));
        if entry.first_loss().is_some() {
            self.give_back(entry, &reason, || Cause::ResendRefused(error.clone()));
        } else if is_declined(error) {
            self.give_back(entry, &reason, || Cause::Declined(error.clone()));
        } else if entry.publishes() > 1 && may_pass_alone(error) {
            self.give_back(entry, &reason, || Cause::Alone);
        } else {
            entry.finish(|| Answer::Refused(error.clone()));
        }
    }

    /// Gives each publish of a command back to its caller, without a confirmation.
    fn give_back(
        &mut self,
        entry: Entry,
        reason: &Arc<ConnectionError>,
        cause: impl Fn() -> Cause,
    ) {
        let serial = entry.serial;
        let returned = || Answer::Returned(cause(), self.account.begin(reason));
        let callers = entry.finish(returned);
        self.count_unconfirmed(serial, callers, reason);
    }

    /// Splits the oldest command, which came again and was refused: nsqd refuses a batch as a whole. Over the next
    /// connection, each message comes alone, with its own number. Then each publish gets its own answer, and only the
    /// message that nsqd does not like has an unknown outcome.
    fn split_oldest(&mut self) {
        let oldest = self.entries.pop_front().expect("there is an oldest one");
        for entry in oldest.split().rev() {
            self.entries.push_front(entry);
        }
    }

    /// Refuses all commands that came first over this connection: nsqd exits or is drained, and carries out nothing
    /// behind a command that it refused. The other commands wait for the next nsqd at this address.
    fn decline_new(&mut self, error: &ErrorFrame) {
        let mut staying = VecDeque::new();
        while let Some(entry) = self.entries.pop_front() {
            match entry.first_loss() {
                Some(_) => staying.push_back(entry),
                None => self.refuse(entry, error),
            }
            if staying.is_empty() {
                self.end_flushes();
            }
        }
        self.entries = staying;
        self.end_flushes();
    }

    /// Returns the number of publishes that have left this list without a confirmation and without a final refusal.
    /// Those whose callers had gone away do not count.
    pub(crate) fn unconfirmed(&self) -> usize {
        self.unconfirmed
    }

    /// Returns the reason for the last publish of [`unconfirmed`](Pending::unconfirmed).
    pub(crate) fn reason(&self) -> Option<Arc<ConnectionError>> {
        self.reason.clone()
    }

    /// Counts publishes of the command `serial` that leave the list without a confirmation.
    fn count_unconfirmed(&mut self, serial: u64, publishes: usize, reason: &Arc<ConnectionError>) {
        if publishes == 0 {
            return;
        }
        self.unconfirmed += publishes;
        self.reason = Some(Arc::clone(reason));
        let flushes = self.flushes.iter_mut();
        for flush in flushes.filter(|flush| serial < flush.queued) {
            flush.unconfirmed += publishes;
        }
    }

    /// States that the connection is over. Only the commands that end at or before `taken` may have reached nsqd. nsqd
    /// has skipped all of them if it refused one before. With `keep`, the numbered ones among these stay until `keep`.
    /// `give_back` gets the topic and the numbers of each command that was never sent, the newest one first.
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
        let lost = || Cause::Lost(Arc::clone(error));
        let mut staying = VecDeque::new();
        while let Some(mut entry) = self.entries.pop_front() {
            if never_sent(&entry) || has_refused && entry.kept.is_none() {
                // Behind a refused command, the callers send them again, if they are still there. A flush cannot wait
                // for that.
                self.give_back(entry, error, || {
                    if has_refused {
                        Cause::Skipped
                    } else {
                        Cause::NotSent(Arc::clone(error))
                    }
                });
            } else if let (Some(kept), Some(deadline)) = (&mut entry.kept, keep)
                && kept.lost_until(error, deadline) > now
            {
                let serial = entry.serial;
                let returned = || Answer::Returned(lost(), self.account.begin(error));
                let (callers, entry) = entry.finish_unless_resent(returned);
                self.count_unconfirmed(serial, callers, error);
                staying.extend(entry);
            } else {
                self.give_back(entry, error, lost);
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
        self.give_back(entry, &reason, || Cause::Lost(Arc::clone(&reason)));
        self.end_flushes();
    }

    /// Begins to wait until all commands so far are answered or lost. `None` means that none waits.
    pub(crate) fn flush(&mut self) -> Option<Flushing> {
        if self.entries.is_empty() {
            return None;
        }
        let (done, flushed) = oneshot::channel();
        // The futures of some flushes were dropped.
        self.flushes.retain(|flush| !flush.done.is_closed());
        let (id, queued) = (self.flushes_begun, self.queued);
        self.flushes_begun += 1;
        self.flushes.push(Flush {
            id,
            queued,
            unconfirmed: 0,
            done,
        });
        Some(Flushing { id, flushed })
    }

    /// Ends a flush whose time is over. Returns the number of the publishes before it that have no answer, and of those
    /// that have left the list without a confirmation. `None` means that the flush has ended in the meantime.
    pub(crate) fn give_up_flush(&mut self, flushing: &Flushing) -> Option<usize> {
        let mut flushes = self.flushes.iter();
        let place = flushes.position(|flush| flush.id == flushing.id)?;
        let flush = self.flushes.swap_remove(place);
        Some(flush.unconfirmed + self.unanswered(flush.queued))
    }

    /// Returns the number of publishes without an answer among the first `queued` commands.
    fn unanswered(&self, queued: u64) -> usize {
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
        for Flush {
            unconfirmed, done, ..
        } in over
        {
            // A caller that has gone away waits no more.
            let _ = done.send(unconfirmed);
        }
    }
}

/// The result of one publish.
#[derive(Debug)]
pub(crate) enum Answer {
    /// nsqd has the messages.
    Stored,
    /// nsqd refused the command.
    Refused(ErrorFrame),
    /// nsqd has not confirmed the publish, and has not refused it for good.
    Returned(Cause, Returning),
}

/// The cause for which a publish returns to its caller.
#[derive(Debug)]
pub(crate) enum Cause {
    /// nsqd exits or is drained, or read only a part of the command.
    Declined(ErrorFrame),
    /// nsqd refused the command, which had messages of other publishes too. nsqd may take this publish alone.
    Alone,
    /// nsqd refused the command when it came again. It may have stored the messages when they came first.
    ResendRefused(ErrorFrame),
    /// The connection was lost before the command left.
    NotSent(Arc<ConnectionError>),
    /// nsqd refused a command before this one, and carried out nothing behind it.
    Skipped,
    /// The connection was lost, and nsqd may have received the command.
    Lost(Arc<ConnectionError>),
}

/// The answer to a publish when it comes, and the permit of the publish.
pub(crate) type Answering = oneshot::Receiver<(Answer, OwnedSemaphorePermit)>;

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
    /// Returns the number of publishes.
    fn publishes(&self) -> usize {
        1 + self.others.len()
    }

    /// Returns the loss of the connection that may have sent the command first.
    fn first_loss(&self) -> Option<&Loss> {
        self.kept.as_ref()?.lost.as_ref()
    }

    /// Gives each publish of the command its answer. Returns the number of callers that are still there.
    fn finish(self, answer: impl Fn() -> Answer) -> usize {
        let waiters = std::iter::once(self.first).chain(self.others);
        waiters
            .map(|waiter| usize::from(waiter.finish(answer())))
            .sum()
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

    /// Answers the publishes whose command is not sent again. Returns the number of their callers that are still there,
    /// and the entry if other publishes are left.
    fn finish_unless_resent(self, answer: impl Fn() -> Answer) -> (usize, Option<Entry>) {
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

#[cfg(test)]
mod tests;
