//! The numbers of stored messages are saved, so that a start knows them.
//!
//! A message at or above the *boundary* of the last durable save has its number in its slot, and the log keeps the
//! message ([`Dedup::held`]). All numbers below the boundary are in the save. A save names only synced messages: after a
//! power failure, no number may be known whose message is gone, because the publisher's next attempt would be dropped.
//!
//! ```text
//!   Idle ──a sync begins: boundary──► Syncing ──synced──► Encoding ──a slice per turn──► Writing ──durable──► Idle
//!     └───────────everything is synced: boundary──────────────▲                                  hold ends
//! ```

use super::Topic;
use super::dedup::{Dedup, Save};
use crate::now::Now;
use crate::work::Work;
use diskq_log::{SavedState, SeqRange, planted::Bug, planted::is_planted};
use std::time::Duration;
use wire::id::Seq;
use wire::origin::Origin;

impl Topic {
    /// Makes the log keep messages until their numbers are saved.
    pub(super) fn hold(&mut self, dedup: &mut Dedup, range: SeqRange) {
        if !self.ephemeral && !is_planted(Bug::NumbersNotHeld) {
            dedup.held.push(range);
            self.log.retain(range, 1);
        }
    }

    /// Sets the boundary of the next save, if a sync is under way that covers everything appended so far. Call this
    /// before an append.
    pub(super) fn set_boundary_at_sync(&mut self, now: Now, dedup: &mut Dedup) {
        let is_idle = matches!(dedup.save, Save::Idle);
        let next = self.log.next_seq();
        if is_idle
            && now.mono >= dedup.save_at
            && !dedup.held.is_empty()
            && self.log.sync_upto() == Some(next)
        {
            self.begin_save(now, dedup);
            dedup.save = Save::Syncing(next);
        }
    }

    fn begin_save(&self, now: Now, dedup: &mut Dedup) {
        dedup.publishers.set_boundary();
        dedup.save_at = now.mono + self.options.log.sync_timeout + dedup.publishers.save_time();
    }

    /// Goes on with a save when the log may have been synced, or when the time of the next save has come.
    pub(crate) fn save_numbers_if_synced(&mut self, now: Now) {
        self.with_dedup(|topic, dedup| {
            let synced = topic.log.synced();
            match dedup.save {
                Save::Idle
                    if topic.log.is_synced()
                        && !dedup.held.is_empty()
                        && now.mono >= dedup.save_at =>
                {
                    topic.begin_save(now, dedup);
                    let boundary = topic.log.next_seq();
                    topic.begin_encoding(dedup, boundary);
                }
                Save::Syncing(boundary) if boundary <= synced => {
                    topic.begin_encoding(dedup, boundary);
                }
                _ => {}
            }
        });
    }

    fn begin_encoding(&mut self, dedup: &mut Dedup, boundary: Seq) {
        match dedup.publishers.save() {
            Some(saving) => dedup.save = Save::Encoding(boundary, saving),
            None => {
                let name = &self.name;
                self.news.push(format!(
                    "TOPIC({name}): the system refuses memory for a save of the numbers of --dedup, so a crash may forget \
                     numbers"
                ));
                self.release_saved(dedup, boundary);
            }
        }
    }

    /// Encodes the next slice of the table.
    pub(super) fn continue_save(&mut self, work: &mut Work) {
        if !self.is_encoding() {
            return;
        }
        self.with_dedup(|topic, dedup| {
            let Save::Encoding(boundary, mut saving) =
                std::mem::replace(&mut dedup.save, Save::Writing)
            else {
                return;
            };
            if dedup.publishers.continue_save(&mut saving, work) {
                topic.log.save_state(boundary, saving.into_body());
            } else {
                dedup.save = Save::Encoding(boundary, saving);
            }
        });
    }

    /// Returns whether a save has work left for the next turn.
    pub(super) fn is_encoding(&self) -> bool {
        let dedup = self.dedup.as_ref();
        dedup.is_some_and(|dedup| matches!(dedup.save, Save::Encoding(..)))
    }

    /// Ends a save. The log need not keep the messages below its boundary any more.
    ///
    /// If the save has failed, the log does not keep them, either: on a full disk, no segment could be used again. After
    /// a crash, these messages may be stored twice.
    pub(crate) fn end_save(&mut self, boundary: Seq) {
        self.with_dedup(|topic, dedup| topic.release_saved(dedup, boundary));
    }

    fn release_saved(&mut self, dedup: &mut Dedup, boundary: Seq) {
        dedup.save = Save::Idle;
        while let Some(front) = dedup.held.front()
            && front.start < boundary
        {
            let count = front.end.min(boundary).since(front.start);
            let range = dedup.held.take_front(count);
            self.log.release_range(range);
        }
    }

    /// Returns when the next save is due, if no sync leads to it.
    pub(super) fn save_timeout(&self) -> Option<Duration> {
        let dedup = self.dedup.as_ref()?;
        let is_due = matches!(dedup.save, Save::Idle)
            && !dedup.held.is_empty()
            && self.log.is_synced()
            && !self.sync_failed;
        is_due.then_some(dedup.save_at)
    }

    /// Saves all numbers before a stop. Returns true while the save has not ended.
    ///
    /// A stop that could not sync all messages saves nothing: a power failure could take the messages and leave their
    /// numbers.
    pub(super) fn save_before_stop(&mut self) -> bool {
        if self.sync_failed || !self.log.is_synced() {
            return false;
        }
        self.with_dedup(|topic, dedup| {
            if !dedup.held.is_empty() && matches!(dedup.save, Save::Idle) {
                dedup.publishers.set_boundary();
                topic.begin_encoding(dedup, topic.log.next_seq());
            }
        });
        // Without memory for a save, no message is held any more.
        let dedup = self.dedup.as_ref();
        dedup.is_some_and(|dedup| !dedup.held.is_empty())
    }

    /// Takes over the numbers that a start has found. Keeps the messages from `durable_upto` on, whose numbers may not be
    /// durable, if a state is there.
    pub(super) fn restore_numbers(
        &mut self,
        state: Option<SavedState>,
        durable_upto: Seq,
        origins: &[(Seq, Origin)],
        found: &[SeqRange],
    ) {
        let name = self.name.clone();
        self.with_dedup(|topic, dedup| {
            if let Some(state) = &state
                && !dedup.publishers.load(&state.body)
            {
                topic.news.push(format!(
                    "TOPIC({name}): the saved numbers of messages are not those of publishers, and are ignored"
                ));
            }
            for (_, origin) in origins {
                dedup.publishers.insert(*origin);
            }
            let first = origins.first().map(|(seq, _)| *seq);
            let from = state.map_or(first, |_| Some(durable_upto));
            for range in from.iter().flat_map(|from| {
                let found = found.iter().filter(|range| range.end > *from);
                found.map(|range| SeqRange::new(range.start.max(*from), range.end))
            }) {
                topic.hold(dedup, range);
            }
        });
    }

    /// Calls `act` with the topic and its table, if the topic has a rule.
    fn with_dedup(&mut self, act: impl FnOnce(&mut Topic, &mut Dedup)) {
        if let Some(mut dedup) = self.dedup.take() {
            act(self, &mut dedup);
            self.dedup = Some(dedup);
        }
    }
}
