//! A topic with a rule for publishers stores no message whose number it has stored before: see [`PublisherNumbers`].

use super::publisher_numbers::PublisherNumbers;
use super::{Published, Topic};
use crate::now::Now;
use crate::publication::Publication;
use crate::publishers::Publishers;
use crate::stats::NumberStats;
use diskq_log::{AppendError, plant};
use std::sync::Arc;
use wire::origin::Origin;

impl Topic {
    /// Appends those messages to the log that the topic has not stored before.
    ///
    /// A message counts as stored only when its append has succeeded. A message that was refused, or has to wait for
    /// room, is fresh when it comes again.
    #[inline(never)]
    pub(super) fn store_fresh_numbers<'b>(
        &mut self,
        now: Now,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
    ) -> Result<Published, AppendError> {
        let mut numbers = self.numbers.take().expect("the caller has looked");
        let published = match publication.origin {
            None => self.store_unnumbered(now, publication, &mut numbers),
            Some(origin) => self.store_numbered(now, publication, origin, &mut numbers),
        };
        self.numbers = Some(numbers);
        published
    }

    fn store_unnumbered<'b>(
        &mut self,
        now: Now,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
        numbers: &mut PublisherNumbers,
    ) -> Result<Published, AppendError> {
        let messages = publication.bodies.clone().map(|body| (body, None));
        let published = self.store_with(now, publication, messages, numbers)?;
        numbers.counters.unchecked += u64::from(publication.count);
        Ok(published)
    }

    fn store_numbered<'b>(
        &mut self,
        now: Now,
        publication: &Publication<impl Iterator<Item = &'b [u8]> + Clone>,
        origin: Origin,
        numbers: &mut PublisherNumbers,
    ) -> Result<Published, AppendError> {
        let (mut fresh_count, mut fresh_bytes, mut forgotten) = (0, 0, 0);
        if let Some(found) = numbers.publishers.find(origin.publisher) {
            for (index, body) in (0..).zip(publication.bodies.clone()) {
                let number = origin.offset(index).number;
                forgotten += u64::from(found.has_forgotten(number));
                if !found.has_stored(number) {
                    fresh_count += 1;
                    fresh_bytes += body.len() as u64;
                }
            }
        } else {
            (fresh_count, fresh_bytes) = (publication.count, publication.body_bytes);
        }
        plant!(
            NumberBeforeStore,
            remember(&mut numbers.publishers, origin, publication.count)
        );
        let duplicates = publication.count - fresh_count;
        let published = match fresh_count {
            0 => self.answer_duplicates()?,
            _ => {
                self.set_boundary_at_sync(now, numbers);
                let messages = (0..).zip(publication.bodies.clone());
                let messages = messages.map(|(index, body)| (body, origin.offset(index)));
                let PublisherNumbers { publishers, .. } = &*numbers;
                let found = publishers.find(origin.publisher).filter(|_| duplicates > 0);
                let is_fresh = |number: u64| found.is_none_or(|found| !found.has_stored(number));
                let fresh = messages.filter(|(_, origin)| is_fresh(origin.number));
                let fresh = fresh.map(|(body, origin)| (body, Some(origin)));
                let sizes = Publication {
                    bodies: (),
                    count: fresh_count,
                    body_bytes: fresh_bytes,
                    defer_ms: publication.defer_ms,
                    origin: None,
                };
                let range = self.append_from(now, &sizes, fresh)?;
                self.hold(numbers, range);
                self.keep(range, fresh_bytes)
            }
        };
        numbers.counters.duplicates += u64::from(duplicates);
        numbers.counters.unchecked += forgotten;
        let count = publication.count;
        plant!(NumbersOfBatchForgotten, let count = 1);
        remember(&mut numbers.publishers, origin, count);
        Ok(published)
    }

    /// Appends all messages of a publication, which has no origin.
    fn store_with<'b, B>(
        &mut self,
        now: Now,
        publication: &Publication<B>,
        messages: impl Iterator<Item = (&'b [u8], Option<Origin>)>,
        numbers: &mut PublisherNumbers,
    ) -> Result<Published, AppendError> {
        self.set_boundary_at_sync(now, numbers);
        let range = self.append_from(now, publication, messages)?;
        if numbers.publishers.count() > 0 {
            // Otherwise there is nothing to save.
            self.hold(numbers, range);
        }
        Ok(self.keep(range, publication.body_bytes))
    }

    /// Answers a publish whose messages were all stored before. With `--sync-every=1`, the answer waits until they are
    /// synced, as the answer to the first copy does.
    pub(super) fn answer_duplicates(&mut self) -> Result<Published, AppendError> {
        if let Some(text) = self.log.poisoned() {
            // The first copy may have been refused because of the failed sync.
            return Err(AppendError::Poisoned(Arc::clone(text)));
        }
        plant!(DuplicateBeforeSync, return Ok(Published::Done));
        if self.options.group_commit && !self.ephemeral && !self.log.is_synced() {
            self.log.want_sync();
            return Ok(Published::AfterSync(self.log.next_seq()));
        }
        Ok(Published::Done)
    }

    /// Returns the facts about the topic's publishers. `None`: the topic has no rule for publishers.
    pub(crate) fn number_stats(&self) -> Option<NumberStats> {
        let numbers = self.numbers.as_ref()?;
        let PublisherNumbers {
            publishers,
            counters,
            ..
        } = &**numbers;
        Some(NumberStats {
            duplicate_count: counters.duplicates,
            unchecked_count: counters.unchecked,
            publisher_count: publishers.count() as u64,
            publisher_count_max: publishers.count_max() as u64,
            evicted_count: publishers.evicted_count,
        })
    }

    /// Asserts the invariants of the table of publishers. Returns the number of messages that are held for it.
    pub(super) fn check_numbers(&self) -> u64 {
        let Some(numbers) = &self.numbers else {
            return 0;
        };
        numbers.publishers.check();
        numbers.held.check();
        numbers.held.count()
    }
}

/// Remembers that `count` messages from `origin` on are stored.
fn remember(publishers: &mut Publishers, origin: Origin, count: u32) {
    (0..count).for_each(|index| publishers.insert(origin.offset(index)));
}
