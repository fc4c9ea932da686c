//! The actions of a topic in grace: see [`Grace`].

use super::Topic;
use super::grace::{ASK_SOON, DEFERRED_MAX, Grace};
use super::pieces::{Pieces, Totals, release_below};
use crate::channel::Channel;
use crate::channel::discarded::Discarded;
use crate::long_queue::LongQueue;
use crate::now::Now;
use crate::ranges::Ranges;
use crate::work::Work;
use diskq_log::{GraceDraft, Runs, SeqRange, plant};
use std::time::Duration;

impl Topic {
    /// Begins the grace, at the start of the topic. Returns false if the topic gets none.
    pub(crate) fn begin_grace(&mut self, now: Now) -> bool {
        let period = self.options.grace.period;
        if self.ephemeral || period.is_zero() {
            return false;
        }
        self.set_grace(now, now.mono + period, Ranges::default());
        // A crash must not end the grace.
        self.request_promised_checkpoint();
        true
    }

    /// Begins the grace, or goes on with it after a start. It ends at `until` at the latest. The log holds `messages`
    /// for the grace. The grace gets the undistributed messages later, so their bytes count already.
    pub(super) fn set_grace(&mut self, now: Now, until: Duration, messages: Ranges) {
        let pieces = self.grace_pieces(&messages, now);
        let mut grace = Grace::new(now, until, self.options.grace, pieces);
        grace.messages = messages;
        self.grace = Some(Box::new(grace));
    }

    /// The sizes of the messages of a grace and of those that it gets later.
    fn grace_pieces(&self, messages: &Ranges, now: Now) -> Pieces {
        // The log may have newer messages that only channels own: a takeover of nsqd's files appends them.
        let kept = messages.iter().chain(self.undistributed.iter());
        Pieces::of_log(&self.log, kept, self.totals(), now)
    }

    /// The end of the grace, or the next question, whichever is earlier.
    pub(super) fn grace_timeout(&self) -> Option<Duration> {
        let grace = self.grace.as_ref()?;
        Some(grace.until.min(grace.ask_at))
    }

    /// Returns true if it is time to ask again which channels the topic has elsewhere. The next question follows after
    /// a while.
    pub(crate) fn take_question(&mut self, now: Now) -> bool {
        let grace = self.grace.as_mut().filter(|it| it.ask_at <= now.mono);
        let grace = grace.map(|grace| grace.ask_at = now.mono + grace.ask_every);
        grace.is_some()
    }

    /// Has the next question come soon, because the topic could not take a channel of the last answer.
    pub(crate) fn ask_soon(&mut self, now: Now) {
        if let Some(grace) = &mut self.grace {
            grace.ask_at = grace.ask_at.min(now.mono + ASK_SOON);
        }
    }

    /// Returns true if a channel that exists elsewhere is not to be made here, because it was deleted here.
    pub(crate) fn is_deleted_in_grace(&self, channel: &str) -> bool {
        let grace = self.grace.as_ref();
        grace.is_some_and(|grace| grace.deleted.contains(channel))
    }

    /// Ends the grace if its time is over.
    pub(crate) fn end_grace_in_time(&mut self, now: Now) {
        if let Some(grace) = self.grace.take_if(|it| it.until <= now.mono) {
            self.discard_grace(grace.messages);
            if let Some(unfinished) = &mut self.unfinished {
                unfinished.draft.grace = None;
            }
            self.make_checkpoint_due();
        }
    }

    /// Drops the messages of the grace, which goes on. It gets those that are on their way to the channels.
    pub(crate) fn empty_grace(&mut self, now: Now) {
        let pieces = self.grace_pieces(&Ranges::default(), now);
        if let Some(grace) = &mut self.grace {
            grace.deferred = LongQueue::default();
            grace.pieces = pieces;
            let messages = std::mem::take(&mut grace.messages);
            self.discard_grace(messages);
        }
    }

    fn discard_grace(&mut self, messages: Ranges) {
        self.discarded.push(Discarded {
            waiting: messages,
            ..Discarded::default()
        });
    }

    /// Keeps messages that every channel was given.
    pub(super) fn keep_in_grace(&mut self, range: SeqRange, due: Option<Duration>) {
        if let Some(grace) = &mut self.grace {
            grace.messages.push(range);
            plant!(GraceForgetsDeferral, return);
            if let Some(due) = due {
                grace.deferred.push_back((range.start, due));
            }
        }
    }

    /// Drops the oldest messages of the grace, if there are too many. Messages that are on their way to the channels
    /// count already. If they are too many, they go as soon as the grace gets them.
    pub(super) fn bound_grace(&mut self, now: Now, work: &mut Work) {
        let totals = self.totals();
        let Some(grace) = &mut self.grace else {
            return;
        };
        let Some(end) = self.undistributed.end().or(grace.messages.end()) else {
            return;
        };
        grace.pieces.add(end, totals, now, grace.bounds);
        let beyond_bytes = grace.pieces.cut(now, grace.bounds);
        let excess = grace.deferred.len().checked_sub(DEFERRED_MAX + 1);
        let newest_excess = excess.and_then(|excess| {
            let place = grace.deferred.first_place() + excess as u64;
            grace.deferred.iter_from(place).next()
        });
        let beyond_count = newest_excess.map(|(seq, _)| seq.offset(1));
        let beyond = beyond_bytes.max(beyond_count);
        grace.first_kept = beyond.map_or(grace.first_kept, |seq| seq.max(grace.first_kept));
        let (messages, deferred) = (&mut grace.messages, &mut grace.deferred);
        let count = release_below(grace.first_kept, messages, deferred, &mut self.log, work);
        if count > 0 && !std::mem::replace(&mut grace.has_dropped, true) {
            let name = &self.name;
            let bytes = self.options.grace.bytes_max;
            self.news.push(format!(
                "TOPIC({name}): a channel that is made now gets only the newest messages: a new topic keeps \
                 {bytes} bytes (--new-topic-grace-bytes) and {DEFERRED_MAX} deferred messages"
            ));
        }
    }

    /// Gives a new channel all messages of the grace. A channel that was deleted in the grace gets none.
    pub(super) fn fill_from_grace(&mut self, channel: &mut Channel) {
        plant!(GraceForgotten, return);
        if let Some(grace) = &self.grace
            && !channel.ephemeral
            && !grace.deleted.contains(&channel.name)
        {
            grace.fill(channel, &mut self.log);
        }
    }

    /// Notes that a channel was deleted.
    pub(super) fn delete_from_grace(&mut self, channel: &Channel) {
        if let Some(grace) = &mut self.grace
            && !channel.ephemeral
        {
            grace.deleted.insert(channel.name.clone());
        }
    }

    /// The grace as a checkpoint begins to record it.
    pub(super) fn grace_draft(&self) -> Option<GraceDraft> {
        plant!(GraceNotRecorded, return None);
        let grace = self.grace.as_ref()?;
        Some(GraceDraft {
            until_ns: grace.until_ns,
            runs: Runs::default(),
        })
    }

    /// The messages that the topic has taken.
    pub(super) fn totals(&self) -> Totals {
        Totals {
            messages: self.message_count,
            body_bytes: self.message_bytes,
        }
    }
}
