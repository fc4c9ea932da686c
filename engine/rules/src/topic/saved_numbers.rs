//! Saves the numbers of stored messages, so that a start knows them.
//! [`NumbersSave`](super::publisher_numbers::NumbersSave) is the state of the save.
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

use super::Topic;
use super::publisher_numbers::{NumbersSaveStep, PublisherNumbers};
use crate::now::Now;
use crate::work::Work;
use diskq_log::{SavedState, SeqRange, plant};
use std::time::Duration;
use wire::id::Seq;
use wire::origin::Origin;

impl Topic {
    /// Makes the log keep messages until their numbers are saved.
    pub(super) fn hold(&mut self, numbers: &mut PublisherNumbers, range: SeqRange) {
        plant!(NumbersNotHeld, return);
        if !self.ephemeral {
            numbers.held.push(range);
            self.log.retain(range, 1);
        }
    }

    /// Sets the boundary of the next save, if a sync is under way that covers everything appended so far. Call this
    /// before an append.
    pub(super) fn set_boundary_at_sync(&mut self, now: Now, numbers: &mut PublisherNumbers) {
        let is_idle = matches!(numbers.save.step, NumbersSaveStep::Idle);
        let next = self.log.next_seq();
        if is_idle
            && now.mono >= numbers.save.due
            && !numbers.held.is_empty()
            && self.log.sync_upto() == Some(next)
        {
            self.begin_save(now, numbers);
            numbers.save.step = NumbersSaveStep::Syncing(next);
        }
    }

    fn begin_save(&self, now: Now, numbers: &mut PublisherNumbers) {
        numbers.publishers.set_boundary();
        numbers.save.due =
            now.mono + self.options.log.sync_timeout + numbers.publishers.save_time();
    }

    /// Goes on with a save when the log may have been synced, or when the time of the next save has come.
    pub(crate) fn save_numbers_if_synced(&mut self, now: Now) {
        self.with_numbers(|topic, numbers| {
            let synced = topic.log.synced();
            match numbers.save.step {
                NumbersSaveStep::Idle
                    if topic.log.is_synced()
                        && !numbers.held.is_empty()
                        && now.mono >= numbers.save.due =>
                {
                    topic.begin_save(now, numbers);
                    let boundary = topic.log.next_seq();
                    topic.begin_encoding(numbers, boundary);
                }
                NumbersSaveStep::Syncing(boundary) if boundary <= synced => {
                    topic.begin_encoding(numbers, boundary);
                }
                _ => {}
            }
        });
    }

    fn begin_encoding(&mut self, numbers: &mut PublisherNumbers, boundary: Seq) {
        match numbers.publishers.save() {
            Some(encoder) => numbers.save.step = NumbersSaveStep::Encoding(boundary, encoder),
            None => {
                let name = &self.name;
                self.output.news.push(format!(
                    "TOPIC({name}): the system refuses memory for a save of the numbers of --dedup, so a crash may forget \
                     numbers"
                ));
                self.release_saved(numbers, boundary);
            }
        }
    }

    /// Encodes the next slice of the table.
    pub(super) fn continue_save(&mut self, work: &mut Work) {
        if !self.is_encoding() {
            return;
        }
        self.with_numbers(|topic, numbers| {
            let NumbersSaveStep::Encoding(boundary, mut encoder) =
                std::mem::replace(&mut numbers.save.step, NumbersSaveStep::Writing)
            else {
                return;
            };
            if numbers.publishers.continue_save(&mut encoder, work) {
                topic.log.save_state(boundary, encoder.into_body());
            } else {
                numbers.save.step = NumbersSaveStep::Encoding(boundary, encoder);
            }
        });
    }

    /// Returns whether a save has work left for the next turn.
    pub(super) fn is_encoding(&self) -> bool {
        let numbers = self.numbers.as_ref();
        numbers.is_some_and(|numbers| matches!(numbers.save.step, NumbersSaveStep::Encoding(..)))
    }

    /// Ends a save. The log need not keep the messages below its boundary any more.
    ///
    /// If the save has failed, the log does not keep them, either: on a full disk, no segment could be used again.
    /// After a crash, these messages may be stored twice.
    pub(crate) fn end_save(&mut self, boundary: Seq) {
        self.with_numbers(|topic, numbers| topic.release_saved(numbers, boundary));
    }

    fn release_saved(&mut self, numbers: &mut PublisherNumbers, boundary: Seq) {
        numbers.save.step = NumbersSaveStep::Idle;
        while let Some(front) = numbers.held.front()
            && front.start < boundary
        {
            let count = front.end.min(boundary).since(front.start);
            let range = numbers.held.take_front(count);
            self.log.release_range(range);
        }
    }

    /// Returns when the next save is due, if no sync leads to it.
    pub(super) fn save_timeout(&self) -> Option<Duration> {
        let numbers = self.numbers.as_ref()?;
        let is_due = matches!(numbers.save.step, NumbersSaveStep::Idle)
            && !numbers.held.is_empty()
            && self.log.is_synced()
            && !self.log.has_failed_sync();
        is_due.then_some(numbers.save.due)
    }

    /// Saves all numbers before a stop. Returns true while the save has not ended.
    ///
    /// A stop that could not sync all messages saves nothing: a power failure could take the messages and leave their
    /// numbers.
    pub(super) fn save_before_stop(&mut self) -> bool {
        if self.log.has_failed_sync() || !self.log.is_synced() {
            return false;
        }
        self.with_numbers(|topic, numbers| {
            if !numbers.held.is_empty() && matches!(numbers.save.step, NumbersSaveStep::Idle) {
                numbers.publishers.set_boundary();
                topic.begin_encoding(numbers, topic.log.next_seq());
            }
        });
        // Without memory for a save, no message is held any more.
        let numbers = self.numbers.as_ref();
        numbers.is_some_and(|numbers| !numbers.held.is_empty())
    }

    /// Takes over the numbers that a start has found. Keeps the messages from `durable_boundary` on, whose numbers may
    /// not be durable, if a state is there.
    pub(super) fn restore_numbers(
        &mut self,
        state: Option<SavedState>,
        durable_boundary: Seq,
        origins: &[(Seq, Origin)],
        found: &[SeqRange],
    ) {
        let name = self.name.clone();
        self.with_numbers(|topic, numbers| {
            if let Some(state) = &state
                && !numbers.publishers.load(&state.body)
            {
                topic.output.news.push(format!(
                    "TOPIC({name}): the saved numbers of messages are not those of publishers, and are ignored"
                ));
            }
            for (_, origin) in origins {
                numbers.publishers.insert(*origin);
            }
            let first = origins.first().map(|(seq, _)| *seq);
            let from = state.map_or(first, |_| Some(durable_boundary));
            for range in from.iter().flat_map(|from| {
                let found = found.iter().filter(|range| range.end > *from);
                found.map(|range| SeqRange::new(range.start.max(*from), range.end))
            }) {
                topic.hold(numbers, range);
            }
        });
    }

    /// Calls `act` with the topic and its table, if the topic has a rule.
    fn with_numbers(&mut self, act: impl FnOnce(&mut Topic, &mut PublisherNumbers)) {
        if let Some(mut numbers) = self.numbers.take() {
            act(self, &mut numbers);
            self.numbers = Some(numbers);
        }
    }
}
