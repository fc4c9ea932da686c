//! [`PublisherNumbers`]: recognises messages by their publishers and the numbers that these gave them, and saves the
//! numbers, so that a start knows them.
//!
//! A message at or above the *boundary* of the last durable save has its number in its slot, and the log keeps the
//! message ([`PublisherNumbers::held`]). All numbers below the boundary are in the save. A save names only synced
//! messages: after a power failure, no number may be known whose message is gone, because the publisher's next attempt
//! would be dropped.
//!
//! ```text
//!   Idle ──a sync begins: boundary──► Syncing ──synced──► Encoding ──a slice per turn──► Writing ──durable──► Idle
//!     └───────────everything is synced: boundary──────────────▲                                  hold ends
//! ```

use crate::publication::{Fates, Publication};
use crate::publishers::{Known, Publishers, TableEncoder};
use crate::rules::PublisherRule;
use crate::stats::NumberStats;
use diskq_log::range::{push_joined, within};
use diskq_log::{Log, LogOptions, Now, SavedState, Seq, SeqRange, plant};
use std::time::Duration;
use wire::name::TopicName;
use wire::origin::Origin;

/// The table by which a topic recognises the numbers of messages that it has stored before.
#[derive(Debug)]
pub(crate) struct PublisherNumbers {
    publishers: Publishers,
    /// Messages that were answered with OK and not stored, because they had been stored before.
    duplicates: u64,
    /// Messages that were stored although the topic could not tell whether it had stored them before: their publisher
    /// gave no number, or a number below all that the topic remembers.
    unchecked: u64,
    /// The messages whose numbers are not in a durable saved state: sorted ranges that do not touch. The log keeps the
    /// messages for the next start, whoever has finished them. Empty for an ephemeral topic.
    held: Vec<SeqRange>,
    is_ephemeral: bool,
    step: NumbersSaveStep,
    /// The time before which no further save begins.
    due: Duration,
    /// The least time between two saves.
    interval_min: Duration,
    /// The text of a WARNING line.
    pub(crate) news: Option<&'static str>,
}

/// The progress of the save of the numbers.
#[derive(Debug)]
enum NumbersSaveStep {
    /// No save is under way.
    Idle,
    /// The boundary is set. The save waits until all messages below it are synced.
    Syncing(Seq),
    /// The table is being encoded.
    Encoding(Seq, TableEncoder),
    /// The keeper writes the save.
    Writing,
}

impl PublisherNumbers {
    /// Makes the numbers of a topic, none yet.
    pub(crate) fn new(
        rule: &PublisherRule,
        topic: TopicName<'_>,
        options: &LogOptions,
    ) -> PublisherNumbers {
        PublisherNumbers {
            publishers: Publishers::new(rule.window, rule.memory_bytes, options.process_seed),
            duplicates: 0,
            unchecked: 0,
            held: Vec::new(),
            is_ephemeral: topic.is_ephemeral(),
            step: NumbersSaveStep::Idle,
            due: Duration::ZERO,
            interval_min: options.sync_timeout,
            news: None,
        }
    }

    /// Decides about the messages of a publish.
    pub(crate) fn judge<'b>(
        &mut self,
        now: Now,
        log: &Log,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
        fates: &mut Fates,
    ) {
        let known = publication.origin.and_then(|origin| {
            let found = self.publishers.find(origin.publisher);
            found.map(|found| (origin, found))
        });
        if let Some((origin, found)) = known {
            for (place, body) in (0..).zip(publication.bodies.clone()) {
                let number = origin.offset(place).number;
                let known = found.knows(number);
                fates.unchecked += u64::from(known == Known::Forgotten);
                fates.add(place, body, known != Known::Stored);
            }
        } else {
            (fates.count, fates.bytes) = (publication.count, publication.body_bytes);
            if publication.origin.is_none() {
                fates.unchecked = u64::from(publication.count);
            }
        }
        plant!(NumberBeforeStore, self.remember(fates));
        if fates.count > 0 {
            self.set_boundary_at_sync(now, log);
        }
    }

    /// Remembers the numbers of a publish. `stored` are its fresh messages, which are in the log.
    pub(crate) fn confirm(&mut self, log: &mut Log, fates: &Fates, stored: SeqRange) {
        // Without publishers, there is nothing to save.
        if fates.origin.is_some() || self.publishers.count() > 0 {
            self.hold(log, stored);
        }
        self.duplicates += fates.duplicates.len() as u64;
        self.unchecked += fates.unchecked;
        self.remember(fates);
    }

    /// Remembers that the messages of a publish are stored.
    fn remember(&mut self, fates: &Fates) {
        let count = fates.count + fates.duplicates.len() as u32;
        plant!(NumbersOfBatchForgotten, let count = 1);
        if let Some(first) = fates.origin {
            (0..count).for_each(|place| self.publishers.insert(first.offset(place)));
        }
    }

    /// Takes over the numbers that a start has found. Keeps the messages whose numbers may not be durable.
    pub(crate) fn restore(
        &mut self,
        log: &mut Log,
        saved: Option<(SavedState, Seq)>,
        origins: &[(Seq, Origin)],
        found: &[SeqRange],
    ) {
        if let Some((state, _)) = &saved
            && !self.publishers.load(&state.body)
        {
            self.news =
                Some("the saved numbers of messages are not those of publishers, and are ignored");
        }
        for (_, origin) in origins {
            self.publishers.insert(*origin);
        }
        let first = origins.first().map(|(seq, _)| *seq);
        if let Some(from) = saved.map_or(first, |(_, durable_boundary)| Some(durable_boundary)) {
            for range in within(SeqRange::new(from, Seq(u64::MAX)), found) {
                self.hold(log, range);
            }
        }
    }

    /// Makes the log keep messages until their numbers are saved.
    fn hold(&mut self, log: &mut Log, range: SeqRange) {
        plant!(NumbersNotHeld, return);
        if !self.is_ephemeral {
            push_joined(&mut self.held, range);
            log.retain(range, 1);
        }
    }

    pub(crate) fn stats(&self) -> NumberStats {
        NumberStats {
            duplicate_count: self.duplicates,
            unchecked_count: self.unchecked,
            publisher_count: self.publishers.count() as u64,
            publisher_count_max: self.publishers.count_max() as u64,
            evicted_count: self.publishers.evicted_count,
        }
    }

    /// Asserts the invariants. Returns the number of messages that are held.
    pub(crate) fn check(&self) -> u64 {
        self.publishers.check();
        assert!(self.held.is_sorted_by(|a, b| a.end < b.start));
        assert!(self.held.iter().all(|range| !range.is_empty()));
        self.held.iter().map(SeqRange::len).sum()
    }

    // --- the save

    /// Sets the boundary of the next save, if a sync is under way that covers everything appended so far. Call this
    /// before an append.
    fn set_boundary_at_sync(&mut self, now: Now, log: &Log) {
        let next = log.next_seq();
        if self.can_begin(now) && log.sync_upto() == Some(next) {
            self.begin_save(now);
            self.step = NumbersSaveStep::Syncing(next);
        }
    }

    /// Returns whether the next save may begin.
    fn can_begin(&self, now: Now) -> bool {
        matches!(self.step, NumbersSaveStep::Idle) && !self.held.is_empty() && now.mono >= self.due
    }

    fn begin_save(&mut self, now: Now) {
        self.publishers.set_boundary();
        self.due = now.mono + self.interval_min + self.publishers.save_time();
    }

    /// Goes on with a save when the log may have been synced, or when the time of the next save has come.
    pub(crate) fn save_if_synced(&mut self, now: Now, log: &mut Log) {
        match self.step {
            NumbersSaveStep::Idle if log.is_synced() && self.can_begin(now) => {
                self.begin_save(now);
                let boundary = log.next_seq();
                self.begin_encoding(log, boundary);
            }
            NumbersSaveStep::Syncing(boundary) if boundary <= log.synced() => {
                self.begin_encoding(log, boundary);
            }
            _ => {}
        }
    }

    fn begin_encoding(&mut self, log: &mut Log, boundary: Seq) {
        match self.publishers.save() {
            Some(encoder) => self.step = NumbersSaveStep::Encoding(boundary, encoder),
            None => {
                self.news = Some(
                    "the system refuses memory for a save of the numbers of --dedup, so a crash may forget numbers",
                );
                self.end_save(log, boundary);
            }
        }
    }

    /// Encodes the next slice of the table. Returns the entries of a turn's work that this took.
    pub(crate) fn continue_save(&mut self, log: &mut Log, entries: usize) -> usize {
        let NumbersSaveStep::Encoding(boundary, encoder) = &mut self.step else {
            return 0;
        };
        let spent = self.publishers.continue_save(encoder, entries);
        if self.publishers.is_saved(encoder) {
            log.save_state(*boundary, std::mem::take(&mut encoder.body));
            self.step = NumbersSaveStep::Writing;
        }
        spent
    }

    /// Returns whether a save has work left for the next turn.
    pub(crate) fn has_slices_left(&self) -> bool {
        matches!(self.step, NumbersSaveStep::Encoding(..))
    }

    /// Ends a save. The log need not keep the messages below its boundary any more.
    ///
    /// If the save has failed, the log does not keep them, either: on a full disk, no segment could be used again.
    /// After a crash, these messages may be stored twice.
    pub(crate) fn end_save(&mut self, log: &mut Log, boundary: Seq) {
        self.step = NumbersSaveStep::Idle;
        for range in within(SeqRange::new(Seq(0), boundary), &self.held) {
            log.release_range(range);
        }
        self.held.retain_mut(|range| {
            range.start = range.start.max(boundary);
            !range.is_empty()
        });
    }

    /// Returns when the next save is due, if no sync leads to it.
    pub(crate) fn next_timeout(&self, log: &Log) -> Option<Duration> {
        let is_due = matches!(self.step, NumbersSaveStep::Idle)
            && !self.held.is_empty()
            && log.is_synced()
            && !log.has_failed_sync();
        is_due.then_some(self.due)
    }

    /// Saves all numbers before a stop. Returns true while the save has not ended.
    ///
    /// A stop that could not sync all messages saves nothing: a power failure could take the messages and leave their
    /// numbers.
    pub(crate) fn save_last(&mut self, log: &mut Log) -> bool {
        if log.has_failed_sync() || !log.is_synced() {
            return false;
        }
        if !self.held.is_empty() && matches!(self.step, NumbersSaveStep::Idle) {
            self.publishers.set_boundary();
            let boundary = log.next_seq();
            self.begin_encoding(log, boundary);
        }
        // Without memory for a save, no message is held any more.
        !self.held.is_empty()
    }
}
