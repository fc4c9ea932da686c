//! A topic with a rule stores no message that it has stored before: see [`Dedup`].

use super::dedup::Dedup;
use super::{Published, Topic};
use crate::now::Now;
use crate::publication::Publication;
use crate::stats::DedupStats;
use diskq_log::AppendError;
use std::sync::Arc;

impl Topic {
    /// Appends those messages to the log that the topic has not stored before.
    ///
    /// A message counts as stored only when its append has succeeded. A message that was refused, or has to wait for
    /// room, is fresh when it comes again.
    #[inline(never)]
    pub(super) fn store_fresh<'b>(
        &mut self,
        now: Now,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
    ) -> Result<Published, AppendError> {
        let mut dedup = self.dedup.take().expect("the caller has looked");
        let published = self.store_unless_stored(now, publication, &mut dedup);
        self.dedup = Some(dedup);
        published
    }

    fn store_unless_stored<'b>(
        &mut self,
        now: Now,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
        dedup: &mut Dedup,
    ) -> Result<Published, AppendError> {
        let Some(origin) = publication.origin else {
            let published = self.store(now, publication)?;
            dedup.counters.unchecked += u64::from(publication.count);
            return Ok(published);
        };
        let found = dedup.producers.find(origin.producer);
        let is_fresh = |index: u32| {
            let number = origin.offset(index).number;
            found.is_none_or(|found| !found.has_stored(number))
        };
        let indices = 0..publication.count;
        let fresh_count = indices.clone().filter(|index| is_fresh(*index)).count() as u32;
        let duplicates = u64::from(publication.count - fresh_count);
        let published = if fresh_count == 0 {
            self.answer_duplicates()?
        } else if duplicates == 0 {
            self.store(now, publication)?
        } else {
            let bodies = (0..).zip(publication.bodies.clone());
            let bodies = bodies.filter(|(index, _)| is_fresh(*index));
            let bodies = bodies.map(|(_, body)| body);
            let fresh = Publication {
                body_bytes: bodies.clone().map(|body| body.len() as u64).sum(),
                count: fresh_count,
                bodies,
                defer_ms: publication.defer_ms,
                origin: publication.origin,
            };
            self.store(now, &fresh)?
        };
        let is_forgotten = |index: &u32| {
            let number = origin.offset(*index).number;
            found.is_some_and(|found| found.has_forgotten(number))
        };
        dedup.counters.duplicates += duplicates;
        dedup.counters.unchecked += indices.clone().filter(is_forgotten).count() as u64;
        for index in indices {
            dedup.producers.insert(origin.offset(index));
        }
        Ok(published)
    }

    /// Answers a publish whose messages were all stored before. With `--sync-every=1`, the answer waits until they are
    /// synced, as the answer to the first copy does.
    pub(super) fn answer_duplicates(&mut self) -> Result<Published, AppendError> {
        if let Some(text) = self.log.poisoned() {
            // The first copy may have been refused because of the failed sync.
            return Err(AppendError::Poisoned(Arc::clone(text)));
        }
        if self.options.group_commit && !self.ephemeral && !self.log.is_synced() {
            self.log.want_sync();
            return Ok(Published::AfterSync(self.log.next_seq()));
        }
        Ok(Published::Done)
    }

    /// Returns the topic's counters. `None`: the topic has no rule.
    pub(crate) fn dedup_stats(&self) -> Option<DedupStats> {
        let dedup = self.dedup.as_ref()?;
        let Dedup {
            producers,
            counters,
        } = &**dedup;
        Some(DedupStats {
            duplicate_count: counters.duplicates,
            unchecked_count: counters.unchecked,
            producer_count: producers.count() as u64,
            producer_count_max: producers.count_max() as u64,
            evicted_count: producers.evicted_count,
        })
    }

    /// Asserts the invariants of the table of publishers.
    pub(super) fn check_dedup(&self) {
        if let Some(dedup) = &self.dedup {
            dedup.producers.check();
        }
    }
}
