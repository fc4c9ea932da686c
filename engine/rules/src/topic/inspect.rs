//! What peeks, `/stats` and drains ask of a topic: its messages that no channel has got, and those of its log. Nothing here
//! changes the topic.

use super::Topic;
use crate::channel::Channel;
use crate::drain::Owed;
use crate::output::Change;
use crate::peek::{CandidateState, Candidates, PeekBudget, PeekFrom, PeekPlace};
use crate::stats::DiskUse;
use crate::undo::Undo;
use diskq_log::{Now, SeqRange};
use wire::id::Seq;

/// Most channels that are asked for each message of the log whether they have finished it. One answer takes 10 to 30
/// ns, or 200 ns if the channel has a million requeued messages. So they take about as long as the copies of a slice.
const ASKED_CHANNELS_MAX: usize = 8;

impl Topic {
    /// Returns messages of a list within a budget, from a place on. A topic has no messages in flight, and none that
    /// were requeued.
    pub(crate) fn candidates(
        &self,
        from: PeekFrom,
        place: Option<PeekPlace>,
        budget: &PeekBudget,
    ) -> Candidates {
        let mut candidates = Candidates::new(budget, 0);
        let at = place.map(|place| place.at);
        match from {
            PeekFrom::Oldest => self
                .undistributed
                .messages
                .add_candidates(at, &mut candidates),
            PeekFrom::Newest => self
                .undistributed
                .messages
                .add_newest_candidates(at, &mut candidates),
            PeekFrom::Deferred => self.add_deferred(at, &mut candidates),
            PeekFrom::InFlight | PeekFrom::Requeued | PeekFrom::Attempts(_) => {}
            PeekFrom::Published { since } => {
                self.add_published(since, at, &mut candidates);
                return candidates;
            }
        }
        for candidate in &mut candidates.found {
            if let Some(ms) = self.undistributed.deferral_of(candidate.seq) {
                candidate.state = CandidateState::DeferredFor(ms);
            }
        }
        candidates
    }

    /// The second number of a place is the seq behind the next one.
    fn add_published(&self, since: Seq, at: Option<(u64, u64)>, candidates: &mut Candidates) {
        let below = at.map_or(u64::MAX, |at| at.1);
        let first = since.0.saturating_add(1);
        for range in self.log.newest_in_memory() {
            for seq in (range.start.0.max(first)..range.end.0.min(below)).rev() {
                if candidates.is_full() {
                    return candidates.stop_at((0, seq + 1));
                }
                let is_finished = self.is_finished(Seq(seq));
                candidates.take(
                    (Seq(seq), 0),
                    CandidateState::Published { is_finished },
                    (0, seq),
                );
            }
            if range.start.0 <= first {
                return;
            }
        }
    }

    /// True if the topic and all of its channels are through with a message of the log. `None` if there are too many
    /// channels to know.
    fn is_finished(&self, seq: Seq) -> Option<bool> {
        let is_cheap = self.channels.len() <= ASKED_CHANNELS_MAX;
        is_cheap.then(|| {
            let mut channels = self.channels.values();
            !self.undistributed.messages.has(seq) && !channels.any(|channel| channel.owes(seq))
        })
    }

    fn add_deferred(&self, at: Option<(u64, u64)>, candidates: &mut Candidates) {
        let list = &self.undistributed.deferred;
        let first = at.map_or(0, |at| at.0).max(list.first_place());
        for ((seq, ms), at) in list.iter_from(first).zip(first..) {
            if candidates.is_full() {
                return candidates.stop_at((at, 0));
            }
            let state = CandidateState::DeferredFor(*ms);
            candidates.take((*seq, 0), state, (at + 1, 0));
        }
    }
}

/// Most questions "does this channel owe a message of that segment?" for one figure: some milliseconds of the shard. 16 TiB
/// in segments of the largest size and 64 channels are less.
const QUESTIONS_MAX: usize = 1 << 18;

/// Most names of other channels.
const NAMES_MAX: usize = 20;

/// [`DiskUse`]: the part of a topic's log that a channel keeps on disk, and who else keeps it.
///
/// A segment stays on disk as long as anybody owes one of its messages. So the emptying of a channel frees nothing while
/// another channel owes the same messages.
impl Topic {
    /// Returns what a channel keeps on disk. `None`: the topic is too large to say that in a turn. The segment that
    /// takes new messages does not count, because nothing frees it.
    pub(crate) fn disk_use(&self, channel: &Channel) -> Option<DiskUse> {
        let segments: Vec<(SeqRange, u64)> = self.log.sealed_files().collect();
        let others = self.channels.iter().map(|(_, other)| other);
        let others: Vec<&Channel> = others.filter(|other| other.name != channel.name).collect();
        if segments.len() * (others.len() + 1) > QUESTIONS_MAX {
            return None;
        }
        let mut found = DiskUse::default();
        let mut is_with = vec![false; others.len()];
        for (range, bytes) in segments {
            if !channel.owes_any(range) {
                continue;
            }
            let is_with_topic = self.keeps_any(range, channel);
            let mut is_alone = !is_with_topic;
            for (other, is_with) in others.iter().zip(&mut is_with) {
                if other.owes_any(range) {
                    *is_with = true;
                    is_alone = false;
                }
            }
            found.bytes += bytes;
            found.alone_bytes += if is_alone { bytes } else { 0 };
            found.is_shared_with_topic |= is_with_topic;
        }
        let with = others.iter().zip(is_with).filter(|(_, is_with)| *is_with);
        found.shared_count = with.clone().count() as u64;
        let names = with.map(|(other, _)| other.name.to_string());
        found.shared_with = names.take(NAMES_MAX).collect();
        Some(found)
    }

    /// Returns whether the topic itself keeps a message of the range: it has no channel yet, it is in the grace, or it
    /// can be brought back, but not to this channel.
    fn keeps_any(&self, range: SeqRange, channel: &Channel) -> bool {
        let others = self.channels.iter().map(|(_, other)| other);
        let others = others.filter(|other| other.name != channel.name);
        let undos = others.filter_map(|other| other.undo.as_deref());
        let mut undos = undos.chain(self.undo.as_deref());
        let grace = self.grace.as_deref();
        self.undistributed.messages.overlaps(range)
            || grace.is_some_and(|grace| grace.kept.messages.overlaps(range))
            || undos.any(|undo: &Undo| undo.overlaps(range))
    }
}

/// The messages of a topic for which a drain waits, and what the nsqlookupds are told.
impl Topic {
    /// Returns that the topic and its channels came or went.
    pub(crate) fn changes(&self, is_there: bool) -> impl DoubleEndedIterator<Item = Change> {
        let channels = self.channels.iter().map(|(_, channel)| channel);
        let channels = channels.map(move |it| Change::channel(&self.name, &it.name, is_there));
        std::iter::once(Change::topic(&self.name, is_there)).chain(channels)
    }

    /// Adds the messages that this topic and its channels owe, and the causes that keep them from leaving.
    pub(crate) fn add_owed(&self, now: Now, owed: &mut Owed) {
        let name = &self.name;
        let undistributed = self.undistributed.messages.count();
        if self.is_open() {
            // These messages are on their way to the channels.
            owed.waiting += undistributed;
        } else if undistributed > 0 {
            owed.undistributed += undistributed;
            let cause = match (self.started, self.pause.is_some()) {
                (false, _) => "waits for the answers of nsqlookupd",
                (true, true) => "is paused",
                (true, false) => "has no channel",
            };
            owed.add_cause(format_args!("{name} {cause}"));
        }
        if let Some(grace) = &self.grace
            && !grace.kept.messages.is_empty()
        {
            owed.in_grace += grace.kept.messages.count();
            let left = grace.until.saturating_sub(now.mono).as_secs() + 1;
            owed.add_cause(format_args!("{name} has a grace that ends in {left} s"));
        }
        for channel in self.channels.values() {
            channel.add_owed(now, name, owed);
        }
    }
}

impl Channel {
    fn add_owed(&self, now: Now, topic: &str, owed: &mut Owed) {
        owed.waiting += self.depth();
        owed.in_flight += self.in_flight_count();
        owed.deferred += self.deferred_count();
        if let Some(due) = self.last_due() {
            owed.last_due_in = owed.last_due_in.max(Some(due.saturating_sub(now.mono)));
        }
        let name = &self.name;
        if self.owed_count() == 0 {
        } else if self.pause.is_some() {
            owed.add_cause(format_args!("{topic}/{name} is paused"));
        } else if self.consumers.all.is_empty() {
            owed.add_cause(format_args!("{topic}/{name} has no consumer"));
        }
    }
}
